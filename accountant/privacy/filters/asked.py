"""The question in advance: the smallest limit whose gate would admit a given total."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

from accountant.privacy import balls
from accountant.privacy.balls import Number
from accountant.privacy.conversions import concentrated_epsilon
from accountant.privacy.filters.base import Filter, Limit
from accountant.privacy.filters.gdp import FOR_CAPACITY
from accountant.privacy.gaussian_curve import gaussian_epsilon
from accountant.privacy.units import Charge

LARGEST_EPSILON: Final = 10**6
_NANO: Final = Fraction(1, 10**9)

Total = Callable[[tuple[int, ...]], Charge]
"""The total of some mechanisms, with the Renyi divergences of these orders."""


def least_epsilon(gate: Filter, delta: Fraction, own: Fraction, total: Total) -> Fraction | None:
    """The smallest epsilon (or hardly more) such that ``gate`` under (epsilon, delta), of which
    ``own`` is kept for own deltas, admits ``total``, not counting what basic would admit. None if
    there is none up to ``LARGEST_EPSILON``. Precondition: own < delta.
    """

    def admits(epsilon: Fraction) -> bool:
        limit = Limit(epsilon, delta, own)
        currency = gate.currency(limit)
        if currency is None:
            return False
        used = total((currency.order,) if currency.order else ()).units(currency)
        most = gate.capacity(limit).second
        return used is not None and most is not None and used <= most

    guess = _GUESSES.get(gate.name)
    if guess is None:
        return _bisected(admits)
    currency = gate.currency(Limit(Fraction(1), delta, own))
    used = None if currency is None else total(()).units(currency)
    if currency is None or used is None:
        return None
    epsilon = _nano_up(guess(Fraction(used, currency.per_one), delta - own))
    while epsilon <= LARGEST_EPSILON:
        if admits(max(epsilon, _NANO)):
            return max(epsilon, _NANO)
        epsilon = _nano_up(max(epsilon + _NANO, epsilon * (1 + _NANO)))
    return None


def _advanced(squares: Fraction, filter_delta: Fraction) -> Number:
    log = balls.log(1 / filter_delta)
    return balls.sqrt(log * (2 * squares)) + squares / 2


def _gdp(mu_squared: Fraction, filter_delta: Fraction) -> Fraction:
    return gaussian_epsilon(mu_squared, filter_delta * FOR_CAPACITY)


_GUESSES: Final[dict[str, Callable[[Fraction, Fraction], Number]]] = {
    "advanced": _advanced,
    "zcdp": concentrated_epsilon,
    "gdp": _gdp,
}


def _bisected(admits: Callable[[Fraction], bool]) -> Fraction | None:
    """To a billionth. Whatever it returns is admitted, though a gate that changes its order with
    epsilon may admit a little less as well.
    """
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
