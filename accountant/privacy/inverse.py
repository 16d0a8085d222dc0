"""Inverse questions: the smallest limit, the largest count and the least noise that still fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Final

from accountant.privacy import balls
from accountant.privacy.balls import Number
from accountant.privacy.conversions import (
    concentrated_epsilon,
    first_where,
    gaussian_epsilon,
    intercept,
)
from accountant.privacy.curves import Order, Orders
from accountant.privacy.filters import FOR_CAPACITY, ORDERS, RENYI, Limit, LineFilter, Renyi
from accountant.privacy.units import Charge, Currency, orders_in

LARGEST_EPSILON: Final = 10**6
_NANO: Final = Fraction(1, 10**9)
_FACTOR: Final = Context(prec=7, rounding=ROUND_CEILING)
_EXTREME: Final = Decimal(2) ** 60

Total = Callable[[Orders], Charge]  # From Renyi orders to the total of some mechanisms


def largest_count(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest n from 0 to ``most`` with ``fits(n)``, which is true below it too."""
    return first_where(lambda n: n >= most or not fits(n + 1), 0)


def smallest_factor(fits: Callable[[Decimal], bool]) -> Decimal | None:
    """Return the smallest factor with ``fits(factor)``, to seven digits and rounded up; None if
    none up to 2^60 fits. Every factor above one that fits must fit.
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


def crossing(
    value: Callable[[float], float],
    goal: float,
    inside: float,
    outside: float,
    close: Callable[[float, float], bool],
    round_: Callable[[float], float] = float,
) -> float:
    """Return an x with ``value(x)`` <= ``goal`` and another ``close`` by with more: between
    ``inside``, where it is at most that, and ``outside``. Asks for few values: the false position
    on logarithms, that of an end that stays halved (Illinois).
    """
    ends = {True: inside, False: outside}
    gaps = {within: _gap(value(x), goal) for within, x in ends.items()}
    last = None
    while not close(ends[True], ends[False]):
        low, high = math.log(ends[True]), math.log(ends[False])
        share = gaps[True] / (gaps[True] - gaps[False])
        x = round_(math.exp(low + (high - low) * min(max(share, 0.02), 0.98)))
        if x in ends.values():
            x = round_(math.exp((low + high) / 2))
        if x in ends.values():
            break
        gap = _gap(value(x), goal)
        within = gap <= 0
        if within == last:
            gaps[not within] /= 2
        ends[within], gaps[within], last = x, gap, within
    return ends[True]


def _gap(value: float, goal: float) -> float:
    """Return the logarithm of a value over the goal, within bounds; at most 0 if it is within."""
    if value <= goal:
        return min(-1e-12, max(-50.0, math.log(max(value, 1e-300) / goal)))
    return max(1e-12, min(50.0, math.log(value / goal) if math.isfinite(value) else 50.0))


def least_epsilon(
    filter_: LineFilter, delta: Fraction, own: Fraction, total: Total
) -> Fraction | None:
    """Return the smallest epsilon (or hardly more) at which ``filter_`` admits ``total`` by its own
    currency, with ``own`` < ``delta`` kept for own deltas; None beyond ``LARGEST_EPSILON``.
    """

    def admits(epsilon: Fraction) -> bool:
        capacity = filter_.capacity(Limit(epsilon, delta, own))
        used = total(orders_in(capacity.currencies))
        each = zip(map(used.units, capacity.currencies), capacity.along, strict=True)
        return any(units is not None and units <= most for units, most in each)

    guess = _GUESSES.get(filter_.name)
    if guess is None:
        return _bisected(admits)
    used = total(()).units(filter_.own)
    if used is None:
        return None
    epsilon = max(_NANO, _nano_up(guess(Fraction(used, filter_.own.per_one), delta - own)))
    while epsilon <= LARGEST_EPSILON:
        if admits(epsilon):
            return epsilon
        epsilon = _nano_up(max(epsilon + _NANO, epsilon * (1 + _NANO)))
    return None


def best_order(limit: Limit, total: Total) -> Order | None:
    """Return the candidate order at which, with all of delta', most runs of ``total`` fit; None if
    it has a bound at none.
    """
    used = total(ORDERS)

    def runs(order: Order) -> Fraction:
        line = Renyi.at(order, limit, Fraction(1))
        once = used.units(line.currency)
        return Fraction(-1) if once is None else Fraction(line.reaches(limit.epsilon), once)

    best = max(ORDERS, key=runs)
    return None if used.is_infinite(Currency.tau(best)) else best


def least_at_one_order(
    delta: Fraction, own: Fraction, total: Total
) -> tuple[Fraction, Order] | None:
    """Return the smallest epsilon (or hardly more) at which a limit under ``renyi`` admits
    ``total`` that states one order, and the best one, with ``own`` < ``delta`` kept for own deltas;
    None where there is no bound.
    """
    used = total(ORDERS)
    known = {
        order: units for order in ORDERS if (units := used.units(Currency.tau(order))) is not None
    }

    def spent(order: Order) -> Fraction:
        line = intercept(Fraction(order), delta - own)
        return line + Fraction(known[order], Currency.tau(order).per_one)

    if not known:
        return None
    order = min(known, key=spent)

    def admits(epsilon: Fraction) -> bool:
        return known[order] <= RENYI.capacity(Limit(epsilon, delta, own, orders=(order,))).along[0]

    least = _bisected(admits)
    return None if least is None else (least, order)


_GUESSES: Final[dict[str, Callable[[Fraction, Fraction], Number]]] = {
    "advanced": lambda squares, delta: (
        balls.sqrt(balls.log(1 / delta) * (2 * squares)) + squares / 2
    ),
    "zcdp": concentrated_epsilon,
    "gdp": lambda mu_squared, delta: gaussian_epsilon(mu_squared, delta * FOR_CAPACITY),
}


def _bisected(admits: Callable[[Fraction], bool]) -> Fraction | None:
    """Bisect to a billionth: to an admitted epsilon, if not the least where the order changes."""
    low, high = 0, 10**6
    while not admits(high * _NANO):
        low, high = high, high * 4
        if high > LARGEST_EPSILON * 10**9:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if admits(middle * _NANO) else (middle, high)
    return high * _NANO


def _nano_up(value: Number) -> Fraction:
    return balls.ceiling(value, 10**9) * _NANO
