"""Answers are as accurate as theory says, and their errors stay within the stated bounds."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from catalogue import CASES, WITH_RHO, dataset, people
from empirical import logarithms
from scipy.stats import chisquare

from accountant.client import Client
from accountant.queries import Query
from accountant.queries.choices import OnLine
from accountant.queries.steps import DiscreteGaussian, DiscreteLaplace, Noise

SIZE = 1500
RELEASES = 1200
OF_SUMS = [name for name in CASES if name in WITH_RHO]
CHOICES = [name for name in CASES if name not in WITH_RHO]


def drawn(query: Query, times: int) -> list[Sequence[Any]]:
    """So many draws of all steps of a query."""
    steps = zip(query.steps, query.values(), strict=True)
    return list(zip(*(step.many(value, times) for step, value in steps), strict=True))


def flat(answer: Any) -> list[float]:
    """An answer as numbers."""
    return list(answer.values()) if isinstance(answer, dict) else [answer]


def true(query: Query) -> list[float]:
    """The answer without noise."""
    return flat(query.finish(exact(query)))


def exact(query: Query) -> list[Any]:
    """The exact values as if they had been drawn."""
    return [
        float(value) if step.size is None else [float(each) for each in value]  # type: ignore[attr-defined]
        for step, value in zip(query.steps, query.values(), strict=True)
    ]


def deviation(step: Noise) -> float:
    """The standard deviation of the noise, by the stated scale."""
    scale = float(step.scale)
    if isinstance(step, DiscreteGaussian):
        return scale * float(step.lattice or 1)
    if isinstance(step, DiscreteLaplace):
        q = math.exp(-1 / scale)
        return math.sqrt(2 * q) / (1 - q)
    return math.sqrt(2) * scale


def by_theory(query: Query) -> float:
    """The root of the mean squared error, to first order: how far each noise moves the answer."""
    values, squares = exact(query), 0.0
    for i, step in enumerate(query.steps):
        assert isinstance(step, Noise)
        noise = deviation(step)
        if step.size is not None:
            return noise
        ends = [
            query.finish([*values[:i], values[i] + moved, *values[i + 1 :]])
            for moved in (noise / 4, -noise / 4)
        ]
        squares += (2 * (ends[0] - ends[1])) ** 2
    return math.sqrt(squares)


def measured(query: Query, times: int) -> float:
    """The root of the mean squared error of an entry of the answer, over many releases."""
    answers = np.array([flat(query.finish(each)) for each in drawn(query, times)])
    return float(np.sqrt(np.mean((answers - true(query)) ** 2)))


@pytest.mark.parametrize("currency", ["epsilon", "rho"])
@pytest.mark.parametrize("name", OF_SUMS)
def test_the_error_is_that_of_theory(
    name: str, currency: str, comes_and_goes: Client, replaces: Client
) -> None:
    """The mean squared error over many releases is that of the stated noise, to first order; with
    four times the people a sum is as far off, and a mean, variance or correlation a quarter.
    """
    for ledger in (comes_and_goes, replaces):
        if name == "count" and ledger is replaces:
            continue
        found = []
        for size in (SIZE, 4 * SIZE):
            query = CASES[name].make(dataset(ledger, people(size)), **{currency: 2})
            theory, error = by_theory(query), measured(query, RELEASES // 2)
            assert error == pytest.approx(theory, rel=0.25)
            found.append(theory)
        falls = 1 if name in ("count", "sum", "sums", "histogram") else 4
        assert found[0] / found[1] == pytest.approx(falls, rel=0.1)


@pytest.mark.parametrize("name", OF_SUMS)
def test_the_error_stays_within_its_bound(
    name: str, comes_and_goes: Client, replaces: Client
) -> None:
    """In at least 95 of 100 releases the answer is within the error that comes with it, and within
    the one that was stated before; of single steps in no more than the noise is rough.
    """
    for ledger in (comes_and_goes, replaces):
        if name == "count" and ledger is replaces:
            continue
        query = CASES[name].make(dataset(ledger, people(SIZE)), epsilon=0.5)
        target, before = true(query), query.error(0.95, records=SIZE)
        missed = np.zeros(2)
        for each in drawn(query, RELEASES):
            off = float(np.max(np.abs(np.array(flat(query.finish(each))) - target)))
            after = query.bounds(0.95, each, None)
            missed += [off > after.amount * (1 + 1e-9), off > before.amount * (1 + 1e-9)]
        slack = 5 * math.sqrt(0.05 * 0.95 / RELEASES)
        assert (missed / RELEASES < 0.05 + slack).all()
        if len(query.steps) == 1 and query.steps[0].kind == "laplace":
            assert (missed / RELEASES > 0.05 - slack).all()


def test_the_bound_before_a_release_shares_its_confidence(comes_and_goes: Client) -> None:
    """A mean is off by at most (u + v times half the distance of the bounds) / (n - v), with the
    noise u and v of its two sums within bounds that hold together with 95 %.
    """
    query = CASES["mean"].make(dataset(comes_and_goes, people(SIZE)), epsilon=1)
    total, size = (step.within(1 - math.sqrt(0.95)) for step in query.steps)
    stated = query.error(0.95, records=1000).amount
    assert stated == pytest.approx((total + size * 20.5 / 2) / (1000 - size))
    assert query.error(0.95, records=2).amount == 20.5


@pytest.mark.parametrize("confidence", [0.5, 0.99])
def test_the_bound_follows_the_confidence(confidence: float, comes_and_goes: Client) -> None:
    """Another confidence is kept as well."""
    query = CASES["mean"].make(dataset(comes_and_goes, people(SIZE)), epsilon=0.5)
    [target] = true(query)
    within = [
        abs(query.finish(each) - target) <= query.bounds(confidence, each, None).amount
        for each in drawn(query, RELEASES)
    ]
    slack = 5 * math.sqrt(confidence * (1 - confidence) / RELEASES)
    assert np.mean(within) > confidence - slack


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_as_likely_as_theory_says(name: str, comes_and_goes: Client) -> None:
    """Outcomes are drawn in proportion to e^(score / scale), on real scores."""
    query = CASES[name].make(dataset(comes_and_goes, people(30)), epsilon=1)
    [step], [value] = query.steps, query.values()
    times = 1500
    counted = Counter(step.many(value, times))
    outcomes = step.outcomes  # type: ignore[attr-defined]
    expected = times * np.exp(logarithms(step, value, np.arange(outcomes)))
    seen = np.array([counted[i] for i in range(outcomes)], dtype=float)
    few = expected < 8
    together = [*seen[~few], seen[few].sum()], [*expected[~few], max(expected[few].sum(), 1e-9)]
    assert chisquare(*together).pvalue > 1e-6


@pytest.mark.parametrize("name", CHOICES)
def test_choices_fall_short_by_no_more_than_stated(name: str, comes_and_goes: Client) -> None:
    """With 95 % the score of the outcome is within the stated error of the best, by the exact
    probabilities.
    """
    query = CASES[name].make(dataset(comes_and_goes, people(60)), epsilon=1)
    [step], [value] = query.steps, query.values()
    places = np.arange(step.outcomes)  # type: ignore[attr-defined]
    likely = np.exp(logarithms(step, value, places))
    short = (
        np.repeat(value.short / value.parts, value.lengths)
        if isinstance(step, OnLine)
        else max(value) - np.asarray(value)
    )
    assert likely.sum() == pytest.approx(1)
    assert likely[short > query.error(0.95).amount].sum() < 0.05


def test_ranks_do_not_depend_on_how_many_there_are(comes_and_goes: Client) -> None:
    """The median's error is a number of ranks: with ten times the people it is as many."""
    off = []
    for size in (2_000, 20_000):
        data = dataset(comes_and_goes, people(size))
        query = data.median("x", epsilon="0.1")
        [answers] = zip(*drawn(query, 150), strict=True)
        x = np.sort(np.asarray(people(size)["x"]))
        ranks = np.searchsorted(x, [query.finish([answer]) for answer in answers])
        off.append(float(np.mean(np.abs(ranks - size / 2))))
        assert np.mean(np.abs(ranks - size / 2) <= query.error(0.95).amount) > 0.9
    assert 0.5 < off[0] / off[1] < 2


def test_the_chosen_correlation_is_near(comes_and_goes: Client) -> None:
    """Its distance from the true one falls as the people become more, by exact probabilities."""
    off = []
    for size in (200, 800):
        rows = people(size)
        query = dataset(comes_and_goes, rows).correlation("x", "y", epsilon=2)
        [step], [value] = query.steps, query.values()
        likely = np.exp(logarithms(step, value, np.arange(201)))
        truth = float(np.corrcoef(rows["x"], rows["y"])[0, 1])
        off.append(float(likely @ np.abs(np.linspace(-1, 1, 201) - truth)))
    assert off[0] < 0.1
    assert 2.5 < off[0] / off[1] < 6


def test_answers_without_noise_are_those_of_numpy(comes_and_goes: Client) -> None:
    """Each formula, without its noise, is the textbook's."""
    rows = people(SIZE)
    x, y = rows["x"], rows["y"]
    truth = {
        "count": SIZE, "sum": y.sum(), "mean": y.mean(), "second_moment": np.mean(y**2),
        "variance": y.var(), "standard_deviation": y.std(), "pearson": np.corrcoef(x, y)[0, 1],
    }  # fmt: skip
    for name, value in truth.items():
        query = CASES[name].make(dataset(comes_and_goes, rows), epsilon=1)
        assert true(query) == pytest.approx([value], rel=1e-9)
    sums = CASES["sums"].make(dataset(comes_and_goes, rows), epsilon=1)
    assert true(sums) == pytest.approx([x.sum(), y.sum()])
    histogram = CASES["histogram"].make(dataset(comes_and_goes, rows), epsilon=1)
    assert true(histogram) == [int(np.sum(rows["colour"] == c)) for c in ("red", "green", "blue")]


def test_medians_of_a_million_take_less_than_a_second(comes_and_goes: Client) -> None:
    """A median over 10^6 values and 2^32 points is drawn in a second, and lies in the middle."""
    numbers = np.random.default_rng(5).normal(50, 10, 10**6)
    data = dataset(comes_and_goes, people(10**6) | {"x": numbers / 10})
    query = data.median("x", epsilon=1, step=Fraction(10, 2**32 - 1))
    start = time.process_time()
    [draw] = [step.ready(value) for step, value in zip(query.steps, query.values(), strict=True)]
    answer = query.finish([draw()])
    assert time.process_time() - start < 1
    assert query.steps[0].outcomes == 2**32  # type: ignore[attr-defined]
    assert np.mean(numbers / 10 < answer) == pytest.approx(0.5, abs=1e-4)
