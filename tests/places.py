"""Databases as tests see them: what the service may do, and what somebody with more rights does."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from accountant.store.ledgers import sqlite_path
from accountant.store.sqlite import file_lock
from bench.postgres import Server

# Of the ledgers: addresses of callbacks and sessions come and go.
TABLES = ("checkpoint", "cosignature", "data_use", "event", "ledger_head", "node", "text")


class Place(Protocol):
    """A database of a test's own."""

    url: str

    def blob(self, data: str) -> str:
        """Bytes as a literal, from hex."""

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Runs SQL as whoever owns the tables; the last statement's rows."""

    def tamper(self, *statements: str) -> None:
        """Runs SQL with every guard off, as whoever owns the machine."""

    def backup(self) -> None:
        """Keeps a copy of the database as it is."""

    def restore(self) -> None:
        """Puts the copy back, under whoever is connected."""

    def hold(self, ledger: str) -> Any:
        """A context in which another process keeps everybody from writing to a ledger."""


def everything(place: Place) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables."""
    return {table: sorted(place.run(f"SELECT * FROM {table}")) for table in TABLES}


class File:
    """A SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def blob(self, data: str) -> str:
        """See Place."""
        return f"x'{data}'"

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """See Place."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as raw:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                rows = raw.execute(statement).fetchall()
            return rows

    def tamper(self, *statements: str) -> None:
        """See Place."""
        guards = self.run("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        self.run(
            "PRAGMA ignore_check_constraints = ON",
            *(f"DROP TRIGGER {name}" for name, _ in guards),
            *statements,
            *(sql for _, sql in guards),
        )

    def backup(self) -> None:
        """See Place."""
        copy = self.path.with_name("copy.db")
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.path)) as mine, closing(sqlite3.connect(copy)) as other:
            mine.backup(other)

    def restore(self) -> None:
        """See Place."""
        copy = self.path.with_name("copy.db")
        with closing(sqlite3.connect(copy)) as other, closing(sqlite3.connect(self.path)) as mine:
            other.backup(mine)

    def hold(self, _: str) -> Any:
        """See Place."""
        return file_lock(sqlite_path(self.url))


class Hosted:
    """A database on a server."""

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name = server, name
        self.url = server.url("app", name)
        self.owner_url = server.url("owner", name)

    def blob(self, data: str) -> str:
        """See Place."""
        return f"'\\x{data}'::bytea"

    def run(self, *statements: str, role: str = "owner") -> list[tuple[Any, ...]]:
        """See Place."""
        with closing(self.server.connect(self.name, role)) as connection:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[call-overload]
                rows = cursor.fetchall() if cursor.description else []
            return rows

    def tamper(self, *statements: str) -> None:
        """See Place."""
        self.run(
            *(f"ALTER TABLE {table} DISABLE TRIGGER ALL" for table in TABLES),
            *statements,
            *(f"ALTER TABLE {table} ENABLE TRIGGER ALL" for table in TABLES),
            role="superuser",
        )

    def backup(self) -> None:
        """See Place."""
        self._disconnect()
        self.server.drop(f"{self.name}_copy")
        self.server.create(f"{self.name}_copy", self.name)

    def restore(self) -> None:
        """See Place."""
        self.server.drop(self.name)
        self.server.create(self.name, f"{self.name}_copy")

    def sessions(self) -> list[int]:
        """The service's sessions on this database."""
        query = (
            f"SELECT pid FROM pg_stat_activity WHERE usename = 'app' AND datname = '{self.name}'"
        )
        return [pid for (pid,) in self.run(query, role="superuser")]

    def _disconnect(self) -> None:
        """A database is copied only when nobody is connected."""
        for pid in self.sessions():
            self.run(f"SELECT pg_terminate_backend({pid}, 5000)", role="superuser")

    @contextmanager
    def hold(self, ledger: str) -> Iterator[None]:
        """See Place."""
        with closing(self.server.connect(self.name, "app")) as connection:
            connection.execute("BEGIN")
            query = "SELECT sequence FROM ledger_head WHERE ledger = %s FOR UPDATE"
            connection.execute(query, [ledger])
            yield


def copied(empty: Path, to: Path) -> File:
    """A SQLite file of a test's own."""
    shutil.copy(empty, to)
    return File(to)
