"""The orders in which waiting requests are admitted: a key for each, which is exact.

* ``arrival``: as they came.
* ``dominant_share``: those first whose largest share of any blocking limit is smallest: DPF of
  Luo, Pan, Tholoniat, Cidon, Geambasu, Lecuyer, "Privacy Budget Scheduling", OSDI 2021. As there, a
  share is of the whole limit, not of what is left: it does not change while a request waits.
* ``efficiency``: those first that take the least of all limits together, a share for each cell:
  the measure of DPack (Tholoniat et al., EuroSys 2025) where all requests weigh the same. DPack
  takes shares of what is left; here they are of the whole limit, too: else each event would change
  the order of everything that waits. ``trials/planning.py`` has the measure on what is left.

Of epsilon and the gate's own currencies, one of which has to fit, the smallest share counts. Ties
go by arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Final, Literal

from accountant.budget.population.selection import Selection
from accountant.budget.request import Request
from accountant.budget.rules.base import View
from accountant.budget.state import State
from accountant.privacy.units import Currency

Order = Literal["arrival", "dominant_share", "efficiency"]
ARRIVAL: Final[Order] = "arrival"
_NEVER: Final = Fraction(10**60)
"""More than any share that is finite: of what a limit has nothing of, or of no finite cost."""


def key_of(state: State, request: Request, sequence: int, order: Order) -> tuple[Fraction, int]:
    """Return the place of a request in ``order``: a smaller key is admitted first."""
    if order == "arrival":
        return Fraction(), sequence
    shares = list(_shares(state, request))
    if order == "dominant_share":
        return max(shares, default=Fraction()), sequence
    cells = cells_in(request.selection, state.people().shape)
    return sum(shares, Fraction()) * cells, sequence


def _shares(state: State, request: Request) -> Iterator[Fraction]:
    """Yield the share of each blocking limit, in each of its accounts, that a request takes."""
    view = View(state, request)
    for rule in state.adopted.policy.limits if state.adopted else ():
        for one in view.used(rule.id) if rule.action == "block" else ():
            charge = one.charge.on(one.reading.account.axis)
            found = {
                currency: _share(charge.units(currency), most)
                for currency, most in one.epoch.capacity.sides
            }
            delta = found.pop(Currency.DELTA)
            yield max(delta, min(found.values()))


def _share(units: int | None, most: int) -> Fraction:
    if units == 0:
        return Fraction()
    return _NEVER if units is None or most <= 0 else Fraction(units, most)


def cells_in(selection: Selection, shape: tuple[int, ...]) -> int:
    """Return how many cells are selected, of a population of that shape."""
    if selection.everyone:
        return math.prod(shape)
    return sum(math.prod(map(len, box)) for box in selection.boxes)
