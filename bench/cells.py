"""Narrow grants in populations of a million cells, in three to six dimensions."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

from accountant.budget.apply import apply
from accountant.budget.commands import (
    AdoptPolicy,
    AskGrant,
    Envelope,
    RegisterDataset,
    RegisterPopulation,
)
from accountant.budget.decide import decide
from accountant.budget.policy_file import parse_policy
from accountant.budget.state import State
from bench.mixed import run

SHAPES: Final = ((100, 100, 100), (32, 32, 32, 30), (16, 16, 16, 16, 15), (10,) * 6)
RULES: Final = """
policy: bench
rules:
  - {id: lifetime, limit: {epsilon: 1000000, delta: 1e-5}}
  - {id: person, across: datasets, limit: {epsilon: 1000000, delta: 1e-5}}
  - {id: each, per: client, limit: {epsilon: 1000000, delta: 1e-5}, gate: zcdp}
  - {id: month, window: 30d, limit: {epsilon: 1000000, delta: 1e-5}}
"""
GRANTS: Final = 200


def narrow(_: Path) -> list[dict[str, Any]]:
    """Decide and fold in a grant on two values of each dimension, drawn afresh: the first one, the
    next ones, and one after a reader has looked at all accounts, which then may not change for it.
    """
    rows: list[dict[str, Any]] = []
    for shape in SHAPES:
        draw, state = random.Random(1), _ledger(shape)  # noqa: S311 no secret
        first = _grant(state, shape, draw)
        later = median(_grant(state, shape, draw) for _ in range(GRANTS))
        after = []
        for _again in range(9):
            kept = [account.frozen() for account in state.accounts.distinct()]
            after.append(_grant(state, shape, draw))
            del kept
        what = f"narrow grant on 10^6 cells, {len(shape)} dimensions"
        for name, value in (("first", first), ("next", later), ("after a reader", median(after))):
            rows.append({"what": f"{what}: {name}", "value": value * 1e3, "unit": "ms"})
    return rows


def _ledger(shape: tuple[int, ...]) -> State:
    state, (policy, digest) = State("bench"), parse_policy(RULES)
    people = {
        "privacy_unit": "person",
        "neighbouring": "add_or_remove_one",
        "membership": "public",
        "dimensions": {f"d{k}": [str(i) for i in range(size)] for k, size in enumerate(shape)},
    }
    for command in (
        RegisterPopulation.model_validate(people),
        RegisterDataset(id="data", namespace="bench", name="data"),
        AdoptPolicy(policy=policy.to_json(), source_digest=digest),
    ):
        run(state, Envelope("bench", command), 1)
    return state


def _grant(state: State, shape: tuple[int, ...], draw: random.Random) -> float:
    """Seconds of one grant."""
    chosen = {f"d{k}": [str(i) for i in draw.sample(range(n), 2)] for k, n in enumerate(shape)}
    noise = {"kind": "laplace", "sensitivity": "1", "scale": f"{100 + draw.random():.6f}"}
    body = {"dataset": "data", "subjects": chosen, "mechanisms": [noise]}
    asked = Envelope("bench", AskGrant.model_validate(body), f"k{state.sequence}")
    began = perf_counter()
    found = decide(state, asked, state.time + 1)
    assert isinstance(found, list)  # noqa: S101 for the type checker
    for one in found:
        apply(state, one)
    return perf_counter() - began
