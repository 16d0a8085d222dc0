"""The exact privacy curve of Gaussian noise and its inverses.

Balle and Wang, *Improving the Gaussian mechanism for differential privacy*, ICML 2018, Theorem 8:
noise N(0, sigma^2) on an answer of L2 sensitivity Delta is (epsilon, delta)-DP if and only if

    delta >= Phi(-a) - e^epsilon Phi(-b)

with mu = Delta / sigma, a = epsilon / mu - mu / 2, b = a + mu. The right side falls with epsilon
and rises with mu, so that the least epsilon and the largest mu^2 are sought among whole units.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from flint import arb

from accountant.privacy import balls
from accountant.privacy.balls import Number, Real, ball

_PER_EPSILON: Final = 10**9
_PER_MU_SQUARED: Final = 10**15
"""The units in which both are booked."""
MU_SQUARED_UNIT: Final = Fraction(1, _PER_MU_SQUARED)

_LARGEST_MU_SQUARED: Final = 10**10
"""From here on epsilon exceeds 4.9e9, more than an account can hold."""
_BITS: Final = 64
"""Enough to tell one unit of epsilon from the next."""

_LARGE: Final = 1000
_NEAR: Final = 20


def gaussian_epsilon(mu_squared: Fraction, delta: Number) -> Fraction:
    """Return the least multiple of 1e-9 that is an epsilon of Gaussian noise at 0 < ``delta`` < 1.

    ``mu_squared`` > 0 is (L2 sensitivity over standard deviation)^2. Beyond 1e10 the larger closed
    form of Bun and Steinke 2016, Props. 1.3 and 1.6, is taken: rho + 2 sqrt(rho ln(1/delta)).
    """
    if mu_squared > _LARGEST_MU_SQUARED:
        root = balls.sqrt(Real(lambda: -2 * ball(delta).log() * ball(mu_squared)))
        return Fraction(balls.ceiling(root + mu_squared / 2, _PER_EPSILON), _PER_EPSILON)

    def enough(units: int) -> bool:
        return private(mu_squared, Fraction(units, _PER_EPSILON), delta)

    guess = _guess(math.sqrt(mu_squared), float(balls.above(delta)))
    return Fraction(_first(enough, math.ceil(guess * _PER_EPSILON)), _PER_EPSILON)


def most_mu_squared(epsilon: Fraction, delta: Number) -> Fraction:
    """Return the largest multiple of 1e-15 that is an (epsilon, delta)-private mu^2."""

    def too_much(units: int) -> bool:
        return units > 0 and not private(Fraction(units, _PER_MU_SQUARED), epsilon, delta)

    # rho + 2 sqrt(rho L) = epsilon at sqrt(2 rho) = sqrt(2 L + 2 epsilon) - sqrt(2 L)
    log = Real(lambda: -2 * ball(delta).log())
    root = Real(lambda: (ball(log) + 2 * ball(epsilon)).sqrt() - ball(log).sqrt())
    guess = balls.floor(root * root, _PER_MU_SQUARED)
    return Fraction(_first(too_much, guess) - 1, _PER_MU_SQUARED)


def mu_squared_of_pure(epsilon: Number) -> Number:
    """Return the square of the least mu such that epsilon-privacy is mu-GDP.

    mu = 2 x with Phi(-x) = 1 / (1 + e^epsilon), that is Phi(x) - 1/2 = tanh(epsilon / 2) / 2. The
    trade-off curve of randomised response is made of two straight lines that meet where both errors
    are that number. The curve of mu-GDP is convex and passes through the same ends and the same
    corner, so it lies below (Dong, Roth, Su, *Gaussian differential privacy*, 2022, Sec. 2, for
    both curves). From epsilon 1000 on 8 epsilon, which no account holds: Phi(-x) <= e^(-x^2/2) / 2.
    """

    def mu_squared() -> arb:
        e = ball(epsilon)
        if e < _NEAR:
            root = (e / 2).tanh().erfinv()
        elif e < _LARGE:
            root = (2 / (1 + e.exp())).erfcinv()
        else:
            return 8 * e
        return 8 * root * root

    return Real(mu_squared)


def private(mu_squared: Fraction, epsilon: Fraction, delta: Number) -> bool:
    """Return true if Gaussian noise is (epsilon, delta)-private; ``epsilon`` >= 0."""

    def excess() -> arb:
        mu, e, root = ball(mu_squared).sqrt(), ball(epsilon), arb(2).sqrt()
        a = e / mu - mu / 2
        return ((a / root).erfc() - e.exp() * ((a + mu) / root).erfc()) / 2 - ball(delta)

    return balls.sign(Real(excess), _BITS) < 0


def _first(holds: Callable[[int], bool], guess: int) -> int:
    """Return the least n >= 0 at which ``holds``, which stays true; fast if near ``guess``."""
    high, step = max(guess, 0), 1
    while not holds(high):
        high, step = high + step, 2 * step
    low, step = high - 1, 1
    while low >= 0 and holds(low):
        high, low, step = low, low - step, 2 * step
    low = max(low, -1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _guess(mu: float, delta: float) -> float:
    """Return some ten digits, to save time: Newton's method on ln delta of a, which is concave."""
    try:
        log = math.log(delta)
        a = math.sqrt(-2 * log)
        for _ in range(60):
            tail = _mills_ratio(a + mu)
            gap = _mills_ratio(a) - tail
            if gap <= 0:
                break
            # ln delta + ln(1 / phi(a)) - ln gap
            shortfall = log + a * a / 2 + math.log(2 * math.pi) / 2 - math.log(gap)
            step = shortfall * gap / (mu * tail)
            a -= step
            if abs(step) * mu < 1e-12 or a <= -mu / 2:
                break
        return max(0.0, mu * (a + mu / 2))
    except (ArithmeticError, ValueError):
        return mu * mu / 2


def _mills_ratio(x: float) -> float:
    """Return Phi(-x) / phi(x)."""
    if x < 8:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    value = x
    for n in range(40, 0, -1):
        value = x + n / value
    return 1 / value
