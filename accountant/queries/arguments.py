"""What callers give, read in one way everywhere: whole numbers, bounds, confidences, answers.

Each function returns what it was given as an exact value, or raises ValueError, which says what is
wrong and what to do. A text is no number here, but where an amount may be one (``exact.number``).
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, Final

from accountant.queries.exact import fits, number

Limits = tuple[Fraction, Fraction]
"""The least and the largest value that counts."""

LEAST_CONFIDENCE: Final = 1e-6
MOST_CONFIDENCE: Final = 1 - 1e-12
"""Beyond these, floats do not tell what is left to 0 or to 1."""
MOST_RECORDS: Final = 2**40
"""Records for which an error may be stated."""


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """Return a whole number from ``least`` to ``most``, of any type of numbers: 2, 2.0 and NumPy's
    are. Raise ValueError, with the ``name``, for anything else.
    """
    if _numeric(value) and not isinstance(value, bool):
        try:
            found = int(value)
        except (ValueError, OverflowError):  # NaN, or infinite
            found = least - 1
        if found == value and least <= found <= most:
            return found
    raise ValueError(f"{name} is a whole number from {least} to {most}, not {value!r}")


def pair(name: str, value: Any) -> Limits:
    """Return two numbers, of which the first is below the second, and whose distance a float can
    hold. Raise ValueError, with the ``name``, for anything else.
    """
    if isinstance(value, str | bytes | set | frozenset | dict):
        ends = ()
    else:
        try:
            ends = tuple(value)
        except TypeError:
            ends = ()
    if len(ends) != 2:
        raise ValueError(f"{name} are a pair (least, largest), not {value!r}")
    low, high = number(f"{name}, the least", ends[0]), number(f"{name}, the largest", ends[1])
    told = f"{name} are {ends[0]} to {ends[1]}"
    if low >= high:
        raise ValueError(f"{told}: the first has to be below the second")
    if not fits(low, high):
        raise ValueError(f"{told}: too close together or too far apart for floating point numbers")
    return low, high


def confidence(value: Any) -> float:
    """Return the probability with which an error is to hold. Raise ValueError for one that is not
    between 10^-6 and 1 - 10^-12.
    """
    if _numeric(value) and LEAST_CONFIDENCE <= value <= MOST_CONFIDENCE:
        return float(value)
    raise ValueError(
        f"a confidence is between 0 and 1, as 0.95 is, and from 1e-6 to 1 - 1e-12; not {value!r}"
    )


def rational(value: Any) -> Fraction:
    """Return what a caller's function has answered, exactly as it is. Raise ValueError if it is no
    number, or not finite; a text is none.
    """
    plain = _plain(value)
    if _numeric(plain):
        try:
            return Fraction(plain)
        except (TypeError, ValueError, OverflowError):
            pass
    raise ValueError(f"an answer has to be a finite number, not {value!r}")


def real(value: Any) -> float:
    """Return the same as a float, which may be infinite or NaN. Raise ValueError if it is no
    number.
    """
    plain = _plain(value)
    if _numeric(plain):
        try:
            return float(plain)
        except OverflowError:
            return math.inf if plain > 0 else -math.inf
    raise ValueError(f"an answer has to be a number, not {value!r}")


def _numeric(value: Any) -> bool:
    return isinstance(value, Real | Decimal)


def _plain(value: Any) -> Any:
    """Return what a scalar of NumPy holds, or an array of one entry."""
    try:
        return value.item()
    except (AttributeError, ValueError):
        return value
