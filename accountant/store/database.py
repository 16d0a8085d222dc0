"""What a database is to this room: errors, rows on their way in, and the protocol of its two kinds.

SQLite and PostgreSQL differ in how they lock, insert and clean up, and in nothing else that a
reader of ledgers could notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection

from accountant.ledger.events import Entry
from accountant.ledger.merkle import Node, Tree, leaf_hash
from accountant.store.reading import Begun, Text

T = TypeVar("T")
AGAIN: Final = {"40001", "40P01", "23505"}
"""SQLSTATEs of whoever came second: serialization failure, deadlock, unique violation."""
_DRIVERS: Final = {"sqlalchemy", "sqlite3", "psycopg"}
"""Packages whose errors are a database's. By name: a driver is loaded only where it is used."""


class StoreError(Exception):
    """The database did not do what was asked. Nothing of the transaction is kept."""


class Moved(StoreError):
    """Another writer moved the head first: read it again and decide from scratch. If that happens
    again and again without another writer, the database is damaged: an event stands beyond its
    head.
    """


class Unknown(StoreError):
    """Whether the commit happened is unknown. Only the head, read back, tells."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn what drivers raise into a StoreError. Their messages never hold a password: it is handed
    to them apart from everything that they print.
    """
    try:
        yield
    except Exception as error:
        kinds = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
        if not (isinstance(error, OSError) or kinds & _DRIVERS):
            raise
        cause = getattr(error, "orig", None) or error
        kind = Moved if getattr(cause, "sqlstate", None) in AGAIN else StoreError
        raise kind(" ".join(str(cause).split())) from error


class Ends(NamedTuple):
    """Where a ledger ends, or has to."""

    ledger: str
    tree: Tree

    @property
    def peaks(self) -> bytes:
        """The tree's peaks, as the head keeps them."""
        return b"".join(self.tree.peaks)


class Grown(NamedTuple):
    """What a ledger grows by. Events are columns (sequence, type, time, body, leaf), which drivers
    take fastest.
    """

    before: Tree
    events: list[Sequence[Any]]
    nodes: list[Node]
    after: Tree

    @property
    def peaks(self) -> bytes:
        """The new tree's peaks, as the head keeps them."""
        return b"".join(self.after.peaks)


def grown(before: Tree, entries: Sequence[Entry]) -> Grown:
    """Append entries to ``before``. Raises ValueError if they do not follow each other."""
    columns: list[Sequence[Any]] = list(zip(*entries, strict=True))
    sequences, _, _, bodies = columns
    if sequences != tuple(range(sequences[0], sequences[0] + len(entries))):
        raise ValueError("the events do not follow each other")
    leaves = [leaf_hash(body) for body in bodies]
    after, nodes = before.grown(leaves)
    return Grown(before, [*columns, leaves], nodes, after)


class Database(Protocol):
    """What ``Ledgers`` needs of a database. Every method may raise what drivers raise."""

    def reading(self, work: Callable[[Connection], T]) -> T:
        """Return the result of ``work``: one statement, a snapshot by itself. It may run twice."""

    def turn(self, ledger: str) -> AbstractContextManager[None]:
        """Keep all other threads of this process from writing to the ledger. Raises StoreError if
        one of them writes for too long.
        """

    def begun(self, ledger: str, beside: str) -> AbstractContextManager[Begun]:
        """Begin a transaction on one ledger, in its turn; roll back what is not committed when it
        ends. Waits for other writers.
        """

    def ready(self) -> AbstractContextManager[Connection]:
        """Return a connection for ``begin`` or ``at_once``, which wait for nobody."""

    def begin(
        self, connection: Connection, ledger: str, beside: str
    ) -> AbstractContextManager[Begun]:
        """``begun`` over a connection that is ``ready``. Raises Moved if another writes."""

    def append(
        self, connection: Connection, ledger: str, grown: Grown, texts: Sequence[Text]
    ) -> bool:
        """Append to a ledger, keep texts of what is appended, and move the ledger's head by
        compare-and-swap; False if it has moved.
        """

    def at_once(
        self, connection: Connection, ledger: str, grown: Grown, texts: Sequence[Text], beside: Ends
    ) -> bool:
        """``append`` in the ledger's turn, over a connection that is ``ready``, and durable at
        once, if the ledger ``beside`` ends there and no other writes; False if nothing was done.
        Raises Unknown if that cannot be told.
        """

    def commit(self, connection: Connection) -> None:
        """Make the transaction durable. Raises Unknown if it may or may not be."""

    def finish_erasing(self) -> bool:
        """Remove what the database keeps of erased rows; False if it is to be called again."""

    def check(self) -> None:
        """Raise StoreError if the database can be read but certainly not written to."""

    def excess(self) -> list[str]:
        """Return the rights that the service has and should not have, in words."""

    def close(self) -> None:
        """Close every connection."""
