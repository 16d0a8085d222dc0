"""The exact privacy curve of Gaussian noise, inverted without ever falling below the truth.

Balle and Wang, *Improving the Gaussian mechanism for differential privacy*, ICML 2018, Theorem 8:
noise N(0, sigma^2) on an answer of L2 sensitivity Delta is (epsilon, delta)-DP if and only if

    delta >= Phi(-a) - e^epsilon Phi(-b)

with mu = Delta / sigma, a = epsilon / mu - mu / 2, b = a + mu.

Since e^epsilon phi(b) = phi(a), the right side is phi(a) (R(a) - R(b)), R(x) = Phi(-x) / phi(x),
which neither overflows nor cancels more digits than the arithmetic has to spare.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Final

from accountant.privacy.decimals import (
    DOWN,
    UP,
    inverse_density,
    ln_up,
    mills_ratio,
    sqrt_up,
    to_decimal,
)

_UNITS: Final = 10**9
"""Epsilon is sought among the multiples of a billionth, the unit in which it is booked."""

_LARGEST_MU: Final = 10**6
"""Beyond, epsilon exceeds 5e11, more than an account can hold: the closed form will do."""

_MOST_STEPS: Final = 120
_FARTHEST: Final = Decimal(1000)
_LEAST: Final = Decimal(-40)


def gaussian_epsilon(mu: Fraction, delta: Fraction) -> Fraction:
    """The least multiple of 1e-9 that is proved to be an epsilon of Gaussian noise at ``delta``.

    ``mu`` > 0 is L2 sensitivity over standard deviation (an upper bound of it is fine, the curve
    rises with mu), 0 < ``delta`` < 1. A guess by Newton's method is verified by ``_delta_up``, and
    raised until it verifies. Never above ``_closed_form``, which alone serves where mu is above
    1e6; there the answer is larger than necessary, by a relative 1e-4 at most.
    """
    mu_up, delta_down = to_decimal(mu, UP), to_decimal(delta, DOWN)
    if _delta_up(Decimal(0), mu_up) <= delta_down:
        return Fraction(0)
    limit = _ceil(_closed_form(mu, delta) * _UNITS)
    if mu > _LARGEST_MU or limit <= 1:
        return Fraction(limit, _UNITS)
    units, step = max(1, _ceil(Fraction(_guess(mu_up, delta_down)) * _UNITS) - 1), 1
    while units < limit:
        if _delta_up(to_decimal(Fraction(units, _UNITS), DOWN), mu_up) <= delta_down:
            return Fraction(units, _UNITS)
        units, step = units + step, 2 * step
    return Fraction(limit, _UNITS)


def _closed_form(mu: Fraction, delta: Fraction) -> Fraction:
    """Rho + 2 sqrt(rho ln(1/delta)) with rho = mu^2 / 2 (Bun-Steinke 2016, Props. 1.3 and 1.6)."""
    return mu * mu / 2 + mu * sqrt_up(2 * ln_up(1 / delta))


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


def _delta_up(epsilon: Decimal, mu: Decimal) -> Decimal:
    """An upper bound of the exact delta; ``epsilon`` >= 0.

    Rounding ``a`` down is the same as lowering epsilon, and delta falls with epsilon; rounding
    ``b`` up lowers R(b). Far out on either side simple bounds stand in: delta <= 1, and
    delta <= Phi(-a), which falls with a.
    """
    a = DOWN.subtract(DOWN.divide(epsilon, mu), UP.divide(mu, Decimal(2)))
    if a < _LEAST:
        return Decimal(1)
    if a > _FARTHEST:
        return UP.divide(mills_ratio(_FARTHEST)[1], inverse_density(_FARTHEST)[0])
    gap = UP.subtract(mills_ratio(a)[1], mills_ratio(UP.add(a, mu))[0])
    return UP.divide(gap, inverse_density(a)[0])


def _guess(mu: Decimal, delta: Decimal) -> Decimal:
    """Epsilon to within about 1e-10, by Newton's method on ln delta as a function of a.

    ln delta is concave in a (a convolution of log-concave functions is log-concave) and falls, so
    from the right the steps approach the root without passing it. They start at the a where the
    bound Phi(-a) <= exp(-a^2 / 2) meets delta. Nothing rests on this guess but the running time.
    """
    a = UP.sqrt(UP.multiply(Decimal(-2), DOWN.ln(delta)))
    for _ in range(_MOST_STEPS):
        tail = mills_ratio(UP.add(a, mu))[0]
        gap = UP.subtract(mills_ratio(a)[1], tail)
        shortfall = UP.ln(UP.divide(UP.multiply(delta, inverse_density(a)[0]), gap))
        step = UP.divide(UP.multiply(shortfall, gap), UP.multiply(mu, tail))
        a = UP.subtract(a, step)
        if UP.multiply(step, mu) < Decimal("1e-10"):
            break
    return UP.multiply(mu, UP.fma(mu, Decimal("0.5"), a))
