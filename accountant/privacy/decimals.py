"""Provable upper bounds of transcendental functions, in decimal arithmetic.

What is booked must never be below the truth, and must be the same on every machine. Binary floats
promise neither, so this module works in ``decimal`` with its own contexts, never the caller's. One
context rounds every sum, product and quotient up, the other down. ``exp``, ``ln`` and ``sqrt``
ignore the rounding mode (they round to nearest, correctly), so a margin far larger than half a unit
in the last place is added to them. The results are ``Fraction`` and exact from there on.
"""

from __future__ import annotations

from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_CEILING,
    ROUND_FLOOR,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
)
from fractions import Fraction
from functools import lru_cache
from typing import Final

_DIGITS: Final = 60


def _context(rounding: str) -> Context:
    return Context(
        prec=_DIGITS,
        rounding=rounding,
        Emin=MIN_EMIN,
        Emax=MAX_EMAX,
        traps=[InvalidOperation, DivisionByZero, Overflow],
    )


UP: Final = _context(ROUND_CEILING)
"""Sums, products and quotients in this context are never below the truth."""
DOWN: Final = _context(ROUND_FLOOR)
"""Sums, products and quotients in this context are never above the truth."""

_MARGIN: Final = Decimal("1e-57")
"""Relative margin over a correctly rounded exp, ln or sqrt (whose error is below 1e-59)."""

_FRACTION_MARGIN: Final = Decimal("1e-54")
"""Relative margin over a convergent: its recurrence of positive terms loses at most 6n roundings
of 1e-59 each in ``_MOST_TERMS`` terms."""

_MOST_TERMS: Final = 1000
_NOTHING_LEFT: Final = 1000
"""e^-1000 is below 1e-400."""
_HALF: Final = Decimal("0.5")
_ROUGH_FAR: Final = 4
_ROUGH_ENOUGH: Final = Decimal("1e-19")
_ROUGH_TERMS: Final = Decimal(300)
_FAR: Final = 6
"""From here on the continued fraction needs fewer terms than the series, and no spare digits."""

_ROOT_TWO_PI: Final = Decimal(
    "2.50662827463100050241576528481104525300698674060993"
    "83166299235763422936546078419749465958383780572661160"
)
"""The square root of 2 pi, cut off after 100 decimals."""
_HALF_ROOT_TWO_PI: Final = UP.divide(_ROOT_TWO_PI, Decimal(2))
_ROOT_TWO_PI_UP: Final = UP.add(_ROOT_TWO_PI, Decimal("1e-98"))


def above(value: Decimal) -> Decimal:
    """An upper bound of what ``exp``, ``ln`` or ``sqrt`` rounded to ``value``."""
    return UP.add(value, UP.multiply(value.copy_abs(), _MARGIN))


def _below(value: Decimal) -> Decimal:
    return DOWN.subtract(value, UP.multiply(value.copy_abs(), _MARGIN))


def to_decimal(value: Fraction, context: Context) -> Decimal:
    """``value`` rounded in the direction of ``context``, which is ``UP`` or ``DOWN``."""
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def ln_up(value: Fraction) -> Fraction:
    """An upper bound of ln(value), ``value`` > 0, within a relative 1e-50 or so of the truth."""
    return Fraction(above(UP.ln(to_decimal(value, UP))))


def exp_up(value: Fraction) -> Fraction:
    """An upper bound of e^value. The result has about ``value`` / 2.3 digits: keep it moderate."""
    return Fraction(above(UP.exp(to_decimal(value, UP))))


@lru_cache(maxsize=4096)
def exp_of_minus(value: Fraction) -> tuple[Fraction, Fraction]:
    """Bounds (lower, upper) of e^-value, ``value`` >= 0."""
    if value > _NOTHING_LEFT:
        return Fraction(0), Fraction(1, 10**400)
    low = DOWN.exp(to_decimal(-value, DOWN))
    high = UP.exp(to_decimal(-value, UP))
    return Fraction(_below(low)), Fraction(above(high))


def sqrt_up(value: Fraction) -> Fraction:
    """An upper bound of the square root of ``value`` >= 0."""
    return Fraction(above(UP.sqrt(to_decimal(value, UP))))


ROUGH: Final = Context(prec=24, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""For guesses that something else verifies: quick, and the same on every machine."""


def rough_mills_ratio(x: Decimal) -> Decimal:
    """R(x), x > -40, to some fifteen digits, without a bound; see ``mills_ratio``."""
    c = ROUGH
    if x < 0:
        whole = c.exp(c.divide(c.multiply(x, x), Decimal(2)))
        return c.subtract(c.multiply(_ROOT_TWO_PI, whole), rough_mills_ratio(x.copy_negate()))
    if x < _ROUGH_FAR:
        total = term = x
        odd = 1
        while term > c.multiply(total, _ROUGH_ENOUGH):
            odd += 2
            term = c.divide(c.multiply(c.multiply(term, x), x), Decimal(odd))
            total = c.add(total, term)
        whole = c.exp(c.divide(c.multiply(x, x), Decimal(2)))
        return c.subtract(c.multiply(_HALF_ROOT_TWO_PI, whole), total)
    value = x
    for n in range(int(c.divide(_ROUGH_TERMS, c.multiply(x, x))) + 12, 0, -1):
        value = c.add(x, c.divide(Decimal(n), value))
    return c.divide(Decimal(1), value)


def mills_ratio(x: Decimal) -> tuple[Decimal, Decimal]:
    """Bounds (lower, upper) of R(x) = Phi(-x) / phi(x), the normal tail over its density.

    Both differ from R(x) by a relative 1e-40 at most. Sources: Abramowitz-Stegun 26.2.11 (series)
    and 26.2.14 (Laplace's continued fraction).
    """
    if x >= _FAR:
        return _mills_by_fraction(x)
    if x > -_FAR:
        return _mills_by_series(x)
    low, high = _mills_by_fraction(x.copy_negate())
    whole_low, whole_high = inverse_density(x)
    return DOWN.subtract(whole_low, high), UP.subtract(whole_high, low)


def inverse_density(x: Decimal) -> tuple[Decimal, Decimal]:
    """Bounds (lower, upper) of 1 / phi(x) = sqrt(2 pi) e^(x^2 / 2)."""
    low = DOWN.exp(DOWN.divide(DOWN.multiply(x, x), Decimal(2)))
    high = UP.exp(UP.divide(UP.multiply(x, x), Decimal(2)))
    return DOWN.multiply(_ROOT_TWO_PI, _below(low)), UP.multiply(_ROOT_TWO_PI_UP, above(high))


def _mills_by_series(x: Decimal) -> tuple[Decimal, Decimal]:
    """R(x) = 1 / (2 phi(x)) - S(x) with S(x) = sum of x^(2n+1) / (2n+1)!!.

    The terms of S(|x|) are positive; once their ratio is below 1/2 what is left of the sum is
    smaller than the last term. At |x| < 6 the subtraction cancels ten of sixty digits.
    """
    low = high = term_low = term_high = x.copy_abs()
    odd = 1
    while True:
        odd += 2
        ratio = UP.divide(UP.multiply(x, x), Decimal(odd))
        if ratio < _HALF and term_high <= DOWN.multiply(low, _MARGIN):
            high = UP.add(high, term_high)
            break
        term_low = DOWN.divide(DOWN.multiply(term_low, DOWN.multiply(x, x)), Decimal(odd))
        term_high = UP.multiply(term_high, ratio)
        low, high = DOWN.add(low, term_low), UP.add(high, term_high)
    whole_low, whole_high = inverse_density(x)
    half_low, half_high = DOWN.multiply(whole_low, _HALF), UP.multiply(whole_high, _HALF)
    if x < 0:
        return DOWN.add(half_low, low), UP.add(half_high, high)
    return DOWN.subtract(half_low, high), UP.subtract(half_high, low)


def _mills_by_fraction(x: Decimal) -> tuple[Decimal, Decimal]:
    """R(x) = 1 / (x + 1 / (x + 2 / (x + 3 / ...))) for x > 0.

    All terms are positive, so consecutive convergents lie on either side of the value: wherever the
    recurrence stops, the last two enclose it.
    """
    numerators, denominators = (Decimal(0), Decimal(1)), (Decimal(1), x)
    before, now = Decimal(0), DOWN.divide(Decimal(1), x)
    for n in range(1, _MOST_TERMS):
        numerators, denominators = (
            (v[1], DOWN.fma(x, v[1], DOWN.multiply(n, v[0]))) for v in (numerators, denominators)
        )
        before, now = now, DOWN.divide(numerators[1], denominators[1])
        if UP.subtract(now, before).copy_abs() <= DOWN.multiply(now, _MARGIN):
            break
    low, high = min(before, now), max(before, now)
    return (
        DOWN.subtract(low, UP.multiply(low, _FRACTION_MARGIN)),
        UP.add(high, UP.multiply(high, _FRACTION_MARGIN)),
    )
