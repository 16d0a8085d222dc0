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
    ROUGH,
    UP,
    exp_of_minus,
    inverse_density,
    ln_up,
    mills_ratio,
    rough_mills_ratio,
    sqrt_up,
    to_decimal,
)

_UNITS: Final = 10**9
"""Epsilon is sought among the multiples of a billionth, the unit in which it is booked."""

_LARGEST_MU: Final = 10**6
"""Beyond, epsilon exceeds 5e11, more than an account can hold: the closed form will do."""

_MOST_STEPS: Final = 120
_CLOSE: Final = Decimal("1e-10")
_LOG_ROOT_TWO_PI: Final = Decimal("0.9189385332046727417803297364")
_A_LITTLE_MORE: Final = Decimal("1.000000000001")
_A_LITTLE_LESS: Final = Decimal("0.999999999999")
_HALF_MORE: Final = Decimal("1.5")
_NEXT_TO: Final = Decimal("1.000000000001")
_NEAR: Final = Decimal("0.3")
_ROOT_TWO_PI: Final = Decimal("2.506628274631000502415765")
_TINY: Final = Fraction(1, 10**6)
_HALF_PI: Final = Fraction("1.570796326795") * (1 + Fraction(1, 10**12))
_LARGE: Final = 1000
_FARTHEST: Final = Decimal(1000)
_LEAST: Final = Decimal(-40)


def gaussian_epsilon(mu: Fraction, delta: Fraction) -> Fraction:
    """The least multiple of 1e-9 that is proved to be an epsilon of Gaussian noise at ``delta``.

    ``mu`` > 0 is L2 sensitivity over standard deviation (an upper bound of it is fine, the curve
    rises with mu), 0 < ``delta`` < 1. A guess by Newton's method, good to many more digits than
    these, is verified by ``_delta_up``, and raised until it verifies. Never above
    ``_closed_form``, which alone serves where mu is above 1e6; there the answer is larger than
    necessary, by a relative 1e-4 at most.
    """
    mu_up, delta_down = to_decimal(mu, UP), to_decimal(delta, DOWN)
    limit = _ceil(_closed_form(mu, delta) * _UNITS)
    if mu > _LARGEST_MU:
        return Fraction(limit, _UNITS)
    units, step = max(0, _ceil(Fraction(_guess(mu_up, delta_down)) * _UNITS)), 1
    while units < limit:
        if _delta_up(to_decimal(Fraction(units, _UNITS), DOWN), mu_up) <= delta_down:
            return Fraction(units, _UNITS)
        units, step = units + step, 2 * step
    return Fraction(limit, _UNITS)


def mu_squared_of_pure(epsilon: Fraction) -> Fraction:
    """The square of a mu, hardly more than the least, such that epsilon-privacy is mu-GDP.

    mu = 2 x with Phi(-x) = 1 / (1 + e^epsilon). The trade-off curve of randomised response is made
    of two straight lines that meet where both errors are that number. The curve of mu-GDP is
    convex and passes through the same ends and the same corner, so it lies below (Dong, Roth, Su,
    *Gaussian differential privacy*, 2022, Sec. 2, for both curves).
    """
    if epsilon <= _TINY:  # Phi(x) - 1/2 >= x (1 - x^2 / 2) / sqrt(2 pi), and tanh(y) <= y
        return epsilon * epsilon * _HALF_PI
    if epsilon >= _LARGE:  # Phi(-x) <= e^(-x^2 / 2) / 2
        return 8 * epsilon
    small, _ = exp_of_minus(epsilon)
    wanted = to_decimal(small / (1 + small), DOWN)
    x = _quantile(ROUGH.plus(wanted))
    while UP.divide(mills_ratio(x)[1], inverse_density(x)[0]) > wanted:
        x = UP.multiply(x, _A_LITTLE_MORE)
    return Fraction(UP.multiply(UP.multiply(x, x), Decimal(4)))


def _quantile(tail: Decimal) -> Decimal:
    """x with Phi(-x) = ``tail`` < 1/2, to some twelve digits and rather above, by Newton's method
    on ln Phi(-x), which is concave: from the right it does not pass the root, and a step from the
    left ends on the right.
    """
    c = ROUGH
    log = c.add(c.ln(tail), _LOG_ROOT_TWO_PI)
    if tail > _NEAR:  # from the left, where the density is at most 1 / sqrt(2 pi)
        x = c.multiply(c.subtract(Decimal("0.5"), tail), _ROOT_TWO_PI)
    else:
        x = c.sqrt(c.multiply(Decimal(-2), c.ln(c.multiply(Decimal(2), tail))))
    for _ in range(_MOST_STEPS):
        ratio = rough_mills_ratio(x)
        # ln Phi(-x) - ln tail, over its slope -1 / R(x)
        excess = c.subtract(c.fma(c.multiply(x, x), Decimal("-0.5"), c.ln(ratio)), log)
        x = c.fma(excess, ratio, x)
        if c.copy_abs(excess) < _CLOSE:
            break
    return UP.multiply(x, _A_LITTLE_MORE)


def most_mu_squared(epsilon: Fraction, delta: Fraction) -> Fraction:
    """A mu^2, hardly less than the largest, at which Gaussian noise is (epsilon, delta)-private."""
    e, d = to_decimal(epsilon, DOWN), to_decimal(delta, DOWN)
    # rho + 2 sqrt(rho L) <= epsilon at sqrt(2 rho) = (sqrt(2 L + 2 epsilon) - sqrt(2 L))
    log = to_decimal(2 * ln_up(1 / delta), UP)
    twice = DOWN.multiply(Decimal(2), e)
    low = DOWN.divide(twice, UP.add(UP.sqrt(UP.add(log, twice)), UP.sqrt(log)))
    while _delta_up(e, low) > d:
        low = DOWN.multiply(low, _A_LITTLE_LESS)
    high = low
    while _delta_up(e, high) <= d:
        low, high = high, UP.multiply(high, _HALF_MORE)
    while UP.divide(high, low) > _NEXT_TO:
        middle = UP.sqrt(UP.multiply(low, high))
        low, high = (middle, high) if _delta_up(e, middle) <= d else (low, middle)
    return Fraction(DOWN.multiply(low, low))


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
    c = ROUGH
    mu, log = c.plus(mu), c.ln(delta)
    a, none = c.sqrt(c.multiply(Decimal(-2), log)), c.multiply(mu, Decimal("-0.5"))
    for _ in range(_MOST_STEPS):
        tail = rough_mills_ratio(c.add(a, mu))
        gap = c.subtract(rough_mills_ratio(a), tail)
        if gap <= 0:
            break
        # ln delta + ln(1 / phi(a)) - ln gap
        density = c.fma(c.multiply(a, a), Decimal("0.5"), _LOG_ROOT_TWO_PI)
        shortfall = c.subtract(c.add(log, density), c.ln(gap))
        step = c.divide(c.multiply(shortfall, gap), c.multiply(mu, tail))
        a = c.subtract(a, step)
        if c.multiply(step, mu) < _CLOSE or a <= none:  # epsilon below zero
            break
    return c.multiply(mu, c.fma(mu, Decimal("0.5"), a))
