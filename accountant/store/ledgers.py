"""All ledgers of one database. Only ``store`` knows whether it is SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeVar

from sqlalchemy import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError

from accountant.ledger.merkle import Tree
from accountant.store.database import Database, Moved, StoreError, Unknown, translated
from accountant.store.reading import HEAD_OF, Reading, Signed, Stored, Text, tree_of
from accountant.store.sqlite import Sqlite, sqlite_path
from accountant.store.writing import Writing

__all__ = ["Ledgers", "Moved", "Signed", "StoreError", "Stored", "Text", "Unknown", "Writing"]

T = TypeVar("T")


def parsed(url: str) -> URL:
    """Return the URL of a database that is supported. Raises ValueError, without the password."""
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
    """Return the URL without its password."""
    return parsed(url).render_as_string(hide_password=True)


class Ledgers(Reading):
    """All ledgers of one database. Every method may raise StoreError."""

    def __init__(self, url: str) -> None:
        found = parsed(url)
        if found.get_backend_name() == "sqlite":
            self._database: Database = Sqlite(url)
        else:
            from accountant.store.postgres import Postgres  # noqa: PLC0415 its driver loads long

            self._database = Postgres(found)
        self._erased = False

    @contextmanager
    def writing(self, ledger: str, beside: str = "", *, light: bool = False) -> Iterator[Writing]:
        """Open a write transaction on one ledger, whose head is locked from the beginning; roll
        back at the end what is not committed. A ``light`` one begins when it has to, perhaps never
        (``Writing.believe``). Raises StoreError if others keep the ledger busy for too long.
        """
        database = self._database
        with translated(), database.turn(ledger), ExitStack() as opened:
            if light:  # wait for what has to be waited for before anything is decided
                ready = opened.enter_context(database.ready())
                begin = partial(database.begin, ready, ledger, beside)
                writing = Writing(
                    database, ledger, beside, ready, lambda: opened.enter_context(begin())
                )
            else:
                begun = opened.enter_context(database.begun(ledger, beside))
                writing = Writing(database, ledger, beside, begun.connection, lambda: begun)
                writing.begin()
            yield writing
            self._erased |= writing.erased

    def head(self, ledger: str) -> Tree:
        """Return the tree of the whole ledger; size 0 if it has no event."""

        def work(connection: Connection) -> Tree:
            mark = "?" if connection.dialect.name == "sqlite" else "%s"
            return tree_of(connection.exec_driver_sql(HEAD_OF + mark, (ledger,)).first())

        return self._read(work)

    def stream(self, ledger: str, first: int = 0) -> Iterator[Stored]:
        """Return all events from ``first`` on, read a page at a time."""
        while page := self.read(ledger, first):
            yield from page
            first = page[-1].sequence + 1

    def _read(self, work: Callable[[Connection], T]) -> T:
        with translated():
            return self._database.reading(work)

    def finish_erasing(self) -> bool:
        """Remove erased rows from the file and log; return False if a reader still sees them."""
        if self._erased:
            with translated():
                self._erased = not self._database.finish_erasing()
        return not self._erased

    def check(self) -> None:
        """Check that the database can be read and, as far as can be seen, written to."""
        self.names()
        with translated():
            self._database.check()

    def excess(self) -> list[str]:
        """Return the rights on the database that this service should not have, in words."""
        with translated():
            return self._database.excess()

    def close(self) -> None:
        """Close the database. Raises TimeoutError if another process keeps its file."""
        self._database.close()
