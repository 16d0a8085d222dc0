"""Renyi differential privacy at one fixed order."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

from accountant.privacy.conversions import intercept
from accountant.privacy.filters.base import Limit, Line, LineFilter
from accountant.privacy.units import Currency

ORDERS: Final = (
    *range(2, 65),
    *(step << power for power in range(3, 11) for step in (9, 10, 11, 12, 13, 14, 15, 16)),
)
"""The candidates: every integer to 64, then eight to each doubling, to 16,384."""


class Renyi(LineFilter):
    """The sum of the Renyi divergences tau_i at one integer order a.

    Source: Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021,
    Thm 4.3; Haney et al. 2023 (concurrent, at a fixed order); Canonne, Kamath, Steinke 2020,
    Prop. 12 (the conversion). Preconditions: delta' > 0; each mechanism's divergence at order a is
    at most tau_i given its past, except with a probability delta_i that ``own_delta`` pays; and the
    order was fixed before the first charge. Taking the smallest epsilon over several orders anew
    at each request is *not* a filter (golden/counterexample: twice the delta).

    The order is the candidate with the largest admissible tau per order, tau / a, chosen from
    (epsilon, delta') alone: the best one for Gaussian noise of any size.
    """

    name = "renyi"

    def currency(self, limit: Limit) -> Currency:
        """Return tau at the order."""
        if (found := limit.currencies.get(self.name)) is None:
            found = Currency.tau(fixed_order(*limit.chosen_for))
            limit.currencies[self.name] = found
        return found

    def draw(self, limit: Limit) -> Line:
        """Draw slope 1 and intercept ln(1 - 1/a) - ln(a delta')/(a-1)."""
        order = Fraction(fixed_order(*limit.chosen_for))
        at_none = intercept(order, limit.filter_delta)
        return Line.through(order, Fraction(1), at_none, self.currency(limit))


@lru_cache(maxsize=4096)
def fixed_order(epsilon: Fraction, filter_delta: Fraction) -> int:
    """Return the candidate a with the largest (epsilon - c(a, delta')) / a; the first of equals."""
    order: int = max(ORDERS, key=lambda a: (epsilon - intercept(Fraction(a), filter_delta)) / a)
    return order
