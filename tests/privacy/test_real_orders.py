"""Renyi divergences at orders between whole numbers, held against integrals at high precision."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.privacy.curves import curve_of_laplace, curve_of_pure, order_of
from accountant.privacy.losses import Loss, gaussian, pure
from accountant.privacy.samples import curve_of_poisson
from accountant.privacy.units import Currency, charge_of

ORDERS = st.builds(lambda n, p: 1 + Fraction(n, 2**p), st.integers(1, 40), st.integers(0, 12))
EPSILONS = st.fractions(Fraction(1, 1000), 20, max_denominator=1000)


def real(value: Fraction) -> mpmath.mpf:
    """The exact value at mpmath's working precision."""
    return mpmath.mpf(value.numerator) / value.denominator


def units(loss: Loss, order: Fraction) -> int:
    """The charge of one invocation at an order, in units."""
    at = order_of(order)
    return charge_of(loss, 1, (at,))[Currency.tau(at)]


@given(EPSILONS, ORDERS)
def test_a_pure_mechanism_costs_what_randomised_response_does(e: Fraction, a: Fraction) -> None:
    """At any order above 1: the divergence of randomised response by its two probabilities, rounded
    up to a unit.
    """
    with mpmath.workdps(60):
        x, order = real(e), real(a)
        p, q = mpmath.exp(x) / (1 + mpmath.exp(x)), 1 / (1 + mpmath.exp(x))
        exact = mpmath.log(p**order * q ** (1 - order) + q**order * p ** (1 - order)) / (order - 1)
        found = units(pure(e, curve=curve_of_pure(e)), a)
        assert 0 <= found - exact * 10**15 < 1 + mpmath.mpf("1e-9")


@settings(max_examples=examples(20))
@given(st.fractions(Fraction(1, 100), 4, max_denominator=100), ORDERS)
def test_laplace_noise_costs_its_integral(e: Fraction, a: Fraction) -> None:
    """At any order above 1: the integral of p^a q^(1-a) over the line, rounded up to a unit."""
    with mpmath.workdps(40):
        x, order = real(e), real(a)

        def density(t: mpmath.mpf) -> mpmath.mpf:
            return mpmath.exp(-order * abs(t) - (1 - order) * abs(t - x)) / 2

        exact = mpmath.log(mpmath.quad(density, [-mpmath.inf, 0, x, mpmath.inf])) / (order - 1)
        found = units(pure(e, curve=curve_of_laplace(e)), a)
        assert abs(found - exact * 10**15) < 1 + mpmath.mpf("1e-9")


@settings(max_examples=examples(25))
@given(
    st.fractions(Fraction(1, 2), 4, max_denominator=20),
    st.sampled_from([Fraction(1, 1000), Fraction(1, 100), Fraction(1, 10), Fraction(1, 2)]),
    st.builds(lambda n: 1 + Fraction(n, 16), st.integers(1, 160)),
)
def test_a_sampled_gaussian_never_costs_less_than_its_integral(
    sigma: Fraction, rate: Fraction, a: Fraction
) -> None:
    """Between whole orders the chord is above the truth, in the direction that integrates the
    mixture's power, and no more than without sampling.
    """
    rho = 1 / (2 * sigma**2)
    curve = curve_of_poisson(rho, rate)
    found = units(Loss(None, curve=curve), a)
    with mpmath.workdps(30):
        s, q, order = real(sigma), real(rate), real(a)

        def density(t: mpmath.mpf) -> mpmath.mpf:
            ratio = 1 - q + q * mpmath.exp((2 * t - 1) / (2 * s**2))
            return mpmath.npdf(t, 0, s) * ratio**order

        marks = [-12 * s, 0, 1, order, order + 12 * s]
        exact = mpmath.log(mpmath.quad(density, sorted(set(marks)))) / (order - 1)
        assert found >= exact * 10**15 * (1 - mpmath.mpf("1e-9"))
        assert found <= order * real(rho) * 10**15 + 1


@pytest.mark.parametrize("loss", [gaussian(Fraction(1, 4), None, Fraction(0)), pure(Fraction(2))])
@given(ORDERS, ORDERS)
def test_divergences_never_fall_with_the_order(loss: Loss, a: Fraction, b: Fraction) -> None:
    """A higher order never costs less, whole or not."""
    low, high = sorted((a, b))
    assert units(loss, low) <= units(loss, high)


@pytest.mark.parametrize("order", ["2", "1.25", "1.0001220703125", "22", "7.5"])
def test_an_order_is_in_the_name_of_its_currency(order: str) -> None:
    """The name of a divergence spells its order as a decimal, and is read back."""
    currency = Currency.tau(order_of(Fraction(order)))
    assert currency == f"tau_{order}"
    assert currency.order == Fraction(order)
    assert isinstance(currency.order, int) == ("." not in order)
