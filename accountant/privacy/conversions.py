"""From rho-zCDP and Renyi divergences to (epsilon, delta).

Canonne, Kamath, Steinke, *The discrete Gaussian for differential privacy*, 2020, Prop. 12 (and
Asoodeh et al. 2021): a mechanism whose Renyi divergence at an order a > 1 is at most tau is
(tau + c, delta)-private with c = ln(1 - 1/a) - ln(a delta) / (a - 1).

The proof needs no more than E[e^((a-1)(loss - tau))] <= 1, which a privacy filter at a fixed order
keeps at every stopping time; so the same c serves filters.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final

from flint import arb, ctx

from accountant.privacy import balls
from accountant.privacy.balls import Number, Real, ball

_LARGEST_RHO: Final = 10**12
"""From here on order 2 is taken: the other terms are negligible."""
_ROUGH: Final = Context(prec=24, Emin=MIN_EMIN, Emax=MAX_EMAX)
_FEW: Final = Context(prec=12)
_CLOSE: Final = Decimal("1.0000000001")
_LEAST_EXCESS: Final = Decimal("1e-9")
_MOST_EXCESS: Final = Decimal("1e40")


@lru_cache(maxsize=4096)
def intercept(order: Fraction, delta: Fraction) -> Fraction:
    """Return c = ln(1 - 1/a) - ln(a delta) / (a - 1), rounded up; a > 1, 0 < delta < 1."""
    return balls.above(Real(partial(_intercept, order, delta)))


def _intercept(order: Fraction, delta: Number) -> arb:
    a = ball(order)
    return (1 - 1 / a).log() - (a * ball(delta)).log() / (a - 1)


def concentrated_epsilon(rho: Fraction, delta: Number) -> Number:
    """Return a rho + c at the best order, where rho (a - 1)^2 = -ln(a delta); 0 < ``delta`` < 1."""
    if rho > _LARGEST_RHO:
        at_two = Real(partial(_intercept, Fraction(2), delta))
        return balls.most(Fraction(0), at_two) + 2 * rho

    def epsilon() -> arb:
        excess = _best_excess(ball(rho), ball(delta))
        order = 1 + excess
        log = (order * ball(delta)).log()
        return order * ball(rho) + (excess / order).log() - log / excess

    return balls.most(Fraction(0), balls.kept(epsilon))


def _best_excess(rho: arb, delta: arb) -> arb:
    """Return a ball around the root x = a - 1 > 0 of rho x^2 + ln(a delta), which rises with x.

    As a function of ln x it is convex, so Newton's steps from the right approach the root. The ball
    is widened until the signs at its ends are decided.
    """
    log = delta.log()

    def excess(x: arb) -> arb:
        return rho * x * x + x.log1p() + log

    x = arb(_rough_excess(float(rho), float(log)))
    for _ in range(ctx.prec // 40 + 1):
        slope = 2 * rho * x * x + x / (1 + x)
        x = (x * (-excess(x) / slope).exp()).mid()
    width = arb(2) ** (10 - ctx.prec)
    while not (excess(x * (1 - width)) < 0 < excess(x * (1 + width))):
        width *= 16
    return x * arb(1, width)


def _rough_excess(rho: float, log: float) -> float:
    x = min(math.sqrt(-log / rho), math.exp(min(-log, 700)))
    for _ in range(60):
        step = (rho * x * x + math.log1p(x) + log) / (2 * rho * x * x + x / (1 + x))
        x *= math.exp(-step)
        if abs(step) < 1e-13:
            break
    return x


def best_order_within(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return nearly the order a at which a rho + c <= ``epsilon`` allows the largest rho.

    There it is also the best order for that rho, so a ln(1/(a delta)) / (a - 1)^2 + c = epsilon,
    whose left side falls as a grows. Any order gives a valid bound, so this one needs no proof; but
    it must be the same on every machine, which the specification of ``decimal`` ensures.
    """
    e, d = (_ROUGH.divide(Decimal(x.numerator), Decimal(x.denominator)) for x in (epsilon, delta))
    low, high = _LEAST_EXCESS, _MOST_EXCESS
    while _ROUGH.divide(high, low) > _CLOSE:
        middle = _ROUGH.sqrt(_ROUGH.multiply(low, high))
        low, high = (low, middle) if _too_large(middle, e, d) else (middle, high)
    return 1 + Fraction(_FEW.plus(low))


def _too_large(excess: Decimal, epsilon: Decimal, delta: Decimal) -> bool:
    c = _ROUGH
    a = c.add(excess, Decimal(1))
    log = c.ln(c.multiply(a, delta))
    if log >= 0:
        return True
    # a L / x^2 + L / x + ln(x / a) with L = -ln(a delta), x = a - 1
    ratio = c.divide(a, excess)
    part = c.multiply(c.divide(log, excess), c.add(ratio, Decimal(1)))
    return c.add(part, c.add(epsilon, c.ln(ratio))) > 0
