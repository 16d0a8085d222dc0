"""Accounts: integer arrays with a currency axis and one place per cell.

An account holds what was *used* (spent or reserved) and, of that, what is only *reserved*.
The currency axis has every currency twice: the finite sum, then the number of infinite charges
beside it. Charges to everyone stay one vector; the array of cells is made on the first narrower
charge, so an account of a million cells costs nothing until somebody needs the cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from accountant.budget.selection import Selection, index_of
from accountant.privacy.gates import Capacity
from accountant.privacy.units import AXIS, CURRENCIES, LARGEST, Charge, Currency

Integers = NDArray[np.int64]
N = len(CURRENCIES)


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

    def copy(self) -> Meter:
        """An independent meter with the same sums."""
        twin = Meter(self.shape)
        twin._everyone = self._everyone.copy()
        twin._cells = None if self._cells is None else self._cells.copy()
        return twin


@dataclass(slots=True)
class Account:
    """One accumulator: what a rule, or the lifetime, has used of one scope in one epoch."""

    used: Meter
    reserved: Meter
    ever: list[int] = field(default_factory=lambda: [0] * N)
    """All that was ever booked, per currency: bounds every cell, so that nothing can wrap."""

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Account:
        """An account with nothing in it."""
        return cls(Meter(shape), Meter(shape))

    def bounded(self, charge: Charge) -> Charge:
        """``charge`` as this account books it: infinite where it could take a sum past 2**62."""
        finite, infinite = list(charge.finite), list(charge.infinite)
        for i, amount in enumerate(charge.finite):
            if self.ever[i] + amount > LARGEST:
                finite[i], infinite[i] = 0, infinite[i] + 1
        return Charge(tuple(finite), tuple(infinite))

    def book(self, selection: Selection, charge: Charge, *, reserve: bool) -> Charge:
        """Adds ``charge`` to the selection's cells; returns what was booked (see ``bounded``)."""
        booked = self.bounded(charge)
        self.ever = [e + a for e, a in zip(self.ever, booked.finite, strict=True)]
        column = vector(booked)
        self.used.add(selection, column)
        if reserve:
            self.reserved.add(selection, column)
        return booked

    def settle(self, selection: Selection, booked: Charge, final: Charge) -> None:
        """Turns a reservation of ``booked`` into a spending of ``final``, giving back the rest.

        Where a finite sum takes the place of an infinite charge it must fit like any new one;
        otherwise the currency keeps what was booked.
        """
        finite, infinite = list(final.finite), list(final.infinite)
        for i, amount in enumerate(final.finite):
            more = amount - booked.finite[i]
            if more > 0 and self.ever[i] + more > LARGEST:
                finite[i], infinite[i] = booked.finite[i], booked.infinite[i]
            elif more > 0:
                self.ever[i] += more
        spent = Charge(tuple(finite), tuple(infinite))
        self.reserved.add(selection, -vector(booked))
        if spent != booked:
            self.used.add(selection, vector(spent) - vector(booked))

    def extend(self, axis: int, by: int, inherit: bool) -> None:
        """Makes room for new cells. What they inherit counts as spent: nobody can give it back."""
        self.used.extend(axis, by, inherit)
        self.reserved.extend(axis, by, inherit=False)

    def carried(self) -> Account:
        """A new epoch's account that starts with all that is used here as spent."""
        used = self.used.copy()
        return Account(used, Meter(used.shape), list(self.ever))

    def absorb(self, other: Account) -> None:
        """Adds all that is used in ``other`` as spent; what could pass 2**62 becomes infinite."""
        total = [a + b for a, b in zip(self.ever, other.ever, strict=True)]
        over = np.array([t > LARGEST for t in total])
        self.ever = [mine if o else t for mine, t, o in zip(self.ever, total, over, strict=True)]
        self.used.absorb(other.used, over)


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
