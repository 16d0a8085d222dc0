"""Curves of mechanisms on samples, held against integrals of the worst pairs at high precision."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import mpmath
import pytest
from effort import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from accountant.privacy import balls
from accountant.privacy.conversions import at_least
from accountant.privacy.curves import (
    Curve,
    blended,
    curve_of_laplace,
    curve_of_pure,
    curve_of_range,
    curve_of_response,
    curve_of_rho,
    on_sample,
    order_of,
    repeated,
)
from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation
from accountant.privacy.samples import (
    curve_of_allocation,
    curve_of_drawn,
    curve_of_exchange,
    curve_of_gaussian,
    curve_of_poisson,
)

MECHANISM: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
Density = Callable[[mpmath.mpf], mpmath.mpf]

NOISE = [("0.01", "0.9"), ("0.1", "0.25"), ("0.2", "2"), ("0.5", "0.1"), ("0.001", "1.25")]
"""Rates and mu: training as it is done, a great noise, hardly any noise, half of the data."""
ORDERS = ["2", "3", "8", "1.25", "20", "2.5", "7.75"]
POINTS = [-70, -30, -15, -8, -4, -2, 0, 2, 4, 8, 15, 30, 70, 120]


def real(value: Fraction | str) -> mpmath.mpf:
    """The exact value at mpmath's working precision."""
    exact = Fraction(value)
    return mpmath.mpf(exact.numerator) / exact.denominator


def normal(x: mpmath.mpf) -> mpmath.mpf:
    """The logarithm of the density of normal noise."""
    return -(x**2 + mpmath.log(2 * mpmath.pi)) / 2


def mixture(weights: Sequence[mpmath.mpf], means: Sequence[mpmath.mpf]) -> Density:
    """The logarithm of a mixture of normal densities. Integrals of all orders ask for the same."""

    def density(x: mpmath.mpf) -> mpmath.mpf:
        parts = (w * mpmath.exp(m * (x - m / 2)) for w, m in zip(weights, means, strict=True))
        return mpmath.log(mpmath.fsum(parts)) + normal(x)

    return cache(density)


def divergence(p: Density, q: Density, order: mpmath.mpf) -> mpmath.mpf:
    """The Renyi divergence, the larger of both directions, by integration."""
    return mpmath.log(max(moment(p, q, order), moment(q, p, order))) / (order - 1)


def moment(p: Density, q: Density, order: mpmath.mpf, points: Sequence[Any] = POINTS) -> mpmath.mpf:
    """The integral of p^a q^(1 - a), whose logarithms are given."""
    return mpmath.quad(lambda x: mpmath.exp(order * p(x) + (1 - order) * q(x)), points)


def at(curve: Curve, order: str) -> mpmath.mpf:
    """A curve at an order, from above."""
    found = curve.at(order_of(Fraction(order)))
    assert found is not None
    return real(balls.above(found))


def worst(kind: str, rate: mpmath.mpf, mu: mpmath.mpf) -> Density:
    """The divergence of the worst pair, as a function of the order."""
    alone = mixture([1], [0])
    if kind == "poisson":
        one, other = mixture([1 - rate, rate], [0, mu]), alone
    elif kind == "exchange":
        one, other = (mixture([1 - rate, rate], [0, way * mu]) for way in (1, -1))
    elif kind == "drawn":
        one, other = mixture([1 - rate, rate], [0, mu]), alone
        beyond = [mu / 2, *(x for x in POINTS if x > mu / 2)]
        here, there = mpmath.ncdf(-mu / 2), mpmath.ncdf(mu / 2)
        rest = 1 - here - (1 - rate) * here - rate * there

        def drawn(order: mpmath.mpf) -> mpmath.mpf:
            both = moment(one, other, order, beyond) + moment(other, one, order, beyond)
            return mpmath.log(both + rest) / (order - 1)

        return drawn
    else:
        records = int(kind)
        weights = [
            mpmath.binomial(records, i) * rate**i * (1 - rate) ** (records - i)
            for i in range(records + 1)
        ]
        one, other = mixture(weights, [i * mu for i in range(records + 1)]), alone
    return lambda order: divergence(one, other, order)


def curve_on(kind: str, rate: Fraction, rho: Fraction) -> Curve:
    """The curve of one kind of sample."""
    kinds: dict[str, Callable[[], Curve]] = {
        "poisson": lambda: curve_of_poisson(rho, rate),
        "exchange": lambda: curve_of_exchange(rho, rate),
        "drawn": lambda: curve_of_drawn(rho, rate),
    }
    return kinds[kind]() if kind in kinds else curve_of_poisson(rho, rate, int(kind))


@pytest.mark.parametrize("kind", ["poisson", "exchange", "drawn", "2", "4"])
@pytest.mark.parametrize(("rate", "mu"), NOISE)
def test_a_sample_costs_what_the_worst_pair_does(kind: str, rate: str, mu: str) -> None:
    """A curve is never below the worst pair, at whole orders hardly above it where rates are those
    of training, and never above what it is without sampling.
    """
    rho = Fraction(mu) ** 2 / 2
    curve = curve_on(kind, Fraction(rate), rho)
    steps = {"exchange": 2, "2": 2, "4": 4}.get(kind, 1)
    with mpmath.workdps(30):
        divergence_at = worst(kind, real(rate), real(mu))
        for order in some(ORDERS, 3):
            truth, found = divergence_at(real(order)), at(curve, order)
            assert (
                truth * (1 - mpmath.mpf("1e-15")) <= found <= real(rho * steps**2 * Fraction(order))
            )
            if real(rate) <= 0.1 and Fraction(order).denominator == 1:
                assert found <= truth * mpmath.mpf("1.25")


@pytest.mark.parametrize("kind", ["poisson", "exchange", "drawn", "2"])
@settings(max_examples=examples(30), deadline=None)
@given(
    st.fractions(Fraction(1, 10**4), Fraction(9, 10), max_denominator=10**4),
    st.fractions(Fraction(1, 1000), 3, max_denominator=1000),
    st.integers(2, 40),
)
def test_more_noise_and_rarer_samples_cost_no_more(
    kind: str, rate: Fraction, rho: Fraction, order: int
) -> None:
    """Half of the rate, or half of rho, costs no more."""
    found = at(curve_on(kind, rate, rho), str(order))
    assert at(curve_on(kind, rate / 2, rho), str(order)) <= found
    assert at(curve_on(kind, rate, rho / 2), str(order)) <= found


def test_a_sample_of_a_sample_is_a_sample() -> None:
    """Poisson samples of rates 1/5 and 1/4, one inside the other, are one of 1/20."""
    nested = curve_of_gaussian(Fraction(1, 2)).sampled(Fraction(1, 5)).sampled(Fraction(1, 4))
    assert at(nested, "6") == at(curve_of_poisson(Fraction(1, 2), Fraction(1, 20)), "6")


def laplace(mean: mpmath.mpf) -> Density:
    """The logarithm of the density of Laplace noise of scale 1."""
    return lambda x: -abs(x - mean) - mpmath.log(2)


def blend(rate: mpmath.mpf, usual: Density, other: Density) -> Density:
    """The logarithm of a mixture of two."""
    return cache(
        lambda x: mpmath.log((1 - rate) * mpmath.exp(usual(x)) + rate * mpmath.exp(other(x)))
    )


@pytest.mark.parametrize("rate", ["0.01", "0.3"])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
def test_moments_bound_any_noise_on_a_sample(rate: str, epsilon: str) -> None:
    """On a sample the curves of Laplace noise and of randomised response are those of their pairs,
    in both directions.
    """
    q, e = real(rate), real(epsilon)
    with mpmath.workdps(30):
        inside = laplace(0)
        sampled = blend(q, inside, laplace(e))
        cuts = [-300, -40, 0, e, e + 40, 300]
        for order in (2, 3, 8, 20):
            both = [moment(*way, order, cuts) for way in ((sampled, inside), (inside, sampled))]
            truth = mpmath.log(max(both)) / (order - 1)
            found = at(on_sample(curve_of_laplace(Fraction(epsilon)), Fraction(rate)), str(order))
            assert abs(found - truth) <= truth * mpmath.mpf("1e-9")
            heads = 1 / (1 + mpmath.exp(-e))
            pair = [(heads, 1 - heads), (1 - heads, heads)]
            seen = [((1 - q) * b + q * a, b) for a, b in pair]
            both = [
                sum(x**order * y ** (1 - order) for x, y in way)
                for way in (seen, [(b, a) for a, b in seen])
            ]
            truth = mpmath.log(max(both)) / (order - 1)
            assert (
                abs(
                    at(on_sample(curve_of_pure(Fraction(epsilon)), Fraction(rate)), str(order))
                    - truth
                )
                < 1e-15
            )


@pytest.mark.parametrize("epsilon", ["0.01", "1", "5", "12"])
def test_a_range_is_as_hard_as_its_hardest_pair(epsilon: str) -> None:
    """Of a bounded range no pair of losses t and t - epsilon is harder than the curve, and it is
    below both pure privacy and a rho of epsilon^2 / 8.
    """
    e, exact = real(epsilon), Fraction(epsilon)
    for order in ("1.5", "2", "7", "40"):
        a = real(order)
        hardest = mpmath.mpf(0)
        for i in range(1, 400):
            y = mpmath.exp(e * i / 400)
            p = (mpmath.exp(e) - y) / mpmath.expm1(e)
            hardest = max(hardest, p * y ** (a - 1) + (1 - p) * (y * mpmath.exp(-e)) ** (a - 1))
        found = at(curve_of_range(exact), order)
        assert mpmath.log(hardest) / (a - 1) <= found
        assert found <= at(curve_of_pure(exact), order)
        assert found <= at(curve_of_rho(exact**2 / 8), order)


def test_a_response_among_many_is_mostly_no_response() -> None:
    """Of ten categories two tell two people apart: the moment is that of their chances."""
    truth, other = Fraction(1, 2), Fraction(1, 18)
    chance = truth + other
    curve = curve_of_response(balls.log(truth / other), chance)
    for order in (2, 9):
        p, q = real(truth), real(other)
        moment = p**order * q ** (1 - order) + q**order * p ** (1 - order) + 1 - p - q
        assert abs(at(curve, str(order)) - mpmath.log(moment) / (order - 1)) < 1e-14


def test_what_is_rare_counts_as_rare() -> None:
    """A rare case adds its moment times its chance."""
    usual, rare, chance = (
        curve_of_gaussian(Fraction(1, 10)),
        curve_of_gaussian(Fraction(1)),
        Fraction(1, 100),
    )
    found = at(blended(usual, rare, chance), "3")
    truth = mpmath.log(mpmath.exp("0.6") * 0.99 + mpmath.exp(6) * 0.01) / 2
    assert abs(found - truth) < 1e-13


@pytest.mark.parametrize(("steps", "mu"), [(2, "1"), (3, "0.5"), (4, "2")])
@pytest.mark.parametrize("order", [2, 3])
def test_an_allocation_costs_at_least_its_worst_pair(steps: int, mu: str, order: int) -> None:
    """Of few steps the moment of the mean of e^(mu x - mu^2 / 2) is summed over all products; back,
    it is estimated on a grid. Neither is above the curve, which is not above one step.
    """
    m, rho = float(mu), Fraction(mu) ** 2 / 2
    forth = (
        sum(
            float(mpmath.exp(sum(real(rho) * (k * k - k) for k in map(ks.count, range(steps)))))
            for ks in product(range(steps), repeat=order)
        )
        / steps**order
    )
    grid = [(-6 + 12 * (i + 0.5) / 24) for i in range(24)]
    density = {x: float(mpmath.exp(normal(mpmath.mpf(x)))) * 0.5 for x in grid}
    back = sum(
        math.prod(density[x] for x in xs)
        * (sum(math.exp(m * x - m * m / 2) for x in xs) / steps) ** (1 - order)
        for xs in product(grid, repeat=steps)
    )
    found = float(at(curve_of_allocation(rho, steps), str(order)))
    assert max(forth, back * 0.999) <= 2.718281828459046 ** (found * (order - 1)) * (1 + 1e-12)
    assert found <= float(rho * order)


@pytest.mark.parametrize(
    ("least", "tries", "chance"), [(120, 9999, "0.01"), (3, 5, "0.4"), (2, 7, "0.2"), (7, 7, "0.9")]
)
def test_large_samples_are_as_likely_as_they_are(least: int, tries: int, chance: str) -> None:
    """The chance of so many successes is the sum of its terms."""
    with mpmath.workdps(40):
        p = real(chance)
        terms: Any = (
            mpmath.binomial(tries, k) * p**k * (1 - p) ** (tries - k)
            for k in range(least, min(tries, 400) + 1)
        )
        found = real(at_least(least, tries, Fraction(chance)))
        assert -1e-30 <= found - sum(terms) <= mpmath.mpf("2e-25") or least <= tries * p


@pytest.mark.parametrize("tries", [1, 999, 59_999, 999_999])
def test_a_chance_of_one_half_is_found_at_once(tries: int) -> None:
    """Half of an odd number of coins or more show heads with a chance of exactly 1/2, which no
    number of bits tells from a whole multiple of the unit: it is rounded up in half a second.
    """
    began = time.process_time()
    assert at_least((tries + 1) // 2, tries, Fraction(1, 2)) - Fraction(1, 2) <= Fraction(1, 10**25)
    assert time.process_time() - began < 0.5


def test_very_many_tries_are_bounded_by_chernoff() -> None:
    """Beyond a million tries the chance is bounded, and certain below the mean."""
    assert at_least(10**8, 10**9, Fraction(1, 5)) == 1
    assert at_least(3 * 10**8, 10**9, Fraction(1, 5)) == Fraction(1, 10**30)
    assert Fraction(1, 10**4) < at_least(200_020_000, 10**9, Fraction(1, 5)) < 1
    assert at_least(6, 5, Fraction(1, 2)) == 0


def sampled(*parts: dict[str, Any]) -> mpmath.mpf:
    """The divergence at order 6 of parts on one Poisson sample of rate 1/100."""
    body = {"kind": "composed", "mechanisms": list(parts), "sampling": {"poisson": "0.01"}}
    loss = MECHANISM.validate_python(body).cost(Relation.ADD_OR_REMOVE_ONE)
    assert loss is not None
    return at(loss.curve, "6")


def test_vectors_in_a_list_are_sampled_as_what_dominates_them() -> None:
    """Where later questions depend on earlier answers only pairs that dominate may be multiplied:
    for vectors of Laplace noise that is randomised response, for vectors of discrete Gaussian noise
    none is known, so that a list of them is not amplified. A single number has its own pair.
    """
    noise = {"kind": "laplace", "scale": "1"}
    one, several = noise | {"sensitivity": "0.2"}, noise | {"sensitivity": {"l1": "0.2"}}
    response = repeated(curve_of_pure(Fraction(1, 5)), 2).sampled(Fraction(1, 100))
    assert sampled(one, one) < sampled(several, several)
    assert sampled(several, several) == at(response, "6")
    discrete = {"kind": "discrete_gaussian", "scale": "5"}
    one, several = discrete | {"sensitivity": "1"}, discrete | {"sensitivity": {"l2": "1"}}
    assert sampled(one, one) < at(curve_of_rho(Fraction(1, 25)), "6") / 100
    assert sampled(several, several) == at(curve_of_rho(Fraction(1, 25)), "6")
    assert sampled(several) == sampled(one)
