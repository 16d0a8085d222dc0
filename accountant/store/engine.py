"""Which database a URL names. The two kinds differ in how they lock, insert and clean up, and in
nothing that a reader of ledgers could notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from sqlalchemy import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError

from accountant.store.entries import Ends, Grown
from accountant.store.reading import Begun, Text
from accountant.store.sqlite import Sqlite, file_lock, reader, sqlite_path, writer

__all__ = [
    "Database",
    "database_of",
    "file_lock",
    "parsed",
    "reader",
    "shown",
    "sqlite_path",
    "writer",
]

T = TypeVar("T")


class Database(Protocol):
    """What ``Ledgers`` needs of a database. Everything may raise what drivers raise."""

    def reading(self, work: Callable[[Connection], T]) -> T:
        """The result of ``work``, one statement that is a snapshot by itself. It may run twice."""

    def turn(self, ledger: str) -> AbstractContextManager[None]:
        """Nobody else in this process writes to the ledger meanwhile. Raises StoreError if somebody
        does for too long.
        """

    def begun(self, ledger: str, beside: str) -> AbstractContextManager[Begun]:
        """A transaction on one ledger, in its turn; what was not committed when it ends is rolled
        back. Waits for who else writes.
        """

    def ready(self) -> AbstractContextManager[Connection]:
        """A connection for what will wait for nobody: ``begin``, or ``at_once``."""

    def begin(
        self, connection: Connection, ledger: str, beside: str
    ) -> AbstractContextManager[Begun]:
        """``begun`` over a connection that is ``ready``. Raises Moved if somebody else writes."""

    def append(
        self, connection: Connection, ledger: str, grown: Grown, texts: Sequence[Text]
    ) -> bool:
        """Appends to a ledger, keeps texts of what is appended, and moves the ledger's head by
        compare-and-swap; False if it has moved.
        """

    def at_once(
        self, connection: Connection, ledger: str, grown: Grown, texts: Sequence[Text], beside: Ends
    ) -> bool:
        """``append`` in the ledger's turn, over a connection that is ``ready``, and durable at
        once, if the ledger ``beside`` ends there, and nobody else writes; False if nothing was
        done. Raises Unknown if nobody can tell.
        """

    def commit(self, connection: Connection) -> None:
        """Makes the transaction durable. Raises Unknown if nobody can tell whether it is."""

    def finish_erasing(self) -> bool:
        """Leaves of erased rows what cannot be helped; False if it is to be called again."""

    def check(self) -> None:
        """Raises StoreError if the database can be read but certainly not written to."""

    def excess(self) -> list[str]:
        """Rights that the service has and should not have, in words."""

    def close(self) -> None:
        """Lets go of every connection."""


def parsed(url: str) -> URL:
    """The URL of a database that is supported. Raises ValueError, which shows no password."""
    try:
        found = make_url(url)
    except (ArgumentError, ValueError):  # either may hold a piece of the password
        raise ValueError(
            "the database URL cannot be read: give sqlite:///var/accountant.db or "
            "postgresql://user:password@host/database (in a password, / @ : and % are written "
            "%2F %40 %3A and %25)"
        ) from None
    if found.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return found.set(drivername="postgresql+psycopg")
    sqlite_path(url)
    return found


def shown(url: str) -> str:
    """The URL as people may see it."""
    return parsed(url).render_as_string(hide_password=True)


def database_of(url: str) -> Database:
    """The database at ``url``; nothing is opened yet. Raises ValueError."""
    found = parsed(url)
    if found.get_backend_name() == "sqlite":
        return Sqlite(url)
    from accountant.store.postgres import Postgres  # noqa: PLC0415 its driver takes long to load

    return Postgres(found)
