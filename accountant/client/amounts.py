"""Amounts as the service reads them: decimals, spelled out.

The service refuses what it would have to round. What a number is worth is decided here, where the
caller can still see it.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from numbers import Integral, Rational
from typing import Any, Final

MOST_DIGITS: Final = 40
"""The most significant digits that the service reads."""
_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
UP: Final = ROUND_CEILING
DOWN: Final = ROUND_FLOOR

Amount = int | float | str | Decimal | Fraction | Any
"""A number of any kind, NumPy's too; a string is read as a decimal."""


def exact(value: Amount, toward: str | None = None) -> str:
    """Return ``value`` as a decimal of at most 40 digits, without an exponent.

    A float is the shortest decimal that is read back as the same float, as it is printed: 0.1 is
    "0.1". A fraction whose decimals do not end is rounded to 40 digits ``toward`` UP or DOWN, the
    side that costs more, and so is a number that prints fewer digits than it has; without a side a
    fraction raises ValueError, as do NaN, infinities and booleans.
    """
    number = _decimal(value, toward)
    if len(number.as_tuple().digits) > MOST_DIGITS:
        number = _rounded(number, toward, value)
    return format(number, "f")


def _decimal(value: Amount, toward: str | None) -> Decimal:
    if isinstance(value, str):
        try:
            found = Decimal(value)
        except ArithmeticError:
            raise ValueError(f"{value!r} is not a number") from None
    elif isinstance(value, Decimal):
        found = value
    elif isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        raise ValueError(f"{value!r} is not an amount")
    elif isinstance(value, Integral):
        found = Decimal(int(value))
    elif isinstance(value, Rational):
        return _ratio(int(value.numerator), int(value.denominator), toward)
    else:
        found = _float(value, toward)
    if not found.is_finite():
        raise ValueError(f"{value!r} is not a finite number")
    return _EXACT.normalize(found) if found else Decimal(0)


def _float(value: Any, toward: str | None) -> Decimal:
    """Return a float as it is printed. NumPy's float32 has few digits, which are not quite what it
    is worth: with a side, the one of the two on that side.
    """
    if not isinstance(value, float) and not hasattr(value, "__float__"):
        raise TypeError(f"{type(value).__name__} is not a number")
    if not math.isfinite(float(value)):
        raise ValueError(f"{value!r} is not a finite number")
    worth = Decimal(repr(float(value)))
    try:
        printed = Decimal(str(value))
    except ArithmeticError:
        return worth
    if toward is None:
        return printed
    return max(printed, worth) if toward == UP else min(printed, worth)


def _ratio(numerator: int, denominator: int, toward: str | None) -> Decimal:
    rest = denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest == 1:
        digits = denominator.bit_length()  # at least as many as the decimals have
        scaled = numerator * 10**digits // denominator
        return _EXACT.normalize(_EXACT.scaleb(Decimal(scaled), -digits)) if scaled else Decimal(0)
    if toward is None:
        raise ValueError(
            f"{numerator}/{denominator} has no finite decimal: round it to the side that costs more"
        )
    return Context(prec=MOST_DIGITS, rounding=toward).divide(Decimal(numerator), denominator)


def _rounded(number: Decimal, toward: str | None, value: Amount) -> Decimal:
    if toward is None:
        raise ValueError(
            f"{value!r} has more than {MOST_DIGITS} digits: round it to the side that costs more"
        )
    return Context(prec=MOST_DIGITS, rounding=toward).plus(number)
