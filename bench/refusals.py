"""What a refusal costs that lists every exhausted account, beside deciding without the list."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final

from accountant.budget.commands import AskGrant, Envelope, RecordInvocations, RegisterDataset
from accountant.budget.decide import decide, judging
from accountant.budget.population.packing import packed
from accountant.budget.state import State
from bench.mixed import begun, run

ONE: Final = "policy: bench\nrules:\n  - {id: lifetime, limit: {epsilon: 1}}\n"
DATASETS: Final = [f"d{number:02}" for number in range(20)]
ROUNDS: Final = 15
LARGE: Final = (300, 300, 900)


def listing(_: Path) -> list[dict[str, Any]]:
    """Decide requests that are refused: on one cell, with 200 limits on 20 datasets, on 10^5 cells
    of which half are exhausted, scattered, and on 8.1 x 10^7 cells.
    """
    rows: list[dict[str, Any]] = []
    for what, state, asked in _cases():
        asks = Envelope("bench", AskGrant.model_validate(asked), "key")
        found = decide(state, asks, state.time + 1)
        assert isinstance(found, list)  # noqa: S101 for the type checker
        size = len(found[-1].entry.body)
        taken, bare = _together(lambda s=state, a=asks: decide(s, a, s.time + 1))  # type: ignore[misc]
        name, beside = f"refusal, {what}", f"{size:,} bytes"
        rows.append({"what": name, "value": taken * 1e3, "unit": "ms", "beside": beside})
        beside = "deciding without a list"
        rows.append({"what": name, "value": taken / bare, "unit": "ratio", "beside": beside})
    return rows


def _together(decided: Callable[[], Any]) -> tuple[float, float]:
    """Return the processor time of a decision with the list and without, in turns."""
    both: tuple[list[float], list[float]] = [], []
    for _ in range(ROUNDS):
        for times, bare in zip(both, (False, True), strict=True):
            with _without_list() if bare else _as_it_is():
                began, count = process_time(), 0
                while process_time() - began < 0.02:
                    decided()
                    count += 1
                times.append((process_time() - began) / count)
    return median(both[0]), median(both[1])


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


@contextmanager
def _without_list() -> Iterator[None]:
    kept, judging.exhausted = judging.exhausted, lambda *_: {}  # type: ignore[attr-defined]
    try:
        yield
    finally:
        judging.exhausted = kept  # type: ignore[attr-defined]


def _cases() -> Iterator[tuple[str, State, dict[str, Any]]]:
    """Yield a name, a ledger and a request that it refuses."""
    dice = random.Random(1)  # noqa: S311 no secret
    state = _ledger(ONE)
    _run(state, DATASETS[:1], "0.8")
    yield "one cell", state, _asked(DATASETS[:1])
    each = [dice.sample(DATASETS, 8) for _ in range(199)]
    rules = ONE + "".join(
        f"  - {{id: r{number}, datasets: [{', '.join(few)}], limit: {{epsilon: 1}}}}\n"
        for number, few in enumerate(each)
    )
    state = _ledger(rules)
    for name in DATASETS[::2]:
        _run(state, [name], "0.8")
    yield "200 limits, 20 datasets", state, _asked(DATASETS)
    ages = [f"{age:06}" for age in range(100_000)]
    state = _ledger(ONE, {"age": ages})
    _run(state, DATASETS[:1], "0.8", {"age": sorted(dice.sample(ages, 50_000))})
    yield "10^5 cells, half of them, scattered", state, _asked(DATASETS[:1])
    sides = {f"d{k}": [str(at) for at in range(size)] for k, size in enumerate(LARGE)}
    state = _ledger(ONE, sides)
    half = {name: sorted(dice.sample(side, len(side) // 2)) for name, side in sides.items()}
    _run(state, DATASETS[:1], "0.8", half)
    yield "8.1 x 10^7 cells, an eighth of them", state, _asked(DATASETS[:1])


def _ledger(rules: str, dimensions: dict[str, list[str]] | None = None) -> State:
    people = {
        "privacy_unit": "person",
        "neighbouring": "add_or_remove_one",
        "membership": "public",
        "dimensions": dimensions or {},
    }
    state = begun(people, DATASETS[0], rules, "bench", 1)
    for name in DATASETS[1:]:
        dataset = RegisterDataset(id=name, namespace="bench", name=name)
        run(state, Envelope("bench", dataset), 2)
    return state


def _run(state: State, names: list[str], epsilon: str, subjects: Any = None) -> None:
    command = RecordInvocations.model_validate(_asked(names, epsilon, subjects))
    stored = packed(state.people(), command)
    run(state, Envelope("bench", stored, f"k{state.sequence}"), state.time + 1)


def _asked(names: list[str], epsilon: str = "0.5", subjects: Any = None) -> dict[str, Any]:
    noise = {"kind": "laplace", "sensitivity": epsilon, "scale": "1"}
    dataset = names if len(names) > 1 else names[0]
    about = {"subjects": subjects} if subjects else {}
    return {"dataset": dataset, "mechanisms": [noise]} | about
