"""Narrow grants in populations of a million cells; all that is done with 8.1 x 10^7 cells."""

from __future__ import annotations

import random
import resource
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

from accountant.budget.apply import apply
from accountant.budget.commands import (
    AskGrant,
    Envelope,
)
from accountant.budget.decide import decide
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.reporting.model import lifetimes, standing
from accountant.reporting.statement import scopes
from bench.mixed import begun

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
LARGE: Final = (300, 300, 900)
BOXES: Final = 10_000


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


def large(_: Path) -> list[dict[str, Any]]:
    """Charge 8.1 x 10^7 cells: everyone, narrow groups, every second value, 10^4 different boxes;
    then report on all of them, and begin from a snapshot.
    """
    rows: list[dict[str, Any]] = []
    draw = random.Random(1)  # noqa: S311 no secret

    def told(what: str, value: float, unit: str) -> None:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        beside = f"peak memory {memory:,.0f} MB"
        rows.append(
            {"what": f"8.1 x 10^7 cells: {what}", "value": value, "unit": unit} | {"beside": beside}
        )

    began = perf_counter()
    state = _ledger(LARGE)
    told("register", perf_counter() - began, "s")
    named = {"d2": [str(at) for at in range(0, LARGE[2], 2)]}
    for what, groups in (
        ("grant on everyone, the first", [None]),
        ("grant on 2 x 2 x 2 values, the first", [_values(LARGE, draw)]),
        ("grant on every second value, 4 x 10^7 cells", [named]),
        ("the same again", [named]),
        ("grant on 10^4 different boxes, one", [_box(draw) for _ in range(BOXES)]),
        ("grant on everyone after these", [None] * 9),
        ("grant on all cells by name", [{"d0": {"from": "0", "to": str(LARGE[0] - 1)}}]),
        (
            "grant on every third value after these",
            [{"d2": [str(n) for n in range(0, LARGE[2], 3)]}],
        ),
    ):
        told(what, median(_asked(state, group, draw) for group in groups) * 1e3, "ms")
    assert state.classes is not None  # noqa: S101 for the type checker
    told("classes", state.classes.count, "")
    began = perf_counter()
    for counted in scopes(state):
        standing(state, counted)
    lifetimes(state)
    told("report on all limits by each dimension", perf_counter() - began, "s")
    began = perf_counter()
    kept = b"".join(dump(state))
    told("snapshot, write", perf_counter() - began, "s")
    told("snapshot, size", len(kept) / 1e6, "MB")
    began = perf_counter()
    load("bench", kept)
    told("snapshot, begin from", perf_counter() - began, "s")
    return rows


def _box(draw: random.Random) -> dict[str, Any]:
    """Return a box of a hundredth of each dimension."""
    firsts = [(size // 100, draw.randrange(size - size // 100)) for size in LARGE]
    return {
        f"d{k}": {"from": str(first), "to": str(first + more)}
        for k, (more, first) in enumerate(firsts)
    }


def _ledger(shape: tuple[int, ...]) -> State:
    people = {
        "privacy_unit": "person",
        "neighbouring": "add_or_remove_one",
        "membership": "public",
        "dimensions": {f"d{k}": [str(i) for i in range(size)] for k, size in enumerate(shape)},
    }
    return begun(people, "data", RULES, "bench", 1)


def _grant(state: State, shape: tuple[int, ...], draw: random.Random) -> float:
    """Seconds of one grant on two values of each dimension."""
    return _asked(state, _values(shape, draw), draw)


def _values(shape: tuple[int, ...], draw: random.Random) -> dict[str, Any]:
    return {f"d{k}": [str(i) for i in draw.sample(range(n), 2)] for k, n in enumerate(shape)}


def _asked(state: State, subjects: dict[str, Any] | None, draw: random.Random) -> float:
    """Seconds of one grant."""
    noise = {"kind": "laplace", "sensitivity": "1", "scale": f"{100 + draw.random():.6f}"}
    body = {"dataset": "data", "mechanisms": [noise]} | ({"subjects": subjects} if subjects else {})
    asked = Envelope("bench", AskGrant.model_validate(body), f"k{state.sequence}")
    began = perf_counter()
    found = decide(state, asked, state.time + 1)
    assert isinstance(found, list)  # noqa: S101 for the type checker
    for one in found:
        apply(state, one)
    return perf_counter() - began
