"""What requests that wait have in common: those about the same are a line with the same accounts.

Within a line requests differ only in their cells and in what they cost. So all that the policy says
about them is worked out once a line, and a request is compared by integers that are known of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from accountant.budget.errors import Problem
from accountant.budget.rules.at_most import AtMostRule
from accountant.budget.rules.base import HOLDING, View
from accountant.budget.rules.purpose import PurposeRule
from accountant.budget.waiting.asked import About, Waiting, least_of
from accountant.budget.waiting.groups import Boxes, Groups
from accountant.budget.waiting.looking import ENDLESS
from accountant.budget.waiting.queue import MOST
from accountant.budget.waiting.shares import Shares

if TYPE_CHECKING:
    from accountant.budget.bill import Bill
    from accountant.budget.grants import AccountKey
    from accountant.budget.population.selection import Box
    from accountant.budget.rules.base import Rule
    from accountant.budget.state import Counted, State
    from accountant.budget.waiting.tree import Key, Need
    from accountant.privacy.units import Axis

_SCREENING: Final = (AtMostRule, PurposeRule)
"""Kinds of rules that read what the requests of a line have in common, and a total; less of that
never makes them fire.
"""


class Within(NamedTuple):
    """An account that the requests of a line count in, of a limit that may hold them up."""

    counted: Counted
    everywhere: tuple[int, ...] | None
    """The shape of the population, if requests are charged on all of it whatever their group is: of
    a unit that spans several cells."""
    box: Box | None
    """The cells that the limit is about; None: all of them."""
    currencies: Axis
    discounts: tuple[int, ...]
    """By currency, how much more than usual a context admits: a cell's room is told by the usual
    amount. Empty if nothing is."""

    def need(self, bill: Bill, counts: tuple[int, int]) -> Need:
        """Return what a cell has to have left at least: nothing in a currency without a price."""
        charge = least_of(bill.to(self.counted.key.unit), counts)
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

    def charged(self, groups: Boxes) -> Boxes:
        """Return those cells of groups that are charged in the account, and that it is about."""
        if self.everywhere is not None:
            return groups.all_over(self.everywhere)
        return groups if self.box is None else groups.within(self.box)


@lru_cache(maxsize=1_024)
def _rows(axis: Axis, currencies: Axis) -> tuple[int | None, ...]:
    return tuple(axis.index(one) if one in axis else None for one in currencies)


class Line:
    """What the policy in force says of all requests that are about the same. Raises Problem if none
    of them could be asked now.
    """

    def __init__(self, state: State, about: About) -> None:
        if about.allotment is not None:
            state.known_allotment(about.allotment)
        on, adopted = state.reach(about.asked), state.adopted
        route = state.route(on.charged, about.by, about.purpose, about.allotment)
        guards = [state.datasets[name] for name in on.charged]
        self.open = adopted is None or not all(map(adopted.guards, guards))
        """No limit covers one of the datasets: nothing is granted (rules/built_in.py)."""
        self.within = dict(_accounts(state, route.limits, about))
        self._shares = Shares(state, route.limits)
        self._view = View.of_line(state, on.charged, about)
        rules = adopted.policy.rules if adopted else ()
        self._screens = [one for one in rules if _screens(one) and one.id in route.rules]

    def key(self, bill: Bill, waiting: Waiting, groups: Groups) -> Key:
        """Return the place of a request in the policy's order, or one that is no later, as its
        ``bill`` is.
        """
        return self._shares.key(bill, waiting, groups)

    def screened(self, waiting: Waiting, bill: Bill) -> bool:
        """Return whether a rule holds a request up that no budget helps with."""
        if not self._screens:
            return False
        self._view.total = least_of(bill.total, waiting.counts)
        found = (rule.compare(self._view) for rule in self._screens)
        return any(one is not None and one.fired for one in found)


def _screens(rule: Rule) -> bool:
    return rule.action in HOLDING and type(rule) in _SCREENING


def _accounts(
    state: State, counted: Iterable[Counted], about: About
) -> Iterator[tuple[AccountKey, Within]]:
    people = state.people()
    for one in counted:
        rule, epoch, key = one
        if rule.action not in HOLDING:
            continue
        most = rule.capacity_for(epoch, about.by, about.purpose)
        sides = zip(epoch.capacity.sides, most.sides, strict=True)
        discounts = tuple(max(0, more - usual) for (_, usual), (_, more) in sides)
        currencies = tuple(currency for currency, _ in epoch.capacity.sides)
        everywhere = people.shape if key.unit in people.spans else None
        box = rule.box(people) if rule.subjects else None
        yield (
            key,
            Within(one, everywhere, box, currencies, discounts if any(discounts) else ()),
        )


class Lines:
    """The lines of a ledger, until a policy, a dataset or the population changes."""

    def __init__(self, state: State) -> None:
        self._terms = state.adopted, state.population
        self._lines: dict[About, Line | None] = {}

    def still(self, state: State) -> bool:
        """Return whether they still are what the ledger says, and not too many."""
        adopted, people = self._terms
        same = adopted is state.adopted and people is state.population
        return same and len(self._lines) <= 2 * MOST

    def of(self, state: State, about: About) -> Line | None:
        """Return the line of requests; None if they could not be asked now."""
        if about not in self._lines:
            try:
                self._lines[about] = Line(state, about)
            except Problem:
                self._lines[about] = None
        return self._lines[about]


def lines_of(state: State) -> Lines:
    """Return what the ledger says now of requests that are about the same."""
    queue = state.waiting
    if queue.lines is None or not queue.lines.still(state):
        queue.lines = Lines(state)
    lines: Lines = queue.lines
    return lines


def groups_of(state: State) -> Groups:
    """Return the subject groups of the population, as far as they are compiled."""
    queue, people = state.waiting, state.people()
    if queue.groups is None or not queue.groups.still(people):
        queue.groups = Groups(people)
    groups: Groups = queue.groups
    return groups
