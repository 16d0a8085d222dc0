"""Capacities and spent amounts of the filters, held against mpmath and golden counts."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.privacy.conversions import best_order_within, intercept
from accountant.privacy.filters import FILTERS, ORDERS, Filter, Limit, axis_under, filter_for
from accountant.privacy.inverse import least_epsilon
from accountant.privacy.losses import Loss, gaussian, pure
from accountant.privacy.mechanisms import Relation, price
from accountant.privacy.mechanisms.additive import Laplace
from accountant.privacy.units import Charge, Currency, charge_of, units_down, units_up

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "gates.json").read_text())
BASIC, *SECOND = FILTERS.values()
ADVANCED, ZCDP, RENYI, GDP = SECOND
EPSILON_UNIT = 10**9
SQUARE_UNIT = 10**15


def amounts(low: int, high: int) -> st.SearchStrategy[Fraction]:
    """Decimal amounts from 1e``low`` to 1e``high``, as limits are stated."""
    return st.builds(
        lambda digits, exponent: Fraction(digits, 10**11) * Fraction(10) ** exponent,
        st.integers(10**11, 10**12),
        st.integers(low, high - 1),
    )


epsilons = amounts(-6, 6)
limits = st.builds(
    lambda epsilon, delta, tenths: Limit(epsilon, delta, delta * tenths / 100),
    epsilons,
    amounts(-30, 0),
    st.integers(0, 99),
).filter(lambda limit: limit.delta < 1)


def real(value: Fraction) -> mpmath.mpf:
    """The exact value at mpmath's working precision."""
    return mpmath.mpf(value.numerator) / value.denominator


def truth(limit: Limit) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """(V, slope, intercept) of the filter, from its docstring, at 100 digits."""
    log = mpmath.log(1 / real(limit.filter_delta))
    epsilon = real(limit.epsilon)
    v = (mpmath.sqrt(2 * log + 2 * epsilon) - mpmath.sqrt(2 * log)) ** 2
    order_less_1 = mpmath.sqrt(2 * log / v)
    return v, (1 + order_less_1) / 2, log / order_less_1


def admitted(limit: Limit, each: Fraction, filter_: Any) -> int:
    """How many pure charges of ``each`` the filter's own currency (or basic) takes, one by one."""
    return taken(limit, lambda orders: charge_of(pure(each), 1, orders), filter_)


def taken(limit: Limit, charge_at: Any, filter_: Any) -> int:
    """How many charges the filter's own currency (or basic) takes."""
    capacity, currency = filter_.capacity(limit), filter_.currency(limit)
    if currency is None:
        return int(capacity.epsilon // charge_at(())[Currency.EPSILON])
    orders = (currency.order,) if currency.order else ()
    return int(capacity.second // charge_at(orders)[currency])


def laplace(each: str) -> Any:
    """The charge of Laplace noise of epsilon ``each``."""
    noise = Laplace.model_validate({"kind": "laplace", "sensitivity": each, "scale": "1"})
    return lambda orders: price(noise, Relation.ADD_OR_REMOVE_ONE, orders).charge


@pytest.mark.parametrize("row", GOLDEN["whitehouse_filter_counts"], ids=str)
def test_golden_filter_counts(row: dict[str, Any]) -> None:
    """The filters admit exactly as many queries as the published filter formulas do."""
    limit = Limit(Fraction(row["eps_budget"]), Fraction(row["delta_prime"]))
    each = Fraction(row["eps_each"])
    assert admitted(limit, each, ADVANCED) == row["n_allowed_filter"]
    assert admitted(limit, each, BASIC) == row["n_allowed_basic"]
    assert ADVANCED.capacity(limit).second == int(Fraction(row["V_max"]) * SQUARE_UNIT)


@pytest.mark.parametrize("row", GOLDEN["how_many_queries"], ids=str)
def test_golden_query_counts(row: dict[str, Any]) -> None:
    """How many Laplace queries fit under each filter agrees with the golden table."""
    limit = Limit(Fraction(row["eps"]), Fraction(row["delta"]))
    each = Fraction(row["laplace_eps_each"])
    assert admitted(limit, each, ADVANCED) == row["advanced"]
    assert admitted(limit, each, BASIC) == row["basic"]
    assert taken(limit, laplace(row["laplace_eps_each"]), RENYI) == row["renyi"]
    # The golden count charges eps^2 / 2, which is a little more than what is true of pure privacy.
    assert row["zcdp"] <= admitted(limit, each, ZCDP) <= row["zcdp"] + 1


def test_the_order_of_the_golden_table() -> None:
    """The fixed Renyi order depends on (epsilon, delta') alone; at (1, 1e-6) it is 22."""
    assert RENYI.currency(Limit(Fraction(1), Fraction(1, 10**6))) == "tau_22"
    assert RENYI.currency(Limit(Fraction(3), Fraction(1, 10**6))) == "tau_9"


@given(limits)
def test_capacity_is_the_truth_rounded_down(limit: Limit) -> None:
    """A capacity is never above the exact one and less than one unit below it, for a limit that
    is a whole number of units of epsilon.
    """
    whole = Fraction(units_up(limit.epsilon, Currency.EPSILON), EPSILON_UNIT)
    limit = Limit(whole, limit.delta, limit.own_delta)
    with mpmath.workdps(100):
        v, _, _ = truth(limit)
        exact = v * SQUARE_UNIT
        capacity = ADVANCED.capacity(limit)
        assert capacity.second is not None
        assert exact - 1 - mpmath.mpf("1e-20") < capacity.second <= exact
        assert capacity.epsilon == limit.epsilon * EPSILON_UNIT // 1
        assert capacity.own_delta == limit.own_delta * 10**15 // 1


@given(limits, st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100))
def test_capacity_at_a_share_lies_on_the_line(limit: Limit, share: Fraction) -> None:
    """The capacity at a share of the limit is where the filter's fixed line reaches that share."""
    with mpmath.workdps(100):
        _, slope, intercept = truth(limit)
        reached = units_down(limit.epsilon * share, Currency.EPSILON)  # whole units, rounded down
        exact = (mpmath.mpf(reached) / EPSILON_UNIT - intercept) / slope * SQUARE_UNIT
        second = ADVANCED.capacity(limit, share).second
        assert second is not None
        assert exact - 1 - mpmath.mpf("1e-20") < second <= exact + mpmath.mpf("1e-20")


@given(limits, st.integers(0, 2**62), st.integers(0, 2**62))
def test_spent_is_never_below_the_line(limit: Limit, epsilon: int, second: int) -> None:
    """Spent is the smaller of the path-wise sum and the line at the fixed order, rounded up."""
    with mpmath.workdps(100):
        _, slope, intercept = truth(limit)
        line = (slope * mpmath.mpf(second) / SQUARE_UNIT + intercept) * EPSILON_UNIT
        spent = ADVANCED.spent(limit, epsilon, second)
        assert spent is not None
        exact = min(mpmath.mpf(epsilon), line)
        assert exact <= spent <= mpmath.ceil(exact + mpmath.mpf("1e-15"))
        for filter_ in FILTERS.values():
            assert filter_.spent(limit, epsilon, None) == epsilon
        assert BASIC.spent(limit, epsilon, second) == epsilon


each_filter = pytest.mark.parametrize("filter_", SECOND, ids=lambda filter_: filter_.name)


@each_filter
@settings(max_examples=50, deadline=None)
@given(limit=limits, share=st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100))
def test_spent_and_capacity_tell_the_same_story(
    filter_: Filter, limit: Limit, share: Fraction
) -> None:
    """What fits within the capacity at a share shows at most that share as spent, one unit more
    shows more: a threshold fires exactly when the number that people see passes it.
    """
    capacity = filter_.capacity(limit, share)
    assert capacity.second is not None
    if capacity.second >= 0:
        at = filter_.spent(limit, None, capacity.second)
        assert at is not None
        assert at <= capacity.epsilon
    over = filter_.spent(limit, None, max(0, capacity.second + 1))
    assert over is not None
    whole = filter_.capacity(limit)
    assert whole.second is not None
    assert over > capacity.epsilon or (over == whole.epsilon and filter_ is GDP)


@each_filter
@settings(max_examples=50, deadline=None)
@given(limit=limits)
def test_a_full_account_shows_the_limit_as_spent(filter_: Filter, limit: Limit) -> None:
    """At full capacity the number that people see is the limit's epsilon and never more."""
    second = filter_.capacity(limit).second
    assert second is not None
    spent = filter_.spent(limit, None, max(0, second))
    assert spent is not None
    assert second < 0 or spent <= units_up(limit.epsilon, Currency.EPSILON)


@each_filter
@settings(max_examples=50, deadline=None)
@given(
    limit=limits,
    epsilon=st.integers(0, 2**61),
    second=st.integers(0, 2**61),
    more=st.integers(0, 2**60),
)
def test_spent_is_monotone(
    filter_: Filter, limit: Limit, epsilon: int, second: int, more: int
) -> None:
    """A further charge never lowers what is shown as spent; an infinite one raises it most."""

    def spent(e: int | None, s: int | None) -> int:
        found = filter_.spent(limit, e, s)
        assert found is not None
        return found

    before = spent(epsilon, second)
    assert spent(epsilon + more, second) >= before
    assert spent(epsilon, second + more) >= before
    assert spent(epsilon, None) >= before
    assert spent(None, second) >= before
    assert filter_.spent(limit, None, None) is None


@each_filter
@settings(max_examples=50, deadline=None)
@given(limit=limits, factor=st.fractions(1, 3, max_denominator=50))
def test_capacity_is_monotone(filter_: Filter, limit: Limit, factor: Fraction) -> None:
    """A larger delta of the filter's own never makes less room, nor a larger epsilon at the order
    that was chosen before.
    """
    before = filter_.capacity(limit)
    chosen = limit.chosen_for
    wider = filter_.capacity(Limit(limit.epsilon * factor, limit.delta, limit.own_delta, chosen))
    safer = filter_.capacity(Limit(limit.epsilon, limit.delta, limit.own_delta / factor, chosen))
    assert before.second is not None
    assert wider.second is not None
    assert safer.second is not None
    assert wider.epsilon >= before.epsilon
    assert wider.second >= before.second
    assert safer.second >= before.second
    assert safer.own_delta <= before.own_delta


@settings(max_examples=60, deadline=None)
@given(limits)
def test_the_lines_of_zcdp_and_renyi_are_the_printed_conversion(limit: Limit) -> None:
    """At the filter's order a: spent = a rho (or tau) + ln(1 - 1/a) - ln(a delta')/(a - 1), rounded
    up, and the capacity is where that meets epsilon, downwards.
    """
    for filter_ in (ZCDP, RENYI):
        line = filter_.line(limit)
        with mpmath.workdps(80):
            a, d = real(line.order), real(limit.filter_delta)
            c = mpmath.log1p(-1 / a) - mpmath.log(a * d) / (a - 1)
            slope = a if filter_ is ZCDP else mpmath.mpf(1)
            for second in (0, 10**12, 10**17):
                exact = (slope * second / 10**15 + c) * EPSILON_UNIT
                got = line.spent(second)
                assert max(0, exact) <= got <= max(mpmath.mpf(0), exact) + 1 + abs(exact) * 1e-40
            whole = units_down(limit.epsilon, Currency.EPSILON)
            most = (mpmath.mpf(whole) / EPSILON_UNIT - c) / slope * 10**15
            capacity = filter_.capacity(limit).second
            assert capacity is not None
            assert most - 1 - abs(most) * 1e-40 <= capacity <= most + abs(most) * 1e-40


@settings(max_examples=40, deadline=None)
@given(limits)
def test_the_order_of_renyi_is_the_best_candidate(limit: Limit) -> None:
    """No candidate order leaves room for a larger tau per order, and zcdp's order is no worse."""
    [order] = (c.order for c in axis_under(limit) if c.order is not None)

    def room(a: Fraction) -> Fraction:
        return (limit.epsilon - intercept(a, limit.filter_delta)) / a

    best = room(Fraction(order))
    assert order in ORDERS
    assert best == max(room(Fraction(a)) for a in ORDERS)
    assert room(best_order_within(limit.epsilon, limit.filter_delta)) >= best * (
        1 - Fraction(1, 10**6)
    )


@settings(max_examples=40, deadline=None)
@given(
    st.builds(lambda n, e: n * Fraction(10) ** e, st.integers(1, 99), st.integers(-3, 1)),
    st.sampled_from(["1e-12", "1e-6", "0.01", "0.3"]),
)
def test_the_capacity_of_gdp_is_the_exact_curve(epsilon: Fraction, delta: str) -> None:
    """The largest mu^2 whose Gaussian curve at epsilon is within nine tenths of delta', rounded
    down: a billionth more mu is too much (Balle and Wang 2018, at eighty digits).
    """
    limit = Limit(epsilon, Fraction(delta))
    second = GDP.capacity(limit).second
    assert second is not None

    def at(mu: mpmath.mpf) -> mpmath.mpf:
        e = real(epsilon)
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)

    with mpmath.workdps(80):
        most = real(Fraction(delta)) * 9 / 10
        assert at(mpmath.sqrt(mpmath.mpf(second) / 10**15)) <= most
        beyond = mpmath.sqrt(mpmath.mpf(second + 1) / 10**15) * (1 + mpmath.mpf("1e-9"))
        assert at(beyond) > most


@each_filter
@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(1, 10**4),
    mu=st.fractions(Fraction(1, 100), 2, max_denominator=100),
    delta=st.sampled_from(["1e-9", "1e-5", "0.01"]),
)
def test_the_least_epsilon_admits_and_hardly_less_does(
    filter_: Filter, count: int, mu: Fraction, delta: str
) -> None:
    """The question in advance: the limit that is named admits the total, a millionth less of its
    epsilon does not, at the order that it has.
    """

    def total(orders: tuple[int, ...]) -> Charge:
        return charge_of(gaussian(mu**2, mu, Fraction(0)), count, orders)

    epsilon = least_epsilon(filter_, Fraction(delta), Fraction(0), total)
    if epsilon is None:
        assert count * mu**2 > 1000  # beyond what an account holds
        return
    limit = Limit(epsilon, Fraction(delta))
    currency = filter_.currency(limit)
    assert currency is not None
    used = total((currency.order,) if currency.order else ()).units(currency)
    most = filter_.capacity(limit).second
    less = filter_.capacity(
        Limit(epsilon * (1 - Fraction(1, 10**6)), limit.delta, chosen=limit.chosen_for)
    )
    assert used is not None
    assert most is not None
    assert less.second is not None
    assert used <= most
    assert less.second < used or epsilon < Fraction(1, 10**6)


@given(epsilons, amounts(-30, -1))
def test_a_limit_without_delta_of_its_own_is_basic_only(epsilon: Fraction, delta: Fraction) -> None:
    """Where own deltas take all of delta, no filter beside basic may admit anything."""
    for name in FILTERS:
        for limit in (Limit(epsilon), Limit(epsilon, delta, delta)):
            assert filter_for(name, limit) is BASIC
            assert filter_for(name, limit).capacity(limit).second is None


@given(epsilons, st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_loop_of_n_costs_what_a_count_of_n_costs(epsilon: Fraction, n: int, m: int) -> None:
    """Rounding happens once per invocation, so counts add up exactly, and never below the truth."""
    loss = Loss(epsilon, Fraction(1, 10**17), epsilon**2, epsilon, epsilon)
    together = charge_of(loss, n + m)
    assert together == (charge_of(loss, n) + charge_of(loss, m)) or any(together.infinite)
    one = charge_of(loss, 1)
    assert one[Currency.EPSILON] >= max(1, epsilon * EPSILON_UNIT)
    assert one[Currency.EPSILON_SQUARED] >= max(1, epsilon**2 * SQUARE_UNIT) or any(one.infinite)
    assert one[Currency.DELTA] == 1
