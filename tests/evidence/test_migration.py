"""From the hash chain to the tree: a database of the first version keeps every byte."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from house import House, audit, reasons
from support import MIGRATIONS, Book, Clock, hospital, laplace

from accountant.budget.facts import grant_in
from accountant.ledger.events import Event
from accountant.store.ledgers import StoreError
from accountant.store.migrate import migrate
from accountant.store.sqlite import writer

EVENTS = 2_600


@pytest.fixture(scope="module")
def book() -> Book:
    """Thousands of events, made in memory."""
    made = hospital("  - {id: a, limit: {epsilon: 100}}\n", {"sex": ["f", "m"]})
    while len(made.stored) < EVENTS:
        grant = made.grant(laplace("0.001"), subjects={"sex": ["f"]})
        made.do("commit_grant", grant=grant_in(grant))
    return made


@pytest.fixture
def old(book: Book, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database as the first version of the service left it, with that ledger and a small one."""
    folder = tmp_path / "home"
    folder.mkdir()
    path = folder / "accountant.db"
    config, engine = Config(), writer(f"sqlite:///{path}")
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    engine.dispose()
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN")
        for ledger, bodies in (("fair", book.stored), ("_service", [b"{}", b"{}"])):
            link = bytes(32)
            for sequence, body in enumerate(bodies):
                link = sha256(link + body).digest()
                time = Event.from_bytes(body).time if ledger == "fair" else 0
                kind = Event.from_bytes(body).type if ledger == "fair" else "key"
                row = (ledger, sequence, kind, time, body, link)
                raw.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)", row)
            raw.execute("INSERT INTO ledger_head VALUES (?, ?, ?)", (ledger, len(bodies), link))
        raw.execute("COMMIT")
        yield raw


def migrated(old: sqlite3.Connection) -> str:
    """Runs ``accountant migrate``; the URL."""
    [(_, _, path)] = old.execute("PRAGMA database_list")
    assert not migrate(f"sqlite:///{path}")
    return f"sqlite:///{path}"


def test_every_byte_is_kept(old: sqlite3.Connection, book: Book, tmp_path: Path) -> None:
    """All events are there as they were, with the tree that the recursion of RFC 6962 gives; the
    service goes on with them, signs them, and the bundle has no finding.
    """
    before = old.execute("SELECT ledger, sequence, type, time, body FROM event").fetchall()
    migrated(old)
    after = old.execute("SELECT ledger, sequence, type, time, body FROM event").fetchall()
    assert sorted(before) == sorted(after)
    house = House(tmp_path / "home", Clock(book.now))
    leaves = [sha256(b"\x00" + body).digest() for body in book.stored]

    def mth(low: int, high: int) -> bytes:
        if high - low == 1:
            return leaves[low]
        k = 1 << (high - low - 1).bit_length() - 1
        return sha256(b"\x01" + mth(low, low + k) + mth(low + k, high)).digest()

    assert house.head().size == len(book.stored)
    assert house.head().root == mth(0, len(leaves))
    kept = old.execute("SELECT level, number, hash FROM node WHERE ledger = 'fair'").fetchall()
    assert sorted(kept) == [(1, n, mth(256 * n, 256 * n + 256)) for n in range(len(leaves) // 256)]
    house.grant("0.5")
    verdict = audit(house.bundle())
    assert reasons(verdict) == []
    assert verdict.events == len(leaves) + 2
    tables = {name for (name,) in old.execute("SELECT name FROM sqlite_master")}
    assert not [name for name in tables if "0001" in name]
    house.service.ledgers.close()


DAMAGE = [
    "UPDATE event SET body = CAST(replace(CAST(body AS TEXT), 'pipe', 'pope') AS BLOB)"
    " WHERE ledger = 'fair' AND sequence = 2000",
    "UPDATE event SET body = x'7b7d' WHERE ledger = 'fair' AND sequence = 0",
    "UPDATE event SET link = zeroblob(32) WHERE ledger = 'fair' AND sequence = 1500",
    "DELETE FROM event WHERE ledger = 'fair' AND sequence = 1200",
    "DELETE FROM event WHERE ledger = 'fair' AND sequence >= 2000",
    "DELETE FROM event WHERE ledger = 'fair' AND sequence = 0",
    "DELETE FROM event WHERE ledger = 'fair'",
    "UPDATE ledger_head SET sequence = 2000 WHERE ledger = 'fair'",
    "UPDATE ledger_head SET link = zeroblob(32) WHERE ledger = 'fair'",
    "UPDATE ledger_head SET sequence = 0 WHERE ledger = '_service'",
    "DELETE FROM ledger_head WHERE ledger = '_service'",
    "INSERT INTO event SELECT 'other', 0, type, time, body, link FROM event WHERE sequence = 3",
    "INSERT INTO ledger_head VALUES ('empty', 1, zeroblob(32))",
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_database_is_refused_and_left(old: sqlite3.Connection, damage: str) -> None:
    """Whatever was changed in the old database by somebody without the service is noticed by the
    old hash chain; nothing is then migrated, to the last byte.
    """
    triggers = old.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        old.execute(f"DROP TRIGGER {name}")
    changed = old.execute(damage).rowcount
    assert changed
    for _, sql in triggers:
        old.execute(sql)
    before = list(old.iterdump())
    with pytest.raises((ValueError, StoreError)):
        migrated(old)
    assert list(old.iterdump()) == before


def test_migrating_again_changes_nothing(old: sqlite3.Connection) -> None:
    """A second ``migrate`` leaves everything as the first one made it."""
    migrated(old)
    before = list(old.iterdump())
    migrated(old)
    assert list(old.iterdump()) == before
