"""Gaussian differential privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from accountant.privacy.conversions import best_order_within, intercept
from accountant.privacy.filters.base import Capacity, Limit, Line, LineFilter
from accountant.privacy.gaussian_curve import most_mu_squared
from accountant.privacy.units import Currency, units_down

_FOR_SPENT: Final = Fraction(1, 10)
"""The part of delta' for the line, which gives what is spent."""

FOR_CAPACITY: Final = 1 - _FOR_SPENT
"""The part of delta' for the capacity."""

_most_mu_squared = lru_cache(maxsize=1024)(most_mu_squared)


class GDP(LineFilter):
    """The sum of mu_i^2, up to the largest mu^2 whose Gaussian curve is (epsilon, delta')-private.

    Source: Smith and Thakurta, "Fully adaptive composition for Gaussian differential privacy",
    2022; Koskela, Tobaben, Honkela, "Individual privacy accounting with Gaussian differential
    privacy", ICLR 2023; Balle and Wang 2018, Thm 8 (the curve). Preconditions: delta' > 0; each
    mechanism is mu_i-GDP given its past, except with a probability delta_i that ``own_delta`` pays.

    Below the limit no number is true at every stopping time without a price: any boundary that is
    lower than epsilon somewhere before the capacity has to be higher at it. A tenth of delta'
    therefore pays for a line (mu^2 / 2 is a rho), the rest for the capacity, and the spent epsilon
    is the smallest of the sum of epsilons, the line and the limit itself.

    The capacity is paid for once, at the limit that was chosen first: a limit that is moved after
    seeing answers would need it again (thirty well-timed raises reach 1.2 delta'). So a raised
    limit goes along the line beyond the capacity of the first.
    """

    name = "gdp"
    own = Currency.MU_SQUARED

    def draw(self, limit: Limit) -> Line:
        """Draw the line of zCDP, at rho = mu^2 / 2 and a tenth of delta'."""
        epsilon, filter_delta = limit.chosen_for
        order = best_order_within(epsilon, filter_delta * _FOR_SPENT)
        at_none = intercept(order, limit.filter_delta * _FOR_SPENT)
        return Line.through(order, order / 2, at_none, self.own)

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """Return the capacity; at less than the whole, and at less than was chosen first, it is
        where the line meets ``share`` of epsilon.
        """
        along = super().capacity(limit, share)
        if share != 1 or along.second is None or limit.epsilon < limit.chosen_for[0]:
            return along
        return replace(along, second=max(along.second, self._first(limit)))

    def spent(self, limit: Limit, epsilon: int | None, second: int | None) -> int | None:
        """Return the line's epsilon; within the first limit's capacity, at most that limit."""
        found = super().spent(limit, epsilon, second)
        if found is None or second is None or second > self._first(limit):
            return found
        return min(found, units_down(limit.chosen_for[0], Currency.EPSILON))

    def spent_each(
        self, limit: Limit, epsilons: Sequence[int], seconds: Sequence[int]
    ) -> list[int]:
        """Return ``spent`` at each of many sums."""
        found = super().spent_each(limit, epsilons, seconds)
        first, most = self._first(limit), units_down(limit.chosen_for[0], Currency.EPSILON)
        each = zip(found, seconds, strict=True)
        return [units if second > first else min(units, most) for units, second in each]

    def _first(self, limit: Limit) -> int:
        """Return the units of mu squared that the limit chosen first allowed; below zero if there
        is less delta' by now.
        """
        if (found := limit.firsts.get(self.name)) is None:
            epsilon, filter_delta = limit.chosen_for
            found = -1
            if limit.filter_delta >= filter_delta:
                most = _most_mu_squared(epsilon, filter_delta * FOR_CAPACITY)
                found = units_down(most, self.own)
            limit.firsts[self.name] = found
        return found

    def per_epsilon(self, limit: Limit) -> None:
        """Return None: epsilon that was spent surely has no mu that adds up with later ones."""
        return
