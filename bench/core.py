"""The pure core: no database, no HTTP."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from accountant.api.quick import Quick
from accountant.api.requests import body_of
from accountant.budget.apply import apply
from accountant.budget.commands import (
    COMMANDS,
    AskGrant,
    CommitGrant,
    Envelope,
    RecordInvocations,
    ReleaseGrant,
    command_from_json,
)
from accountant.budget.decide import Repeated, decide
from accountant.budget.replay import RUN
from accountant.budget.request import work_out
from accountant.budget.sealing import SALT_BYTES, seal
from accountant.budget.state import State, envelope_of
from accountant.ledger.events import Entry, Event
from accountant.ledger.merkle import leaf_hash
from accountant.runtime import memory
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from accountant.workers.helpers import cores
from accountant.workers.replaying import replay_on
from bench.mixed import LEDGER, begun, mixed

POLICY = """
policy: bench
rules:
  - {id: lifetime, limit: {epsilon: 1000000, delta: 1e-5}}
  - {id: person, across: datasets, limit: {epsilon: 1000000, delta: 1e-5}}
  - {id: nearly, of: lifetime, at: 80%, action: flag}
"""
"""Nothing is refused before some three million events."""
UNIT: Final = 32
"""Grants in a unit of work."""


def ledger(values: int) -> State:
    """A population of ``values`` x ``values`` cells, a dataset and a policy of three rules."""
    people = {
        "privacy_unit": "person",
        "neighbouring": "add_or_remove_one",
        "membership": "public",
        "dimensions": {d: [str(i) for i in range(values)] for d in ("one", "two")},
    }
    return begun(people, "data", POLICY, "bench", 1)


def grants(values: int, first: int, many: int, *, seen: bool) -> list[Envelope]:
    """Grants for one Laplace answer with a purpose, read from bytes as the service reads them:
    twenty that repeat, or each with its own scale, group and purpose.
    """
    quick, asked = Quick(), []
    for i in range(first, first + many):
        own = i % 20 if seen else i
        chosen = {str((own * 7 + j * j) % values) for j in range(5)}
        body = {
            "dataset": "data",
            "subjects": {"one": sorted(chosen, key=int), "two": [str(own // values % values)]},
            "purpose": f"study {own}",
            "mechanisms": [
                {"kind": "laplace", "sensitivity": "1", "scale": f"{100 + own / 1000:.3f}"}
            ],
        }
        asked.append(quick.one(AskGrant, "bench", orjson.dumps(body), f"k{i}"))
    return asked


def deciding(_: Path) -> list[dict[str, Any]]:
    """Seal, price, decide and fold a grant, write its bytes and hash its leaf: requests that
    repeat and such as were never seen, on one cell and on 10^4, at 10^2 and 10^5 past events.
    """
    memory.collect_rarely()  # as the service does
    rows: list[dict[str, Any]] = []
    for cells, values in ((1, 1), (10_000, 100)):
        state, taken = ledger(values), dict[tuple[int, bool], float]()
        for past in (100, 100_000):
            while state.sequence < past:
                _decided(state, grants(values, state.sequence, min(1_000, past), seen=True))
            for seen in (True, False):
                asked = grants(values, state.sequence + 10**6, 4_096, seen=seen)
                taken[past, seen] = _decided(state, asked)
                what = f"grant {'that repeats' if seen else 'never seen'}, {cells:,} cells"
                value = taken[past, seen] * 1e6
                beside = f"{past:,} past events"
                rows.append({"what": what, "value": value, "unit": "µs", "beside": beside})
        ratio = taken[100_000, False] / taken[100, False]
        rows.append({"what": f"grant never seen, {cells:,} cells", "value": ratio, "unit": "ratio"})
        rows[-1]["beside"] = "10^5 against 10^2 past events"
    return rows


def _decided(state: State, asked: Sequence[Envelope]) -> float:
    """The processor seconds of one of these grants, in units of work as the service makes them."""
    started = time.process_time()
    for first in range(0, len(asked), UNIT):
        unit = asked[first : first + UNIT]
        work_out(state, [one.command for one in unit])
        unit = [seal(state, one, _salt)[0] for one in unit]
        for one in unit:
            _answered(state, one, state.sequence)
    return (time.process_time() - started) / len(asked)


def _answered(state: State, asked: Envelope, now: int) -> list[Entry]:
    outcomes = decide(state, asked, now)
    if isinstance(outcomes, Repeated):
        raise TypeError("a benchmark repeated a key")
    for outcome in outcomes:
        apply(state, outcome)
        leaf_hash(outcome.entry.body)
    return [outcome.entry for outcome in outcomes]


def _salt() -> bytes:
    return bytes(SALT_BYTES)


def replay_rate(folder: Path) -> list[dict[str, Any]]:
    """Replay a mixed ledger of 100,000 events, every decision taken again: on one process and on
    every core, beside reading the same bytes, deciding the same commands live, from what is read
    and from the bytes of requests, and all that a service does of them but HTTP.
    """
    memory.collect_rarely(memory.YOUNG_OF_A_COMMAND)  # as `accountant replay` does
    bodies = [event.to_bytes() for event in mixed(100_000)]
    readers: dict[str, Callable[[bytes], Any]] = {"json": json.loads, "orjson": orjson.loads}
    rates = {}
    for what, loads in readers.items():
        started = time.perf_counter()
        for body in bodies:
            sha256(body).digest()
            loads(body)
        rates[what] = len(bodies) / (time.perf_counter() - started)
    rows = []
    answered, stored = _taking(f"sqlite:///{folder}/taken.db", bodies)
    live = {
        "deciding and folding the same commands, read before": _deciding(bodies),
        "reading, sealing, deciding and folding the same requests": answered,
        "reading, sealing, deciding, folding and storing the same requests": answered + stored,
    }
    for processes in sorted({1, cores()}):
        started, used = time.perf_counter(), _processor()
        progress = deque(replay_on(LEDGER, bodies, len(bodies), processes), maxlen=1).pop()
        used, seconds = _processor() - used, time.perf_counter() - started
        if progress.findings or progress.events != len(bodies):
            raise RuntimeError(f"the replay disagrees: {progress.findings[:1]}")
        on = f"on {processes} processes" if processes > 1 else "on one process"
        rate = len(bodies) / seconds
        rows += [
            {"what": f"replay {on}", "value": rate, "unit": "events/s"},
            *(
                {"what": f"processor time of replay {on}", "value": used / took, "unit": "ratio"}
                | {"beside": f"{what}, {took / len(bodies) * 1e6:.0f} µs each"}
                for what, took in live.items()
            ),
            *(
                {"what": f"replay {on}", "value": rate / read, "unit": "ratio"}
                | {"beside": f"SHA-256 and {reader} of the same bytes, {read:,.0f} events/s"}
                for reader, read in rates.items()
            ),
        ]
    return rows


def _deciding(bodies: list[bytes]) -> float:
    """The processor seconds that it takes to decide the commands of these events, read before."""
    state, events = State(LEDGER), map(Event.from_bytes, bodies)
    taken = 0.0
    while some := list(islice(events, RUN)):
        asked = [envelope_of(event) for event in some]
        started = time.process_time()
        for one, event in zip(asked, some, strict=True):
            _answered(state, one, event.time)
        taken += time.process_time() - started
    return taken


def _taking(url: str, bodies: list[bytes]) -> tuple[float, float]:
    """The processor seconds that it takes to answer the requests of these events, from the bytes of
    their bodies on, and to store the answers, in units of work as the service makes them.
    """
    migrate(url)
    state, ledgers, answered, stored = State(LEDGER), open_ledgers(url), 0.0, 0.0
    for first in range(0, len(bodies), UNIT):
        unit = [_sent(Event.from_bytes(body)) for body in bodies[first : first + UNIT]]
        started = time.process_time()
        asked = [_read(*sent) for _, sent in unit]
        if state.population is not None:
            work_out(state, [one.command for one in asked])
        sealed = [seal(state, one, lambda: os.urandom(SALT_BYTES))[0] for one in asked]
        entries: list[Entry] = []
        for one, (stamp, _) in zip(sealed, unit, strict=True):
            entries += _answered(state, one, stamp)
        done = time.process_time()
        with ledgers.writing(LEDGER) as writing:
            writing.append(LEDGER, entries)
            writing.commit()
        answered, stored = answered + done - started, stored + time.process_time() - done
    ledgers.close()
    if state.sequence != len(bodies):
        raise RuntimeError(f"{len(bodies)} requests led to {state.sequence} events")
    return answered, stored


_Sent = tuple[str, str | None, dict[str, Any], bytes]
"""A request: the client, its key, the command, and the bytes of its body."""
_QUICK: Final = Quick()


def _sent(event: Event) -> tuple[int, _Sent]:
    """The stamp of an event, and the request that it answers. A text stands for its digest."""
    command = dict(event.body["command"])
    for name in ("purpose", "reason"):
        if isinstance(command.get(name), dict):
            command[name] = f"nightly run {event.sequence}"
    body = {k: v for k, v in command.items() if k not in ("type", "grant", "confirms")}
    return event.time, (event.by, event.body.get("key"), command, orjson.dumps(body))


def _read(by: str, key: str | None, command: dict[str, Any], body: bytes) -> Envelope:
    """Read a request as the service does; what it asks itself has no body."""
    kind = COMMANDS[command["type"]]
    if kind in (AskGrant, RecordInvocations):
        return _QUICK.one(kind, by, body, key)
    if kind in (CommitGrant, ReleaseGrant):
        read = body_of(body) | {"grant": command["grant"]}
        return Envelope(by, kind.model_validate(read), key)
    return Envelope(by, command_from_json(command), key)


def _processor() -> float:
    """The processor seconds of this process, and of its children that have ended."""
    return sum(os.times()[:4])
