"""Charges: exact sums over a named axis, infinities beside them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.privacy.losses import UNBOUNDED, pure
from accountant.privacy.units import (
    LARGEST,
    NOTHING,
    SURE,
    Charge,
    Currency,
    axis_of,
    charge_of,
    exact,
    show,
    total,
    units_down,
    units_up,
)

amounts = st.one_of(st.none(), st.integers(0, 2**40))
charges = st.builds(
    lambda orders, values: Charge.over(axis_of(orders), values[: 5 + len(orders)]),
    st.sampled_from([(), (2,), (2, 22), (9,)]),
    st.lists(amounts, min_size=7, max_size=7),
)
EPSILON, RHO = Currency.EPSILON, Currency.RHO


@given(charges)
def test_what_was_derived_of_a_charge_is_no_part_of_it(charge: Charge) -> None:
    """Charges of the same sums are equal, and not unequal, wherever one was asked for on other
    axes; of other sums they are not.
    """
    same, more = charge - NOTHING, charge + Charge.over(SURE, (1, 0)).on(charge.axis)
    for axis in (SURE, axis_of((3,))):
        charge.on(axis)
    assert [charge == same, charge != same, len({charge, same})] == [True, False, 1]
    assert [charge == more, charge != more, len({charge, more})] == [False, True, 2]


@given(charges)
def test_nothing_is_neutral(charge: Charge) -> None:
    """Adding nothing changes nothing, on either side, and taking all away leaves nothing."""
    assert NOTHING + charge == charge + NOTHING == charge - NOTHING == charge
    left = charge - charge
    assert not any(left.finite + left.infinite)
    assert (NOTHING - charge) + charge == NOTHING.on(charge.axis)


@given(charges, charges)
def test_what_one_charge_does_not_know_is_infinite_in_the_sum(one: Charge, other: Charge) -> None:
    """A currency that only one of two charges has a value in has none in their sum."""
    both = one + other
    for currency in both.axis:
        known = currency in one.axis and currency in other.axis
        finite = known and not (one.is_infinite(currency) or other.is_infinite(currency))
        assert (both.units(currency) is not None) == finite
        if finite:
            assert both[currency] == one[currency] + other[currency]


@given(charges)
def test_charges_survive_their_document(charge: Charge) -> None:
    """What an event holds reads back as the same charge, whatever the order of its keys."""
    body = charge.to_json()
    assert Charge.from_json(dict(sorted(body.items()))) == charge


def test_a_currency_that_an_event_does_not_know_is_infinite() -> None:
    """An old event has no value in a currency that came later; it never counts as zero."""
    old = Charge.from_json({"epsilon": "5", "delta": "0"})
    assert old.axis == SURE
    assert old.units(RHO) is None
    assert old.on((EPSILON, RHO)).is_infinite(RHO)
    assert NOTHING.units(RHO) == 0


def test_sums_past_the_largest_are_infinite() -> None:
    """No sum wraps or is clipped: past 2^62 units it is one infinite charge."""
    half = Charge.over(SURE, [LARGEST // 2 + 1, 0])
    assert total([half]).units(EPSILON) == LARGEST // 2 + 1
    assert total([half, half]).units(EPSILON) is None
    assert charge_of(pure(Fraction(10**9)), 10**9).is_infinite(EPSILON)
    assert charge_of(UNBOUNDED, 1).units(Currency.DELTA) == 0


@given(st.fractions(0, 10**6), st.sampled_from([EPSILON, RHO, Currency.tau(7)]))
def test_units_enclose_the_amount(value: Fraction, currency: Currency) -> None:
    """Losses round up and budgets round down, by less than one unit."""
    up, down = units_up(value, currency), units_down(value, currency)
    assert Fraction(exact(down, currency)) <= value <= Fraction(exact(up, currency))
    assert up - down <= 1
    assert Fraction(show(up, currency)) == Fraction(exact(up, currency))


@pytest.mark.parametrize(("name", "order"), [("tau_22", 22), ("rho", None), ("epsilon", None)])
def test_currencies_are_their_names(name: str, order: int | None) -> None:
    """A currency is the name that events have for it; each Renyi order is one of its own."""
    assert Currency(name).order == order
    assert Currency(name) == name
    assert Currency.tau(22) == "tau_22"
