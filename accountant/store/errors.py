"""What a database may fail at, in three kinds that a caller treats differently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

AGAIN: Final = {"40001", "40P01", "23505"}
"""SQLSTATEs of who came second: serialization failure, deadlock, unique violation."""

_DRIVERS: Final = {"sqlalchemy", "sqlite3", "psycopg"}
"""Packages whose errors are a database's. By name: a driver is only loaded where it is used."""


class StoreError(Exception):
    """The database did not do what was asked. Nothing of the transaction is kept."""


class Moved(StoreError):
    """Somebody else moved the head first: read it again and decide from scratch. If that happens
    again and again with nobody else writing, the database is damaged: an event stands beyond its
    head.
    """


class Unknown(StoreError):
    """Whether the commit happened is unknown: only the head, read back, tells."""


@contextmanager
def translated() -> Iterator[None]:
    """Turns what drivers raise into ours. Drivers never put a password into a message, for it is
    handed to them apart from everything that they print.
    """
    try:
        yield
    except Exception as error:
        if not (isinstance(error, OSError) or _of_a_driver(error)):
            raise
        cause = getattr(error, "orig", None) or error
        kind = Moved if getattr(cause, "sqlstate", None) in AGAIN else StoreError
        raise kind(" ".join(str(cause).split())) from error


def _of_a_driver(error: Exception) -> bool:
    return any(kind.__module__.partition(".")[0] in _DRIVERS for kind in type(error).__mro__)
