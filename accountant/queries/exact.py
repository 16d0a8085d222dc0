"""Exact numbers: amounts as fractions, bounds that round to the safe side, and sums without error.

A float is a fraction whose denominator is a power of two, so nothing is lost on the way in. What
has to be rounded is rounded to the side that costs more privacy on paper than it costs in fact.
"""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Rational
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accountant.client.amounts import UP, Amount, exact

Numbers = NDArray[np.float64]
"""A column of numbers."""

SIZE: Final = Fraction(10**60)
_HALF: Final = 26
_AT_ONCE: Final = 2**25
"""Values whose halves of 27 bits a float adds up exactly: 2^25 * 2^27 < 2^53."""


def number(name: str, value: Amount) -> Fraction:
    """Return an amount as a fraction; a float is the decimal that it is printed as. Raise
    ValueError, with the ``name``, for what is not a finite number, or beyond 10^60 or 10^-60 in
    size: squares and products of such numbers are no floats.
    """
    if isinstance(value, Rational) and not isinstance(value, bool):
        found = Fraction(int(value.numerator), int(value.denominator))
    else:
        try:
            found = Fraction(exact(value))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
    if found and not 1 / SIZE <= abs(found) <= SIZE:
        small = "small" if abs(found) < 1 else "large"
        raise ValueError(f"{name} is too {small}: amounts are from 1e-60 to 1e60 in size")
    return found


def positive(name: str, value: Amount) -> Fraction:
    """Return a positive amount as a fraction. Raise ValueError, with the ``name``, for others."""
    found = number(name, value)
    if found <= 0:
        raise ValueError(f"{name} must be more than 0, not {value}")
    return found


def decimal_above(value: Fraction) -> Fraction:
    """Return the least decimal of at most 40 digits, as many as the service reads, that is at least
    ``value``.
    """
    return Fraction(exact(value, UP))


def float_above(value: Fraction) -> float:
    """Return the least float that is at least ``value``. Raise ValueError beyond all floats."""
    try:
        found = float(value)
    except OverflowError:
        raise ValueError(f"{exact(value, UP)[:20]}... is more than a float holds") from None
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)


def float_below(value: Fraction) -> float:
    """Return the largest float that is at most ``value``."""
    return -float_above(-value)


def root_above(value: Fraction) -> Fraction:
    """Return a fraction that is at least the square root of ``value``, by 2^-99 at most."""
    places = 2**200
    return Fraction(math.isqrt(math.ceil(value * places)) + 1, 2**100)


def exact_sum(values: Numbers) -> Fraction:
    """Return the sum of finite floats without any rounding.

    A sum of floats in a loop rounds in every step, in an order that depends on the data, so that
    one record can move it by more than its own value (Casacuberta, Shoate, Vadhan, Wagaman 2022).
    Here the mantissas are added as whole numbers, by exponent. Raise ValueError for what is no
    finite number: its mantissa would be any.
    """
    if not np.isfinite(values).all():
        raise ValueError("a number to be summed is not finite")
    return sum(
        (_sum(values[start : start + _AT_ONCE]) for start in range(0, len(values), _AT_ONCE)),
        Fraction(0),
    )


def _sum(values: Numbers) -> Fraction:
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64)
    least = int(exponents.min())
    places = exponents - least
    upper = np.bincount(places, weights=(whole >> _HALF).astype(np.float64))
    lower = np.bincount(places, weights=(whole & (2**_HALF - 1)).astype(np.float64))
    total = sum(
        ((int(high) << _HALF) + int(low)) << place
        for place, (high, low) in enumerate(zip(upper, lower, strict=True))
        if high or low
    )
    power = least - 53
    return Fraction(total << power) if power >= 0 else Fraction(total, 1 << -power)


def fits(low: Fraction, high: Fraction) -> bool:
    """Return whether two numbers and their distance are floats that differ, and finite."""
    try:
        return 0 < float(high) - float(low) < math.inf
    except OverflowError:
        return False


def clipped(values: Numbers, low: Fraction, high: Fraction) -> Numbers:
    """Return ``values`` cut to floats within [low, high]. Raise ValueError where no float is."""
    least, most = float_above(low), float_below(high)
    if least > most:
        raise ValueError(f"no floating point number lies between {float(low)} and {float(high)}")
    return np.clip(values, least, most)
