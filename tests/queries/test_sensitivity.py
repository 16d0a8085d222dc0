"""On neighbouring data the exact values differ by what is stated at most, and the same runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from catalogue import CASES, COLOURS, Rows, dataset, people

from accountant.client import Client
from accountant.queries import Dataset, Query
from accountant.queries.choices import Line, OnLine
from accountant.queries.steps import Noise, Step

SIZE = 12
ROUNDS = 3


def extreme(numbers: np.random.Generator, rows: int, unit: int) -> dict[str, Any]:
    """Records of one unit, often at the ends of the bounds or beyond them."""
    return {
        "x": numbers.choice([-1e9, 0.0, 5.0, 10.0, 1e9, numbers.uniform(0, 10)], rows),
        "y": numbers.choice([-1e9, -15.5, -5.25, 5.0, 1e9, numbers.uniform(-15, 5)], rows),
        "age": numbers.choice([-7, 0, 50, 100, 10**9], rows),
        "colour": numbers.choice([*COLOURS, "mauve"], rows),
        "country": np.full(rows, "JP"),
        "unit": np.full(rows, unit),
    }


def joined(*parts: Rows) -> dict[str, Any]:
    """All their records."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def some(numbers: np.random.Generator) -> dict[str, Any]:
    """Units of one record each, all in one country; ages are floats, which may be missing."""
    rows = people(SIZE, int(numbers.integers(10**6)), corner=False)
    return rows | {"country": np.full(SIZE, "JP"), "unit": np.arange(SIZE)}


def one_comes(numbers: np.random.Generator, most: int) -> tuple[Rows, Rows]:
    """Data, and the same with another unit."""
    rows = some(numbers)
    return rows, joined(extreme(numbers, int(numbers.integers(1, most + 1)), SIZE), rows)


def one_is_exchanged(numbers: np.random.Generator, most: int) -> tuple[Rows, Rows]:
    """Data with a unit, and with another in its place: of one record, if units have one."""
    rows = some(numbers)
    sizes = numbers.integers(0, most + 1, 2) if most > 1 else [1, 1]
    one, other = (joined(extreme(numbers, int(size), SIZE), rows) for size in sizes)
    return one, other


def with_missing(rows: Rows, numbers: np.random.Generator) -> dict[str, Any]:
    """The same with missing values in the first record."""
    found = {**rows, "x": rows["x"].copy(), "age": rows["age"].astype(float)}
    found["x"][0] = np.nan
    found["age"][0] = np.nan if numbers.random() < 0.5 else found["age"][0]
    return found


Ask = Callable[[Client, Rows], Dataset]
ASKS: dict[str, tuple[Ask, int]] = {
    "everyone": (dataset, 1),
    "dimension": (lambda ledger, rows: dataset(ledger, rows).where(country="JP"), 1),
    "filter": (lambda ledger, rows: dataset(ledger, rows).where(colour=["red", "green"]), 1),
    "several": (
        lambda ledger, rows: dataset(ledger, rows, unit="unit", records_per_unit=3),
        3,
    ),
    "too many": (
        lambda ledger, rows: dataset(ledger, rows, unit="unit", records_per_unit=2),
        5,
    ),
    "missing": (lambda ledger, rows: dataset(ledger, rows, missing="drop"), 1),
}


@pytest.fixture(scope="module")
def moves_between_groups(opened: Callable[..., Client]) -> Client:
    """A ledger under replace_one, where it is private who is in which group."""
    return opened("replace_one", "private")


def exact(query: Query) -> list[Any]:
    """Draws of a query: its values without noise, or the first place of a choice."""
    pairs = zip(query.steps, query.values(), strict=True)
    return [value if isinstance(step, Noise) else 0 for step, value in pairs]


def differences(step: Step, one: Any, other: Any) -> float:
    """By how much two exact values differ, in the norm of the step."""
    if isinstance(step, Noise):
        gaps = [abs(float(a - b)) for a, b in zip(listed(one), listed(other), strict=True)]
        return float(np.hypot.reduce(gaps)) if "gauss" in step.kind else float(sum(gaps))
    if isinstance(step, OnLine):
        one, other = (np.repeat(each.short / each.parts, each.lengths) for each in (one, other))
    return float(np.max(np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float))))


def listed(value: Any) -> list[Any]:
    """A value as a list."""
    return value if isinstance(value, list) else [value]


def checked(make: Callable[[Dataset], Query], pairs: Iterator[tuple[Dataset, Dataset]]) -> float:
    """Checks a query on pairs of neighbours; the largest part of a sensitivity that was used."""
    used = 0.0
    for pair in pairs:
        one, other = map(make, pair)
        assert one.steps == other.steps
        assert one.mechanisms == other.mechanisms
        draws = exact(one)
        assert one.finish(draws) == other.finish(draws)
        assert one.bounds(0.9, draws, None) == other.bounds(0.9, draws, None)
        for step, a, b in zip(one.steps, one.values(), other.values(), strict=True):
            assert not isinstance(a, Line) or a.lengths.sum() == b.lengths.sum()
            reach = float(step.sensitivity)
            if step.kind == "discrete_gaussian" and step.lattice is not None:  # type: ignore[attr-defined]
                reach *= float(step.lattice)  # type: ignore[attr-defined]
            found = differences(step, a, b)
            assert found <= reach * (1 + 1e-12)
            used = max(used, found / reach)
    return used


@pytest.mark.parametrize("asked", ASKS)
@pytest.mark.parametrize("relation", ["comes and goes", "replaces", "moves between groups"])
def test_values_differ_by_what_is_stated(
    relation: str,
    asked: str,
    comes_and_goes: Client,
    replaces: Client,
    moves_between_groups: Client,
) -> None:
    """Whatever the unit says, however many records it has, missing or filtered out: each step's
    value changes by its sensitivity at most, and for some unit nearly by that.
    """
    ask, most = ASKS[asked]
    ledger, change = {
        "comes and goes": (comes_and_goes, one_comes),
        "replaces": (replaces, one_is_exchanged),
        # Who leaves a group, or comes into it, is there or not for that group.
        "moves between groups": (
            moves_between_groups,
            one_comes if asked == "dimension" else one_is_exchanged,
        ),
    }[relation]
    numbers = np.random.default_rng([*map(ord, relation + asked)])
    pairs = [change(numbers, most) for _ in range(ROUNDS)]
    if asked == "missing":
        pairs = [(one, with_missing(other, numbers)) for one, other in pairs]
    datasets = [(ask(ledger, one), ask(ledger, other)) for one, other in pairs]
    public = datasets[0][0].unit(always=True).fixed
    for name, case in CASES.items():
        if name == "count" and public:
            with pytest.raises(ValueError, match="is public here"):
                case.make(datasets[0][0], epsilon=1)
            continue
        checked(lambda data, case=case: case.make(data, epsilon=1), iter(datasets))
        if name in ("sums", "histogram", "mean"):
            checked(lambda data, case=case: case.make(data, rho=1), iter(datasets))


@pytest.mark.parametrize("name", [name for name in CASES if name != "correlation"])
def test_sensitivities_are_no_larger_than_needed(
    name: str, comes_and_goes: Client, replaces: Client
) -> None:
    """For each kind there are neighbours that differ by the whole sensitivity of some step."""
    for ledger, change in ((comes_and_goes, one_comes), (replaces, one_is_exchanged)):
        if name == "count" and ledger is replaces:
            continue
        numbers = np.random.default_rng(3)
        rows = (change(numbers, 1) for _ in range(40))
        pairs = ((dataset(ledger, one), dataset(ledger, other)) for one, other in rows)
        used = checked(lambda data: CASES[name].make(data, epsilon=1), pairs)
        assert used > 0.85
