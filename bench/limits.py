"""What the disk and the database can do at most, and how near to it the service comes.

The rows are those of a real ledger: the same bytes go into identical tables, with the same triggers
and settings, by the plain driver. Nothing is decided, hashed or checked there.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from itertools import count, islice, repeat
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

import orjson
import psycopg

from accountant.runtime import memory
from accountant.runtime.service import Service
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from bench.asking import endless_grants, endless_unseen, open_ledger
from bench.rowlock import DURABLE

GROUPS: Final = (32, 128, 512)
"""Events in a commit."""

SECONDS: Final = 0.5
ROUNDS: Final = 8
"""Short turns, each compared within itself: machines change their speed within seconds."""
LEDGER: Final = "bench"
TABLES: Final = {
    "event": ("text", "int8", "text", "int8", "bytea", "bytea"),
    "text": ("text", "int8", "text", "bytea", "text"),
}
"""The columns' types. What a grant consists of; the tree's nodes and the head are not asked for."""

Row = dict[str, Any]
Rows = tuple[tuple[Any, ...], list[tuple[Any, ...]]]
"""A grant: the row of its event, those of its free texts."""
T = TypeVar("T")
Insert = Callable[[list[Rows]], None]


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

    def insert(grants: list[Rows]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for table, rows in _by_table(grants):
            connection.executemany(_into(table, "?"), rows)
        connection.execute("COMMIT")

    def each(grants: list[Rows]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for table, rows in _by_table(grants):
            for row in rows:
                connection.execute(_into(table, "?"), row)
        connection.execute("COMMIT")

    inserts = {"executemany": insert, "INSERT, one by one": each}
    with closing(connection):
        return _compared("SQLite", f"sqlite:///{folder}/batches.db", inserts)


def on_postgres(_: Path, fresh: Callable[[], str]) -> list[Row]:
    """Grants in batches on PostgreSQL, beside the plain driver with the same rows."""
    raw = fresh()
    migrate(raw)
    with psycopg.connect(raw, options=DURABLE) as connection, connection.cursor() as cursor:

        def pipelined(grants: list[Rows]) -> None:
            for table, rows in _by_table(grants):
                cursor.executemany(_into(table, "%s").encode(), rows)
            connection.commit()

        def each(grants: list[Rows]) -> None:
            for table, rows in _by_table(grants):
                for row in rows:
                    cursor.execute(_into(table, "%s").encode(), row)
            connection.commit()

        def copied(grants: list[Rows]) -> None:
            for table, rows in _by_table(grants):
                with cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)".encode()) as copy:
                    copy.set_types(TABLES[table])
                    for row in rows:
                        copy.write_row(row)
            connection.commit()

        inserts = {"executemany": pipelined, "INSERT, one by one": each, "COPY": copied}
        return _compared("PostgreSQL", fresh(), inserts)


def _into(table: str, place: str) -> str:
    return f"INSERT INTO {table} VALUES ({', '.join([place] * len(TABLES[table]))})"  # noqa: S608


def _by_table(grants: list[Rows]) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    yield "event", [event for event, _ in grants]
    if texts := [text for _, texts in grants for text in texts]:
        yield "text", texts


def _compared(engine: str, url: str, inserts: Mapping[str, Insert]) -> list[Row]:
    rows: list[Row] = []
    migrate(url)
    with closing(Service(open_ledgers(url))) as service:
        open_ledger(service, LEDGER)
        asks, unseen = endless_grants("k"), endless_unseen("u")
        for _ in range(4):
            service.execute_all(LEDGER, list(islice(asks, 256)))
        grants = _copies(_grants(service))
        gc.collect()
        memory.collect_rarely()  # as `accountant serve` does
        for group in GROUPS:
            names = ("service", "service, unseen", *inserts)
            found: dict[str, list[float]] = {name: [] for name in names}
            take = partial(service.execute_all, LEDGER)
            for _ in range(ROUNDS):
                found["service"].append(_rate(take, asks, group))
                found["service, unseen"].append(_rate(take, unseen, group))
                for name, insert in inserts.items():
                    found[name].append(_rate(insert, grants, group))
            rate = {name: median(rates) for name, rates in found.items()}
            rows += [
                {"what": f"{engine}: {name}, {group} a commit", "value": value, "unit": "grants/s"}
                for name, value in rate.items()
            ]
            rows += [
                {
                    "what": f"{engine}: {service}, {group} a commit",
                    "value": median(map(truediv, found[service], found[name])),
                    "unit": "ratio",
                    "beside": f"the same rows by {name}",
                }
                for service in ("service", "service, unseen")
                for name in inserts
            ]
        gc.unfreeze()
    return rows


def _rate(once: Callable[[list[T]], object], source: Iterator[T], size: int) -> float:
    """What ``once`` gets done a second with ``size`` at a time, which others make."""
    done, seconds = 0, 0.0
    while seconds < SECONDS:
        some = list(islice(source, size))
        started = time.perf_counter()
        once(some)
        seconds += time.perf_counter() - started
        done += size
    return done / seconds


def _grants(service: Service) -> list[Rows]:
    """What the service wrote for each grant."""
    texts: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for text in service.texts(LEDGER, 0, service.head(LEDGER).size):
        texts[text.sequence].append(text)
    return [(_event(*stored), texts[stored.sequence]) for stored in service.stream(LEDGER)]


def _event(sequence: int, body: bytes, leaf: bytes) -> tuple[Any, ...]:
    read = orjson.loads(body)
    time = datetime.fromisoformat(read["time"])
    return sequence, read["type"], int(time.timestamp() * 1e6), body, leaf


def _copies(grants: list[Rows]) -> Iterator[Rows]:
    """The rows over and over, each time of another ledger."""
    for number in count():
        ledger = f"raw{number}"
        for event, texts in grants:
            yield (ledger, *event), [(ledger, *text) for text in texts]
