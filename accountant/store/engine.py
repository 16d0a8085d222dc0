"""Engines for SQLite: durable (WAL, synchronous FULL), one writing connection, many readers.

SQLite before 3.51.3 can corrupt a WAL when two connections write or checkpoint at the same moment.
Every write of ours therefore holds an advisory lock on a file beside the database, over all
processes; readers are query-only and never checkpoint.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool, StaticPool

BUSY_MS: Final = 10_000
_POLL: Final = 0.002
"""Seconds between two looks at a lock that another process holds."""


def sqlite_path(url: str) -> Path:
    """The database file. Raises ValueError for anything that is not a SQLite file."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ValueError(
            "the database URL cannot be read: give a SQLite file, e.g. sqlite:///var/accountant.db"
        ) from None
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        raise ValueError(
            f"cannot use the database {parsed.render_as_string(hide_password=True)!r}: "
            "give a SQLite file, e.g. sqlite:///var/accountant.db"
        )
    return Path(str(parsed.database))


def writer(url: str) -> Engine:
    """The engine with the one connection that writes; each transaction is BEGIN IMMEDIATE."""
    return _engine(url, "BEGIN IMMEDIATE", poolclass=StaticPool)


def reader(url: str) -> Engine:
    """An engine of query-only connections; each transaction sees one snapshot."""
    return _engine(url, "BEGIN", query_only=True, poolclass=QueuePool, pool_size=8)


def _engine(url: str, begin: str, *, query_only: bool = False, **pool: Any) -> Engine:
    sqlite_path(url)
    engine = create_engine(url, connect_args={"check_same_thread": False}, **pool)

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver's own BEGIN is deferred and comes too late
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        if query_only:
            cursor.execute("PRAGMA query_only=ON")
        else:
            cursor.execute("PRAGMA secure_delete=ON")  # erased texts are overwritten
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=FULL")
            cursor.execute("PRAGMA recursive_triggers=ON")  # REPLACE then fires DELETE triggers
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine


@contextmanager
def file_lock(path: Path, seconds: float = BUSY_MS / 1000) -> Iterator[None]:
    """An exclusive advisory lock on ``path``.lock, held by one process at a time.

    Raises TimeoutError (an OSError) if another process keeps it for ``seconds``.
    """
    deadline = time.monotonic() + seconds
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _locked(handle):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"another process has kept the database for {seconds:g} seconds")
            time.sleep(_POLL)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
