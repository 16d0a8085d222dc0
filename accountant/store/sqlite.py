"""SQLite: durable (WAL, synchronous FULL), one writing connection, many readers.

SQLite before 3.51.3 can corrupt a WAL when two connections write or checkpoint at the same moment.
Every write of ours therefore holds an advisory lock on a file beside the database, over all
processes. Readers are query-only and never checkpoint; ``backfill`` does, and says why it may.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from accountant.ledger.merkle import Tree
from accountant.store import Moved, StoreError, Unknown, translated
from accountant.store.backfill import Backfill
from accountant.store.ledgers import WAIT_MS, Ledgers, sqlite_path
from accountant.store.queries import HEAD_OF, raw, tree_of
from accountant.store.writing import Growth, Locked

T = TypeVar("T")
_POLL: Final = 0.002  # Seconds between two looks at a lock that another process holds
_PATIENCE_MS: Final = 100  # How long cleaning up waits for a reader, which keeps writers waiting
_NO_WAIT: Final = "busy_timeout=0"
_DURABLE: Final = (
    "secure_delete=ON",  # erased texts are overwritten
    "journal_mode=WAL",
    "synchronous=FULL",
    "recursive_triggers=ON",  # REPLACE then fires DELETE triggers
)
_PRIMARY: Final = 0xFF  # The part of an error's code that names the error
_ATTEMPTS: Final = 5
_PROBE: Final = 65_536  # Bytes to write to see if the disk is full: more than a small commit
_MOST_ROWS: Final = 64  # In one statement: there is one prepared for each number of rows
_NEW_HEAD: Final = "INSERT INTO ledger_head VALUES (?, ?, ?)"
_HEAD: Final = (
    "UPDATE ledger_head SET sequence = ?, peaks = ? WHERE ledger = ? AND sequence = ? AND peaks = ?"
)


def writer(url: str, *pragmas: str) -> Engine:
    """Return the engine with the one connection that writes, by BEGIN IMMEDIATE."""
    return _engine(url, "BEGIN IMMEDIATE", *_DURABLE, *pragmas, poolclass=StaticPool)


def reader(url: str) -> Engine:
    """Return an engine of query-only connections; each transaction sees one snapshot."""
    return _engine(url, "BEGIN", "query_only=ON", poolclass=QueuePool, pool_size=8)


def _engine(url: str, begin: str, *pragmas: str, **pool: Any) -> Engine:
    arguments = {"check_same_thread": False, "cached_statements": 256}
    engine = create_engine(url, connect_args=arguments, **pool)

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver's own BEGIN is deferred and comes too late
        for pragma in (f"busy_timeout={WAIT_MS}", *pragmas):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.connection.driver_connection.execute(begin)

    return engine


@contextmanager
def file_lock(path: Path, seconds: float = WAIT_MS / 1000) -> Iterator[None]:
    """Hold an exclusive lock on ``path``.lock. Raises TimeoutError after ``seconds``."""
    deadline = time.monotonic() + seconds
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    kept = f" for {seconds:g} seconds" if seconds else ""
                    raise TimeoutError(f"another process has kept the database{kept}") from None
            time.sleep(_POLL)
        yield
    finally:
        os.close(handle)


class Sqlite(Ledgers):
    """One file: a connection that writes under the file's lock, and connections that read."""

    one_writer = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._path = sqlite_path(url)
        # Commits neither copy the write-ahead log nor wait.
        self._reader, self._writer = reader(url), writer(url, "wal_autocheckpoint=0", _NO_WAIT)
        self._backfill = Backfill(self._path)
        self._kept = False
        """Another process kept the file past the time limit: until it lets go, no writer waits."""
        self._writing: Connection | None = None

    @translated()
    def _read(self, work: Callable[[Connection], T]) -> T:
        with self._reader.begin() as connection:
            return work(connection)

    @contextmanager
    def lock(self, ledger: str, beside: str) -> Iterator[Locked]:
        """Begin a transaction that keeps all others from writing, to any ledger."""
        milliseconds = 0 if self._kept else WAIT_MS
        with ExitStack() as opened:
            try:
                opened.enter_context(file_lock(self._path, milliseconds / 1000))
                connection = opened.enter_context(self.connected())
                driver = raw(connection)
                driver.execute(f"PRAGMA busy_timeout={milliseconds}")  # of other programs
                opened.enter_context(_finally(lambda: driver.execute(f"PRAGMA {_NO_WAIT}")))
                opened.enter_context(_finally(connection.rollback))
                connection.begin()
            except (TimeoutError, OperationalError, sqlite3.OperationalError) as error:
                self._kept = _busy(error)
                raise
            self._kept = False
            yield _locked(connection, ledger, beside)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Return the connection that writes, kept out of the pool while its transactions end."""
        connection = self._writing = self._writing or self._writer.connect()
        try:
            yield connection
        finally:
            if self.closed or connection.in_transaction() or raw(connection).in_transaction:
                self._let_go()

    def _let_go(self) -> None:
        if self._writing is not None:
            connection, self._writing = self._writing, None
            connection.close()

    @contextmanager
    def lock_now(self, connection: Connection, ledger: str, beside: str) -> Iterator[Locked]:
        """Do as ``lock``, if no other process has the file's lock and no other program the file."""
        with self._now(connection.begin), _finally(connection.rollback):
            yield _locked(connection, ledger, beside)

    @contextmanager
    def _now(self, begin: Callable[[], object]) -> Iterator[None]:
        """Begin a transaction under the file's lock. Raises Moved instead of waiting for it."""
        with ExitStack() as opened:
            try:
                opened.enter_context(file_lock(self._path, 0))
                begin()
            except (TimeoutError, sqlite3.OperationalError) as error:
                if not _busy(error):
                    raise
                raise Moved("another process writes") from error
            yield

    def append_now(self, connection: Connection, more: Growth, beside: str, end: Tree) -> bool:
        """Append and commit by a transaction of the driver."""
        driver = raw(connection)
        with self._now(lambda: driver.execute("BEGIN IMMEDIATE")), _finally(driver.rollback):
            # Whether this ledger ends there is seen when its head is moved.
            done = beside == more.ledger and end == more.before
            done = done or _head(driver, beside) == end
            done = done and self.append(connection, more)
            if done:
                self.commit(connection)
            return done

    def append(self, connection: Connection, more: Growth) -> bool:
        """Append through the driver, which binds and steps in C."""
        driver, (ledger, before, after, events, nodes, texts) = raw(connection), more
        if before.size == 0:
            moved = driver.execute(_NEW_HEAD, (ledger, after.size, after.packed))
        else:
            places = (after.size, after.packed, ledger, before.size, before.packed)
            moved = driver.execute(_HEAD, places)
        if moved.rowcount != 1:
            return False
        self._backfill.wrote(sum(map(len, events[3])))
        _insert(driver, "event", list(zip(repeat(ledger), *events, strict=False)))
        _insert(driver, "node", [(ledger, *node) for node in nodes])
        _insert(driver, "text", [(ledger, *text) for text in texts])
        return True

    def commit(self, connection: Connection) -> None:
        """Make the transaction durable. A failed write may still have reached the disk."""
        driver = raw(connection)
        if not driver.in_transaction:  # an error has ended it; committing would be silent
            raise StoreError("the transaction has failed and was rolled back")
        try:
            driver.commit()
        except sqlite3.Error as error:
            raise Unknown(f"the commit failed: {error}") from error
        self._backfill.committed(driver)

    @translated()
    def finish_erasing(self) -> bool:
        """Empty the write-ahead log. False if a reader still needs it."""
        for _ in range(_ATTEMPTS if self.erased else 0):
            with self.turn(""), self.lock("", "") as locked:
                locked.connection.rollback()
                self._backfill.wait()
                driver = raw(locked.connection)
                driver.execute(f"PRAGMA busy_timeout={_PATIENCE_MS}")
                [busy, *_] = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self.erased = bool(busy)
            if not busy:
                break
            time.sleep(_PATIENCE_MS / 1_000)
        return not self.erased

    @translated()
    def check(self) -> None:
        """Check that the file may be written to, by its permissions, its lock and the disk."""
        super().check()
        for place in (self._path, self._path.parent):
            if not os.access(place, os.W_OK):
                raise StoreError("the database cannot be written to")
        if self._kept and self._still_kept():
            raise StoreError("another process keeps the database")
        with tempfile.TemporaryFile(dir=self._path.parent, prefix=".accountant-") as probe:
            probe.write(bytes(_PROBE))  # on a full disk that fails as a commit would
            probe.flush()

    def _still_kept(self) -> bool:
        try:
            with file_lock(self._path, 0), closing(sqlite3.connect(self._path, timeout=0)) as probe:
                probe.execute("BEGIN IMMEDIATE").close()
                return False
        except (TimeoutError, sqlite3.OperationalError) as error:
            return _busy(error)

    def close(self) -> None:
        """Close the file. Raises TimeoutError if another process keeps it."""
        with file_lock(self._path):  # closing may checkpoint
            self._backfill.wait()
            self._let_go()
            super().close()


@contextmanager
def _finally(work: Callable[[], object]) -> Iterator[None]:
    """Call ``work`` when the block ends; if it fails, the block's own error is raised."""
    try:
        yield
    finally:
        with suppress(sqlite3.Error, SQLAlchemyError):
            work()


def _busy(error: Exception) -> bool:
    """Return whether another process or program has the file."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", 0)
    return isinstance(error, TimeoutError) or code & _PRIMARY == sqlite3.SQLITE_BUSY


def _locked(connection: Connection, ledger: str, beside: str) -> Locked:
    driver = raw(connection)
    return Locked(connection, _head(driver, ledger), _head(driver, beside))


def _head(driver: sqlite3.Connection, ledger: str) -> Tree:
    return tree_of(driver.execute(f"{HEAD_OF}?", (ledger,)).fetchone())


def _insert(driver: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows by few statements, for the driver lets other threads run at each."""
    for first in range(0, len(rows), _MOST_ROWS):
        some = rows[first : first + _MOST_ROWS]
        one = f"({', '.join('?' * len(some[0]))})"
        values = ", ".join([one] * len(some))
        driver.execute(f"INSERT INTO {table} VALUES {values}", tuple(chain.from_iterable(some)))  # noqa: S608
