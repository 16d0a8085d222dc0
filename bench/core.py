"""The pure core: no database, no HTTP."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from accountant.budget.commands import (
    AdoptPolicy,
    AskGrant,
    Envelope,
    RegisterDataset,
    RegisterPopulation,
)
from accountant.budget.policy_file import parse_policy
from accountant.budget.replay import RUN
from accountant.budget.state import State, envelope_of
from accountant.ledger.events import Event
from accountant.workers.replaying import cores, replay_on
from bench.mixed import LEDGER, mixed, run

POLICY = """
policy: bench
rules:
  - {id: lifetime, limit: {epsilon: 1000000, delta: 1e-5}}
  - {id: person, across: datasets, limit: {epsilon: 1000000, delta: 1e-5}}
  - {id: nearly, of: lifetime, at: 80%, action: flag}
"""
"""Nothing is refused before some three million events."""


def ledger(values: int) -> tuple[State, list[Event]]:
    """A population of ``values`` x ``values`` cells, a dataset and a policy."""
    state = State("bench")
    policy, digest = parse_policy(POLICY)
    commands = [
        RegisterPopulation.model_validate(
            {
                "privacy_unit": "person",
                "neighbouring": "add_or_remove_one",
                "membership": "public",
                "dimensions": {d: [str(i) for i in range(values)] for d in ("one", "two")},
            }
        ),
        RegisterDataset(id="data", namespace="bench", name="data"),
        AdoptPolicy(policy=policy.to_json(), source_digest=digest),
    ]
    return state, [e for c in commands for e in run(state, Envelope("bench", c), 1)]


def grant(key: str, subjects: Any = None) -> Envelope:
    """A grant for one Laplace answer."""
    body = {
        "dataset": "data",
        "subjects": subjects,
        "purpose": "bench",
        "mechanisms": [{"kind": "laplace", "sensitivity": "1", "scale": "100"}],
    }
    return Envelope("bench", AskGrant.model_validate(body), key)


def decide_flat(_: Path) -> list[dict[str, Any]]:
    """Decide and fold one grant, at 10^2 and 10^5 past events."""
    state, _events = ledger(1)
    timings = {}
    for past in (100, 100_000):
        while state.sequence < past:
            run(state, grant(f"k{state.sequence}"), state.sequence)
        asked = [grant(f"t{past}-{i}") for i in range(2_000)]
        started = time.perf_counter()
        for one in asked:
            run(state, one, state.sequence)
        timings[past] = (time.perf_counter() - started) / len(asked)
    return [
        {"what": f"grant, {past} past events", "value": t * 1e6, "unit": "µs"}
        for past, t in timings.items()
    ] + [
        {
            "what": "grant latency ratio",
            "value": timings[100_000] / timings[100],
            "unit": "ratio",
            "beside": "10^5 against 10^2 past events",
        }
    ]


def wide_charge(_: Path) -> list[dict[str, Any]]:
    """Decide and fold one grant over half of 99,856 subject cells."""
    state, _events = ledger(316)
    half = {"one": {"from": "0", "to": "157"}}
    run(state, grant("first", half), 2)
    asked = [grant(f"w{i}", half) for i in range(200)]
    started = time.perf_counter()
    for one in asked:
        run(state, one, 3)
    seconds = (time.perf_counter() - started) / len(asked)
    return [{"what": "grant over 49,928 cells of 99,856", "value": seconds * 1e3, "unit": "ms"}]


def replay_rate(_: Path) -> list[dict[str, Any]]:
    """Replay a mixed ledger of 100,000 events, every decision taken again: on one process and on
    every core, beside reading the same bytes and deciding the same commands live.
    """
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
    live = _deciding(bodies)
    for processes in sorted({1, cores()}):
        started, used = time.perf_counter(), _processor()
        progress = deque(replay_on(LEDGER, bodies, len(bodies), processes), maxlen=1).pop()
        used, seconds = _processor() - used, time.perf_counter() - started
        if progress.findings or progress.events != len(bodies):
            raise RuntimeError(f"the replay disagrees: {progress.findings[:1]}")
        on = f"on {processes} processes" if processes > 1 else "on one process"
        rate = len(bodies) / seconds
        beside = "deciding and folding the same commands"
        rows += [
            {"what": f"replay {on}", "value": rate, "unit": "events/s"},
            {"what": f"processor time of replay {on}", "value": used / live, "unit": "ratio"}
            | {"beside": f"{beside}, {live / len(bodies) * 1e6:.0f} µs each"},
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
            run(state, one, event.time)
        taken += time.process_time() - started
    return taken


def _processor() -> float:
    """The processor seconds of this process, and of its children that have ended."""
    return sum(os.times()[:4])
