"""The ledger as evidence: growing the tree, exporting, and checking a bundle offline."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from accountant.auditing.verify import verify
from accountant.budget.apply import apply
from accountant.budget.decide import Repeated, decide
from accountant.budget.state import State, envelope_of
from accountant.ledger.bundle import read_members
from accountant.ledger.events import Entry, Event
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.ledger.tiles import unpack_entries
from accountant.publishing.export import covering, write_bundle
from accountant.publishing.publisher import Publisher
from accountant.runtime.service import Service
from accountant.store.ledgers import Ledgers
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from accountant.store.vault import Vault
from bench.mixed import LEDGER, mixed

EVENTS = 100_000
PAGE = 2_000


def tree(_: Path) -> list[dict[str, Any]]:
    """Growing the tree by an event, beside deciding and folding the same event."""
    events = list(mixed(4_000))
    state = State(LEDGER)
    started = time.perf_counter()
    for event in events:
        outcomes = decide(state, envelope_of(event), event.time)
        if isinstance(outcomes, Repeated):
            raise TypeError("a benchmark repeated a key")
        apply(state, outcomes[0])
    deciding = (time.perf_counter() - started) / len(events)
    bodies = [event.to_bytes() for event in events]
    grown, _nodes = Tree().grown([bytes(32)] * (2**20 - 2_000))
    started = time.perf_counter()
    for body in bodies:
        grown, _nodes = grown.grown([leaf_hash(body)])
        b"".join(grown.peaks)
    growing = (time.perf_counter() - started) / len(bodies)
    return [
        {"what": "tree: append one event at 10^6", "value": growing * 1e6, "unit": "µs"},
        {
            "what": "tree append",
            "value": growing / deciding,
            "unit": "ratio",
            "beside": "deciding and folding the same events",
        },
    ]


def checking(folder: Path) -> list[dict[str, Any]]:
    """Exporting and verifying a ledger of 100,000 events, every decision taken again."""
    path = folder / "mixed.tar"
    exporting = export(folder, path, EVENTS)
    reading = {"json": 0.0, "orjson": 0.0}
    verifying = 0.0
    for _ in range(2):
        for name, parse in (("json", json.loads), ("orjson", orjson.loads)):
            reading[name] += _reading(path, parse)
        verifying += _verifying(path)
    rows = [
        {"what": "export", "value": EVENTS / exporting, "unit": "events/s"},
        {"what": "verify", "value": 2 * EVENTS / verifying, "unit": "events/s"},
    ]
    for name, seconds in reading.items():
        rows.append(
            {
                "what": f"verify rate ({name})",
                "value": seconds / verifying,
                "unit": "ratio",
                "beside": f"reading, parsing ({name}) and hashing the same bytes",
            }
        )
    return rows


def fill(url: str, events: int) -> Ledgers:
    """A database with a ledger of so many events."""
    migrate(url)
    ledgers = open_ledgers(url)
    stream = mixed(events)
    while page := list(islice(stream, PAGE)):
        with ledgers.writing(LEDGER) as writing:
            writing.append(LEDGER, [Entry.of(event) for event in page])
            writing.commit()
    return ledgers


def export(folder: Path, path: Path, events: int) -> float:
    """Makes a ledger of so many events, exports it; the seconds that the export took."""
    ledgers = fill(f"sqlite:///{folder}/mixed.db", events)
    *_, last = ledgers.read(LEDGER, events - 1)  # a request may end in two events
    service = Service(ledgers, clock=lambda: Event.from_bytes(last.body).time)
    signed = Publisher(service, Vault(folder), "bench").sign(LEDGER)
    started = time.perf_counter()
    state = service.state(LEDGER)
    with path.open("wb") as out:
        entries = covering(0, None, signed.size)
        write_bundle(out, ledgers, LEDGER, signed, state, entries, with_texts=False)
    seconds = time.perf_counter() - started
    ledgers.close()
    return seconds


def _verifying(path: Path) -> float:
    started = time.perf_counter()
    with path.open("rb") as stream:
        verdict = verify([stream])
    seconds = time.perf_counter() - started
    if verdict.count or not verdict.decided:
        raise RuntimeError(f"the bundle does not verify: {verdict.findings[:3]}")
    return seconds


def _reading(path: Path, parse: Callable[[bytes], Any]) -> float:
    started = time.perf_counter()
    for body in _entries(path):
        parse(body)
        sha256(body).digest()
    return time.perf_counter() - started


def _entries(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        for member in read_members(stream):
            if member.name.startswith("tile/entries/"):
                yield from unpack_entries(member.data)
