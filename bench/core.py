"""The pure core: no database, no HTTP."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

from accountant.budget.commands import (
    AdoptPolicy,
    Asked,
    AskGrant,
    RegisterDataset,
    RegisterPopulation,
)
from accountant.budget.decide import Repeated, decide
from accountant.budget.folding import apply
from accountant.budget.policy_file import parse_policy
from accountant.budget.replay import replay
from accountant.budget.state import State
from accountant.ledger.events import Event

POLICY = """
policy: bench
rules:
  - {id: lifetime, limit: {epsilon: 1000000, delta: 1e-6}}
  - {id: person, across: datasets, limit: {epsilon: 1000000, delta: 1e-6}}
  - {id: nearly, of: lifetime, at: 80%, action: flag}
"""


def run(state: State, asked: Asked, now: int) -> list[Event]:
    """Decides and folds; returns the events."""
    events = decide(state, asked, now)
    if isinstance(events, Repeated):
        raise TypeError("a benchmark repeated a key")
    for event in events:
        apply(state, event)
    return events


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
    return state, [e for c in commands for e in run(state, Asked("bench", c), 1)]


def grant(key: str, subjects: Any = None) -> Asked:
    """A grant for one Laplace answer."""
    body = {
        "dataset": "data",
        "subjects": subjects,
        "purpose": "bench",
        "mechanisms": [{"kind": "laplace", "sensitivity": "1", "scale": "100"}],
    }
    return Asked("bench", AskGrant.model_validate(body), key)


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
    """Replay 10,000 events, every decision taken again."""
    state, events = ledger(1)
    while len(events) < 10_000:
        events += run(state, grant(f"k{len(events)}"), len(events))
    stored = [(event.to_bytes(), None) for event in events]
    started = time.perf_counter()
    result = deque(replay("bench", stored), maxlen=1)[0]
    seconds = time.perf_counter() - started
    if result.findings:
        raise RuntimeError(f"the replay disagrees: {result.findings[0]}")
    started = time.perf_counter()
    for body, _link in stored:
        Event.from_bytes(body)
    reading = time.perf_counter() - started
    return [
        {"what": "replay", "value": len(events) / seconds, "unit": "events/s"},
        {
            "what": "replay rate",
            "value": reading / seconds,
            "unit": "ratio",
            "beside": "reading and re-serialising the same bytes",
        },
    ]
