"""Real numbers as precise as a question needs, in Arb's ball arithmetic (FLINT).

A ball is an interval that is proved to contain the number (F. Johansson, *Arb: efficient
arbitrary-precision midpoint-radius interval arithmetic*, IEEE Trans. Computers 2017). The rule for
every integer that is booked: evaluate with ``FIRST_BITS``; if the ball lies between two integers,
take the ceiling (a loss) or the floor (a capacity); a ball that straddles an integer is computed
again with twice the bits. So the integer is the one next to the number itself, whatever machine or
release of FLINT computes it. From ``MOST_BITS`` on, which do not tell an integer plus e^-1000000
from an integer, the end of the ball is taken that is never too little loss or too much capacity.
Fractions are exact and stay so.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import reduce
from math import gcd
from threading import RLock
from typing import Final

from flint import arb, ctx

FIRST_BITS: Final = 100
MOST_BITS: Final = 4096
ctx.prec = FIRST_BITS  # To set it takes longer than to look whether it is set
_FINE: Final = 10**60
_lock: Final = RLock()  # ``flint.ctx``, and so the precision, is one for the whole process
_last: tuple[Fraction | int | None, int, arb] = (None, 0, arb())
"""The last exact number that was enclosed, the bits, and its ball: a price asks for it often."""


def _of_balls(apply: Callable[[arb, arb], arb]) -> Callable[[Real, Number | int], Real]:
    """Return the operation on numbers that ``apply`` is on their balls."""
    return lambda mine, other: Real(lambda: apply(mine.ball(), ball(other)))


def _comparing(holds: Callable[[int, int], bool]) -> Callable[[Real, Number | int], bool]:
    return lambda mine, other: holds(sign(mine - other), 0)


class Real:
    """A number given by ``ball``, which encloses it at the precision in force when it is called.

    Comparisons compute until they are decided. Numbers that ``MOST_BITS`` do not tell apart compare
    as equal, but ``==`` is identity. As a float it is near the number, for reports.
    """

    __slots__ = ("ball",)

    def __init__(self, ball: Callable[[], arb]) -> None:
        self.ball = ball

    __add__ = __radd__ = _of_balls(operator.add)
    __sub__ = _of_balls(operator.sub)
    __mul__ = __rmul__ = _of_balls(operator.mul)
    __truediv__ = _of_balls(operator.truediv)
    __rtruediv__ = _of_balls(lambda divisor, value: value / divisor)

    __lt__ = _comparing(operator.lt)
    __gt__ = _comparing(operator.gt)
    __le__ = _comparing(operator.le)
    __ge__ = _comparing(operator.ge)

    def __float__(self) -> float:
        return float(above(self))


Number = Fraction | Real


def ball(value: Number | int) -> arb:
    """Return the ball of ``value`` at the precision in force."""
    global _last  # noqa: PLW0603
    last, bits, found = _last
    if last is value and bits == ctx.prec:
        return found
    if isinstance(value, Real):
        return value.ball()
    above, below = value.as_integer_ratio()
    found = arb(above) / below
    _last = value, ctx.prec, found
    return found


def kept(compute: Callable[[], arb]) -> Real:
    """Return a number that remembers its balls, for others that are made of it."""
    found: dict[int, arb] = {}

    def at_precision() -> arb:
        if (known := found.get(bits := ctx.prec)) is None:
            known = found[bits] = compute()
        return known

    return Real(at_precision)


def log(value: Fraction) -> Number:
    """Return ln(value), ``value`` > 0."""
    return Fraction(0) if value == 1 else kept(lambda: ball(value).log())


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute balls directly, with so many bits, within the context."""
    with _lock, ctx.workprec(bits):
        yield


def square(value: Number) -> Number:
    """Return the square of ``value``."""
    if isinstance(value, Real):
        return value * value
    above, below = value.as_integer_ratio()
    return _in_lowest_terms(above * above, below * below)


def ratio(above: int, below: int) -> Fraction:
    """Return ``above / below``, of which ``below`` is positive."""
    common = gcd(above, below)
    return _in_lowest_terms(above // common, below // common)


def _in_lowest_terms(above: int, below: int) -> Fraction:
    """Return a fraction of numbers without a common divisor, which the class would look for."""
    found = object.__new__(Fraction)
    _set_above(found, above)
    _set_below(found, below)
    return found


_set_above, _set_below = (
    Fraction.__dict__[name].__set__ for name in ("_numerator", "_denominator")
)


def sqrt(value: Number) -> Real:
    """Return the square root of ``value`` >= 0."""
    return Real(lambda: ball(value).sqrt())


def least(*values: Number) -> Number:
    """Return the smallest."""
    return _extreme(values, arb.min, -1)


def most(*values: Number) -> Number:
    """Return the largest."""
    return _extreme(values, arb.max, 1)


def total(*values: Number) -> Number:
    """Return the sum."""
    exact = sum((v for v in values if not isinstance(v, Real)), start=Fraction(0))
    reals = [v for v in values if isinstance(v, Real)]
    return Real(lambda: sum((r.ball() for r in reals), start=ball(exact))) if reals else exact


def _extreme(values: tuple[Number, ...], pick: Callable[[arb, arb], arb], side: int) -> Number:
    """Return the extreme value; where that is a fraction, the fraction, so that it stays exact."""
    reals = [value for value in values if isinstance(value, Real)]
    if len(reals) == len(values):
        return Real(lambda: reduce(pick, map(ball, reals)))
    exact = [value for value in values if not isinstance(value, Real)]
    one, real = (max if side > 0 else min)(exact), _extreme(tuple(reals), pick, side)
    return one if not reals or side * sign(real - one) <= 0 else real


def ceiling(value: Number, scale: int = 1) -> int:
    """Return the least integer that is at least ``value * scale``."""
    [found] = ceilings((value,), (scale,))
    return found or 0


def ceilings(values: Iterable[Number | None], scales: Iterable[int]) -> list[int | None]:
    """Return the ``ceiling`` of each value at its scale, None for None."""
    found: list[int | None] = []
    with _lock:
        if (before := ctx.prec) != FIRST_BITS:  # faster than ctx.workprec
            ctx.prec = FIRST_BITS
        try:
            for value, scale in zip(values, scales, strict=False):
                if value is None:
                    found.append(None)
                elif isinstance(value, Real):
                    whole = (value.ball() * scale).ceil().unique_fmpz()
                    found.append(_with_more_bits(value, scale) if whole is None else int(whole))
                else:
                    above, below = value.as_integer_ratio()
                    found.append(-(-above * scale // below) if above else 0)
        finally:
            if before != FIRST_BITS:
                ctx.prec = before
    return found


def _with_more_bits(value: Real, scale: int) -> int:
    found, bits = None, FIRST_BITS
    while found is None and bits < MOST_BITS:
        bits = min(2 * bits, MOST_BITS)
        with ctx.workprec(bits):
            scaled = value.ball() * scale
            last = scaled.upper() if bits == MOST_BITS else scaled
            found = scaled.ceil().unique_fmpz() or last.ceil().unique_fmpz()
    if found is None:
        raise ArithmeticError("the number cannot be enclosed")
    return int(found)


def floor(value: Number, scale: int = 1) -> int:
    """Return the largest integer that is at most ``value * scale``."""
    return -ceiling(value * -1, scale)


def sign(value: Number, bits: int = FIRST_BITS) -> int:
    """Return -1, 0 or 1, beginning with ``bits``; 0 if ``MOST_BITS`` do not tell it from 0."""
    with _lock, ctx.workprec(bits):
        while ctx.prec <= MOST_BITS:
            found = ball(value)
            if found < 0 or found > 0:
                return 1 if found > 0 else -1
            ctx.prec *= 2
    return 0


def above(value: Number) -> Fraction:
    """Return ``value`` rounded up to a multiple of 1e-60; a fraction as it is."""
    return value if isinstance(value, Fraction) else Fraction(ceiling(value, _FINE), _FINE)
