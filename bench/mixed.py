"""A ledger as it comes about where several pipelines share several datasets."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from accountant.budget.apply import apply
from accountant.budget.commands import (
    AdoptPolicy,
    AskGrant,
    CommitGrant,
    ConfirmChange,
    Envelope,
    ExpireGrant,
    RecordInvocations,
    RegisterDataset,
    RegisterPopulation,
    ReleaseGrant,
)
from accountant.budget.decide import SYSTEM, Repeated, decide
from accountant.budget.policy_file import parse_policy
from accountant.budget.sealing import seal
from accountant.budget.state import State
from accountant.ledger.events import Event

LEDGER: Final = "mixed"
START: Final = 1_790_000_000_000_000
STEP: Final = 1_370_001
"""Microseconds between two requests."""

DATASETS: Final = ("visits", "diagnoses", "billing", "surveys", "claims")
CLIENTS: Final = tuple(f"pipeline-{i}" for i in range(8))
POLICY: Final = """
policy: mixed
rules:
  - {id: lifetime, limit: {epsilon: 1000000, delta: 1e-6}}
  - {id: person, across: datasets, limit: {epsilon: 1000000, delta: 1e-6}}
  - {id: small, datasets: surveys, limit: {epsilon: 20}, gate: basic}
  - {id: nearly, of: lifetime, at: 80%, action: flag}
  - {id: why, require: [purpose]}
"""
MECHANISMS: Final[tuple[dict[str, Any], ...]] = (
    {"kind": "laplace", "sensitivity": "1", "scale": "100"},
    {"kind": "laplace", "sensitivity": "1", "scale": "40", "count": 3},
    {"kind": "gaussian", "sensitivity": "1", "scale": "50", "delta": "1e-12"},
    {"kind": "discrete_laplace", "sensitivity": "1", "scale": "80"},
)
WHERE: Final = (None, None, {"sex": ["f"]}, {"age": {"from": "20", "to": "30"}, "sex": ["m"]})


def run(state: State, asked: Envelope, now: int) -> list[Event]:
    """Decides and folds; returns the events."""
    events = decide(state, asked, now)
    if isinstance(events, Repeated):
        raise TypeError("a benchmark repeated a key")
    for event in events:
        apply(state, event)
    return [event.event() for event in events]


def confirm(state: State, now: int) -> list[Event]:
    """Confirms the one proposal, of a first policy, as a second person; returns the events."""
    [one] = state.proposals.values()
    command = ConfirmChange(proposal=one.sequence, digest=one.digest)
    return run(state, Envelope("second", command), now)


def begun(people: dict[str, Any], dataset: str, rules: str, ledger: str, now: int) -> State:
    """A ledger with a population, one dataset and a policy in force."""
    state, (policy, digest) = State(ledger), parse_policy(rules)
    for command in (
        RegisterPopulation.model_validate(people),
        RegisterDataset(id=dataset, namespace=ledger, name=dataset),
        AdoptPolicy(policy=policy.to_json(), source_digest=digest),
    ):
        run(state, Envelope("bench", command), now)
    confirm(state, now)
    return state


def opening() -> list[Envelope]:
    """A population of twenty cells, five datasets and a policy."""
    policy, digest = parse_policy(POLICY)
    ages = [str(age) for age in range(0, 100, 10)]
    people = {
        "privacy_unit": "person",
        "neighbouring": "add_or_remove_one",
        "membership": "public",
        "dimensions": {"age": ages, "sex": ["f", "m"]},
    }
    return [
        Envelope("admin", RegisterPopulation.model_validate(people)),
        *(Envelope("admin", RegisterDataset(id=d, namespace="bench", name=d)) for d in DATASETS),
        Envelope("admin", AdoptPolicy(policy=policy.to_json(), source_digest=digest)),
    ]


def requests(draw: random.Random) -> list[dict[str, Any]]:
    """Twenty different requests: one to three mechanisms on a dataset, on everyone or a group."""
    return [
        {
            "dataset": DATASETS[i % len(DATASETS)],
            "subjects": WHERE[i % len(WHERE)],
            "mechanisms": draw.sample(MECHANISMS, k=1 + i % 3),
        }
        for i in range(20)
    ]


def mixed(events: int, seed: int = 1) -> Iterator[Event]:
    """Some ``events`` events: a tenth of the requests are records of what ran, of the grants most
    are committed, some in part, and few released or left to expire.
    """
    draw, state, now = random.Random(seed), State(LEDGER), START  # noqa: S311 no secret
    for asked in opening():
        yield from run(state, asked, now)
    yield from confirm(state, now)
    asks, waiting = requests(draw), deque[tuple[str, str, dict[str, Any]]]()
    while state.sequence < events:
        now += STEP
        client, body = draw.choice(CLIENTS), draw.choice(asks)
        body = body | {"purpose": f"nightly run {state.sequence}"}
        key = f"run-{state.sequence:08d}"
        if draw.random() < 0.1:
            command: Any = RecordInvocations.model_validate(body)
        else:
            command = AskGrant.model_validate(body)
        asked, _ = seal(state, Envelope(client, command, key), lambda: draw.randbytes(32))
        [event] = run(state, asked, now)
        yield event
        if event.type == "grant.reserved.v1":
            waiting.append((client, f"g{event.sequence}", body))
        if len(waiting) > 40:
            yield from run(state, _ending(draw, *waiting.popleft()), now)
        for grant in [g for g in list(state.open.values())[:2] if g.due(now)]:
            yield from run(state, Envelope(SYSTEM, ExpireGrant(grant=grant.id)), now)


def _ending(draw: random.Random, client: str, grant: str, body: dict[str, Any]) -> Envelope:
    """Mostly a commit of all; else of a part, a release, or (once more) a commit."""
    chance = draw.random()
    if chance < 0.03:
        return Envelope(client, ReleaseGrant(grant=grant, reason="never run"))
    if chance < 0.10:
        part = {"grant": grant, "mechanisms": body["mechanisms"][:1]}
        return Envelope(client, CommitGrant.model_validate(part))
    return Envelope(client, CommitGrant(grant=grant))
