"""Amounts as pages show them: rounded as in reports, with a comma after each thousand.

The bytes of a report of a period are promised for ever, so that it writes them without.
"""

from __future__ import annotations

from accountant.reporting import numbers


def up(amount: str, digits: int | None = None) -> str:
    """Return a loss, rounded up to ``digits`` decimals, or in full."""
    return grouped(numbers.up(amount, digits))


def down(amount: str, digits: int | None = None) -> str:
    """Return what is left, rounded down to ``digits`` decimals, or in full."""
    return grouped(numbers.down(amount, digits))


def grouped(amount: str) -> str:
    """Return a decimal amount, as it is, with a comma after each thousand; any other text as it
    is.
    """
    whole, point, rest = amount.partition(".")
    return f"{int(whole):,}{point}{rest}" if whole.isdecimal() else amount
