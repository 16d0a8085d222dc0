"""Every method of a dataset describes the query of its function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from catalogue import COLOURS, dataset, people

from accountant.client import Client
from accountant.queries import Dataset, Query
from accountant.queries.bernstein import function
from accountant.queries.boosting import boosting
from accountant.queries.collecting import both_ways, response, unary
from accountant.queries.densities import histogram_density, series_density
from accountant.queries.features import best_feature, features_above
from accountant.queries.holdout import reusable_holdout
from accountant.queries.kernel import kernel_density
from accountant.queries.mwem import mwem
from accountant.queries.proposals import interquartile_range, median
from accountant.queries.sessions import sparse_vector
from accountant.queries.subsample import subsample
from accountant.queries.synthetic import nearest
from accountant.queries.universe import Universe
from accountant.queries.weights import online_weights


def rise(x: Any, t: float) -> Any:
    """A summand."""
    return (x <= t) * 1.0


def largest(rows: Any) -> float:
    """A function of a block."""
    return float(np.max(rows["x"]))


def asked(data: Dataset) -> list[Any]:
    """Two linear questions."""
    universe = data.universe(CELLS)
    return [universe.where(colour="red"), universe.where(country=["CH", "JP"])]


def with_features(ledger: Client) -> Dataset:
    """People with two columns that may agree with their colour."""
    rows = people(30)
    more = {"f": rows["colour"], "g": rows["colour"][::-1]}
    return dataset(ledger, rows | more)


BOX: dict[str, Any] = {"within": (0, 1), "axes": [(0, 10)], "degree": 4, "order": 2, "rho": 1}
CELLS: dict[str, Any] = {"colour": COLOURS, "country": None}
ROUNDS: dict[str, Any] = {"records": 30, "epsilon": 2, "rounds": 4, "draws": 2, "fine": 3}
BLOCKS: dict[str, Any] = {
    "epsilon": 2, "blocks": 5, "aggregate": "median", "step": "0.5", "key": b"other"
}  # fmt: skip
PROPOSED: dict[str, Any] = {"bound": 6, "epsilon": 2, "delta": "1e-5", "step": 2}
OF_COLUMNS: dict[str, Any] = {"sensitivity": 3, "columns": ["x"]}
HOLDOUT: dict[str, Any] = {"threshold": "0.3", "epsilon": 2, "budget": 4, "records": 25}
UPDATES: dict[str, Any] = {
    "records": 30, "epsilon": 2, "updates": 3, "threshold": 4, "questions": 50
}  # fmt: skip
ABOVE: dict[str, Any] = {"threshold": 12, "epsilon": 2, "positives": 2}
METHODS: dict[str, tuple[Callable[[Dataset], Any], Callable[[Dataset], Any]]] = {
    "response": (
        lambda data: data.response("colour", COLOURS, theta="0.7"),
        lambda data: response(data, "colour", COLOURS, theta="0.7"),
    ),
    "coins": (
        lambda data: data.response("colour", COLOURS, truth_probability="0.5"),
        lambda data: response(data, "colour", COLOURS, truth_probability="0.5"),
    ),
    "unary": (
        lambda data: data.unary("colour", COLOURS, p="0.7", q="0.2"),
        lambda data: unary(data, "colour", COLOURS, p="0.7", q="0.2"),
    ),
    "histogram_density": (
        lambda data: data.histogram_density("x", bins=7, rho=1),
        lambda data: histogram_density(data, "x", 7, None, 1),
    ),
    "series_density": (
        lambda data: data.series_density("x", terms=3, epsilon=1, points=9),
        lambda data: series_density(data, "x", 3, 1, None, 9),
    ),
    "kernel_density": (
        lambda data: data.kernel_density("x", bandwidth=1, rho=2, points=30),
        lambda data: kernel_density(data, "x", 1, 2, 30),
    ),
    "function": (
        lambda data: data.function(["x"], rise, **BOX),
        lambda data: function(data, ["x"], rise, (0, 1), [(0, 10)], degree=4, order=2, rho=1),
    ),
    "nearest": (
        lambda data: data.nearest("x", [[0], [9]], epsilon=1),
        lambda data: nearest(data, "x", [[0], [9]], 1),
    ),
    "mwem": (
        lambda data: data.mwem(CELLS, asked(data), records=30, epsilon=2, rounds=3),
        lambda data: mwem(data, CELLS, asked(data), records=30, epsilon=2, rounds=3),
    ),
    "boosting": (
        lambda data: data.boosting(CELLS, asked(data), **ROUNDS),
        lambda data: boosting(data, CELLS, asked(data), **ROUNDS),
    ),
    "subsample": (
        lambda data: data.subsample(largest, ["x"], (0, 10), **BLOCKS),
        lambda data: subsample(data, largest, ["x"], (0, 10), **BLOCKS),
    ),
    "median of a proposed bound": (
        lambda data: data.propose_test_release("age", **PROPOSED),
        lambda data: median(data, "age", **PROPOSED),
    ),
    "range of a proposed bound": (
        lambda data: data.propose_test_release("age", "interquartile_range", **PROPOSED),
        lambda data: interquartile_range(data, "age", **PROPOSED),
    ),
    "best_feature": (
        lambda data: data.best_feature(["f", "g"], "colour", epsilon=2),
        lambda data: best_feature(data, ["f", "g"], "colour", epsilon=2),
    ),
}
SESSIONS: dict[str, tuple[Callable[[Dataset], Any], Callable[[Dataset], Any]]] = {
    "sparse_vector": (
        lambda data: data.sparse_vector(threshold=9, epsilon=1, positives=2, numbers=True),
        lambda data: sparse_vector(data, threshold=9, epsilon=1, positives=2, numbers=True),
    ),
    "functions": (
        lambda data: data.sparse_vector(threshold=9, epsilon=1, positives=2, **OF_COLUMNS),
        lambda data: sparse_vector(data, threshold=9, epsilon=1, positives=2, **OF_COLUMNS),
    ),
    "reusable_holdout": (
        lambda data: data.reusable_holdout(people(20, seed=2), ["x"], **HOLDOUT),
        lambda data: reusable_holdout(data, people(20, seed=2), ["x"], **HOLDOUT),
    ),
    "online_weights": (
        lambda data: data.online_weights(CELLS, **UPDATES),
        lambda data: online_weights(data, CELLS, **UPDATES),
    ),
    "features_above": (
        lambda data: data.features_above(["f", "g"], "colour", **ABOVE),
        lambda data: features_above(data, ["f", "g"], "colour", **ABOVE),
    ),
}
"""Those that are opened and asked anew and anew."""


def parts(value: Any) -> Any:
    """A description as plain values, so that two may be compared: arrays are lists, and questions
    of a universe their weights.
    """
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [parts(each) for each in value]
    if isinstance(value, dict):
        return {name: parts(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, Dataset | Client):
        return {each.name: parts(getattr(value, each.name)) for each in fields(value)}
    return value


def same(one: Query, other: Query) -> bool:
    """Whether two queries run and cost the same, on the same exact values, with the same errors."""
    errors = [each.error(0.9, records=100) for each in (one, other)]
    told = [parts([each.kind, each.steps, each.values()]) for each in (one, other)]
    return told[0] == told[1] and errors[0] == errors[1]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_its_function(name: str, replaces: Client) -> None:
    """The arguments arrive where they belong."""
    by_method, by_function = METHODS[name]
    data = with_features(replaces)
    assert same(by_method(data), by_function(data))


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_by_its_method_is_that_of_its_function(name: str, replaces: Client) -> None:
    """All that is described is equal: what is charged, what runs, and on which data."""
    by_method, by_function = SESSIONS[name]
    data = with_features(replaces)
    assert parts(by_method(data)) == parts(by_function(data))
    assert by_method(data).mechanisms


def test_the_universe_is_that_of_the_columns(replaces: Client) -> None:
    """Of listed categories, and of a registered dimension's values."""
    data = dataset(replaces, people(30))
    assert data.universe(CELLS) == Universe.of(data, CELLS)
    assert data.universe(CELLS).columns["country"] == ("CH", "JP", "KR")


def test_a_proposal_is_about_a_known_statistic(replaces: Client) -> None:
    """Any other is refused with the names of those that there are."""
    data: Any = dataset(replaces, people(30))
    with pytest.raises(ValueError, match="one of median, interquartile_range, not 'mode'"):
        data.propose_test_release("age", "mode", **PROPOSED)


def test_both_ways_is_its_function(replaces: Client) -> None:
    """So do those of the histogram in both models."""
    data = dataset(replaces, people(30))
    one, other = (
        data.both_ways("colour", COLOURS, epsilon=2),
        both_ways(data, "colour", COLOURS, epsilon=2),
    )
    assert same(one.local, other.local)
    assert same(one.central, other.central)
    assert one.why == other.why
