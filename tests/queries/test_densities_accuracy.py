"""Densities and functions are as accurate as theory says, within the bounds that are stated."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from catalogue import dataset, people
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from accountant.client import Client
from accountant.queries import Dataset, Query
from accountant.queries.bernstein import function
from accountant.queries.densities import (
    basis,
    histogram_density,
    series_density,
    sum_within,
)
from accountant.queries.density import Density, cells, middles, onto_simplex
from accountant.queries.kernel import Curve, kernel_density
from accountant.queries.steps import DiscreteGaussian, DiscreteLaplace, Noise


@pytest.fixture(scope="module")
def ledgers(comes_and_goes: Client, replaces: Client) -> dict[str, Client]:
    """A ledger of each relation."""
    return {"comes_and_goes": comes_and_goes, "replaces": replaces}


def on(ledger: Client, size: int) -> Dataset:
    """Many people of whom x is normal, cut to its bounds."""
    return dataset(ledger, people(size, seed=4, corner=False))


def answers(query: Query, times: int) -> tuple[list[Any], list[list[Any]]]:
    """So many answers, and their draws."""
    [step], [value] = query.steps, query.values()
    drawn = [[each] for each in step.many(value, times)]
    return [query.finish(each) for each in drawn], drawn


def drawn_once(query: Query) -> Any:
    """One answer, whatever it would cost."""
    draws = [step.ready(each) for step, each in zip(query.steps, query.values(), strict=True)]
    return query.finish([draw() for draw in draws])


def without_noise(query: Query) -> Any:
    """The answer of exact values."""
    [value] = query.values()
    return query.finish([[float(each) for each in value]])


@pytest.mark.parametrize("relation", ["comes_and_goes", "replaces"])
@pytest.mark.parametrize("budget", [{"epsilon": "0.5"}, {"rho": "0.02"}])
def test_a_histogram_is_within_its_bounds(
    relation: str, budget: dict[str, Any], ledgers: dict[str, Client]
) -> None:
    """The probability of every bin stays within the bound at least as often as stated; the bound
    after the release is no worse than that before it, and ten times the people make it a tenth.
    """
    query = histogram_density(on(ledgers[relation], 3000), "x", 12, **budget)
    true, times = without_noise(query).shares, 400
    found, drawn = answers(query, times)
    off = [np.abs(each.shares - true).max() for each in found]
    after = [query.bounds(0.95, each, None).amount for each in drawn]
    before = query.error(0.95, records=3000).amount
    assert np.mean(np.array(off) > after) < 0.05
    assert np.median(after) < before
    assert np.median(after) < 6 * np.median(off)
    more = histogram_density(on(ledgers[relation], 30_000), "x", 12, **budget)
    assert before / more.error(0.95, records=30_000).amount == pytest.approx(10, rel=0.2)


@pytest.mark.parametrize("relation", ["comes_and_goes", "replaces"])
def test_a_series_errs_as_theory_says(relation: str, ledgers: dict[str, Client]) -> None:
    """The mean squared L2 distance that noise adds is at most m * 2 b^2 / n^2 for m terms with
    noise of scale b (and the noisy number's part), and most of it where the density is positive;
    the bounds hold as often as stated.
    """
    size, terms = 4000, 5
    query = series_density(on(ledgers[relation], size), "x", terms, epsilon=4)
    [step], times = query.steps, 1500
    assert isinstance(step, Noise)
    found, drawn = answers(query, times)
    true = without_noise(query).shares * 256
    squares = [np.mean((each.shares * 256 - true) ** 2) for each in found]
    [exact] = query.values()
    means = np.array([float(each) for each in exact[:terms]]) / size
    theory = terms * 2 * float(step.scale) ** 2 / size**2
    if relation == "comes_and_goes":
        theory += 2 * float(step.scale) ** 2 / size**2 * float((means**2).sum())
    assert 0.8 * theory < np.mean(squares) < 1.2 * theory
    after = [query.bounds(0.95, each, None).amount for each in drawn]
    assert np.mean(np.sqrt(squares) > after) < 0.05
    assert np.median(after) <= query.error(0.95, records=size).amount


def test_a_series_is_that_of_the_data(replaces: Client) -> None:
    """With hardly any noise it is the series of the records' mean cosines, and near the density
    from which they were drawn.
    """
    query = series_density(on(replaces, 20_000), "x", 12, epsilon=5000, points=200)
    found = drawn_once(query)
    x = people(20_000, seed=4, corner=False)["x"]
    at = middles(0, 1, 200)
    by_hand = 1 + sum(np.mean(basis(x / 10, j)) * basis(at, j) for j in range(1, 13))
    assert np.abs(found.heights * 10 - np.maximum(by_hand, 0)).max() < 0.02
    assert np.abs(found.heights - norm.pdf(found.middles, 5, 2)).max() < 0.02


def kernel_by_hand(x: Any, at: Any, h: float) -> Any:
    """The estimate by its definition."""
    return norm.pdf((at[:, None] - x[None, :]) / h).mean(axis=1) / h


def test_a_kernel_estimate_is_that_of_the_data(ledgers: dict[str, Client]) -> None:
    """With hardly any noise it is the kernel estimate of the records, each moved to the middle of
    its cell: of the eigenvalues that are left out and the rounding nothing is seen.
    """
    for ledger in ledgers.values():
        data = on(ledger, 500)
        found = drawn_once(kernel_density(data, "x", "0.5", rho=10**9, points=200))
        moved = middles(0, 10, 200)[cells(people(500, seed=4, corner=False)["x"], 0, 10, 200)]
        assert found.heights == pytest.approx(kernel_by_hand(moved, found.points, 0.5), abs=2e-5)
        assert found.density.shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("relation", ["comes_and_goes", "replaces"])
def test_kernel_noise_is_a_gaussian_process(relation: str, ledgers: dict[str, Client]) -> None:
    """Its covariance is sigma^2 K / (n h root(2 pi))^2, with sigma = reach / root(2 rho); all
    points stay within the bound as often as stated, and ten times the people make it a tenth.
    """
    size, h, rho, times, points = 2000, 1.0, 0.1, 3000, 60
    query = kernel_density(on(ledgers[relation], size), "x", h, rho=rho, points=points)
    found, drawn = answers(query, times)
    true = without_noise(query).heights
    noise = np.array([each.heights for each in found]) - true
    at = middles(0, 10, points)
    kernel = np.exp(-((at[:, None] - at[None, :]) ** 2) / (2 * h**2))
    sigma = math.sqrt(2 / (2 * rho)) / (size * h * math.sqrt(2 * math.pi))
    expected = sigma**2 * kernel
    if relation == "comes_and_goes":  # its number of records is noisy too
        expected = expected + sigma**2 * np.outer(true, true) * 2 * math.pi * h**2
    assert np.cov(noise.T) == pytest.approx(expected, abs=0.15 * sigma**2)
    off, after = (
        np.abs(noise).max(axis=1),
        [query.bounds(0.95, each, None).amount for each in drawn],
    )
    assert np.mean(off > after) < 0.05
    assert np.median(after) < 4 * np.median(off)
    assert query.error(0.95, records=size).amount < 2 * np.median(after)
    more = kernel_density(on(ledgers[relation], 10 * size), "x", h, rho=rho, points=points)
    ratio = query.error(0.95, records=size).amount / more.error(0.95, records=10 * size).amount
    assert ratio == pytest.approx(10, rel=0.1)


def test_a_kernels_reach_is_that_in_its_space(ledgers: dict[str, Client]) -> None:
    """What is charged is the distance in the kernel's space but for the rounding: 1 for a record
    that comes (root(2) with the count), root(2) for one that is exchanged.
    """
    for ledger in ledgers.values():
        [step] = kernel_density(on(ledger, 50), "x", "0.5", rho=1).steps
        assert float(step.sensitivity) / 2**24 == pytest.approx(math.sqrt(2), rel=1e-6)


def test_a_function_is_within_its_bounds(comes_and_goes: Client) -> None:
    """The noise of the polynomial stays within the bound everywhere as often as stated, whatever
    the order; and with hardly any noise a smooth function is followed, by a higher order closer.
    """
    data = on(comes_and_goes, 400)
    at = np.linspace(0, 10, 41)
    x = people(400, seed=4, corner=False)["x"]

    def bell(x: Any, t: float) -> Any:
        return np.exp(-((x - t) ** 2) / 8)

    exact = np.array([bell(x, t).sum() for t in at])
    bias = {}
    for order in (1, 2):
        query = function(data, ["x"], bell, (0, 1), [(0, 10)], degree=12, order=order, epsilon=5)
        found, _ = answers(query, 300)
        true = np.array([without_noise(query)(t) for t in at])
        bias[order] = np.abs(true - exact).max()
        off = [np.abs([each(t) for t in at] - true).max() for each in found]
        bound = query.error().amount
        assert np.mean(np.array(off) > bound) < 0.05
        assert np.max(off) > bound / 8
    assert bias[2] < bias[1] < 0.15 * exact.max()


def test_a_function_of_two_variables(comes_and_goes: Client) -> None:
    """On a box the grid is the product of the axes', and a bilinear function is met exactly."""

    def plane(x: Any, s: float, t: float) -> Any:
        return (s * x + t) / 20

    data = on(comes_and_goes, 100)
    query = function(data, ["x"], plane, (0, 5), [(0, 8), (1, 20)], degree=4, epsilon=10**7)
    found = drawn_once(query)
    x = people(100, seed=4, corner=False)["x"]
    for s, t in ((0, 1), (8, 20), (3.3, 7.7)):
        assert found(s, t) == pytest.approx(plane(x, s, t).sum(), abs=0.05)
    assert query.steps[0].mechanism["sensitivity"] == {"l1": "125"}
    for wrong in ((3,), (9, 3), (3, 0)):
        with pytest.raises(ValueError, match=r"coordinates|is not between"):
            found(*wrong)


def test_errors_of_a_sum_of_noise() -> None:
    """The bound on the sum of all bins' noise holds, and is within a factor of the quantile."""
    for step in (
        DiscreteLaplace.costing(Fraction(1, 2), Fraction(1), None, 40),
        DiscreteGaussian.costing(Fraction(1, 10), Fraction(1), None, 40, whole=True),
    ):
        sums = np.abs(np.array(step.many([0] * 40, 1000)).sum(axis=1))
        bound = sum_within(step, 0.05)
        assert np.mean(sums > bound) < 0.05
        assert bound < 1.7 * np.quantile(sums, 0.95)


# -- densities -------------------------------------------------------------------------------------

lists = st.lists(st.floats(-5, 5), min_size=1, max_size=30).map(np.array)


@given(lists, st.randoms(use_true_random=False))
def test_the_nearest_probabilities(values: Any, random: Any) -> None:
    """They are probabilities, no others are nearer, and a second projection changes nothing."""
    found = onto_simplex(values)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    assert onto_simplex(found) == pytest.approx(found)
    others = np.random.default_rng(random.randrange(2**32)).dirichlet(np.ones(len(values)), 50)
    nearest_one = ((values - found) ** 2).sum()
    assert (nearest_one <= ((values - others) ** 2).sum(axis=1) + 1e-9).all()
    assert (
        ((found - others) ** 2).sum(axis=1) <= ((values - others) ** 2).sum(axis=1) + 1e-9
    ).all()


def test_synthetic_records_follow_their_density() -> None:
    """Records that are drawn fall into each cell as often as it says, evenly within it, and a seed
    repeats them.
    """
    density = Density.nearest(-1, 3, np.array([0.1, 0.4, -0.2, 0.5]))
    found = density.sample(40_000, seed=2)
    shares = np.histogram(found, density.edges)[0] / 40_000
    assert shares == pytest.approx(density.shares, abs=0.015)
    assert np.mean(found[found < 0] + 1) == pytest.approx(0.5, abs=0.03)
    assert (density.sample(9, seed=3) == density.sample(9, seed=3)).all()
    assert density.at([-2, -0.5, 2.9, 3, 4]) == pytest.approx(
        [0, density.heights[0], density.heights[3], density.heights[3], 0]
    )
    assert density.heights.sum() * density.width == pytest.approx(1)


def test_a_curve_becomes_a_density() -> None:
    """A noisy curve with negative parts becomes the density nearest to it."""
    curve = Curve(middles(0, 4, 4), np.array([0.5, -0.1, 0.6, 0.0]), 0, 4)
    assert curve.density.shares == pytest.approx([0.45, 0, 0.55, 0])
