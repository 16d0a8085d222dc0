"""The delta of noisy counts of which only those from a threshold on are published.

A key that only one unit has is seen with the probability that its noisy count reaches the
threshold. OpenDP publishes a count that is **at least** the threshold and charges the probability
that it is **more** (https://github.com/opendp/opendp/issues/2922, open for 0.16.0): with whole
numbers and a scale of 1 the truth is e times as much. Here the truth is computed, in decimals that
are rounded towards more at every step.

The delta of l0 such keys is 1 - (1 - delta of one)^l0: beside the noise's own epsilon on the common
keys it holds exactly, for the noises of different keys are independent.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from typing import Final

_DIGITS: Final = 50
_UP: Final = Context(prec=_DIGITS, rounding=ROUND_CEILING, Emin=MIN_EMIN, Emax=MAX_EMAX)
_DOWN: Final = Context(prec=_DIGITS, rounding=ROUND_FLOOR, Emin=MIN_EMIN, Emax=MAX_EMAX)
_SUMMED: Final = 5_000
"""Up to this scale, in steps, each place of the tail is summed; above it one for each block."""
_TWO_PI_LOW: Final = Decimal("6.2831853071795864769252867665590057683943387987502")
_ENOUGH: Final = Decimal(10) ** -30
"""The remainder of a sum, as a part of it, that a geometric series may bound."""


def laplace_tail(steps: int, scale: Fraction) -> Decimal:
    """Return the probability that whole-number Laplace noise is at least ``steps`` >= 0, rounded
    up: p^steps / (1 + p) with p = e^(-1/scale).
    """
    power, once = _exp_up(-Fraction(steps) / scale), _exp_down(-1 / scale)
    return min(_UP.divide(power, _DOWN.add(Decimal(1), once)), Decimal(1))


def gaussian_tail(steps: int, scale: Fraction) -> Decimal:
    """Return the probability that whole-number Gaussian noise is at least ``steps`` >= 0, rounded
    up: within a thousandth where the scale is large, else to the last digits.
    """
    block = math.ceil(scale / _SUMMED)
    tail = _UP.multiply(_tail_sum(steps, scale, block), Decimal(block))
    return min(_UP.divide(tail, _whole_sum(scale)), Decimal(1))


def of_keys(single: Decimal, keys: int) -> Decimal:
    """Return 1 - (1 - single)^keys, rounded up."""
    if single >= 1:
        return Decimal(1)
    rest, power, left = _DOWN.subtract(Decimal(1), single), Decimal(1), keys
    while left:  # by squaring, rounded down
        if left % 2:
            power = _DOWN.multiply(power, rest)
        rest, left = _DOWN.multiply(rest, rest), left // 2
    return min(_UP.subtract(Decimal(1), power), _UP.multiply(single, Decimal(keys)), Decimal(1))


def _tail_sum(steps: int, scale: Fraction, block: int) -> Decimal:
    """Return the sum of e^(-k^2 / 2 scale^2) over every ``block``-th k from ``steps`` on, rounded
    up. It falls with k, so that ``block`` times as much is no less than the sum over all.
    """
    square = scale * scale
    term = _exp_up(-Fraction(steps * steps) / (2 * square))
    ratio = _exp_up(-Fraction(2 * steps * block + block * block) / (2 * square))
    shrinks = _exp_up(-Fraction(block * block) / square)
    total = Decimal(0)
    with localcontext(_UP):
        while term > total * _ENOUGH or ratio >= 1:
            total, term, ratio = total + term, term * ratio, ratio * shrinks
        return total + term / _DOWN.subtract(Decimal(1), ratio)


def _whole_sum(scale: Fraction) -> Decimal:
    """Return the sum of e^(-k^2 / 2 scale^2) over all whole k, rounded down: the larger of some
    terms and of the integral, which Poisson's summation shows to be less.
    """
    square = scale * scale
    numerator, denominator = square.as_integer_ratio()
    integral = _DOWN.sqrt(
        _DOWN.divide(_DOWN.multiply(_TWO_PI_LOW, Decimal(numerator)), Decimal(denominator))
    )
    few = [_exp_down(-Fraction(k * k) / (2 * square)) for k in range(1, 20)]
    with localcontext(_DOWN):
        return max(_DOWN.next_minus(integral), 1 + 2 * sum(few, Decimal(0)))


def _exp_up(exponent: Fraction) -> Decimal:
    """Return e^exponent, rounded up."""
    argument = _UP.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return _UP.next_plus(_UP.exp(argument))


def _exp_down(exponent: Fraction) -> Decimal:
    """Return e^exponent, rounded down."""
    argument = _DOWN.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return _DOWN.next_minus(_DOWN.exp(argument))
