"""Capacities and spent amounts of the filters, held against mpmath and golden counts."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accountant.privacy.conversions import best_order_within, intercept
from accountant.privacy.curves import Order, Orders
from accountant.privacy.filters import (
    FILTERS,
    ORDERS,
    Filter,
    Limit,
    fixed_order,
    parts_of,
)
from accountant.privacy.inverse import least_epsilon
from accountant.privacy.losses import gaussian, pure
from accountant.privacy.mechanisms import Relation, price
from accountant.privacy.mechanisms.additive import Laplace
from accountant.privacy.units import (
    LARGEST,
    Charge,
    Currency,
    charge_of,
    orders_in,
    units_down,
    units_up,
)

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
    capacity = filter_.capacity(limit)
    if not capacity.currencies:
        return int(capacity.epsilon // charge_at(())[Currency.EPSILON])
    charge = charge_at(orders_in(capacity.currencies))
    each = zip(capacity.currencies, capacity.along, strict=True)
    return max(int(most // charge[currency]) for currency, most in each)


def at_one_order(epsilon: Fraction, delta: Fraction) -> Limit:
    """A limit at the one order that is best for flat curves, with all of delta'."""
    return Limit(epsilon, delta, orders=(fixed_order(epsilon, delta),))


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
    assert ADVANCED.capacity(limit).along == (int(Fraction(row["V_max"]) * SQUARE_UNIT),)


@pytest.mark.parametrize("row", GOLDEN["how_many_queries"], ids=str)
def test_golden_query_counts(row: dict[str, Any]) -> None:
    """How many Laplace queries fit under each filter agrees with the golden table, which knows one
    order with all of delta'; the two orders of a limit without stated ones cost 6 % at most.
    """
    limit = Limit(Fraction(row["eps"]), Fraction(row["delta"]))
    each = Fraction(row["laplace_eps_each"])
    assert admitted(limit, each, ADVANCED) == row["advanced"]
    assert admitted(limit, each, BASIC) == row["basic"]
    once = laplace(row["laplace_eps_each"])
    assert taken(at_one_order(limit.epsilon, limit.delta), once, RENYI) == row["renyi"]
    assert taken(limit, once, RENYI) >= row["renyi"] * 0.94 - 1
    # The golden count charges eps^2 / 2, which is a little more than what is true of pure privacy.
    assert row["zcdp"] <= admitted(limit, each, ZCDP) <= row["zcdp"] + 1


def test_the_order_of_the_golden_table() -> None:
    """The orders depend on (epsilon, delta') alone; at (1, 1e-6) the best one for flat curves is
    22, and a limit without stated orders has 23 and, lower by a third, 15.
    """
    assert fixed_order(Fraction(1), Fraction(1, 10**6)) == 22
    assert fixed_order(Fraction(3), Fraction(1, 10**6)) == 9
    assert RENYI.currencies(Limit(Fraction(1), Fraction(1, 10**6))) == ("tau_23", "tau_15")


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
        [most] = capacity.along
        assert exact - 1 - mpmath.mpf("1e-20") < most <= exact
        assert capacity.epsilon == limit.epsilon * EPSILON_UNIT // 1
        assert capacity.own_delta == limit.own_delta * 10**15 // 1


@given(limits, st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100))
def test_capacity_at_a_share_lies_on_the_line(limit: Limit, share: Fraction) -> None:
    """The capacity at a share of the limit is where the filter's fixed line reaches that share."""
    with mpmath.workdps(100):
        _, slope, intercept = truth(limit)
        reached = units_down(limit.epsilon * share, Currency.EPSILON)  # whole units, rounded down
        exact = (mpmath.mpf(reached) / EPSILON_UNIT - intercept) / slope * SQUARE_UNIT
        [second] = ADVANCED.capacity(limit, share).along
        assert exact - 1 - mpmath.mpf("1e-20") < second <= exact + mpmath.mpf("1e-20")


@given(limits, st.integers(0, 2**62), st.integers(0, 2**62))
def test_spent_is_never_below_the_line(limit: Limit, epsilon: int, second: int) -> None:
    """Spent is the smaller of the path-wise sum and the line at the fixed order, rounded up."""
    with mpmath.workdps(100):
        _, slope, intercept = truth(limit)
        line = (slope * mpmath.mpf(second) / SQUARE_UNIT + intercept) * EPSILON_UNIT
        spent = ADVANCED.spent(limit, epsilon, [second])
        assert spent is not None
        exact = min(mpmath.mpf(epsilon), line)
        assert exact <= spent <= mpmath.ceil(exact + mpmath.mpf("1e-15"))
        for filter_ in FILTERS.values():
            assert filter_.spent(limit, epsilon, [None] * len(filter_.lines(limit))) == epsilon
        assert BASIC.spent(limit, epsilon, []) == epsilon


each_filter = pytest.mark.parametrize("filter_", SECOND, ids=lambda filter_: filter_.name)


@each_filter
@settings(max_examples=examples(50), deadline=None)
@given(limit=limits, share=st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100))
def test_spent_and_capacity_tell_the_same_story(
    filter_: Filter, limit: Limit, share: Fraction
) -> None:
    """What fits within the capacity at a share shows at most that share as spent, one unit more
    shows more: a threshold fires exactly when the number that people see passes it.
    """
    capacity, whole = filter_.capacity(limit, share), filter_.capacity(limit)
    for place, most in enumerate(capacity.along):
        if most >= 0:
            at = filter_.spent(limit, None, alone(capacity.along, place, most))
            assert at is not None
            assert at <= capacity.epsilon
        over = filter_.spent(limit, None, alone(capacity.along, place, max(0, most + 1)))
        assert over is not None
        assert over > capacity.epsilon or (over == whole.epsilon and filter_ is GDP)


def alone(along: tuple[int, ...], place: int, units: int | None) -> list[int | None]:
    """A sum along one of the lines, the others infinite."""
    return [units if i == place else None for i in range(len(along))]


@each_filter
@settings(max_examples=examples(50), deadline=None)
@given(limit=limits)
def test_a_full_account_shows_the_limit_as_spent(filter_: Filter, limit: Limit) -> None:
    """At full capacity the number that people see is the limit's epsilon and never more."""
    along = filter_.capacity(limit).along
    for place, most in enumerate(along):
        spent = filter_.spent(limit, None, alone(along, place, max(0, most)))
        assert spent is not None
        assert most < 0 or spent <= units_up(limit.epsilon, Currency.EPSILON)


@each_filter
@settings(max_examples=examples(50), deadline=None)
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
    lines = len(filter_.lines(limit))

    def spent(e: int | None, *along: int | None) -> int:
        found = filter_.spent(limit, e, along)
        assert found is not None
        return found

    sums = [second // (place + 1) for place in range(lines)]
    before = spent(epsilon, *sums)
    assert spent(epsilon + more, *sums) >= before
    assert spent(None, *sums) >= before
    for place in range(lines):
        others = sums[:place], sums[place + 1 :]
        assert spent(epsilon, *others[0], sums[place] + more, *others[1]) >= before
        assert spent(epsilon, *others[0], None, *others[1]) >= before
    assert filter_.spent(limit, None, [None] * lines) is None


@each_filter
@settings(max_examples=examples(50), deadline=None)
@given(limit=limits, cells=st.lists(st.tuples(*[st.integers(0, 2**62 + 3)] * 3), min_size=1))
def test_what_is_spent_roughly_is_near(
    filter_: Filter, limit: Limit, cells: list[tuple[int, int, int]]
) -> None:
    """In floats the epsilon spent is as near the truth as is said, infinite sums included: cells
    that come into question are found by it.
    """
    lines = len(filter_.lines(limit))
    columns = [np.array(column, dtype=np.int64) for column in zip(*cells, strict=True)]
    found, slack = filter_.roughly(limit, columns[0], columns[1 : lines + 1])
    starts = [abs(line.b) / line.d for line in filter_.lines(limit)]
    assert slack <= 2 + (max(starts) + 2**63) * 2**-39
    for about, (epsilon, *sums) in zip(found.tolist(), cells, strict=True):
        finite = [None if one > LARGEST else one for one in (epsilon, *sums[:lines])]
        exact = filter_.spent(limit, finite[0], finite[1:])
        assert abs(about - (epsilon if exact is None else exact)) <= slack


@each_filter
@settings(max_examples=examples(50), deadline=None)
@given(limit=limits, factor=st.fractions(1, 3, max_denominator=50))
def test_capacity_is_monotone(filter_: Filter, limit: Limit, factor: Fraction) -> None:
    """A larger delta of the filter's own never makes less room, nor a larger epsilon at the order
    that was chosen before.
    """
    before = filter_.capacity(limit)
    chosen = limit.chosen_for
    wider = filter_.capacity(Limit(limit.epsilon * factor, limit.delta, limit.own_delta, chosen))
    safer = filter_.capacity(Limit(limit.epsilon, limit.delta, limit.own_delta / factor, chosen))
    assert wider.epsilon >= before.epsilon
    assert safer.own_delta <= before.own_delta
    for than, most, more in zip(before.along, wider.along, safer.along, strict=True):
        assert min(most, more) >= than


@settings(max_examples=examples(60), deadline=None)
@given(limits)
def test_the_lines_of_zcdp_and_renyi_are_the_printed_conversion(limit: Limit) -> None:
    """At each of the filter's orders a, with its part d of delta': spent = a rho (or tau) +
    ln(1 - 1/a) - ln(a d)/(a - 1), rounded up, and the capacity is where that meets epsilon,
    downwards.
    """
    drawn = [(ZCDP, 0, Fraction(1))]
    drawn += [(RENYI, place, part) for place, (_, part) in enumerate(parts_of(limit))]
    assert sum(part for _, part in parts_of(limit)) == 1
    for filter_, place, part in drawn:
        line = filter_.lines(limit)[place]
        with mpmath.workdps(80):
            a, d = real(Fraction(line.order)), real(limit.filter_delta * part)
            c = mpmath.log1p(-1 / a) - mpmath.log(a * d) / (a - 1)
            slope = a if filter_ is ZCDP else mpmath.mpf(1)
            for second in (0, 10**12, 10**17):
                exact = (slope * second / 10**15 + c) * EPSILON_UNIT
                got = line.spent(second)
                assert max(0, exact) <= got <= max(mpmath.mpf(0), exact) + 1 + abs(exact) * 1e-40
            whole = units_down(limit.epsilon, Currency.EPSILON)
            most = (mpmath.mpf(whole) / EPSILON_UNIT - c) / slope * 10**15
            capacity = filter_.capacity(limit).along[place]
            assert most - 1 - abs(most) * 1e-40 <= capacity <= most + abs(most) * 1e-40


@settings(max_examples=examples(40), deadline=None)
@given(limits)
def test_the_order_of_renyi_is_the_best_candidate(limit: Limit) -> None:
    """With the first order's part of delta' no candidate leaves room for a larger tau per order,
    and zcdp's order is no worse. The second order is lower by a third.
    """
    (order, part), *lower = parts_of(limit)
    filter_delta = limit.filter_delta * part

    def room(a: Order) -> Fraction:
        return (limit.epsilon - intercept(Fraction(a), filter_delta)) / a

    best = room(order)
    assert order in ORDERS
    assert best == max(map(room, ORDERS))
    finest = room(best_order_within(limit.epsilon, filter_delta))
    assert finest >= best - abs(best) * Fraction(1, 10**6)
    assert [a for a, _ in lower] == [round(order * Fraction(13, 20))] * (order >= Fraction(5, 2))


@settings(max_examples=examples(40), deadline=None)
@given(
    st.builds(lambda n, e: n * Fraction(10) ** e, st.integers(1, 99), st.integers(-3, 1)),
    st.sampled_from(["1e-12", "1e-6", "0.01", "0.3"]),
)
def test_the_capacity_of_gdp_is_the_exact_curve(epsilon: Fraction, delta: str) -> None:
    """The largest mu^2 whose Gaussian curve at epsilon is within nine tenths of delta', rounded
    down: a billionth more mu is too much (Balle and Wang 2018, at eighty digits).
    """
    limit = Limit(epsilon, Fraction(delta))
    [second] = GDP.capacity(limit).along

    def at(mu: mpmath.mpf) -> mpmath.mpf:
        e = real(epsilon)
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)

    with mpmath.workdps(80):
        most = real(Fraction(delta)) * 9 / 10
        assert at(mpmath.sqrt(mpmath.mpf(second) / 10**15)) <= most
        beyond = mpmath.sqrt(mpmath.mpf(second + 1) / 10**15) * (1 + mpmath.mpf("1e-9"))
        assert at(beyond) > most


@each_filter
@settings(max_examples=examples(25), deadline=None)
@example(count=1366, mu=Fraction(4, 73), delta="0.01")
@given(
    count=st.integers(1, 10**4),
    mu=st.fractions(Fraction(1, 100), 2, max_denominator=100),
    delta=st.sampled_from(["1e-9", "1e-5", "0.01"]),
)
def test_the_least_epsilon_admits_and_hardly_less_does(
    filter_: Filter, count: int, mu: Fraction, delta: str
) -> None:
    """The question in advance: the limit that is named admits the total. A millionth less of its
    epsilon does not, at the orders that it has or, where those change just there, at its own.
    """

    def total(orders: Orders) -> Charge:
        return charge_of(gaussian(mu**2, mu, Fraction(0)), count, orders)

    epsilon = least_epsilon(filter_, Fraction(delta), Fraction(0), total)
    if epsilon is None:
        assert count * mu**2 > 1000  # beyond what an account holds
        return
    limit = Limit(epsilon, Fraction(delta))

    def admits(limit: Limit) -> bool:
        most = filter_.capacity(limit)
        charge = total(orders_in(most.currencies))
        return any(
            charge[currency] <= along
            for currency, along in zip(most.currencies, most.along, strict=True)
        )

    less = Limit(epsilon * (1 - Fraction(1, 10**6)), limit.delta)
    assert admits(limit)
    assert epsilon < Fraction(1, 10**6) or not (
        admits(less) and admits(replace(less, chosen=limit.chosen_for))
    )


@given(
    epsilon=st.fractions(Fraction(1, 10**9), 10**6, max_denominator=10**9),
    tenths=st.integers(1, 3000),
    kept=st.fractions(Fraction(1, 2), Fraction(999, 1000), max_denominator=1000),
)
@settings(max_examples=examples(60))
def test_the_order_is_the_best_of_all(epsilon: Fraction, tenths: int, kept: Fraction) -> None:
    """Floats leave out no candidate that is the best, or equal and before it."""
    delta = kept / 10 ** (tenths // 10)
    exact = [(epsilon - intercept(Fraction(a), delta)) / a for a in ORDERS]
    assert fixed_order(epsilon, delta) == ORDERS[exact.index(max(exact))]
