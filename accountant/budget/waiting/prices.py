"""What requests that wait cost on the terms in force: as they did when they came, unless the bounds
or the Renyi orders have changed. Then each list of mechanisms is priced once, and only where what
is known of it does not hold the request up: its epsilons, deltas and all that has no order are what
they were, for the same bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from accountant.budget.commands.plain import read_mechanisms
from accountant.budget.request import costs_on, terms_of, waited
from accountant.privacy.units import orders_in

if TYPE_CHECKING:
    from accountant.budget.bill import Bill
    from accountant.budget.state import State
    from accountant.budget.waiting.asked import Waiting
    from accountant.privacy.units import Axis


class Prices:
    """Bills on the terms in force, as far as they were asked for."""

    def __init__(self, state: State) -> None:
        self._terms = terms_of(state)
        self._axes: dict[Axis, bool] = {}
        """Whether a charge has the orders that are wanted, by its currencies."""
        self._lists: dict[bytes, Bill] = {}
        """By the JSON of mechanisms."""
        self._bills: dict[int, tuple[Waiting, Bill]] = {}
        """By sequence, of requests that were priced anew."""

    def still(self, state: State) -> bool:
        """Return whether the terms are still in force."""
        return self._terms == terms_of(state)

    def of(self, state: State, waiting: Waiting) -> Bill:
        """Return what a request costs. Raises Problem if it cannot be priced."""
        if (bill := self.known(waiting)) is None:
            bill = self._price(state, waiting)
            self._bills[waiting.sequence] = waiting, bill
        return bill

    def least(self, state: State, waiting: Waiting) -> Bill:
        """Return what a request costs, without the currencies in which that is to be worked out
        yet. Raises Problem if it cannot be priced.
        """
        bill = self.known(waiting)
        if bill is None and waiting.engine == self._terms.engine:
            return waiting.bill
        return self.of(state, waiting) if bill is None else bill

    def stands(self, waiting: Waiting) -> bool:
        """Return whether a request costs what it did when it came, in all currencies."""
        return waiting.engine == self._terms.engine and self._has(waiting.bill.total.axis)

    def known(self, waiting: Waiting) -> Bill | None:
        """Return what a request costs, if it was priced on these terms."""
        if self.stands(waiting):
            return waiting.bill
        found = self._bills.get(waiting.sequence)
        return found[1] if found is not None and found[0] is waiting else None

    def forget(self, sequence: int) -> None:
        """Forget a request that waits no more."""
        self._bills.pop(sequence, None)

    def _has(self, axis: Axis) -> bool:
        if (found := self._axes.get(axis)) is None:
            found = self._axes[axis] = set(self._terms.orders) <= set(orders_in(axis))
        return found

    def _price(self, state: State, waiting: Waiting) -> Bill:
        """Return the price: the same for all that ask for the same mechanisms, except in a
        population in which it depends on the cells (``unplaced``).
        """
        if state.people().exchanges:
            return waited(state, waiting.by, waiting.asks(), state.time).costs.bill
        asked = orjson.loads(waiting.command)["mechanisms"]
        spelled = orjson.dumps(asked)
        if (found := self._lists.get(spelled)) is None:
            mechanisms = read_mechanisms(asked)
            found = self._lists[spelled] = costs_on(self._terms, mechanisms).bill
        return found


def prices_of(state: State) -> Prices:
    """Return what is known of prices on the terms in force."""
    queue = state.waiting
    if queue.prices is None or not queue.prices.still(state):
        queue.prices = Prices(state)
    prices: Prices = queue.prices
    return prices
