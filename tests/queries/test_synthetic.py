"""The choice of a data set or a distribution by Kolmogorov and Smirnov's distance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from catalogue import dataset, people
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest, norm, uniform

from accountant.client import Client
from accountant.queries import Dataset, Query
from accountant.queries.synthetic import PARTS, data_sets, nearest

NORMALS = {f"{mean}": norm(mean, 2) for mean in range(11)}


def of(ledger: Client, *x: float, **more: Any) -> Dataset:
    """People with these values of x."""
    return dataset(ledger, people(len(x)) | {"x": np.array(x, dtype=float)}, **more)


def scores(query: Query) -> list[float]:
    """The scores of all candidates."""
    [found] = query.values()
    return list(found)


def distance(one: list[float], other: list[float]) -> float:
    """The largest distance of two distribution functions: they only rise at the values."""
    return max(
        abs(float(np.mean(np.array(one) <= at) - np.mean(np.array(other) <= at)))
        for at in [*one, *other]
    )


values = st.lists(st.sampled_from([0.0, 1.0, 2.5, 4.0, 9.0, 10.0]), min_size=1, max_size=12)


@given(values, st.lists(values, min_size=2, max_size=4))
def test_the_score_is_the_distance(
    comes_and_goes: Client, x: list[float], candidates: list[list[float]]
) -> None:
    """It is minus the number of records times the largest distance at any value, ties and all."""
    found = scores(nearest(of(comes_and_goes, *x), "x", candidates, 1))
    expected = [-len(x) * distance(x, each) for each in candidates]
    assert found == pytest.approx(expected, abs=2 / PARTS)
    assert all((score * PARTS).is_integer() for score in found)


def test_the_score_of_a_distribution(comes_and_goes: Client) -> None:
    """It is the distance at the points, which with many of them is nearly that of SciPy's test."""
    x = people(500)["x"]
    found = scores(nearest(of(comes_and_goes, *x), "x", [norm(5, 2), uniform(0, 10)], 1))
    for score, law in zip(found, (norm(5, 2), uniform(0, 10)), strict=True):
        assert -score / 500 == pytest.approx(kstest(x, law.cdf).statistic, abs=0.01)
    few = scores(nearest(of(comes_and_goes, 1, 2, 6), "x", [uniform(0, 10)] * 2, 1, points=[5]))
    assert few == pytest.approx([-0.5, -0.5])


candidates = st.lists(
    st.one_of(values, st.floats(0, 10).map(lambda mean: norm(mean, 1))), min_size=2, max_size=3
)


@given(values, st.floats(-2, 12), st.floats(-2, 12), candidates)
def test_no_record_moves_a_score_by_more_than_one(
    comes_and_goes: Client, replaces: Client, x: list[float], one: float, other: float, among: Any
) -> None:
    """Whatever record comes, or is exchanged for whatever other: no score moves by more than the
    sensitivity, 1, exactly.
    """
    for ledger, before, after in (
        (comes_and_goes, x, [*x, one]),
        (replaces, [*x, one], [*x, other]),
    ):
        pair = [nearest(of(ledger, *each), "x", among, 1) for each in (before, after)]
        assert pair[0].steps == pair[1].steps
        moved = np.abs(np.array(scores(pair[0])) - scores(pair[1]))
        assert moved.max() <= 1 == pair[0].steps[0].sensitivity


def test_a_unit_of_several_records_moves_it_by_as_many(comes_and_goes: Client) -> None:
    """With up to 3 records a unit the sensitivity is 3, and it is reached."""
    rows = people(8) | {
        "x": np.array([0.0] * 5 + [10.0] * 3),
        "unit": np.array([*range(5), 5, 5, 5]),
    }
    less = {name: column[:5] for name, column in rows.items()}
    one, other = (
        nearest(
            dataset(comes_and_goes, each, unit="unit", records_per_unit=3), "x", [[0.0], [10.0]], 1
        )
        for each in (rows, less)
    )
    assert one.steps[0].sensitivity == 3
    assert np.abs(np.array(scores(one)) - scores(other)).max() == 3


def test_candidates_are_drawn_by_the_formula(comes_and_goes: Client) -> None:
    """Each is drawn in proportion to e^(score epsilon / 2)."""
    query = nearest(of(comes_and_goes, 0, 0, 1, 2, 4, 9), "x", [[0], [1, 4], [0, 2, 9], [10]], 1)
    [step], times = query.steps, 4000
    counted = Counter(step.many(scores(query), times))
    weights = np.exp(np.array(scores(query)) / 2)
    assert chisquare([counted[i] for i in range(4)], times * weights / weights.sum()).pvalue > 1e-6


def test_the_choice_is_as_near_as_stated(comes_and_goes: Client) -> None:
    """The chosen distribution is farther than the nearest one by no more than the bound, as often
    as stated; as a share of the records that falls as 1 / (n epsilon).
    """
    query = nearest(of(comes_and_goes, *people(300)["x"]), "x", NORMALS, "0.2")
    [step], found = query.steps, np.array(scores(query))
    short = found.max() - found[np.array(step.many(found.tolist(), 2000))]
    bound = query.error().amount
    assert bound == pytest.approx(10 * math.log(11 / 0.05))
    assert np.mean(short > bound) < 0.05
    assert nearest(of(comes_and_goes, 1, 2), "x", NORMALS, "0.4").error().amount == bound / 2


def test_a_candidate_is_released(comes_and_goes: Client, replaces: Client) -> None:
    """With people enough the right name comes out, at the epsilon that was asked for; candidates
    without names come out themselves.
    """
    x = np.random.default_rng(1).normal(7, 2, 3000)
    for ledger in (comes_and_goes, replaces):
        answer = nearest(of(ledger, *x), "x", NORMALS, "0.5").release(purpose="test")
        assert answer.value == "7"
        assert float(answer.receipt.charge["epsilon"]) == pytest.approx(0.5, abs=1e-6)
        assert float(answer.receipt.charge["epsilon"]) <= 0.5
    chosen = nearest(of(replaces, *[0] * 50, *[10] * 50), "x", [[0], [0, 10]], 5)
    assert chosen.release(purpose="test").value == [0, 10]


def test_all_data_sets_of_a_size(comes_and_goes: Client) -> None:
    """All multisets are candidates, C(values + size - 1, size) of them; the nearest one is made of
    the data's own quantiles.
    """
    every = list(data_sets([0, 5, 10], 4))
    assert len(set(every)) == math.comb(6, 4) == len(every)
    x = [0.0] * 100 + [5.0] * 100 + [10.0] * 200
    answer = nearest(of(comes_and_goes, *x), "x", every, 2).release(purpose="test")
    assert answer.value == (0, 5, 10, 10)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda ledger: nearest(of(ledger, 1, 2), "x", [[1]], 1), "2 to 2\\^20 candidates"),
        (lambda ledger: nearest(of(ledger, 1, 2), "x", [[1], []], 1), "list of finite numbers"),
        (lambda ledger: nearest(of(ledger, 1, 2), "x", [[1], [math.nan]], 1), "finite numbers"),
        (lambda ledger: nearest(of(ledger, 1, 2), "x", [[1], [2]], 0), "more than 0"),
        (lambda ledger: nearest(of(ledger, 1, math.nan), "x", [[1], [2]], 1), "1 of 2 values"),
        (lambda ledger: nearest(of(ledger, 1), "colour", [[1], [2]], 1), "not numeric"),
        (lambda ledger: nearest(of(ledger, 1), "x", [[1], Wrong()], 1), "from 0 to 1"),
        (lambda ledger: nearest(of(ledger, 1), "x", [[1], uniform()], 1, points=[]), "points are"),
        (lambda ledger: data_sets([1, 1], 2), "all different"),
        (lambda ledger: data_sets(range(100), 9), "more than 2\\^20"),
    ],
)
def test_what_is_no_candidate_is_refused(
    ask: Callable[[Client], Any], words: str, comes_and_goes: Client
) -> None:
    """One candidate alone, none, NaN anywhere, and what is no distribution are refused."""
    with pytest.raises(ValueError, match=words):
        ask(comes_and_goes)


def test_points_need_bounds(comes_and_goes: Client) -> None:
    """Without points, distributions are compared between the bounds of the column."""
    data = dataset(comes_and_goes, people(5) | {"weight": np.ones(5)})
    with pytest.raises(ValueError, match="has no bounds"):
        nearest(data, "weight", [norm(), uniform()], 1)
    assert nearest(data, "weight", [norm(), uniform()], 1, points=[0, 1, 2]).kind == "nearest"


class Wrong:
    """A distribution function that is none."""

    def cdf(self, at: Sequence[float]) -> Any:
        """Return 2 everywhere."""
        return np.full(len(at), 2.0)
