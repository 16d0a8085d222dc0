"""What the disk and the database can do at most, and how near to it the service comes.

The rows are those of a real ledger: the same bytes go into an identical table, with the same
triggers and settings, by the plain driver. Nothing is decided, hashed or checked there.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from functools import partial
from itertools import count, islice, repeat
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

import orjson
import psycopg

from accountant.migrate import migrate
from accountant.service import Service
from accountant.store.ledgers import Ledgers
from bench.asking import endless_grants, open_ledger
from bench.rowlock import DURABLE

GROUPS: Final = (32, 128, 512)
"""Events in a commit."""

SECONDS: Final = 1.0
ROUNDS: Final = 2
LEDGER: Final = "bench"
INTO: Final = "INSERT INTO event (ledger, sequence, type, time, body, leaf) VALUES "
COPY: Final = b"COPY event (ledger, sequence, type, time, body, leaf) FROM STDIN (FORMAT BINARY)"
TYPES: Final = ("text", "int8", "text", "int8", "bytea", "bytea")

Row = dict[str, Any]
Event = tuple[str, int, str, int, bytes, bytes]
T = TypeVar("T")
Insert = Callable[[list[Event]], None]


def disk(folder: Path) -> list[Row]:
    """How often a second 4 KiB more reach the disk, or 4 KiB in place."""
    rows = []
    for name, sync, grows in (
        ("fsync, appending", os.fsync, True),
        ("fdatasync, appending", os.fdatasync, True),
        ("fdatasync, in place", os.fdatasync, False),
    ):
        handle = os.open(folder / "synced", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        try:
            rate = _rate(partial(_write, handle, sync, grows), repeat(bytes(4096)), 1)
        finally:
            os.close(handle)
        rows.append({"what": f"disk: {name}", "value": rate, "unit": "1/s"})
    return rows


def _write(handle: int, sync: Callable[[int], None], grows: bool, pages: list[bytes]) -> None:
    for page in pages:
        if not grows:
            os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, page)
    sync(handle)


def on_sqlite(folder: Path) -> list[Row]:
    """Grants in batches on SQLite, beside the plain driver with the same rows."""
    raw = folder / "raw.db"
    migrate(f"sqlite:///{raw}")
    connection = sqlite3.connect(raw, isolation_level=None)
    for pragma in ("secure_delete=ON", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("PRAGMA recursive_triggers=ON")

    def insert(events: list[Event]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(INTO + "(?, ?, ?, ?, ?, ?)", events)
        connection.execute("COMMIT")

    with closing(connection):
        return _compared("SQLite", f"sqlite:///{folder}/batches.db", {"executemany": insert})


def on_postgres(_: Path, fresh: Callable[[], str]) -> list[Row]:
    """Grants in batches on PostgreSQL, beside the plain driver with the same rows."""
    raw = fresh()
    migrate(raw)
    with psycopg.connect(raw, options=DURABLE) as connection, connection.cursor() as cursor:

        def pipelined(events: list[Event]) -> None:
            cursor.executemany(INTO + "(%s, %s, %s, %s, %b, %b)", events)
            connection.commit()

        def copied(events: list[Event]) -> None:
            with cursor.copy(COPY) as copy:
                copy.set_types(TYPES)
                for event in events:
                    copy.write_row(event)
            connection.commit()

        return _compared("PostgreSQL", fresh(), {"executemany": pipelined, "COPY": copied})


def _compared(engine: str, url: str, inserts: dict[str, Insert]) -> list[Row]:
    rows: list[Row] = []
    migrate(url)
    with closing(Service(Ledgers(url))) as service:
        open_ledger(service, LEDGER)
        asks = endless_grants("k")
        for _ in range(4):
            service.execute_all(LEDGER, list(islice(asks, 256)))
        events = _copies([_event(*stored) for stored in service.stream(LEDGER)])
        for group in GROUPS:
            found: dict[str, list[float]] = {name: [] for name in ("service", *inserts)}
            for _ in range(ROUNDS):
                found["service"].append(_rate(partial(service.execute_all, LEDGER), asks, group))
                for name, insert in inserts.items():
                    found[name].append(_rate(insert, events, group))
            rate = {name: median(rates) for name, rates in found.items()}
            rows += [
                {"what": f"{engine}: {name}, {group} a commit", "value": value, "unit": "events/s"}
                for name, value in rate.items()
            ]
            best = max(inserts, key=rate.__getitem__)
            rows.append(
                {
                    "what": f"{engine}: grants in batches, {group} a commit",
                    "value": rate["service"] / rate[best],
                    "unit": "ratio",
                    "beside": f"raw inserts of the same rows ({best})",
                }
            )
    return rows


def _rate(once: Callable[[list[T]], object], source: Iterator[T], size: int) -> float:
    """What ``once`` gets done a second with ``size`` at a time."""
    done, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < SECONDS:
        once(list(islice(source, size)))
        done += size
    return done / seconds


def _event(sequence: int, body: bytes, leaf: bytes) -> Event:
    read = orjson.loads(body)
    time = datetime.fromisoformat(read["time"])
    return LEDGER, sequence, read["type"], int(time.timestamp() * 1e6), body, leaf


def _copies(events: list[Event]) -> Iterator[Event]:
    """The events over and over, each time as another ledger."""
    for number in count():
        for event in events:
            yield f"raw{number}", *event[1:]
