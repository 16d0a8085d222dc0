"""Bounds in decimal arithmetic, held against mpmath."""

from __future__ import annotations

import time
from collections.abc import Iterator
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.privacy.decimals import DOWN, UP, exp_up, ln_up, mills_ratio, sqrt_up, to_decimal

positive = st.builds(
    lambda digits, exponent: Fraction(digits) * Fraction(10) ** exponent,
    st.integers(1, 10**12),
    st.integers(-40, 30),
)


@pytest.fixture(autouse=True)
def _precision() -> Iterator[None]:
    with mpmath.workdps(150):
        yield


def real(value: Fraction | Decimal) -> mpmath.mpf:
    """``value`` at mpmath's working precision."""
    exact = Fraction(value)
    return mpmath.mpf(exact.numerator) / exact.denominator


def tight(bound: mpmath.mpf, truth: mpmath.mpf) -> bool:
    """True if ``bound`` is at least ``truth``, by a relative 1e-40 at most."""
    return bool(truth <= bound <= truth + abs(truth) * mpmath.mpf("1e-40") + mpmath.mpf("1e-55"))


@given(positive)
def test_ln_is_bounded_from_above(value: Fraction) -> None:
    """ln_up is never below the logarithm, and hardly above it."""
    with mpmath.workdps(150):
        assert tight(real(ln_up(value)), mpmath.log(real(value)))


@given(st.fractions(-600, 600, max_denominator=10**6))
def test_exp_is_bounded_from_above(value: Fraction) -> None:
    """exp_up is never below the exponential, and hardly above it."""
    with mpmath.workdps(150):
        truth = mpmath.exp(real(value))
        assert truth <= real(exp_up(value)) <= truth * (1 + mpmath.mpf("1e-40"))


@given(positive)
def test_square_root_is_bounded_from_above(value: Fraction) -> None:
    """sqrt_up is never below the root, and hardly above it."""
    with mpmath.workdps(150):
        assert tight(real(sqrt_up(value)), mpmath.sqrt(real(value)))


def test_fractions_are_rounded_in_the_named_direction() -> None:
    """A third is rounded down in one context and up in the other, its negative likewise."""
    for third in (Fraction(1, 3), Fraction(-1, 3)):
        assert Fraction(to_decimal(third, DOWN)) < third < Fraction(to_decimal(third, UP))


def test_exact_logarithm_of_one() -> None:
    """ln 1 is 0, not a hair more: a mechanism without effect costs nothing."""
    assert ln_up(Fraction(1)) == 0


@settings(max_examples=60)
@given(st.decimals("-45", "45", places=15))
def test_mills_ratio_is_enclosed(x: Decimal) -> None:
    """The bounds of Phi(-x) / phi(x) enclose it within a relative 1e-40, on all three branches."""
    check_mills_ratio(x)


def check_mills_ratio(x: Decimal) -> None:
    """Compares the bounds with mpmath's value at 700 digits."""
    low, high = mills_ratio(x)
    with mpmath.workdps(700):
        at = real(x)
        truth = mpmath.erfc(at / mpmath.sqrt(2)) / 2 / mpmath.npdf(at)
        assert real(low) <= truth <= real(high)
        assert real(high) - real(low) <= truth * mpmath.mpf("1e-40")


@pytest.mark.parametrize("x", ["-6", "6", "-5.999999999", "5.999999999", "0", "1e-30", "-1e-30"])
def test_mills_ratio_where_the_branches_meet(x: str) -> None:
    """The enclosure holds where series and continued fraction take over from each other."""
    check_mills_ratio(Decimal(x))


def test_mills_ratio_far_out_is_fast() -> None:
    """Far in the tail, at 1e12, the ratio is 1/x and costs next to nothing."""
    began = time.perf_counter()
    low, high = mills_ratio(Decimal("1e12"))
    assert time.perf_counter() - began < 0.1
    assert Decimal("0.999999e-12") < low <= high < Decimal("1e-12")


def test_results_do_not_depend_on_the_callers_context() -> None:
    """A caller's own decimal precision neither changes the bounds nor is changed by them."""
    expected = ln_up(Fraction(3)), exp_up(Fraction(1, 3)), mills_ratio(Decimal("-2.5"))
    with localcontext() as context:
        context.prec = 3
        got = ln_up(Fraction(3)), exp_up(Fraction(1, 3)), mills_ratio(Decimal("-2.5"))
        assert getcontext().prec == 3
    assert got == expected
