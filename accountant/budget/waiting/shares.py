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
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from accountant.privacy.units import Currency

if TYPE_CHECKING:
    from accountant.budget.bill import Bill
    from accountant.budget.population.selection import Box, Selection
    from accountant.budget.state import Counted, State
    from accountant.budget.waiting.asked import Waiting
    from accountant.budget.waiting.groups import Groups
    from accountant.budget.waiting.tree import Key

Order = Literal["arrival", "dominant_share", "efficiency"]
ARRIVAL: Final[Order] = "arrival"
_NEVER: Final = 10**60
"""More than any share that is finite: of what a limit has nothing of, or of no finite cost."""


class _Share(NamedTuple):
    """A blocking limit in one account: the unit that it counts for, and what one unit of loss is of
    the whole, by currency. Shares are in whole numbers: parts of what all limits divide.
    """

    unit: str
    delta: int | None
    others: tuple[tuple[Currency, int | None], ...]
    """None: it has nothing of that."""
    box: Box | None
    """The cells that it is about; None: all of them."""


class Shares:
    """The keys of requests that are about the same: a smaller key is admitted first."""

    def __init__(self, state: State, counted: Iterable[Counted]) -> None:
        self._order: Order = state.adopted.policy.order if state.adopted else ARRIVAL
        if self._order == ARRIVAL:
            return
        self._whole = _whole(state)
        self._each = list(self._shares(state, counted))

    def _shares(self, state: State, counted: Iterable[Counted]) -> Iterator[_Share]:
        for rule, epoch, key in counted:
            if rule.action != "block":
                continue
            each = {
                currency: self._whole // most if most > 0 else None
                for currency, most in epoch.capacity.sides
            }
            delta = each.pop(Currency.DELTA)
            box = rule.box(state.people()) if rule.subjects else None
            yield _Share(key.unit, delta, tuple(each.items()), box)

    def key(self, bill: Bill, waiting: Waiting, groups: Groups) -> Key:
        """Return the place of a request in the order; a place that is no later if its ``bill`` is
        without some currencies: it takes nothing of them.
        """
        if self._order == ARRIVAL:
            return 0, waiting.sequence
        group = waiting.subjects
        about = [one for one in self._each if one.box is None or groups.meet(group, one.box)]
        found = [self._of(bill, one) for one in about]
        if self._order == "dominant_share":
            return max(found, default=0), waiting.sequence
        return sum(found) * groups.of(group).cells, waiting.sequence

    def _of(self, bill: Bill, share: _Share) -> int:
        """Return the share of one limit that a request takes."""
        charge = bill.to(share.unit)
        known = set(charge.axis)
        least = min(
            self._part(charge.units(currency), each) if currency in known else 0
            for currency, each in share.others
        )
        return max(self._part(charge.units(Currency.DELTA), share.delta), least)

    def _part(self, units: int | None, each: int | None) -> int:
        if units == 0:
            return 0
        return self._whole * _NEVER if units is None or each is None else units * each


def _whole(state: State) -> int:
    """Return a number that each capacity of a blocking limit divides."""
    if state.adopted is None:
        return 1
    limits, epochs = state.adopted.policy.limits, state.adopted.epochs
    blocking = [epochs[rule.id].capacity.sides for rule in limits if rule.action == "block"]
    return math.lcm(*(most for sides in blocking for _, most in sides if most > 0))


def cells_in(selection: Selection, shape: tuple[int, ...]) -> int:
    """Return how many cells are selected, of a population of that shape."""
    if selection.everyone:
        return math.prod(shape)
    return sum(math.prod(map(len, box)) for box in selection.boxes)
