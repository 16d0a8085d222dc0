"""Amounts on pages can be read at a glance, however large they are."""

from __future__ import annotations

import pytest

from accountant.console.amounts import down, grouped, up
from accountant.privacy.units import INFINITE
from accountant.reporting.numbers import NO_BOUND


@pytest.mark.parametrize(
    ("amount", "text"),
    [("0", "0"), ("999.5", "999.5"), ("1000", "1,000"), ("1234567.1234", "1,234,567.1234")],
)
def test_thousands_are_set_apart(amount: str, text: str) -> None:
    """Of the whole part only, and what is no number stays as it is."""
    assert grouped(amount) == up(amount) == down(amount) == text
    assert (up(INFINITE), grouped(NO_BOUND)) == (NO_BOUND, NO_BOUND)


def test_rounding_is_outward() -> None:
    """A loss is rounded up and what is left down, as in reports."""
    assert (up("999999.9991", 3), down("1000000.9999", 3)) == ("1,000,000.000", "1,000,000.999")
