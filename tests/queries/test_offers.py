"""Every method of a dataset describes the query of its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from catalogue import COLOURS, dataset, people

from accountant.client import Client
from accountant.queries import Dataset, Query
from accountant.queries.bernstein import function
from accountant.queries.collecting import both_ways, response, unary
from accountant.queries.densities import histogram_density, series_density
from accountant.queries.kernel import kernel_density
from accountant.queries.synthetic import nearest


def rise(x: Any, t: float) -> Any:
    """A summand."""
    return (x <= t) * 1.0


BOX: dict[str, Any] = {"within": (0, 1), "axes": [(0, 10)], "degree": 4, "order": 2, "rho": 1}
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
}


def same(one: Query, other: Query) -> bool:
    """Whether two queries run and cost the same, with the same errors."""
    errors = [each.error(0.9, records=100) for each in (one, other)]
    return one.kind == other.kind and one.steps == other.steps and errors[0] == errors[1]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_its_function(name: str, replaces: Client) -> None:
    """The arguments arrive where they belong."""
    by_method, by_function = METHODS[name]
    data = dataset(replaces, people(30))
    assert same(by_method(data), by_function(data))


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
