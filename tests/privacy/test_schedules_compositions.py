"""Totals of the sampled and the discrete mechanisms, held against exact ones and another's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import cycle, product
from typing import Any

import mpmath
import numpy as np
import pytest
from effort import HEAVY, examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr

from accountant.privacy.composition.closed_forms import renyi_epsilon
from accountant.privacy.composition.discrete_pairs import DiscreteGaussian, DiscreteLaplace
from accountant.privacy.composition.grids import Floats
from accountant.privacy.composition.pairs import (
    Gaussian,
    Laplace,
    Pair,
    Response,
    SampledGaussian,
)
from accountant.privacy.composition.pld import Interval, total


@pytest.fixture(scope="module")
def peer() -> Any:
    """Another implementation, as an oracle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dp_accounting.pld import privacy_loss_distribution  # noqa: PLC0415
    return privacy_loss_distribution


SAMPLED = [(1.0, 0.01, (300, 1000)), (1.25, 256 / 60000, (14000,)), (2.0, 0.3, (20,)),
    (0.3, 0.9, (100,)), (1.5, 1e-3, (1, 100))]  # fmt: skip


@pytest.mark.parametrize(("mu", "rate", "counts"), SAMPLED)
@pytest.mark.parametrize("delta", some([1e-9, 1e-5], 2))
def test_sampled_totals_agree_with_another(
    peer: Any, mu: float, rate: float, counts: tuple[int, ...], delta: float
) -> None:
    """dp-accounting's upper bound lies in the interval, or within 1e-4 above it."""
    theirs = peer.from_gaussian_mechanism(
        1 / mu, sampling_prob=rate, value_discretization_interval=1e-4
    )
    for count in counts:
        other = float(theirs.self_compose(count).get_epsilon_for_delta(delta))
        found = total({SampledGaussian(mu, rate): count}, delta)
        assert found.lower <= other
        assert found.upper == pytest.approx(other, rel=1e-4)
        assert found.upper - found.lower <= 5e-3


@pytest.mark.parametrize(("mu", "rate", "count"), [(1.0, 1e-3, 10**6), (0.5, 1e-3, 10**5)])
def test_where_the_grid_shows_it_is_refined(peer: Any, mu: float, rate: float, count: int) -> None:
    """Many mechanisms that lose less than a step of 1e-4 each: below the other's, not far above its
    own with a finer grid.
    """
    found = total({SampledGaussian(mu, rate): count}, 1e-6).upper
    for grid, least, most in ((1e-4, 0.99, 1.0), (2e-5, 0.9995, 1.0005)):
        theirs = peer.from_gaussian_mechanism(
            1 / mu, sampling_prob=rate, value_discretization_interval=grid
        )
        other = float(theirs.self_compose(count).get_epsilon_for_delta(1e-6))
        assert least <= found / other <= most


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("count", [1, 30])
def test_discrete_totals_agree_with_another(peer: Any, kind: str, count: int) -> None:
    """dp-accounting rounds each discrete loss up to its grid, so it is above by as much at most."""
    grid, pair, theirs = 1e-5, *discrete(peer, kind, 1e-5)
    composed = theirs.self_compose(count)
    for delta in (1e-3, 1e-6, 1e-9):
        found = total({pair: count}, delta)
        other = float(composed.get_epsilon_for_delta(delta))
        assert found.lower <= other
        assert other - count * grid - 1e-6 <= found.upper <= other + 1e-4


def discrete(peer: Any, kind: str, grid: float) -> tuple[Pair, Any]:
    """A pair, and the other's distribution of it."""
    if kind == "gaussian":
        make, pair = peer.from_discrete_gaussian_mechanism, DiscreteGaussian(3, 12.5)
        return pair, make(12.5, sensitivity=3, value_discretization_interval=grid)
    make, geometric = peer.from_discrete_laplace_mechanism, DiscreteLaplace(0.03, 4)
    return geometric, make(0.03, sensitivity=4, value_discretization_interval=grid)


def enclosed(found: Interval, delta: float, losses: Floats, p: Floats) -> bool:
    """True if the curve of exact outcomes is at most delta at the upper end, at least at the lower
    end, and the two are close.
    """

    def curve(x: float) -> float:
        above = losses > x
        return float(p[above] @ -np.expm1(x - losses[above]))

    above = curve(found.upper) <= delta * (1 + 1e-9)
    below = found.lower == 0 or curve(found.lower) >= delta * (1 - 1e-9)
    return above and below and found.upper - found.lower <= 5e-3 * max(1.0, found.upper)


@settings(max_examples=examples(15))
@given(st.integers(1, 5), st.floats(0.4, 15), st.integers(1, 50), st.floats(1e-9, 0.1))
def test_discrete_gaussians_enclose_the_exact_total(
    sensitivity: int, scale: float, count: int, delta: float
) -> None:
    """The loss depends on the sum of all noises only, whose masses are an exact convolution."""
    most = math.ceil(13 * scale) + 1
    noise = np.arange(-most, most + 1)
    mass = np.exp(-((noise / scale) ** 2) / 2)
    p = power(mass / mass.sum(), count)
    sums = np.arange(-most * count, most * count + 1)
    losses = (count * sensitivity**2 / 2 - sensitivity * sums) / scale**2
    assert enclosed(total({DiscreteGaussian(sensitivity, scale): count}, delta), delta, losses, p)


@settings(max_examples=examples(15))
@given(st.floats(0.001, 3), st.integers(1, 8), st.integers(1, 200), st.floats(1e-9, 0.1))
def test_discrete_laplaces_enclose_the_exact_total(
    step: float, sensitivity: int, count: int, delta: float
) -> None:
    """All losses are multiples of the step, so their masses are an exact convolution."""
    r, d = math.exp(-step), sensitivity
    mass = np.zeros(2 * d + 1)
    for k in range(1, d):
        mass[2 * d - 2 * k] = (1 - r) / (1 + r) * r**k
    mass[2 * d] += 1 / (1 + r)
    mass[0] += r**d / (1 + r)
    p = power(mass, count)
    losses = step * (np.arange(p.size) - d * count)
    assert enclosed(total({DiscreteLaplace(step, d): count}, delta), delta, losses, p)


def power(mass: Floats, count: int) -> Floats:
    """The masses of a sum of ``count`` such things."""
    found: Floats = np.ones(1)
    for _ in range(count):
        found = np.convolve(found, mass)
    return found


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("mu", [0.8, 2.5])
@pytest.mark.parametrize("rate", [0.02, 0.6])
def test_a_sampled_and_a_plain_gaussian_enclose_an_integral(
    mu: float, rate: float, delta: float
) -> None:
    """The curve of both is the plain one's at what the sampled one left, integrated: each way."""
    found = total({SampledGaussian(mu, rate): 1, Gaussian(0.7): 1}, delta)
    for end, sign in ((found.upper, 1), (found.lower, -1)):
        worst = max(both_ways(mu, rate, end))
        assert sign * (delta - worst) >= -1e-9 * delta
    assert found.upper - found.lower <= 2e-3


def both_ways(mu: float, rate: float, epsilon: float) -> list[float]:
    """Delta at an epsilon of a sampled Gaussian and one of 0.7, with P either way round."""

    def left(x: float, sign: int) -> float:
        loss = math.log1p(rate * math.expm1(mu * x - mu**2 / 2))
        rest = epsilon - sign * loss
        return float(ndtr(0.35 - rest / 0.7) - math.exp(rest) * ndtr(-0.35 - rest / 0.7))

    def density(x: float, mean: float) -> float:
        return math.exp(-((x - mean) ** 2) / 2) / math.sqrt(2 * math.pi)

    def removed(x: float) -> float:
        return ((1 - rate) * density(x, 0) + rate * density(x, mu)) * left(x, 1)

    def added(x: float) -> float:
        return density(x, 0) * left(x, -1)

    points = [-8.0, -4.0, 0.0, mu, mu + 4, mu + 8]
    return [
        math.fsum(
            quad(way, a, b, epsabs=0, epsrel=1e-12, limit=200)[0]
            for a, b in zip([-14.0, *points], [*points, mu + 14], strict=True)
        )
        for way in (removed, added)
    ]


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-12, 1e-15, 1e-20])
@pytest.mark.parametrize("pieces", [1, 400])
def test_small_deltas_are_no_less_tight(delta: float, pieces: int) -> None:
    """Gaussians of 1 in all: Balle and Wang's curve, within a relative 1e-3, at any delta."""
    found = total({Gaussian(1 / math.sqrt(pieces)): pieces}, delta)

    def curve(x: float) -> mpmath.mpf:
        above, below = (mpmath.erfc(-(s / 2 - x) / mpmath.sqrt(2)) / 2 for s in (1, -1))
        return above - mpmath.exp(x) * below

    with mpmath.workdps(50):
        assert curve(found.upper) <= delta
        assert curve(found.upper * (1 - 1e-3)) > delta
        assert curve(found.lower) >= delta * (1 - 1e-9)


MIXED: list[tuple[Pair, int]] = [
    (SampledGaussian(1.0, 0.1), 20),
    (DiscreteGaussian(2, 9.0), 7),
    (DiscreteLaplace(0.02, 3), 30),
    (Laplace(0.1), 5),
    (SampledGaussian(3.0, 0.001), 9),
]


@pytest.fixture(scope="module")
def mixed() -> Interval:
    """The total of these in their order."""
    return total(dict(MIXED), 1e-6, grid=1e-3)


@given(st.permutations(MIXED))
@settings(max_examples=8)
def test_order_never_matters(mixed: Interval, items: list[tuple[Pair, int]]) -> None:
    """The same schedule in another order has the very same total, to the last bit."""
    assert total(dict(items), 1e-6, grid=1e-3) == mixed


@pytest.mark.parametrize("pair", [pair for pair, _ in MIXED], ids=str)
def test_it_does_not_matter_which_neighbour_was_used(pair: Pair) -> None:
    """A pair and its reverse have the same total: the worse of both directions."""
    assert pair.reverse.reverse == pair
    assert total({pair: 3}, 1e-6, grid=1e-3) == total({pair.reverse: 3}, 1e-6, grid=1e-3)


@given(
    st.floats(0.1, 5), st.floats(1e-3, 0.9), st.integers(1, 500), st.floats(0.3, 0.95),
    st.sampled_from([1e-9, 1e-6, 1e-2]),
)  # fmt: skip
@settings(max_examples=10)
def test_more_noise_and_less_sampling_never_cost_more(
    mu: float, rate: float, count: int, factor: float, delta: float
) -> None:
    """Less mu, a smaller rate, fewer invocations: none is shown to cost clearly more."""
    whole = total({SampledGaussian(mu, rate): count}, delta, grid=4e-3)
    assert whole.lower <= whole.upper
    assert whole.lower <= renyi_epsilon({SampledGaussian(mu, rate): count}, delta)
    less = (SampledGaussian(mu * factor, rate), count), (SampledGaussian(mu, rate * factor), count)
    for pair, times in (*less, (SampledGaussian(mu, rate), max(1, count // 2))):
        assert total({pair: times}, delta, grid=4e-3).lower <= whole.upper
    assert whole.lower <= total({Gaussian(mu): count}, delta, grid=4e-3).upper


@given(st.integers(1, 9), st.floats(0.5, 40), st.integers(1, 100), st.floats(1.05, 3))
@settings(max_examples=10)
def test_more_discrete_noise_never_costs_more(
    sensitivity: int, scale: float, count: int, factor: float
) -> None:
    """A smaller sensitivity, a larger scale of the geometric mechanism, never cost clearly more."""
    makes: list[Callable[[int, float], Pair]] = [
        DiscreteGaussian,
        lambda move, width: DiscreteLaplace(1 / width, move),
    ]
    for make in makes:
        whole = total({make(sensitivity, scale): count}, 1e-6, grid=1e-3)
        less = total({make(max(1, sensitivity - 1), scale): count}, 1e-6, grid=1e-3)
        assert less.lower <= whole.upper
        assert whole.lower <= renyi_epsilon({make(sensitivity, scale): count}, 1e-6)
    more = DiscreteLaplace(1 / (scale * factor), sensitivity)
    assert total({more: count}, 1e-6, grid=1e-3).lower <= whole.upper


def test_a_larger_scale_of_the_discrete_gaussian_can_cost_more() -> None:
    """At one delta its epsilon is not monotone in the scale: 4.4996 at 1, 4.6899 at 1.0625."""
    one, other = (total({DiscreteGaussian(1, scale): 1}, 1e-6) for scale in (1.0, 1.0625))
    assert one.lower <= 4.4995905 <= one.upper <= 4.4996
    assert 4.68 <= other.lower <= 4.6899294 <= other.upper <= 4.69


EXTREMES: list[dict[Pair, int]] = [
    {SampledGaussian(1e-12, 1e-12): 10**9}, {SampledGaussian(1e6, 0.5): 10},
    {SampledGaussian(50.0, 0.9): 10**6}, {SampledGaussian(50.0, 1e-6): 10**6},
    {SampledGaussian(1e-4, 1e-6): 10**6}, {SampledGaussian(3.8, 1e-5): 5},
    {DiscreteGaussian(2**51, 1e-5): 3}, {DiscreteGaussian(1, 3300.0): 10**6},
    {DiscreteGaussian(10**6, 3000.0): 3}, {DiscreteGaussian(1, 0.01): 5},
    {DiscreteLaplace(1e-300, 1): 10**9}, {DiscreteLaplace(1e300, 1): 3},
    {DiscreteLaplace(1e-9, 2**51): 3}, {DiscreteLaplace(1e-9, 1): 10**9},
    {Gaussian(1.0): 10**18, SampledGaussian(1.0, 0.5): 1}, {Gaussian(1e100): 1},
    {Laplace(1e300): 1, SampledGaussian(1.0, 0.5): 1}, {Response(800.0, 1e-7): 5},
]  # fmt: skip


DELTAS = (1e-300, 1e-6, 0.999999)


@pytest.mark.parametrize(
    ("delta", "schedule"),
    list(product(DELTAS, EXTREMES) if HEAVY else zip(cycle(DELTAS), EXTREMES)),
    ids=str,
)
def test_absurd_schedules_have_an_answer(schedule: dict[Pair, int], delta: float) -> None:
    """Whatever the parameters: an interval, in bounded time, never NaN or negative."""
    found = total(schedule, delta)
    assert 0 <= found.lower <= found.upper
    if delta > 1e-300 and Response(800.0, 1e-7) not in schedule:
        assert found.upper < math.inf
