"""What is drawn is never less noise than what is stated, and what is stated never costs more than
what was asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from accountant.queries import samplers
from accountant.queries.choices import (
    Exponential,
    Line,
    OnLine,
    Weights,
    below,
)
from accountant.queries.exact import (
    clipped,
    decimal_above,
    exact_sum,
    float_above,
    float_below,
    root_above,
)
from accountant.queries.steps import DiscreteGaussian, DiscreteLaplace, Laplace, apart

epsilons = st.fractions(Fraction(1, 10**9), 20, max_denominator=10**9)
amounts = st.one_of(
    st.fractions(Fraction(1, 10**6), 10**9),
    st.floats(1e-9, 1e12).map(Fraction),
)
sizes = st.one_of(st.none(), st.integers(1, 1000))
whole = st.integers(1, 1000).map(Fraction)


def stated(step: Any) -> tuple[Fraction, Fraction]:
    """The sensitivity and the scale that the service reads."""
    told = step.mechanism
    reach = told["sensitivity"]
    amount = reach if isinstance(reach, str) else next(iter(reach.values()))
    return Fraction(amount), Fraction(told["scale"])


# -- noise -----------------------------------------------------------------------------------------


@given(epsilons, amounts, sizes)
def test_laplace_noise_is_covered(epsilon: Fraction, reach: Fraction, size: int | None) -> None:
    """The cost of the lattice noise that is drawn, exactly, is at most what is stated, and that is
    at most what was asked for.
    """
    step = Laplace.costing(epsilon, reach, None, size)
    sensitivity, scale = stated(step)
    assert sensitivity >= reach
    assert sensitivity / scale <= epsilon
    drawn, steps = Fraction(step.drawn), step.width + (size or 0)
    assert step.width * step.lattice == reach
    assert steps / drawn + Fraction(size or 1, 4) / drawn**2 <= sensitivity / scale
    assert drawn * step.lattice >= scale * reach / sensitivity


@given(epsilons, whole, sizes)
def test_whole_laplace_noise_is_covered(
    epsilon: Fraction, reach: Fraction, size: int | None
) -> None:
    """The scale that is drawn is at least the stated one, and costs at most what was asked for."""
    step = DiscreteLaplace.costing(epsilon, reach, None, size)
    sensitivity, scale = stated(step)
    assert (sensitivity, scale) == (reach, step.scale)
    assert Fraction(step.drawn) >= scale
    assert sensitivity / scale <= epsilon


@given(epsilons, amounts, sizes, st.booleans())
def test_normal_noise_is_covered(
    rho: Fraction, reach: Fraction, size: int | None, is_whole: bool
) -> None:
    """The same for normal noise: in steps of the lattice, with the root of the entries for their
    rounding.
    """
    reach = Fraction(math.ceil(reach)) if is_whole else reach
    step = DiscreteGaussian.costing(rho, reach, None, size, whole=is_whole)
    sensitivity, scale = stated(step)
    assert (sensitivity / scale) ** 2 / 2 <= rho
    assert Fraction(step.drawn) >= scale
    moved = reach if step.lattice is None else reach / step.lattice
    rounded = 0 if is_whole or size is None else math.sqrt(size)
    assert sensitivity >= moved
    assert float(sensitivity - moved) >= rounded


@given(st.data(), epsilons, amounts)
def test_rounding_to_the_lattice_keeps_the_distance(
    data: st.DataObject, epsilon: Fraction, reach: Fraction
) -> None:
    """Two values at most the sensitivity apart are at most its steps apart on the lattice, also
    where they lie half between two points.
    """
    step = Laplace.costing(epsilon, reach)
    apart_by = data.draw(st.sampled_from([reach, reach / 2, reach - step.lattice / 2, -reach]))
    halves = data.draw(st.integers(-(10**6), 10**6))
    value = step.lattice * Fraction(halves, 2)
    moved = step._place(value + apart_by) - step._place(value)
    assert abs(moved) <= step.width


@pytest.mark.parametrize("scale", ["0.5", "1", "3", "20"])
@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_a_laplace_pair_dominates_the_lattice(scale: str, steps: int) -> None:
    """At every ratio the hockey-stick divergence of whole-number noise, moved by some steps, is at
    most that of Laplace noise at epsilon = steps / scale + 1 / (4 scale^2), and above that of
    steps / scale alone somewhere between the lattice's own ratios.
    """
    mpmath.mp.dps = 30
    t = 1 / mpmath.mpf(scale)
    q = mpmath.e ** (-t)

    def probability(k: int) -> Any:
        return (1 - q) / (1 + q) * q ** abs(k)

    def lattice(ratio: Any) -> Any:
        # Below 0 and above ``steps`` the ratio is constant, and the rest of the series geometric.
        left, right = 1 / (1 + q), q ** (steps + 1) / (1 + q)
        pairs = [(left, left * q**steps)]
        pairs += [(probability(k), probability(k - steps)) for k in range(1, steps)]
        pairs += [(right / q, right / q ** (steps + 1))]
        assert abs(sum(p for p, _ in pairs) - 1) < 1e-25
        assert abs(sum(p for _, p in pairs) - 1) < 1e-25
        return sum(max(0, p - ratio * r) for p, r in pairs)

    def laplace(epsilon: Any, ratio: Any) -> Any:
        if ratio >= mpmath.e**epsilon:
            return mpmath.mpf(0)
        if ratio <= mpmath.e**-epsilon:
            return 1 - ratio
        return 1 - mpmath.sqrt(ratio * mpmath.e**-epsilon)

    beyond = False
    for i in range(-300, 301):
        ratio = mpmath.e ** (i * (steps * t + 1) / 250)
        found = lattice(ratio)
        assert found <= laplace(steps * t + t**2 / 4, ratio) + mpmath.mpf("1e-25")
        beyond |= found > laplace(steps * t, ratio) + mpmath.mpf("1e-20")
    assert beyond


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_opendp_draws_the_formula(noise: str) -> None:
    """OpenDP's whole-number noise has the probabilities of its formula, and so has the noise of a
    step.
    """
    scale, times = 2.5, 20_000
    if noise == "laplace":
        step: Any = DiscreteLaplace(Fraction(1), Fraction("2.5"))
        weight = [math.exp(-abs(k) / scale) for k in range(-60, 61)]
    else:
        step = DiscreteGaussian(Fraction(1), Fraction("2.5"))
        weight = [math.exp(-(k**2) / (2 * scale**2)) for k in range(-60, 61)]
    assert step.drawn == scale
    counted = Counter(step.many(Fraction(7), times))
    inner = [*range(-8, 9)]
    seen = [counted[7 + k] for k in inner]
    expected = [times * weight[60 + k] / sum(weight) for k in inner]
    rest = times - sum(seen), times - sum(expected)
    assert chisquare([*seen, rest[0]], [*expected, rest[1]]).pvalue > 1e-6


def test_entries_have_noise_of_their_own() -> None:
    """The noise on the entries of a list, and of draw after draw, is not correlated."""
    step = Laplace.costing(Fraction(1), Fraction(1), None, 2)
    draws = np.array(step.many([Fraction(0), Fraction(100)], 4000)) - [0, 100]
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.1
    assert abs(np.corrcoef(draws[1:, 0], draws[:-1, 0])[0, 1]) < 0.1
    one = step.ready([Fraction(0), Fraction(100)])
    assert one() != one()


def test_noise_is_cut_after_it_is_added() -> None:
    """At the end of 64 bits only the result is cut, so that no value has noise of its own shape."""
    noise = samplers.discrete_laplace(1000.0)
    end = 2**63 - 1
    drawn = noise([end] * 2000)
    assert max(drawn) == end
    assert 0.4 < np.mean(np.array(drawn) == end) < 0.6


def test_a_value_beyond_the_lattice_is_refused() -> None:
    """A value that 64 bits cannot hold is refused before anything is drawn."""
    step = Laplace.costing(Fraction(1), Fraction(1))
    with pytest.raises(ValueError, match="too large beside noise"):
        step.ready(Fraction(2**31))
    with pytest.raises(ValueError, match="2 numbers got 1"):
        replace(step, size=2).ready([Fraction(1)])


@pytest.mark.parametrize("beta", [0.5, 0.05, 0.01])
def test_noise_stays_within_its_bound(beta: float) -> None:
    """All entries of a draw stay within the stated bound as often as stated; the Laplace bound is
    the exact quantile.
    """
    times = 3000
    for step, exact in (
        (Laplace.costing(Fraction(1, 3), Fraction("2.5"), None, 3), True),
        (DiscreteLaplace.costing(Fraction(1, 30), Fraction(1)), True),
        (DiscreteGaussian.costing(Fraction(1, 50), Fraction(1), whole=True), False),
        (DiscreteGaussian.costing(Fraction(1, 50), Fraction(3), None, 2, whole=False), False),
    ):
        value = Fraction(0) if step.size is None else [Fraction(0)] * step.size
        draws = np.abs(np.array(step.many(value, times)).reshape(times, -1)).max(axis=1)
        missed = float(np.mean(draws > step.within(beta)))
        slack = 5 * math.sqrt(beta * (1 - beta) / times)
        assert missed < beta + slack
        assert not exact or missed > beta * 0.9 - slack


def test_parts_fail_together_as_often_as_stated() -> None:
    """Independent parts, each failing with the probability of a part, fail with that of all."""
    assert 1 - (1 - apart(0.05, 6)) ** 6 == pytest.approx(0.05)


# -- choices ---------------------------------------------------------------------------------------


@given(epsilons, amounts, st.booleans())
def test_a_choice_is_covered(epsilon: Fraction, reach: Fraction, monotonic: bool) -> None:
    """Its scale costs at most what was asked for, by the sensitivity that is stated, and at least
    that scale is drawn.
    """
    scale = Exponential.scale_costing(epsilon, reach, monotonic=monotonic)
    step = Exponential(reach, scale, outcomes=3, monotonic=monotonic)
    sensitivity, told = stated(step)
    assert sensitivity >= reach
    assert (1 if monotonic else 2) * sensitivity / told <= epsilon
    assert Fraction(step.drawn) >= told
    line = OnLine(reach, scale, outcomes=3)
    assert stated(line) == (sensitivity, told)


def test_opendp_chooses_by_the_formula() -> None:
    """Places are drawn in proportion to e^(score / scale)."""
    step = Exponential(Fraction(1), Fraction(2), outcomes=4)
    scores, times = [0.0, 1.0, 2.5, -3.0], 4000
    counted = Counter(step.many(scores, times))
    weights = np.exp(np.array(scores) / 2)
    assert chisquare([counted[i] for i in range(4)], times * weights / weights.sum()).pvalue > 1e-6


def test_points_are_chosen_by_the_formula() -> None:
    """Points of a line are drawn in proportion to e^(score / scale), those of a run alike; the best
    score need not be 0.
    """
    line = Line(np.array([3, 1, 200, 2]), np.array([9, 3, 7, 4]), parts=2)
    step = OnLine(Fraction(1), Fraction("0.75"), outcomes=206)
    times = 6000
    counted = Counter(step.many(line, times))
    weights = np.repeat(np.exp(-line.short / (2 * 0.75)), line.lengths)
    expected = times * weights / weights.sum()
    few = expected < 10
    seen = np.array([counted[i] for i in range(206)], dtype=float)
    together = [*seen[~few], seen[few].sum()], [*expected[~few], expected[few].sum()]
    assert chisquare(*together).pvalue > 1e-6


@given(
    st.lists(st.tuples(st.integers(1, 2**26), st.integers(0, 10**9)), min_size=1, max_size=60),
    st.fractions(Fraction(1, 1000), 10**6),
    st.integers(1, 1000),
)
def test_proposals_cover_the_true_weights(
    runs: list[tuple[int, int]], scale: Fraction, parts: int
) -> None:
    """Every run is proposed with at least its true weight, however small that is, and those that
    matter with hardly more.
    """
    lengths, short = (np.array(each, dtype=np.int64) for each in zip(*runs, strict=True))
    weights = Weights.of(Line(lengths, short, parts), scale)
    proposed = np.diff(np.r_[0, weights.upto])
    mpmath.mp.dps = 40
    taken = mpmath.mpf(0)
    for run, weight in enumerate(proposed):
        factor, exponent = weights.true(run, int(weight))
        true = mpmath.mpf(factor.numerator) / factor.denominator
        true *= mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
        assert true <= 1
        taken += true * int(weight)
    assert taken / int(weights.upto[-1]) > 1 - 2**-19


def test_a_comparison_takes_as_many_bits_as_it_needs() -> None:
    """A uniform number is compared with c e^-x exactly, also where hundreds of bits agree."""
    mpmath.mp.dps = 200
    ceiling, exponent = Fraction(7, 9), Fraction(1, 3)
    product = mpmath.mpf(7) / 9 * mpmath.exp(-mpmath.mpf(1) / 3)
    digits = int(mpmath.floor(product * 2**320))
    for moved, expected in ((-1, True), (1, False)):
        words = [(digits + moved) >> (64 * i) & (2**64 - 1) for i in range(4, -1, -1)]
        given_out = iter(words)
        assert below(ceiling, exponent, lambda _, rest=given_out: next(rest)) is expected
        assert list(given_out) == [], "all words were needed"
    assert below(Fraction(1), Fraction(0), lambda _: 2**64 - 2) is True
    assert below(Fraction(1), Fraction(10**8), lambda _: 1) is False
    with pytest.raises(ArithmeticError, match="below the true one"):
        below(Fraction(3), Fraction(1))


def test_a_comparison_is_as_likely_as_stated() -> None:
    """``below`` is true with its probability."""
    hits = sum(below(Fraction(1, 2), Fraction(1, 2)) for _ in range(4000))
    assert abs(hits / 4000 - 0.5 * math.exp(-0.5)) < 0.04


# -- numbers ---------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e30, 1e30), max_size=50), st.randoms())
def test_sums_are_exact(values: list[float], random: Any) -> None:
    """Floats are summed without rounding, in any order."""
    total = sum(map(Fraction, values), Fraction(0))
    assert exact_sum(np.array(values, dtype=float)) == total
    random.shuffle(values)
    assert exact_sum(np.array(values, dtype=float)) == total


def test_long_sums_are_exact() -> None:
    """Also where there are many, of all sizes, and where a loop of floats would be far off."""
    values = np.r_[np.full(100_000, 0.1), 1e17, np.full(1000, 5e-324), -1e17]
    assert exact_sum(values) == 100_000 * Fraction(0.1) + 1000 * Fraction(5e-324)
    assert float(np.sum(values)) != float(exact_sum(values))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_summed(wrong: float) -> None:
    """It would count as some number far outside all bounds."""
    with pytest.raises(ValueError, match="not finite"):
        exact_sum(np.array([1.0, wrong]))


@given(st.fractions(-(10**9), 10**9, max_denominator=10**12))
def test_floats_lie_on_their_side(value: Fraction) -> None:
    """The next float above is at least the number and the one below it is less, and likewise."""
    above, under = float_above(value), float_below(value)
    assert Fraction(math.nextafter(above, -math.inf)) < value <= Fraction(above)
    assert Fraction(under) <= value < Fraction(math.nextafter(under, math.inf))


@given(st.fractions(Fraction(1, 10**9), 10**9))
def test_roots_and_decimals_lie_above(value: Fraction) -> None:
    """A rounded root or decimal is never below, and hardly above."""
    root, decimal = root_above(value), decimal_above(value)
    assert root**2 >= value
    assert (root - Fraction(1, 2**98)) ** 2 < value
    assert 0 <= decimal - value <= value / 10**38


@given(st.fractions(-100, 100, max_denominator=1000), st.fractions(0, 10, max_denominator=1000))
def test_values_are_cut_within_their_bounds(low: Fraction, width: Fraction) -> None:
    """A float that is cut lies within the bounds as exact numbers, not as the nearest floats."""
    high = low + width + Fraction(1, 1000)
    found = clipped(np.array([-1e9, 1e9, float(low), float(high)]), low, high)
    assert all(low <= Fraction(value) <= high for value in found.tolist())
