"""Gates: privacy filters, the only rules that may admit or block.

A gate stays valid when pipelines choose every next mechanism, and when to stop, after seeing the
earlier answers. Formulas that assume a schedule fixed in advance (Dwork-Rothblum-Vadhan,
Kairouz-Oh-Viswanath, numerical PLDs, Renyi minimised over orders) are not gates and are not here.

The delta of a limit is split once, when the rule is adopted: ``own_delta`` is kept for the deltas
that mechanisms bring themselves, the rest, delta', belongs to the gate. Under that split
**"basic holds or this gate holds"** is a valid filter: the own-delta failures cost at most
``own_delta`` in all, and outside them paths that end under basic are bounded surely and those under
the gate up to delta'. A limit without a delta is basic only.

Admission compares integers: capacities are rounded down here, charges were rounded up.
"""

from __future__ import annotations

from typing import Final

from accountant.privacy.filters.advanced import Advanced
from accountant.privacy.filters.asked import Total, least_epsilon
from accountant.privacy.filters.base import Capacity, Filter, Limit, Line, LineFilter
from accountant.privacy.filters.basic import Basic
from accountant.privacy.filters.gdp import GDP
from accountant.privacy.filters.renyi import ORDERS, Renyi
from accountant.privacy.filters.zcdp import ZCDP
from accountant.privacy.units import SURE, Axis

BASIC: Final = Basic()
ADVANCED: Final = Advanced()
ZCDP_FILTER: Final = ZCDP()
RENYI: Final = Renyi()
GDP_FILTER: Final = GDP()
FILTERS: Final[dict[str, Filter]] = {
    gate.name: gate for gate in (BASIC, ADVANCED, ZCDP_FILTER, RENYI, GDP_FILTER)
}
DEFAULT_FILTER: Final = "renyi"

__all__ = [
    "ADVANCED",
    "BASIC",
    "DEFAULT_FILTER",
    "FILTERS",
    "GDP_FILTER",
    "ORDERS",
    "RENYI",
    "ZCDP_FILTER",
    "Capacity",
    "Filter",
    "Limit",
    "Line",
    "LineFilter",
    "Total",
    "axis_under",
    "filter_for",
    "least_epsilon",
]


def filter_for(name: str, limit: Limit) -> Filter:
    """The gate called ``name``; a limit that leaves no delta' is basic only."""
    return FILTERS[name] if limit.filter_delta > 0 else BASIC


def axis_under(limit: Limit) -> Axis:
    """The currencies of all gates under ``limit``: one Renyi order, fixed with the limit."""
    if limit.filter_delta <= 0:
        return SURE
    found = (gate.currency(limit) for gate in FILTERS.values())
    return (*SURE, *(currency for currency in found if currency is not None))
