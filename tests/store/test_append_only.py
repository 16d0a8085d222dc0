"""The database file: append-only by triggers, durable by its settings."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import text
from support import World, ask, laplace, migrate

from accountant.store.ledgers import sqlite_path
from accountant.store.sqlite import reader, writer


@pytest.fixture(scope="module")
def template(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file with a few events of a ledger, a text, a cosigned checkpoint and a full tile."""
    path = tmp_path_factory.mktemp("filled") / "accountant.db"
    shutil.copy(empty_database, path)
    made = World(f"sqlite:///{path}").hospital()
    assert made.post("/grants", ask(laplace("0.1"), purpose="ops")).status_code == 201
    signed = made.publisher.sign("fair")
    with made.service.ledgers.writing("fair") as writing:
        writing.keep_cosignature("fair", signed.number, "w", "a line\n")
        node = "INSERT INTO node VALUES ('fair', 1, 0, zeroblob(32))"
        writing.lock().connection.exec_driver_sql(node)
        writing.commit()
    yield path
    made.close()


@pytest.fixture
def filled(template: Path, tmp_path: Path) -> Path:
    """A copy of that file, of this test's own."""
    path = tmp_path / "accountant.db"
    with closing(sqlite3.connect(template)) as one, closing(sqlite3.connect(path)) as other:
        one.backup(other)
    return path


@pytest.fixture(params=[True, False], ids=["recursive triggers", "plain triggers"])
def connection(filled: Path, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    """A stranger's connection, with the setting that REPLACE depends on on and off."""
    with closing(sqlite3.connect(filled, isolation_level=None)) as raw:
        raw.execute(f"PRAGMA recursive_triggers={int(request.param)}")
        yield raw


ROW = "'fair', 0, 'x', 0, x'00', x'00'"
REFUSED = [
    "UPDATE event SET body = x'00'",
    "UPDATE event SET time = time + 1 WHERE ledger = 'fair' AND sequence = 0",
    "UPDATE event SET leaf = zeroblob(32) WHERE ledger = 'fair' AND sequence = 0",
    "UPDATE OR IGNORE event SET body = x'00' WHERE sequence = 1",
    "UPDATE OR REPLACE event SET sequence = 0 WHERE ledger = 'fair' AND sequence = 1",
    "UPDATE event SET ledger = 'other'",
    "DELETE FROM event",
    "DELETE FROM event WHERE ledger = 'fair' AND sequence = 3",
    f"INSERT INTO event VALUES ({ROW})",
    f"INSERT OR REPLACE INTO event VALUES ({ROW})",
    f"REPLACE INTO event VALUES ({ROW})",
    f"INSERT INTO event VALUES ({ROW}) ON CONFLICT DO UPDATE SET body = x'00'",
    "DELETE FROM ledger_head",
    "UPDATE ledger_head SET sequence = 0 WHERE ledger = 'fair'",
    "UPDATE ledger_head SET sequence = sequence WHERE ledger = 'fair'",
    "UPDATE ledger_head SET peaks = x'00'",
    "INSERT OR REPLACE INTO ledger_head VALUES ('fair', 0, x'00')",
    "REPLACE INTO ledger_head VALUES ('fair', 99, x'00')",
    "INSERT INTO ledger_head VALUES ('fair', 0, x'00') ON CONFLICT DO UPDATE SET sequence = 0",
    "UPDATE node SET hash = zeroblob(32)",
    "DELETE FROM node",
    "REPLACE INTO node VALUES ('fair', 1, 0, zeroblob(32))",
    "UPDATE checkpoint SET note = x'00'",
    "UPDATE checkpoint SET size = size + 1 WHERE number = 0",
    "DELETE FROM checkpoint",
    "REPLACE INTO checkpoint VALUES ('fair', 0, 1, x'00')",
    "UPDATE cosignature SET line = ''",
    "DELETE FROM cosignature",
    "REPLACE INTO cosignature VALUES ('fair', 0, 'w', '')",
    "UPDATE text SET text = 'another'",
    "UPDATE text SET sequence = sequence + 1",
    "REPLACE INTO text VALUES ('fair', 4, 'purpose', x'00', 'another')",
]


@pytest.mark.parametrize("statement", REFUSED)
def test_the_ledger_cannot_be_rewritten(connection: sqlite3.Connection, statement: str) -> None:
    """No statement changes or removes an event or a signature, moves a head back, or changes a
    text, with any trigger setting.
    """
    before = everything(connection)
    with pytest.raises(sqlite3.DatabaseError, match=r"append-only|UNIQUE"):
        connection.execute(statement)
    assert everything(connection) == before


def everything(connection: sqlite3.Connection) -> list[list[tuple[object, ...]]]:
    """All rows of all tables."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return [connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in sorted(names)]


def test_only_texts_can_be_deleted(connection: sqlite3.Connection) -> None:
    """Erasing is what they are kept apart for."""
    assert connection.execute("DELETE FROM text").rowcount == 1


QUIET = ["INSERT OR IGNORE INTO event VALUES (" + ROW + ")"]


@pytest.mark.parametrize("statement", QUIET)
def test_ignored_inserts_change_nothing(connection: sqlite3.Connection, statement: str) -> None:
    """What SQLite may silently ignore is at least ignored."""
    before = everything(connection)
    with suppress(sqlite3.DatabaseError):
        connection.execute(statement)
    assert everything(connection) == before


def test_migrating_again_keeps_the_triggers(filled: Path) -> None:
    """A second ``migrate`` changes nothing and leaves all guards in place."""
    with closing(sqlite3.connect(filled)) as raw:
        query = "SELECT name, sql FROM sqlite_master ORDER BY name"
        before = raw.execute(query).fetchall()
        migrate(f"sqlite:///{filled}")
        assert raw.execute(query).fetchall() == before
        triggers = [name for name, sql in before if sql and sql.startswith("CREATE TRIGGER")]
    assert len(triggers) == 20


def test_the_writer_is_durable(database: str) -> None:
    """The writing connection has a write-ahead log, full synchronisation and recursive triggers."""
    engine = writer(database)
    with engine.begin() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
        assert connection.execute(text("PRAGMA recursive_triggers")).scalar() == 1
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 10_000
    engine.dispose()


def test_readers_cannot_write(database: str) -> None:
    """A reading connection refuses every change."""
    engine = reader(database)
    with engine.begin() as connection, pytest.raises(Exception, match="readonly"):
        connection.execute(text("INSERT INTO event VALUES ('x', 0, 'x', 0, x'00', x'00')"))
    engine.dispose()


def test_the_lock_is_taken_at_begin(database: str) -> None:
    """BEGIN IMMEDIATE: a second writer cannot even begin while a transaction is open, so nobody
    checks against a state that another is about to change.
    """
    engine = writer(database)
    with engine.begin(), closing(sqlite3.connect(sqlite_path(database), timeout=0.05)) as other:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.execute("SELECT count(*) FROM event").fetchone()  # reading goes on
    with closing(sqlite3.connect(sqlite_path(database), timeout=0.05)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.rollback()
    engine.dispose()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "postgresql://h/d", "sqlite:///", "nonsense"]
)
def test_only_files_are_ledgers(url: str) -> None:
    """A database that would vanish, or that is no SQLite file, is refused by name."""
    with pytest.raises(Exception, match=r"SQLite file|URL"):
        sqlite_path(url)
