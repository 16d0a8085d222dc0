"""From rho-zCDP and Renyi divergences to (epsilon, delta).

Canonne, Kamath, Steinke, *The discrete Gaussian for differential privacy*, 2020, Prop. 12 (and
Asoodeh et al. 2021): a mechanism whose Renyi divergence at an order a > 1 is at most tau is
(tau + c, delta)-private with c = ln(1 - 1/a) - ln(a delta) / (a - 1).

The proof needs no more than E[e^((a-1)(loss - tau))] <= 1, which a privacy filter at a fixed order
keeps at every stopping time; so the same c serves gates.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from accountant.privacy.decimals import DOWN, ROUGH, UP, ln_up, to_decimal

_FEW: Final = Context(prec=12)
_CLOSE: Final = Decimal("1.0000000001")
_LARGEST_RHO: Final = 10**12
_LEAST_EXCESS: Final = Decimal("1e-9")
_MOST_EXCESS: Final = Decimal("1e40")


@lru_cache(maxsize=4096)
def intercept(order: Fraction, delta: Fraction) -> Fraction:
    """c = ln(1 - 1/a) - ln(a delta) / (a - 1), rounded up; a > 1, 0 < delta < 1."""
    return ln_up((order - 1) / order) + ln_up(1 / (order * delta)) / (order - 1)


def concentrated_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """An epsilon of any rho-zCDP mechanism at 0 < ``delta`` < 1, within a relative 1e-9 or so of
    the least that the formula gives: a rho + c at the best order, rho (a - 1)^2 = -ln(a delta).
    """
    if rho > _LARGEST_RHO:  # at order 2 the rest does not matter any more
        return 2 * rho + max(Fraction(0), intercept(Fraction(2), delta))
    order = best_order(rho, delta)
    return max(Fraction(0), order * rho + intercept(order, delta))


def best_order(rho: Fraction, delta: Fraction) -> Fraction:
    """The order at which rho-zCDP converts best, to some digits; any order gives a valid bound."""
    r, d = ROUGH.plus(to_decimal(rho, UP)), ROUGH.plus(to_decimal(delta, DOWN))

    def too_large(excess: Decimal) -> bool:
        a = ROUGH.add(excess, Decimal(1))
        log = ROUGH.ln(ROUGH.multiply(a, d))
        return ROUGH.fma(ROUGH.multiply(excess, excess), r, log) > 0

    return _boundary(too_large)


def best_order_within(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The order a at which a rho + c <= ``epsilon`` leaves room for the largest rho, nearly.

    There it is also the best order for that rho, so a ln(1/(a delta)) / (a - 1)^2 + c = epsilon,
    whose left side falls as a grows.
    """
    e, d = ROUGH.plus(to_decimal(epsilon, UP)), ROUGH.plus(to_decimal(delta, DOWN))

    def too_large(excess: Decimal) -> bool:
        a = ROUGH.add(excess, Decimal(1))
        log = ROUGH.ln(ROUGH.multiply(a, d))
        if log >= 0:
            return True
        # a L / x^2 + L / x + ln(x / a) with L = -ln(a delta), x = a - 1
        ratio = ROUGH.divide(a, excess)
        part = ROUGH.multiply(ROUGH.divide(log, excess), ROUGH.add(ratio, Decimal(1)))
        return ROUGH.add(part, ROUGH.add(e, ROUGH.ln(ratio))) > 0

    return _boundary(too_large)


def _boundary(too_large: Callable[[Decimal], bool]) -> Fraction:
    """1 + the excess up to which ``too_large`` says no, by bisection on its logarithm."""
    low, high = _LEAST_EXCESS, _MOST_EXCESS
    while ROUGH.divide(high, low) > _CLOSE:
        middle = ROUGH.sqrt(ROUGH.multiply(low, high))
        low, high = (low, middle) if too_large(middle) else (middle, high)
    return 1 + Fraction(_FEW.plus(low))
