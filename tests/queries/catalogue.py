"""All kinds of queries, each with data on which one unit can change the most.

A kind that is added here is tested like all others: for its accuracy, its empirical epsilon, the
same with noise of half the scale, its sensitivities on random neighbours, and against the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant import queries
from accountant.client import Client
from accountant.queries import Dataset, Query

Rows = Mapping[str, NDArray[Any]]

BOUNDS = {"x": (0, 10), "y": ("-15.5", 5), "age": (0, 100)}
"""Bounds that are not symmetric around 0, and of which not always the upper is further from it."""
COLOURS = ["red", "green", "blue"]


@dataclass(frozen=True)
class Case:
    """A kind of query: how it is asked, and what the tests should expect of it."""

    make: Callable[..., Query]
    rows: Callable[[], Rows] | None = None
    """Data whose first record, if it is there or not, changes the draws as much as can be."""
    epsilon: float = 3.0
    draws: int = 7000
    """As many show that too little noise is too little."""
    broken: int = 2
    """What the scale is divided by, for too little noise."""


def people(size: int, seed: int = 1, corner: bool = True) -> dict[str, NDArray[Any]]:
    """Some people; the first at those bounds of everything that are furthest from 0."""
    numbers = np.random.default_rng(seed)
    x = np.clip(numbers.normal(5, 2, size), 0, 10)
    found: dict[str, NDArray[Any]] = {
        "x": x,
        "y": np.clip(2 * x - 15 + numbers.normal(0, 3, size), -15.5, 5),
        "age": numbers.integers(0, 101, size),
        "colour": numbers.choice(COLOURS, size),
        "country": numbers.choice(["CH", "JP", "KR"], size),
    }
    if corner:
        for name, value in {"x": 10.0, "y": -15.5, "age": 100, "colour": "red"}.items():
            found[name][0] = value
    return found


def around_a_gap() -> Rows:
    """Ages of which the first, removed, moves the median from a short gap to a long one."""
    return people(20) | {"age": np.array([0] * 10 + [2] + [100] * 9)}


def below_a_gap() -> Rows:
    """Numbers of which the first, removed, moves the ninth decile from a short gap to a long one,
    below it.
    """
    return people(20) | {"x": np.array([10.0] + [0.0] * 17 + [9.0, 10.0])}


def a_draw() -> Rows:
    """As many red as blue people: without the first, blue leads."""
    return people(20) | {"colour": np.array(["red", "blue"] * 10)}


def on_a_line() -> Rows:
    """People on a rising line, but for the first, in the corner below it."""
    x, y = np.array([10.0, *[10.0, 0.0] * 3]), np.array([-15.5, *[5.0, -15.5] * 3])
    return people(7) | {"x": x, "y": y}


def without_first(rows: Rows) -> dict[str, NDArray[Any]]:
    """The same people but for the first."""
    return {name: column[1:] for name, column in rows.items()}


def dataset(ledger: Client, rows: Rows, **more: Any) -> Dataset:
    """People as a dataset."""
    return queries.dataset(ledger, "visits", rows, bounds=BOUNDS, **more)


def lead(rows: Rows, colour: str) -> float:
    """A score: half of by how many a colour is ahead of all others together."""
    return float(np.sum(rows["colour"] == colour)) - len(rows["colour"]) / 2


def choice(data: Dataset, **budget: Any) -> Query:
    """The colour that leads. A record that comes changes a score by 1/2, one that is exchanged by
    1.
    """
    unit = data.unit()
    most = Fraction(unit.records, 2 if unit.present else 1)
    return data.choose(COLOURS, lead, sensitivity=most, columns=["colour"], **budget)


CASES: dict[str, Case] = {
    "count": Case(lambda data, **budget: data.count(**budget)),
    "sum": Case(lambda data, **budget: data.sum("y", **budget)),
    "sums": Case(lambda data, **budget: data.sums(["x", "y"], **budget)),
    "histogram": Case(lambda data, **budget: data.histogram("colour", COLOURS, **budget)),
    "mean": Case(lambda data, **budget: data.mean("y", **budget)),
    "second_moment": Case(lambda data, **budget: data.second_moment("y", **budget)),
    "variance": Case(lambda data, **budget: data.variance("y", **budget)),
    "standard_deviation": Case(lambda data, **budget: data.standard_deviation("y", **budget)),
    "pearson": Case(lambda data, **budget: data.pearson("x", "y", **budget), draws=4000, broken=3),
    "correlation": Case(
        lambda data, **budget: data.correlation("x", "y", parts=20, **budget),
        rows=on_a_line,
        epsilon=2.0,
        draws=4000,
        broken=3,  # one unit changes the score of all but few values by less than the box allows
    ),
    "median": Case(
        lambda data, **budget: data.median("age", step=1, **budget),
        rows=around_a_gap,
        epsilon=2.0,
    ),
    "quantile": Case(
        lambda data, **budget: data.quantile("x", "0.9", step="0.1", **budget),
        rows=below_a_gap,
        epsilon=2.0,
    ),
    "choice": Case(choice, rows=a_draw, draws=6000),
}

WITH_RHO = [
    "count", "sum", "sums", "histogram", "mean", "second_moment", "variance", "standard_deviation",
    "pearson",
]  # fmt: skip
"""Kinds that take a rho in place of an epsilon."""

CELLS: Any = {"country": None}
WEIGHTS = [[1, 0, 0], [0, 1, 0]]
OTHERS: dict[str, Callable[[Dataset], Any]] = {
    "histogram_density": lambda data: data.histogram_density("x", bins=5, epsilon=1),
    "series_density": lambda data: data.series_density("x", terms=5, epsilon=1),
    "kernel_density": lambda data: data.kernel_density("x", bandwidth=1, rho=1),
    "function": lambda data: data.function(
        ["x"], lambda x, t: x * t, within=(0, 10), axes=[(0, 1)], degree=2, epsilon=1
    ),
    "nearest": lambda data: data.nearest("x", [[1], [2]], epsilon=1),
    "sparse_vector": lambda data: data.sparse_vector(threshold=1, epsilon=1, positives=1),
    "reusable_holdout": lambda data: data.reusable_holdout(
        people(50), ["x"], threshold="0.5", epsilon=1, budget=1, records=50
    ),
    "online_weights": lambda data: data.online_weights(CELLS, records=50, epsilon=1, updates=1),
    "mwem": lambda data: data.mwem(CELLS, WEIGHTS, records=50, epsilon=1, rounds=1),
    "boosting": lambda data: data.boosting(
        CELLS, WEIGHTS, records=50, epsilon=1, rounds=9, draws=2
    ),
    "subsample": lambda data: data.subsample(
        lambda rows: rows["x"].mean(), ["x"], (0, 10), epsilon=1, blocks=5
    ),
    "propose_test_release": lambda data: data.propose_test_release(
        "x", bound=1, epsilon=1, delta="1e-6"
    ),
    "best_feature": lambda data: data.best_feature(["x", "y"], "age", epsilon=1),
    "features_above": lambda data: data.features_above(["x", "y"], "age", threshold=1, epsilon=1),
}
"""Kinds with tests of their own, at sizes at which nothing fails."""
LOCAL: dict[str, Callable[[Dataset], Any]] = {
    "response": lambda data: data.response("colour", COLOURS, theta="0.8"),
    "unary": lambda data: data.unary("colour", COLOURS, epsilon=1),
    "both_ways": lambda data: data.both_ways("colour", COLOURS, epsilon=1),
}
"""Kinds that collect a report from each person."""
KINDS: dict[str, Callable[[Dataset], Any]] = {
    **{name: lambda data, made=case.make: made(data, epsilon=1) for name, case in CASES.items()},
    **OTHERS,
}
"""Kinds of queries that anybody may be asked by."""
