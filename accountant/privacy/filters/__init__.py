"""Privacy filters: the only compositions that may admit or block.

A filter stays valid when pipelines choose every next mechanism, and when to stop, after seeing the
earlier answers. Formulas that assume a schedule fixed in advance (Dwork-Rothblum-Vadhan,
Kairouz-Oh-Viswanath, numerical PLDs, Renyi minimised over orders) are no filters and not here.

The delta of a limit is split once, when the rule is adopted: ``own_delta`` is kept for the deltas
that mechanisms bring themselves, the rest, delta', belongs to the filter. Under that split
**"basic holds or this filter holds"** is a valid filter: the own-delta failures cost at most
``own_delta`` in all, and outside them paths that end under basic are bounded surely and those under
the filter up to delta'. A limit without a delta is basic only.

Admission compares integers: capacities are rounded down here, charges were rounded up.
"""

from __future__ import annotations

from typing import Final

from accountant.privacy.filters.base import Capacity, Filter, Limit, LineFilter
from accountant.privacy.filters.lines import GDP, ZCDP, Advanced, Renyi
from accountant.privacy.units import SURE, Axis

BASIC: Final = Filter()
RENYI: Final = Renyi()
FILTERS: Final[dict[str, Filter]] = {
    each.name: each for each in (BASIC, Advanced(), ZCDP(), RENYI, GDP())
}
DEFAULT_FILTER: Final = RENYI.name

__all__ = [
    "BASIC",
    "DEFAULT_FILTER",
    "FILTERS",
    "RENYI",
    "Capacity",
    "Filter",
    "Limit",
    "LineFilter",
    "axis_under",
    "filter_for",
]


def filter_for(name: str, limit: Limit) -> Filter:
    """Return the filter called ``name``; under a limit that leaves no delta', basic."""
    return FILTERS[name] if limit.filter_delta > 0 else BASIC


def axis_under(limit: Limit) -> Axis:
    """Return the currencies of all filters under ``limit``: one Renyi order, fixed with it."""
    if limit.filter_delta <= 0:
        return SURE
    found = (each.currency(limit) for each in FILTERS.values())
    return (*SURE, *(currency for currency in found if currency is not None))
