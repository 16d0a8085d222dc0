"""Inverse questions: the largest count, the smallest noise, that still fits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from typing import Final

_FACTOR: Final = Context(prec=7, rounding=ROUND_CEILING)
_EXTREME: Final = Decimal(2) ** 60


def largest_count(fits: Callable[[int], bool], most: int) -> int:
    """The largest n from 0 to ``most`` with ``fits(n)``, which must hold below where it holds."""
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def smallest_factor(fits: Callable[[Decimal], bool]) -> Decimal | None:
    """The smallest factor with ``fits(factor)``, to seven digits and rounded up; ``fits`` must hold
    above where it holds. None if no factor up to 2^60 fits.
    """
    low, high = 1 / _EXTREME, _EXTREME
    if not fits(high):
        return None
    if fits(low):
        return _FACTOR.plus(low)
    while _FACTOR.plus(low) < _FACTOR.plus(high):
        middle = (low * high).sqrt()
        if not low < middle < high:
            break
        low, high = (low, middle) if fits(middle) else (middle, high)
    return _FACTOR.plus(high)
