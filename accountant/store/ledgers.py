"""``Ledgers``: all ledgers of one database. The base of the two engines, SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager as Context
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from accountant.ledger.merkle import Tree
from accountant.store import Moved, StoreError, Unknown, translated
from accountant.store.queries import (
    HEAD_OF,
    NEVER,
    AlertRow,
    Callback,
    DataRead,
    Mute,
    Queries,
    SessionRow,
    Signed,
    Stored,
    Text,
    Use,
    tree_of,
)
from accountant.store.writing import Growth, Locked, Writing

__all__ = [
    "NEVER",
    "AlertRow",
    "Callback",
    "DataRead",
    "Ledgers",
    "Moved",
    "Mute",
    "SessionRow",
    "Signed",
    "StoreError",
    "Stored",
    "Text",
    "Unknown",
    "Use",
    "Writing",
]

WAIT_MS: Final = 10_000  # For others, in this process and then in the database


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


def sqlite_path(url: str) -> Path:
    """Return the database file of a URL. Raises ValueError for any other database."""
    found = make_url(url)
    if found.get_backend_name() != "sqlite" or found.database in (None, "", ":memory:"):
        name = found.render_as_string(hide_password=True)
        give = "give a SQLite file, e.g. sqlite:///var/accountant.db"
        raise ValueError(f"cannot use the database {name!r}: {give}")
    return Path(str(found.database))


def shown(url: str) -> str:
    """Return the URL without its password."""
    return parsed(url).render_as_string(hide_password=True)


def _closed(_: Any, entry: ConnectionPoolEntry) -> None:
    """Close a connection that is given back: its pool is not looked at any more."""
    entry.invalidate()


class Ledgers(Queries):
    """All ledgers of the database at a URL: a ``Sqlite`` or a ``Postgres`` (``opening.py``).

    Methods raise StoreError; those that only ``Writing`` calls (``lock`` to ``commit``) raise the
    errors of the driver.
    """

    one_writer = False  # No two threads may write at once, not even to different ledgers
    _reader: Engine
    _writer: Engine
    erased = False  # Erased texts may still be in the database's own files
    closed = False

    def __init__(self, url: str) -> None:
        self.url = url
        self._turns: dict[str, threading.Lock] = {}

    @contextmanager
    def writing(self, ledger: str, beside: str = "", *, light: bool = False) -> Iterator[Writing]:
        """Open a write transaction on one ledger with its head locked; roll back at the end unless
        it was committed. A ``light`` one locks the head when it has to, perhaps never
        (``Writing.believe``). Raises StoreError if others keep the ledger busy for too long.
        """
        with translated(), self.turn(ledger), ExitStack() as opened:
            if light:  # every wait comes before the first decision
                ready = opened.enter_context(self.connected())
                now = partial(self.lock_now, ready, ledger, beside)
                yield Writing(self, ledger, beside, ready, lambda: opened.enter_context(now()))
            else:
                locked = opened.enter_context(self.lock(ledger, beside))
                writing = Writing(self, ledger, beside, locked.connection, lambda: locked)
                writing.lock()
                yield writing

    def head(self, ledger: str) -> Tree:
        """Return the tree of the whole ledger; size 0 if it has no event."""
        mark = "?" if self._reader.dialect.name == "sqlite" else "%s"
        return tree_of(self._read(lambda c: c.exec_driver_sql(HEAD_OF + mark, (ledger,)).first()))

    def stream(self, ledger: str, first: int = 0) -> Iterator[Stored]:
        """Return all events from ``first`` on, read a page at a time."""
        while page := self.read(ledger, first):
            yield from page
            first = page[-1].sequence + 1

    def check(self) -> None:
        """Check that the database can be read and, as far as can be seen, written to."""
        self.names()

    def excess(self) -> list[str]:
        """Return the rights on the database that this service should not have, in words."""
        return []

    def finish_erasing(self) -> bool:
        """Remove erased rows from the database's files; False if a reader still sees them."""
        return True

    def close(self) -> None:
        """Close every connection; one that a thread still has, or opens later, as soon as it is
        given back. Raises TimeoutError if another process keeps the database.
        """
        self.closed = True
        for engine in (self._reader, self._writer):
            event.listen(engine, "checkin", _closed)
            engine.dispose()

    # -- provided by each engine, for ``Writing`` to call ----------------------------------------

    @contextmanager
    def turn(self, ledger: str) -> Iterator[None]:
        """Keep other threads from writing to the ledger. Raises StoreError after a time limit."""
        turn = self._turns.setdefault("" if self.one_writer else ledger, threading.Lock())
        if not turn.acquire(timeout=WAIT_MS / 1000):
            raise StoreError("too many requests wait to write")
        try:
            yield
        finally:
            turn.release()

    def lock(self, ledger: str, beside: str) -> Context[Locked]:
        """Begin a transaction that locks the head, after other writers; roll back at the end."""
        raise NotImplementedError

    def connected(self) -> Context[Connection]:
        """Return a connection for ``lock_now`` or ``append_now``, which do not wait."""
        raise NotImplementedError

    def lock_now(self, connection: Connection, ledger: str, beside: str) -> Context[Locked]:
        """Do as ``lock`` over a ``connected`` connection. Raises Moved if another writes."""
        raise NotImplementedError

    def append(self, connection: Connection, more: Growth) -> bool:
        """Append, and move the head by compare-and-swap; return False if it has moved."""
        raise NotImplementedError

    def append_now(self, connection: Connection, more: Growth, beside: str, end: Tree) -> bool:
        """Append and commit in one step, if ``beside`` ends with ``end``. Raises Unknown."""
        raise NotImplementedError

    def commit(self, connection: Connection) -> None:
        """Make the transaction durable. Raises Unknown if it may or may not be."""
        raise NotImplementedError
