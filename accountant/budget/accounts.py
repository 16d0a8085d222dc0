"""Accounts: integer arrays with a currency axis and one place per cell.

An account holds what was *used* (spent or reserved) and, of that, what is only *reserved*.
The currency axis has every currency twice: the finite sum, then the number of infinite charges
beside it. Charges to everyone stay one vector; the array of cells is made on the first narrower
charge, so an account of a million cells costs nothing until somebody needs the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accountant.budget.selection import Selection, index_of
from accountant.privacy.gates import Capacity
from accountant.privacy.units import AXIS, CURRENCIES, LARGEST, Charge, Currency

Integers = NDArray[np.int64]
N = len(CURRENCIES)
_MOST_PEELED: Final = 64
"""Cells that ``frontier`` looks at one by one; what then remains is bounded from above."""


def vector(charge: Charge) -> Integers:
    """A charge as a column: finite sums, then infinities."""
    return np.array(charge.finite + charge.infinite, dtype=np.int64)


def charge_from(column: Integers) -> Charge:
    """The inverse of ``vector``."""
    values = [int(v) for v in column]
    return Charge(tuple(values[:N]), tuple(values[N:]))


class Meter:
    """Sums of charges per cell: a vector for everyone plus, once needed, an array of the cells."""

    __slots__ = ("_cells", "_everyone", "shape")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._everyone: Integers = np.zeros(2 * N, dtype=np.int64)
        self._cells: Integers | None = None

    def add(self, selection: Selection, column: Integers) -> None:
        """Adds ``column`` to every cell of ``selection``; the caller guards against overflow."""
        if selection.everyone:
            self._everyone += column
            return
        if self._cells is None:
            self._cells = np.zeros((2 * N, *self.shape), dtype=np.int64)
        wide = column.reshape(-1, *(1,) * len(self.shape))
        for box in selection.boxes:
            self._cells[(slice(None), *index_of(box))] += wide

    def parts(self, selection: Selection) -> list[Integers]:
        """The sums of the selected cells, as arrays (2N, cells), one a box."""
        if self._cells is None:
            return [self._everyone.reshape(-1, 1)]
        base = self._everyone.reshape(-1, *(1,) * len(self.shape))
        if selection.everyone:
            return [(self._cells + base).reshape(2 * N, -1)]
        return [
            (self._cells[(slice(None), *index_of(box))] + base).reshape(2 * N, -1)
            for box in selection.boxes
        ]

    def cells(self) -> Integers:
        """All sums, as one array (2N, *shape)."""
        base = self._everyone.reshape(-1, *(1,) * len(self.shape))
        if self._cells is None:
            return np.broadcast_to(base, (2 * N, *self.shape))
        return self._cells + base

    def extend(self, axis: int, by: int, inherit: bool) -> None:
        """Appends ``by`` values on ``axis``. A new cell inherits the largest sum of the cells that
        its members may have come from (all along the axis), unless they are attested new.
        """
        shape = list(self.shape)
        shape[axis] += by
        self.shape = tuple(shape)
        if self._cells is None:
            return
        if inherit:
            new = self._cells.max(axis=axis + 1, keepdims=True).repeat(by, axis=axis + 1)
        else:
            shape[axis] = by
            new = np.zeros((2 * N, *shape), dtype=np.int64)
        self._cells = np.concatenate([self._cells, new], axis=axis + 1)

    def absorb(self, other: Meter, as_infinite: NDArray[np.bool_]) -> None:
        """Adds the sums of a meter of the same shape; in the currencies marked ``as_infinite``
        one infinite charge to everyone instead of the finite sums.
        """
        keep = np.concatenate([~as_infinite, np.ones(N, dtype=np.bool_)])
        self._everyone += np.where(keep, other._everyone, 0)
        self._everyone[N:] += as_infinite
        if other._cells is not None:
            wide = keep.reshape(-1, *(1,) * len(self.shape))
            theirs = np.where(wide, other._cells, 0)
            self._cells = theirs if self._cells is None else self._cells + theirs

    def restate(self, row: int, source: int, factor: Fraction, infinite: bool) -> None:
        """Makes row ``row`` the sums of row ``source`` times ``factor``, rounded up, with its
        infinities; ``infinite`` adds one more for everyone.
        """
        for sums in (self._everyone, self._cells):
            if sums is not None:
                sums[row] = _times_up(sums[source], factor)
                sums[N + row] = sums[N + source]
        self._everyone[N + row] += infinite

    def copy(self) -> Meter:
        """An independent meter with the same sums."""
        twin = Meter(self.shape)
        twin._everyone = self._everyone.copy()
        twin._cells = None if self._cells is None else self._cells.copy()
        return twin


def _times_up(sums: Integers, factor: Fraction) -> Integers:
    """Exactly, in whole numbers of any size: few distinct sums, however many cells."""
    values, where = np.unique(sums, return_inverse=True)
    products = np.array([-(-int(value) * factor // 1) for value in values], dtype=np.int64)
    return products[where].reshape(sums.shape)


@dataclass(slots=True)
class Account:
    """One accumulator: what a rule, or the lifetime, has used of one scope in one epoch."""

    used: Meter
    reserved: Meter
    bound: list[int] = field(default_factory=lambda: [0] * N)
    """All that was booked and not given back, per currency, whatever the cells: no cell holds
    more, so that nothing can wrap."""
    held: list[int] = field(default_factory=lambda: [0] * N)
    """The part of ``bound`` that may still be given back."""

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Account:
        """An account with nothing in it."""
        return cls(Meter(shape), Meter(shape))

    def bounded(self, charge: Charge) -> Charge:
        """``charge`` as this account books it: infinite where it could take a sum past 2**62."""
        finite, infinite = list(charge.finite), list(charge.infinite)
        for i, amount in enumerate(charge.finite):
            if self.bound[i] + amount > LARGEST:
                finite[i], infinite[i] = 0, infinite[i] + 1
        return Charge(tuple(finite), tuple(infinite))

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
        finite, infinite = list(final.finite), list(final.infinite)
        for i, amount in enumerate(final.finite):
            more = amount - booked.finite[i]
            self.held[i] -= booked.finite[i]
            if more > 0 and self.bound[i] + more > LARGEST:
                finite[i], infinite[i] = booked.finite[i], booked.infinite[i]
            else:
                self.bound[i] += more
        spent = Charge(tuple(finite), tuple(infinite))
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

    def copy(self) -> Account:
        """An independent account with the same sums."""
        return Account(self.used.copy(), self.reserved.copy(), list(self.bound), list(self.held))

    def absorb(self, other: Account) -> None:
        """Adds all that is used in ``other`` as spent; what could pass 2**62 becomes infinite."""
        total = _plus(self.bound, other.bound)
        over = np.array([t > LARGEST for t in total])
        self.bound = [mine if o else t for mine, t, o in zip(self.bound, total, over, strict=True)]
        self.used.absorb(other.used, over)

    def restate(self, currency: Currency, per_epsilon: Fraction) -> None:
        """Replaces the sums in ``currency`` by ``per_epsilon`` units, rounded up, for each unit of
        epsilon; what could pass 2**62 becomes infinite.
        """
        i = AXIS[currency]
        # Everyone's part and the cells' part are rounded apart.
        bound = -(-self.bound[AXIS[Currency.EPSILON]] * per_epsilon // 1) + 2
        over = bound > LARGEST
        self.bound[i] = 0 if over else int(bound)
        self.used.restate(i, AXIS[Currency.EPSILON], Fraction(0) if over else per_epsilon, over)


def _plus(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]


def room(capacity: Capacity, used: Integers, charge: Charge) -> NDArray[np.bool_]:
    """For sums ``used`` (2N, cells): which cells can take ``charge``.

    Own delta fits, and epsilon fits or the gate's own currency fits (gates.py).
    """
    own = fits(used, charge, Currency.DELTA, capacity.own_delta)
    basic = fits(used, charge, Currency.EPSILON, capacity.epsilon)
    if capacity.second_currency is None or capacity.second is None:
        return own & basic
    return own & (basic | fits(used, charge, capacity.second_currency, capacity.second))


def fits(used: Integers, charge: Charge, currency: Currency, capacity: int) -> NDArray[np.bool_]:
    """Which cells stay within ``capacity`` in one currency; an infinite charge closes it."""
    i = AXIS[currency]
    if charge.infinite[i]:
        return np.zeros(used.shape[1], dtype=np.bool_)
    fit: NDArray[np.bool_] = (used[i] <= capacity - charge.finite[i]) & (used[N + i] == 0)
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
