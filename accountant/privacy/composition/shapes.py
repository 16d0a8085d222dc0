"""What the losses of a pair look like, coarsely: how far they reach and how they spread.

A grid is chosen from this, and what is found on it depends on the grid. So nothing here is a float:
masses are balls, and what is made of them is a fraction that no machine finds otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final, NamedTuple

from flint import arb

from accountant.privacy.balls import ball
from accountant.privacy.composition.pairs import Pair, Tails

FINEST: Final = -60  # Losses below 2^-60 are raised to it
FURTHEST: Final = 20  # Losses above 2^20 are only added up
_DIGITS: Final = 8  # Losses of an octave that an end may be at
_OCTAVES: Final = 12
_SLACK: Final = Fraction(1, 2**80)


class Shape(NamedTuple):
    """The losses between ``low`` and ``high`` have nearly all of P, and about this ``mean`` and
    ``variance``, which is never 0.
    """

    low: Fraction
    high: Fraction
    mean: Fraction
    variance: Fraction


def shape_of(pair: Pair, spare: Fraction) -> Shape | None:
    """Return the shape of the losses of a pair, at the precision in force, with at most ``spare``
    of P beyond either end. None if an end is further than ``FURTHEST``.
    """
    room, none = ball(spare), arb(pair.infinite)

    def ends_below(at: int) -> bool:
        return tails_of(pair, [ball(_place(at))], _SLACK)[0][0] <= room

    def begins_above(at: int) -> bool:
        return 1 - none - tails_of(pair, [ball(_place(-at))], _SLACK)[0][0] <= room

    lowest, highest = pair.span
    high, low = _first(ends_below, _near(highest)), _first(begins_above, _near(-lowest))
    if high is None or low is None:
        return None
    start = -_place(low)
    return _spread(pair, start, max(_place(high), start + Fraction(2) ** FINEST), room)


def tails_of(pair: Pair, losses: Sequence[arb], slack: Fraction) -> Tails:
    """Return the masses of P and of Q above each loss, or above one that is smaller by up to
    ``slack``. An atom at the loss itself is counted.
    """
    half = ball(slack / 2)
    return pair.tails([loss - half for loss in losses], half)


def floor_log2(value: Fraction) -> int:
    """Return the largest k with 2^k <= ``value`` > 0."""
    k = value.numerator.bit_length() - value.denominator.bit_length()
    return k if Fraction(2) ** k <= value else k - 1


_MOST: Final = (FURTHEST - FINEST) * _DIGITS + 1


def _place(at: int) -> Fraction:
    """Return a loss of four binary digits: 0 at 0, 2^-60 at 1, and so on; negative on the left."""
    if at <= 0:
        return -_place(-at) if at else Fraction(0)
    octave, digit = divmod(at - 1, _DIGITS)
    return Fraction(_DIGITS + digit, _DIGITS) * Fraction(2) ** (octave + FINEST)


def _near(loss: float) -> int:
    """Return about the place of a loss: where to look first."""
    mantissa, exponent = math.frexp(abs(loss))
    at = (exponent - 1 - FINEST) * _DIGITS + round((2 * mantissa - 1) * _DIGITS) + 1
    return min(max(at if loss > 0 else -at, -_MOST), _MOST)


def _first(holds: Callable[[int], bool], near: int) -> int | None:
    """Return the smallest place from which on something holds, wherever one looks first; None if
    there is none.
    """
    low, high = (near - 1, near) if holds(near) else (near, min(near + 1, _MOST))
    step = 1
    while high == near and low >= -_MOST and holds(low):
        near, high, step = low, low, 2 * step
        low = max(low - step, -_MOST - 1)
    while high > near and not holds(high):
        if high == _MOST:
            return None
        low, step = high, 2 * step
        high = min(high + step, _MOST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _spread(pair: Pair, low: Fraction, high: Fraction, unit: arb) -> Shape:
    """Return the moments of masses between losses that double, each in the middle of two; masses
    are rounded to the ``unit``.
    """
    step = max(-low, high, Fraction(2) ** FINEST) / 2**_OCTAVES
    sizes = [1 << i for i in range(_OCTAVES + 1)]
    edges = [*(-size for size in reversed(sizes)), *sizes]
    small = ball(step)
    above = [p / unit for p, _ in tails_of(pair, [small * edge for edge in edges], _SLACK)]
    masses = [_nearest(one - other) for one, other in pairwise(above)]
    twice = [one + other for one, other in pairwise(edges)]  # the middle, two times
    whole = 2 * sum(masses) or 1
    mean = Fraction(sum(n * x for n, x in zip(masses, twice, strict=True)), whole)
    square = Fraction(sum(n * x * x for n, x in zip(masses, twice, strict=True)), 2 * whole)
    variance = max(square - mean**2, square / 256) * step**2
    return Shape(low, high, mean * step, max(variance, Fraction(4) ** FINEST))


def _nearest(value: arb) -> int:
    found = (value.mid() + 0.5).floor().unique_fmpz()
    return int(found or 0)
