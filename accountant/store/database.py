"""The base of both kinds of database, their errors, and what is appended."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine

from accountant.ledger.events import Entry
from accountant.ledger.merkle import Node, Tree, leaf_hash
from accountant.store.reading import Text

T = TypeVar("T")
WAIT_MS: Final = 10_000  # For others, in this process and then in the database
AGAIN: Final = {"40001", "40P01", "23505"}  # SQLSTATEs: serialization, deadlock, unique violation
_DRIVERS: Final = {"sqlalchemy", "sqlite3", "psycopg"}  # By name: a driver loads where used


class StoreError(Exception):
    """The database did not do what was asked. Nothing of the transaction is kept."""


class Moved(StoreError):
    """Another writer moved the head first: read it again and decide from scratch. If that goes on
    without another writer, the database is damaged: an event stands beyond its head.
    """


class Unknown(StoreError):
    """The outcome of a commit is unknown until the head is read back."""


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


class Begun(NamedTuple):
    """A transaction, the end of its ledger under lock, and the end of the ledger beside it."""

    connection: Connection
    head: Tree
    beside: Tree


class Growth(NamedTuple):
    """Rows to append. Events are columns: sequence, type, time, body, leaf."""

    ledger: str
    before: Tree
    after: Tree
    events: list[Sequence[Any]]
    nodes: list[Node]
    texts: Sequence[Text]

    @classmethod
    def of(
        cls, ledger: str, before: Tree, entries: Sequence[Entry], texts: Sequence[Text]
    ) -> Growth:
        """Append entries to ``before``. Raises ValueError if they do not follow each other."""
        columns: list[Sequence[Any]] = list(zip(*entries, strict=True))
        sequences, _, _, bodies = columns
        if sequences != tuple(range(sequences[0], sequences[0] + len(entries))):
            raise ValueError("the events do not follow each other")
        leaves = [leaf_hash(body) for body in bodies]
        after, nodes = before.grown(leaves)
        return cls(ledger, before, after, [*columns, leaves], nodes, texts)


class Database(ABC):
    """A database. Every method may raise what drivers raise."""

    def __init__(self, reader: Engine, writer: Engine) -> None:
        self._reader, self._writer = reader, writer
        self._turns: dict[str, threading.Lock] = {}

    @abstractmethod
    def reading(self, work: Callable[[Connection], T]) -> T:
        """Return the result of ``work``: one statement, a snapshot by itself. It may run twice."""

    @contextmanager
    def turn(self, ledger: str) -> Iterator[None]:
        """Keep other threads from writing to the ledger. Raises StoreError after a time limit."""
        turn = self._turns.setdefault(ledger, threading.Lock())
        if not turn.acquire(timeout=WAIT_MS / 1000):
            raise StoreError("too many requests wait to write")
        try:
            yield
        finally:
            turn.release()

    @abstractmethod
    def begun(self, ledger: str, beside: str) -> AbstractContextManager[Begun]:
        """Begin a transaction on one ledger after other writers; roll back at the end."""

    @abstractmethod
    def ready(self) -> AbstractContextManager[Connection]:
        """Return a connection for ``begin`` or ``at_once``, which do not wait."""

    @abstractmethod
    def begin(
        self, connection: Connection, ledger: str, beside: str
    ) -> AbstractContextManager[Begun]:
        """``begun`` over a connection that is ``ready``. Raises Moved if another writes."""

    @abstractmethod
    def append(self, connection: Connection, more: Growth) -> bool:
        """Append, and move the head by compare-and-swap; return False if it has moved."""

    @abstractmethod
    def at_once(self, connection: Connection, more: Growth, beside: str, end: Tree) -> bool:
        """``append`` and commit in one step, if ``beside`` ends with ``end``. Raises Unknown."""

    @abstractmethod
    def commit(self, connection: Connection) -> None:
        """Make the transaction durable. Raises Unknown if it may or may not be."""

    @abstractmethod
    def finish_erasing(self) -> bool:
        """Remove what the database keeps of erased rows; False if it is to be called again."""

    @abstractmethod
    def check(self) -> None:
        """Raise StoreError if the database can be read but certainly not written to."""

    def excess(self) -> list[str]:
        """Return the rights that the service has and should not have, in words."""
        return []

    def close(self) -> None:
        """Close every connection."""
        self._reader.dispose()
        self._writer.dispose()
