"""Capacities and spent amounts of the gates, held against mpmath and golden counts."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.privacy.gates import ADVANCED, BASIC, GATES, Limit, gate_for
from accountant.privacy.units import Currency, Loss, charge_of, units_down, units_up

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "gates.json").read_text())
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
    """(V, slope, intercept) of the filter, from the formulas in gates.py, at 100 digits."""
    log = mpmath.log(1 / real(limit.gate_delta))
    epsilon = real(limit.epsilon)
    v = (mpmath.sqrt(2 * log + 2 * epsilon) - mpmath.sqrt(2 * log)) ** 2
    order_less_1 = mpmath.sqrt(2 * log / v)
    return v, (1 + order_less_1) / 2, log / order_less_1


def admitted(limit: Limit, each: Fraction, gate: Any) -> int:
    """How many charges of ``each`` the gate's own currency (or basic) takes, one by one."""
    capacity = gate.capacity(limit)
    charge = charge_of(Loss(each), 1)
    if capacity.second is None:
        return int(capacity.epsilon // charge[Currency.EPSILON])
    return int(capacity.second // charge[capacity.second_currency])


@pytest.mark.parametrize("row", GOLDEN["whitehouse_filter_counts"], ids=str)
def test_golden_filter_counts(row: dict[str, Any]) -> None:
    """The gates admit exactly as many queries as the published filter formulas do."""
    limit = Limit(Fraction(row["eps_budget"]), Fraction(row["delta_prime"]))
    each = Fraction(row["eps_each"])
    assert admitted(limit, each, ADVANCED) == row["n_allowed_filter"]
    assert admitted(limit, each, BASIC) == row["n_allowed_basic"]
    assert ADVANCED.capacity(limit).second == int(Fraction(row["V_max"]) * SQUARE_UNIT)


@pytest.mark.parametrize("row", GOLDEN["how_many_queries"], ids=str)
def test_golden_query_counts(row: dict[str, Any]) -> None:
    """How many Laplace queries fit under each gate agrees with the golden table."""
    limit = Limit(Fraction(row["eps"]), Fraction(row["delta"]))
    each = Fraction(row["laplace_eps_each"])
    assert admitted(limit, each, ADVANCED) == row["advanced"]
    assert admitted(limit, each, BASIC) == row["basic"]


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
    """The capacity at a share of the limit is where the gate's fixed line reaches that share."""
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
        exact = min(mpmath.mpf(epsilon), line)
        assert exact <= spent <= mpmath.ceil(exact + mpmath.mpf("1e-15"))
        assert ADVANCED.spent(limit, epsilon, None) == epsilon
        assert BASIC.spent(limit, epsilon, second) == epsilon


@given(limits, st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100))
def test_spent_and_capacity_tell_the_same_story(limit: Limit, share: Fraction) -> None:
    """What fits within the capacity at a share shows at most that share as spent, one unit more
    shows more: a threshold fires exactly when the number that people see passes it.
    """
    capacity = ADVANCED.capacity(limit, share)
    assert capacity.second is not None
    if capacity.second >= 0:
        assert ADVANCED.spent(limit, 2**80, capacity.second) <= capacity.epsilon
    assert ADVANCED.spent(limit, 2**80, max(0, capacity.second + 1)) > capacity.epsilon


@given(limits)
def test_a_full_account_shows_the_limit_as_spent(limit: Limit) -> None:
    """At full capacity the number that people see is the limit's epsilon and never more."""
    second = ADVANCED.capacity(limit).second
    assert second is not None
    assert ADVANCED.spent(limit, 2**80, second) <= units_up(limit.epsilon, Currency.EPSILON)


@given(limits, st.integers(0, 2**61), st.integers(0, 2**61), st.integers(0, 2**60))
def test_spent_is_monotone(limit: Limit, epsilon: int, second: int, more: int) -> None:
    """A further charge never lowers what is shown as spent."""
    for gate in GATES.values():
        before = gate.spent(limit, epsilon, second)
        assert gate.spent(limit, epsilon + more, second) >= before
        assert gate.spent(limit, epsilon, second + more) >= before
        assert gate.spent(limit, epsilon, None) >= before


@given(limits, st.fractions(1, 3, max_denominator=50))
def test_capacity_is_monotone(limit: Limit, factor: Fraction) -> None:
    """A larger epsilon, or a larger delta of the gate's own, never makes less room."""
    before = ADVANCED.capacity(limit)
    wider = ADVANCED.capacity(Limit(limit.epsilon * factor, limit.delta, limit.own_delta))
    safer = ADVANCED.capacity(Limit(limit.epsilon, limit.delta, limit.own_delta / factor))
    assert before.second is not None
    assert wider.second is not None
    assert safer.second is not None
    assert wider.epsilon >= before.epsilon
    assert wider.second >= before.second
    assert safer.second >= before.second
    assert safer.own_delta <= before.own_delta


@given(epsilons, amounts(-30, -1))
def test_a_limit_without_delta_of_its_own_is_basic_only(epsilon: Fraction, delta: Fraction) -> None:
    """Where own deltas take all of delta, no gate beside basic may admit anything."""
    for name in GATES:
        for limit in (Limit(epsilon), Limit(epsilon, delta, delta)):
            assert gate_for(name, limit) is BASIC
            assert gate_for(name, limit).capacity(limit).second is None


@given(epsilons, st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_loop_of_n_costs_what_a_count_of_n_costs(epsilon: Fraction, n: int, m: int) -> None:
    """Rounding happens once per invocation, so counts add up exactly, and never below the truth."""
    loss = Loss(epsilon, Fraction(1, 10**17))
    together = charge_of(loss, n + m)
    assert together == (charge_of(loss, n) + charge_of(loss, m)) or any(together.infinite)
    one = charge_of(loss, 1)
    assert one[Currency.EPSILON] >= max(1, epsilon * EPSILON_UNIT)
    assert one[Currency.EPSILON_SQUARED] >= max(1, epsilon**2 * SQUARE_UNIT) or any(one.infinite)
    assert one[Currency.DELTA] == 1
