"""The exact Gaussian curve, held against mpmath and the golden table."""

from __future__ import annotations

import itertools
import json
import time
from decimal import localcontext
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.privacy.conversions import gaussian_epsilon

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "mechanisms.json").read_text())
NANO = Fraction(1, 10**9)


def exact_delta(epsilon: Fraction, mu: Fraction) -> mpmath.mpf:
    """Balle-Wang 2018, Theorem 8, as printed; the caller sets the precision."""
    e, m = (mpmath.mpf(v.numerator) / v.denominator for v in (epsilon, mu))
    return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


def proves(epsilon: Fraction, mu: Fraction, delta: Fraction) -> bool:
    """True if ``epsilon`` is an epsilon of the mechanism at ``delta``, to 50 digits and more."""
    with mpmath.workdps(120):
        return bool(exact_delta(epsilon, mu) <= mpmath.mpf(delta.numerator) / delta.denominator)


@pytest.mark.parametrize("row", GOLDEN["gaussian_exact"]["rows"])
def test_golden_values(row: dict[str, str]) -> None:
    """The result is never below the golden value and exceeds it by less than a billionth."""
    found = gaussian_epsilon(Fraction(row["mu"]) ** 2, Fraction(row["delta"]))
    assert 0 <= found - Fraction(row["eps"]) <= NANO


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(1, 9999), st.integers(-8, -2), st.integers(1, 99), st.integers(-32, -2))
def test_least_multiple_that_is_true(m: int, m_exp: int, d: int, d_exp: int) -> None:
    """The result is an epsilon of the mechanism, and a billionth less is not."""
    mu, delta = m * Fraction(10) ** m_exp, d * Fraction(10) ** d_exp
    found = gaussian_epsilon(mu**2, delta)
    assert found % NANO == 0
    assert proves(found, mu, delta)
    if found > 0:
        assert not proves(found - NANO, mu, delta)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.builds(lambda m, e: m * Fraction(10) ** e, st.integers(1, 999), st.integers(-13, 5)),
    st.fractions(1, 3) | st.integers(1, 10**6).map(Fraction),
    st.sampled_from(["1e-300", "1e-12", "1e-3", "0.5", "0.99"]),
)
def test_less_noise_never_costs_less(mu: Fraction, factor: Fraction, delta: str) -> None:
    """Epsilon rises with mu, to the last unit."""
    assert gaussian_epsilon(mu**2, Fraction(delta)) <= gaussian_epsilon(
        (mu * factor) ** 2, Fraction(delta)
    )


@pytest.mark.parametrize(("low", "high"), [("1e-12", "1e-3"), ("1e-300", "1e-12"), ("0.5", "0.9")])
def test_a_smaller_delta_never_costs_less(low: str, high: str) -> None:
    """Epsilon falls with delta."""
    for mu in (Fraction(1, 100), Fraction(1), Fraction(50)):
        assert gaussian_epsilon(mu**2, Fraction(low)) >= gaussian_epsilon(mu**2, Fraction(high))


MUS = ("1e-60", "1e-12", "1e-11", "1e-9", "1e-4", "1", "1e3", "1e5", "100001", "1e12", "1e60")
DELTAS = ("1e-300", "1e-30", "1e-6", "0.5", "0.999", "0." + "9" * 40)


@pytest.mark.parametrize(("mu", "delta"), list(itertools.product(MUS, DELTAS)))
def test_absurd_parameters_are_priced_quickly(mu: str, delta: str) -> None:
    """Every legal pair gives a finite epsilon, within half a second and below the closed form."""
    began = time.perf_counter()
    found = gaussian_epsilon(Fraction(mu) ** 2, Fraction(delta))
    assert time.perf_counter() - began < 0.5
    with mpmath.workdps(200):
        m, d = (mpmath.mpf(Fraction(v).numerator) / Fraction(v).denominator for v in (mu, delta))
        closed = m**2 / 2 + m * mpmath.sqrt(-2 * mpmath.log(d))
        slack = mpmath.mpf("2e-9") + closed * mpmath.mpf("1e-50")
        assert 0 <= mpmath.mpf(found.numerator) / found.denominator <= closed + slack


@pytest.mark.parametrize(("mu", "delta"), list(itertools.product(("1e-11", "1e-4", "1e3"), DELTAS)))
def test_absurd_parameters_are_never_below_the_truth(mu: str, delta: str) -> None:
    """The proof also holds where float accountants give up, down to a delta of 1e-300."""
    found = gaussian_epsilon(Fraction(mu) ** 2, Fraction(delta))
    with mpmath.workdps(900):
        bound = mpmath.mpf(Fraction(delta).numerator) / Fraction(delta).denominator
        assert exact_delta(found, Fraction(mu)) <= bound


def test_it_does_not_depend_on_the_callers_context() -> None:
    """A caller's own decimal precision leaves the result alone."""
    expected = gaussian_epsilon(Fraction(1, 9), Fraction(1, 10**7))
    with localcontext() as context:
        context.prec = 4
        assert gaussian_epsilon(Fraction(1, 9), Fraction(1, 10**7)) == expected
