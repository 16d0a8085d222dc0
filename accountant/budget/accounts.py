"""Accounts: integer arrays with a currency axis and one place per cell.

An account holds what was *used* (spent or reserved) and, of that, what is only *reserved*.
Its axis names the currencies that it keeps: a rule's account those that its gates need, a lifetime
only what holds along every path. An array has every currency of the axis twice: the finite sum,
then the number of infinite charges beside it. Charges to everyone stay one vector; the array of
cells is made on the first narrower charge, so an account of a million cells costs nothing until
somebody needs the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accountant.budget.meter import Integers, Meter, Sums
from accountant.budget.selection import Selection
from accountant.privacy.filters import Capacity
from accountant.privacy.units import LARGEST, SURE, Axis, Charge, Currency

_MOST_PEELED: Final = 64
"""Cells that ``frontier`` looks at one by one; what then remains is bounded from above."""


def vector(charge: Charge) -> Integers:
    """A charge as a column: finite sums, then infinities."""
    return np.array(charge.finite + charge.infinite, dtype=np.int64)


def charge_from(axis: Axis, column: Integers) -> Charge:
    """The inverse of ``vector``."""
    values = column.tolist()
    return Charge(axis, tuple(values[: len(axis)]), tuple(values[len(axis) :]))


@dataclass(slots=True)
class Account:
    """One accumulator: what a rule, or the lifetime, has used of one scope in one epoch.

    ``axis`` begins with epsilon and delta. Sums of a selection are arrays (2 x currencies, cells).
    """

    axis: Axis
    used: Meter
    reserved: Meter
    bound: list[int]
    """All that was booked and not given back, per currency, whatever the cells: no cell holds
    more, so that nothing can wrap."""
    held: list[int]
    """The part of ``bound`` that may still be given back."""

    @classmethod
    def empty(cls, shape: tuple[int, ...], axis: Axis = SURE) -> Account:
        """An account with nothing in it."""
        n = len(axis)
        return cls(axis, Meter(2 * n, shape), Meter(2 * n, shape), [0] * n, [0] * n)

    def bounded(self, charge: Charge) -> Charge:
        """``charge`` as this account books it: in its own currencies, and infinite where it could
        take a sum past 2**62.
        """
        charge = charge.on(self.axis)
        finite, infinite = list(charge.finite), list(charge.infinite)
        for i, amount in enumerate(charge.finite):
            if self.bound[i] + amount > LARGEST:
                finite[i], infinite[i] = 0, infinite[i] + 1
        return Charge(self.axis, tuple(finite), tuple(infinite))

    def book(self, selection: Selection, charge: Charge, *, reserve: bool) -> Charge:
        """Adds ``charge`` to the selection's cells; returns what was booked (see ``bounded``)."""
        booked = self.bounded(charge)
        self.bound = _plus(self.bound, booked.finite)
        self.used.add(selection, vector(booked))
        if reserve:
            self.held = _plus(self.held, booked.finite)
            self.reserved.add(selection, vector(booked))
        return booked

    def widen(self, selection: Selection, booked: Charge, *, spend: bool) -> None:
        """A reservation of ``booked`` turns out to cover the cells of ``selection`` too. ``spend``:
        they did not inherit it.
        """
        self.reserved.add(selection, vector(booked))
        if spend:
            self.used.add(selection, vector(booked))

    def settle(self, selection: Selection, booked: Charge, final: Charge) -> None:
        """Turns a reservation of ``booked`` into a spending of ``final``, giving back the rest.

        Where a finite sum takes the place of an infinite charge it must fit like any new one;
        otherwise the currency keeps what was booked.
        """
        final = final.on(self.axis)
        finite, infinite = list(final.finite), list(final.infinite)
        for i, amount in enumerate(final.finite):
            more = amount - booked.finite[i]
            self.held[i] -= booked.finite[i]
            if more > 0 and self.bound[i] + more > LARGEST:
                finite[i], infinite[i] = booked.finite[i], booked.infinite[i]
            else:
                self.bound[i] += more
        spent = Charge(self.axis, tuple(finite), tuple(infinite))
        self.reserved.add(selection, -vector(booked))
        if spent != booked:
            self.used.add(selection, vector(spent) - vector(booked))

    def extend(self, axis: int, by: int, inherit: bool) -> None:
        """Makes room for new cells. What they inherit counts as spent, unless ``widen`` says that
        it is reserved there too; so what is given back elsewhere stays in ``bound``.
        """
        self.used.extend(axis, by, inherit)
        self.reserved.extend(axis, by, inherit=False)
        if inherit:
            self.bound = _plus(self.bound, self.held)

    def lift(self, least: Integers) -> None:
        """No cell has used less than ``least``."""
        self.used.lift(least)
        self.bound = [max(a, b) for a, b in zip(self.bound, least.tolist(), strict=False)]

    def copy(self) -> Account:
        """An independent account with the same sums."""
        used, reserved = self.used.copy(), self.reserved.copy()
        return Account(self.axis, used, reserved, list(self.bound), list(self.held))

    def over(self) -> Account:
        """A copy that shares the cells until it changes them; this account may not change then."""
        used, reserved = self.used.over(), self.reserved.over()
        return Account(self.axis, used, reserved, list(self.bound), list(self.held))

    def frozen(self) -> Account:
        """An account that stays as this one is now, whatever becomes of this one."""
        used, reserved = self.used.frozen(), self.reserved.frozen()
        return Account(self.axis, used, reserved, list(self.bound), list(self.held))

    def absorb(self, other: Account) -> None:
        """Adds what is used in ``other`` as spent, in the currencies that every account keeps; what
        could pass 2**62 becomes infinite.
        """
        total = _plus(self.bound[: len(SURE)], other.bound[: len(SURE)])
        over = np.array([t > LARGEST for t in total])
        for i in np.flatnonzero(~over):
            self.bound[i] = total[i]
        self.used.absorb(other.used, over)

    def restate(self, currency: Currency, per_epsilon: Fraction | None) -> None:
        """Replaces the sums in ``currency`` by ``per_epsilon`` units, rounded up, for each unit of
        epsilon (without it, by infinity wherever there is any); what could pass 2**62 becomes
        infinite.
        """
        i, source = self.axis.index(currency), self.axis.index(Currency.EPSILON)
        # Everyone's part and the cells' part are rounded apart.
        bound = 0 if per_epsilon is None else -(-self.bound[source] * per_epsilon // 1) + 2
        over = bound > LARGEST
        self.bound[i] = 0 if over else int(bound)
        self.used.restate(i, source, Fraction(0) if over else per_epsilon, over)


def _plus(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]


def room(capacity: Capacity, used: Integers | Sums, charge: Charge) -> NDArray[np.bool_]:
    """For sums ``used`` on the axis of ``charge``: which cells can take it.

    Own delta fits, and epsilon fits or the gate's own currency fits (privacy/filters).
    """
    own = fits(used, charge, Currency.DELTA, capacity.own_delta)
    basic = fits(used, charge, Currency.EPSILON, capacity.epsilon)
    if capacity.second_currency is None or capacity.second is None:
        return own & basic
    return own & (basic | fits(used, charge, capacity.second_currency, capacity.second))


def fits(
    used: Integers | Sums, charge: Charge, currency: Currency, capacity: int
) -> NDArray[np.bool_]:
    """Which cells stay within ``capacity`` in one currency; an infinite charge closes it."""
    i = charge.axis.index(currency)
    if charge.infinite[i]:
        return np.zeros(len(used[i]), dtype=np.bool_)
    fit: NDArray[np.bool_] = (used[i] <= capacity - charge.finite[i]) & (
        used[len(charge.axis) + i] == 0
    )
    return fit


def frontier(epsilon: Integers, second: Integers) -> list[tuple[int, int, int]]:
    """(epsilon, second, cell) of the cells that no other cell exceeds in both.

    Every gate's number grows with both sums, so its largest value lies on this frontier.
    """
    found: list[tuple[int, int, int]] = []
    left: NDArray[np.intp] = np.arange(len(epsilon))
    while left.size and len(found) < _MOST_PEELED:
        tied = left[epsilon[left] == epsilon[left].max()]
        top = tied[second[tied].argmax()]
        found.append((int(epsilon[top]), int(second[top]), int(top)))
        left = left[second[left] > second[top]]
    if left.size:
        found.append((int(epsilon[left].max()), int(second[left].max()), int(left[0])))
    return found
