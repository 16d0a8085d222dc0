"""Zero-concentrated differential privacy."""

from __future__ import annotations

from accountant.privacy.conversions import best_order_within, intercept
from accountant.privacy.filters.base import Limit, Line, LineFilter
from accountant.privacy.units import Currency


class ZCDP(LineFilter):
    """The sum of rho_i, converted at the order that is best when the sum reaches its capacity.

    Source: Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021,
    and Whitehouse, Ramdas, Rogers, Wu 2023, Theorem 1 (the filter); Canonne, Kamath, Steinke 2020,
    Prop. 12 (the conversion); Lyu 2022 (concurrent). Preconditions: delta' > 0; each mechanism is
    rho_i-zCDP given its past, except with a probability delta_i that ``own_delta`` pays.

    rho_i-zCDP is Renyi privacy of a rho_i at every order a, so this is the Renyi filter at one
    order, which need not be a whole number.
    """

    name = "zcdp"
    own = Currency.RHO

    def draw(self, limit: Limit) -> Line:
        """Draw slope a and intercept ln(1 - 1/a) - ln(a delta')/(a-1)."""
        order = best_order_within(*limit.chosen_for)
        at_none = intercept(order, limit.filter_delta)
        return Line.through(order, order, at_none, self.own)
