"""Storage of ledgers: a database, and files beside it.

* ``ledgers``: ``Ledgers``, all ledgers of a database; ``sqlite`` and ``postgres`` are its engines,
  of which ``opening`` chooses;
* ``queries``: the reads of ``Ledgers`` (outside of a transaction) and ``Writing`` (inside);
* ``writing``: ``Writing``, a transaction that appends to one ledger;
* ``projection``: the fold of one ledger in memory, compared with the database at every step;
* ``tables``, ``migrate``: the schema, which ``migrations/`` makes;
* ``backfill``: copies the write-ahead log of SQLite;
* ``vault``, ``snapshots``, ``whole``: files that are replaced whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

AGAIN: Final = {"40001", "40P01", "23505"}  # SQLSTATEs: serialization, deadlock, unique violation
_OLDER: Final = "no such table", "no such column", "does not exist"
"""What SQLite and PostgreSQL say of a table or column that is missing."""
_DRIVERS: Final = {"sqlalchemy", "sqlite3", "psycopg"}  # By name: a driver loads where used


class StoreError(Exception):
    """The database failed. Nothing of the transaction is kept."""


class Damaged(StoreError):
    """A stored event cannot be read: it is damaged, or another version of the program wrote it."""


class Moved(StoreError):
    """Another writer moved the head first: read it again and decide from scratch. If that goes on
    without another writer, the database is damaged: an event stands beyond its head.
    """


class Unknown(StoreError):
    """The outcome of a commit is unknown until the head is read back."""


def hint(error: StoreError) -> str:
    """Return a question to add to an error that a database of an older format gives, else ""."""
    older = any(words in str(error) for words in _OLDER)
    return "; has `accountant migrate` run?" if older else ""


@contextmanager
def translated() -> Iterator[None]:
    """Raise driver errors as StoreError. Drivers never print a password in their messages."""
    try:
        yield
    except Exception as error:
        kinds = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
        if not (isinstance(error, OSError) or kinds & _DRIVERS):
            raise
        cause = getattr(error, "orig", None) or error
        kind = Moved if getattr(cause, "sqlstate", None) in AGAIN else StoreError
        raise kind(" ".join(str(cause).split())) from error
