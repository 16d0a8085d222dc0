"""What requests that wait have in common: those about the same are a line with the same accounts.

Within a line requests differ only in what they cost. So all that the policy says about them is
worked out once a line, and a request is compared by integers that are known of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from accountant.budget.errors import Problem
from accountant.budget.request import prepare, selected
from accountant.budget.rules.at_most import AtMostRule
from accountant.budget.rules.base import HOLDING, View
from accountant.budget.rules.purpose import PurposeRule
from accountant.budget.waiting.asked import About, Waiting, least_of
from accountant.budget.waiting.looking import ENDLESS, Room
from accountant.budget.waiting.queue import MOST
from accountant.budget.waiting.shares import Shares
from accountant.privacy.units import orders_in

if TYPE_CHECKING:
    from accountant.budget.bill import Bill
    from accountant.budget.grants import AccountKey
    from accountant.budget.population.selection import Selection
    from accountant.budget.rules.base import Rule
    from accountant.budget.state import Counted, State
    from accountant.budget.waiting.queue import Cell, Place, Tight
    from accountant.budget.waiting.tree import Key, Need
    from accountant.privacy.curves import Orders
    from accountant.privacy.units import Axis

_SCREENING: Final = (AtMostRule, PurposeRule)
"""Kinds of rules that read what the requests of a line have in common, and a total; less of that
never makes them fire.
"""
_CELLS: Final = 64
"""Cells of an account that are tried for a line."""
_PLACES: Final = 4
"""Places that a line begins with."""


class Within(NamedTuple):
    """An account that the requests of a line count in, of a limit that may hold them up."""

    unit: str
    cells: Selection
    """The cells of the account that are charged."""
    currencies: Axis
    discounts: tuple[int, ...]
    """By currency, how much more than usual a context admits: a cell's room is told by the usual
    amount. Empty if nothing is."""

    def need(self, bill: Bill, counts: tuple[int, int]) -> Need:
        """Return what a cell has to have left at least: nothing in a currency without a price."""
        charge = least_of(bill.to(self.unit), counts)
        finite, infinite = charge.finite, charge.infinite
        need = tuple(
            [
                0 if i is None else ENDLESS if infinite[i] else finite[i]
                for i in _rows(charge.axis, self.currencies)
            ]
        )
        if not self.discounts:
            return need
        return tuple([each - less for each, less in zip(need, self.discounts, strict=True)])

    def holds(self, cell: Cell) -> bool:
        """Return whether a cell is charged."""
        return self.cells.everyone or any(
            all(at in side for at, side in zip(cell, box, strict=True)) for box in self.cells.boxes
        )

    def some(self, shape: tuple[int, ...]) -> Cell:
        """Return a cell that is charged."""
        if self.cells.everyone:
            return (0,) * len(shape)
        return tuple(min(side) for side in self.cells.boxes[0])


@lru_cache(maxsize=1_024)
def _rows(axis: Axis, currencies: Axis) -> tuple[int | None, ...]:
    return tuple(axis.index(one) if one in axis else None for one in currencies)


class Line:
    """What the policy in force says of all requests that are about the same. Raises Problem if none
    of them could be asked now.
    """

    def __init__(self, state: State, about: About, selection: Selection) -> None:
        if about.allotment is not None:
            state.known_allotment(about.allotment)
        on, adopted = state.reach(about.asked), state.adopted
        view = View.of_line(state, on.charged, about, selection)
        route = state.route(on.charged, about.by, about.purpose, about.allotment)
        guards = [state.datasets[name] for name in on.charged]
        self.open = adopted is None or not all(map(adopted.guards, guards))
        """No limit covers one of the datasets: nothing is granted (rules/built_in.py)."""
        self.within = dict(_accounts(state, route.limits, about, selection))
        self._shares = Shares(state, route.limits, selection)
        self._view = view
        rules = adopted.policy.rules if adopted else ()
        self._screens = [one for one in rules if _screens(one) and one.id in route.rules]

    def key(self, bill: Bill, sequence: int) -> Key:
        """Return the place of a request in the policy's order."""
        return self._shares.key(bill, sequence)

    def screened(self, waiting: Waiting, bill: Bill) -> bool:
        """Return whether a rule holds a request up that no budget helps with."""
        if not self._screens:
            return False
        self._view.total = least_of(bill.total, waiting.counts)
        found = (rule.compare(self._view) for rule in self._screens)
        return any(one is not None and one.fired for one in found)

    def need(self, place: Place, waiting: Waiting, bill: Bill) -> Need:
        """Return what a request needs at a place of the line, at least."""
        return self.within[place[0]].need(bill, waiting.counts)

    def failing(self, tight: Tight, room: Room, waiting: Waiting, bill: Bill) -> Iterator[Place]:
        """Yield a few places that are known to have held something up, and that do not have left
        what a request needs there.
        """
        left = _PLACES
        for key, within in self.within.items():
            need = within.need(bill, waiting.counts)
            for cell in list(tight.get(key, ()))[-_CELLS:]:
                if left and within.holds(cell) and not room.at((key, cell))(need):
                    yield key, cell
                    left -= 1

    def some(self, state: State) -> Place | None:
        """Return a place that the requests count in; None if no limit may hold them up."""
        shape = state.people().shape
        return next(((key, one.some(shape)) for key, one in self.within.items()), None)


def _screens(rule: Rule) -> bool:
    return rule.action in HOLDING and type(rule) in _SCREENING


def _accounts(
    state: State, counted: Iterable[Counted], about: About, selection: Selection
) -> Iterator[tuple[AccountKey, Within]]:
    for rule, epoch, key in counted:
        cells = rule.cells(state.people(), selection) if rule.subjects else selection
        if cells is None or rule.action not in HOLDING:
            continue
        most = rule.capacity_for(epoch, about.by, about.purpose)
        sides = zip(epoch.capacity.sides, most.sides, strict=True)
        discounts = tuple(max(0, more - usual) for (_, usual), (_, more) in sides)
        currencies = tuple(currency for currency, _ in epoch.capacity.sides)
        charged = state.cells(key.unit, cells)
        yield key, Within(key.unit, charged, currencies, discounts if any(discounts) else ())


class Lines:
    """The lines of a ledger, until a policy, a dataset or the population changes."""

    def __init__(self, state: State) -> None:
        self._terms = state.adopted, state.population
        self._lines: dict[About, Line | None] = {}
        self._selections: dict[bytes, Selection] = {}

    def still(self, state: State) -> bool:
        """Return whether they still are what the ledger says, and not too many."""
        adopted, people = self._terms
        same = adopted is state.adopted and people is state.population
        return same and len(self._lines) <= 2 * MOST

    def of(self, state: State, waiting: Waiting) -> Line | None:
        """Return the line of a request; None if it could not be asked now."""
        about = waiting.about
        if about not in self._lines:
            try:
                self._lines[about] = Line(state, about, self._selected(state, waiting))
            except Problem:
                self._lines[about] = None
        return self._lines[about]

    def _selected(self, state: State, waiting: Waiting) -> Selection:
        subjects = waiting.about.subjects
        if (found := self._selections.get(subjects)) is None:
            found = selected(state.people(), waiting.asks().subjects)
            self._selections[subjects] = found
        return found


def bill_of(state: State, waiting: Waiting) -> Bill:
    """Return what a request costs on the terms in force: as it did when it came, unless the bounds
    or the Renyi orders have changed. Raises Problem if it cannot be priced.
    """
    if waiting.engine == state.custody.engine and _has(waiting.bill.total.axis, state.orders):
        return waiting.bill
    repriced, terms = state.waiting.repriced, (state.custody.engine, state.orders)
    before = repriced.get(waiting.sequence)
    if before is None or before[:2] != (waiting, terms):
        bill = prepare(state, waiting.by, waiting.asks(), state.time).costs.bill
        before = repriced[waiting.sequence] = waiting, terms, bill
    priced: Bill = before[2]
    return priced


@lru_cache(maxsize=256)
def _has(axis: Axis, orders: Orders) -> bool:
    return not set(orders) - set(orders_in(axis))
