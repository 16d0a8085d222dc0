"""The bytes of a charge are filled into those of its currencies: they are what any writer of
canonical JSON makes of it.
"""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from accountant.budget.bill import charge_written
from accountant.ledger.events import canonical
from accountant.privacy.units import FIXED, SURE, Axis, Charge, axis_of

axes = st.sampled_from([SURE, FIXED, axis_of((2, 10, 9)), axis_of((Fraction(5, 4), 40))])


@given(axis=axes, data=st.data())
def test_a_charge_is_written_as_canonical_json(axis: Axis, data: st.DataObject) -> None:
    """Whatever its currencies, amounts and infinities are."""
    amount = st.none() | st.integers(0, 2**62)
    units = data.draw(st.lists(amount, min_size=len(axis), max_size=len(axis)))
    charge = Charge.over(axis, units)
    assert charge_written(charge) == canonical(charge.to_json())


def test_no_charge_is_written_as_an_empty_object() -> None:
    """A charge without any currency has no fields."""
    assert charge_written(Charge()) == b"{}"
