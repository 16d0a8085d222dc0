"""Meters: sums of charges per cell, a row a currency.

Charges to everyone stay one vector; the array of cells is made on the first narrower charge, so a
meter of a million cells costs nothing until somebody needs the cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import NDArray

from accountant.budget.raw import Take, integers, raw
from accountant.budget.selection import Selection, index_of

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of some cells, a row a currency; a row is only made when it is asked for."""

    cells: Integers | None
    everyone: Integers
    """What everyone has beside, by row."""

    def __getitem__(self, row: int) -> Integers:
        """One row, flat."""
        if self.cells is None:
            return self.everyone[row : row + 1]
        flat: Integers = self.cells[row].reshape(-1)
        beside = int(self.everyone[row])
        return flat + beside if beside else flat

    @property
    def size(self) -> int:
        """How many cells."""
        return 1 if self.cells is None else self.cells[0].size

    def column(self, at: int) -> Integers:
        """All sums of one cell."""
        if self.cells is None:
            return self.everyone
        cells = self.cells.reshape(len(self.cells), -1)
        column: Integers = cells[:, at] + self.everyone
        return column


class Meter:
    """Sums of charges per cell: a vector for everyone plus, once needed, an array of the cells."""

    __slots__ = ("_cells", "_everyone", "_shared", "changes", "rows", "shape")

    def __init__(self, rows: int, shape: tuple[int, ...]) -> None:
        self.rows = rows
        self.shape = shape
        self.changes = 0
        """How often it was changed: who remembers a sum can see whether it still stands."""
        self._everyone: Integers = np.zeros(rows, dtype=np.int64)
        self._cells: Integers | None = None
        self._shared = False

    def add(self, selection: Selection, column: Integers) -> None:
        """Adds ``column`` to every cell of ``selection``; the caller guards against overflow."""
        self.changes += 1
        if selection.everyone:
            self._everyone += column
            return
        cells = self._own()
        rows = np.flatnonzero(column)
        for box in selection.boxes:
            index = index_of(box)
            for row in rows:  # most charges have no infinite part: half of the rows stay
                cells[(row, *index)] += column[row]

    def parts(self, selection: Selection) -> list[Sums]:
        """The sums of the selected cells, one a box."""
        if self._cells is None or selection.everyone:
            return [Sums(self._cells, self._everyone)]
        return [
            Sums(self._cells[(slice(None), *index_of(box))], self._everyone)
            for box in selection.boxes
        ]

    @property
    def flat(self) -> bool:
        """True as long as all cells have the same sums, for nothing narrower was ever added."""
        return self._cells is None

    def cells(self) -> Integers:
        """All sums, as one array (rows, *shape)."""
        base = self._everyone.reshape(-1, *(1,) * len(self.shape))
        if self._cells is None:
            return np.broadcast_to(base, (self.rows, *self.shape))
        return self._cells + base

    def extend(self, axis: int, by: int, inherit: bool) -> None:
        """Appends ``by`` values on ``axis``. A new cell inherits the largest sum of the cells that
        its members may have come from (all along the axis), unless they are attested new.
        """
        self.changes += 1
        shape = list(self.shape)
        shape[axis] += by
        self.shape = tuple(shape)
        if self._cells is None:
            return
        if inherit:
            new = self._cells.max(axis=axis + 1, keepdims=True).repeat(by, axis=axis + 1)
        else:
            shape[axis] = by
            new = np.zeros((self.rows, *shape), dtype=np.int64)
        self._cells, self._shared = np.concatenate([self._cells, new], axis=axis + 1), False

    def absorb(self, other: Meter, as_infinite: NDArray[np.bool_]) -> None:
        """Adds the sums of a meter of the same shape, whose currencies are the first of this one's;
        in those marked ``as_infinite`` one infinite charge to everyone instead of the finite sums.
        """
        self.changes += 1
        n, half = len(as_infinite), self.rows // 2
        keep = np.concatenate([~as_infinite, np.ones(n, dtype=np.bool_)])
        place = np.concatenate([np.arange(n), half + np.arange(n)])
        theirs = np.concatenate([np.arange(n), other.rows // 2 + np.arange(n)])
        self._everyone[place] += np.where(keep, other._everyone[theirs], 0)
        self._everyone[half : half + n] += as_infinite
        if other._cells is not None:
            wide = keep.reshape(-1, *(1,) * len(self.shape))
            self._own()[place] += np.where(wide, other._cells[theirs], 0)

    def restate(self, row: int, source: int, factor: Fraction | None, infinite: bool) -> None:
        """Makes row ``row`` the sums of row ``source`` times ``factor``, rounded up, with its
        infinities; ``infinite`` adds one more for everyone. Without a factor every sum but zero
        becomes infinite.
        """
        self.changes += 1
        half = self.rows // 2
        for sums in (self._everyone, None if self._cells is None else self._own()):
            if sums is not None:
                sums[row] = 0 if factor is None else _times_up(sums[source], factor)
                sums[half + row] = sums[half + source] + (factor is None) * (sums[source] > 0)
        self._everyone[half + row] += infinite

    def most(self) -> Integers:
        """The largest sum of any cell, by row."""
        if self._cells is None:
            return self._everyone.copy()
        most: Integers = self._cells.reshape(self.rows, -1).max(axis=1) + self._everyone
        return most

    def lift(self, least: Integers) -> None:
        """Raises every cell's sums to at least ``least``, and those of cells yet to come."""
        self.changes += 1
        before, self._everyone = self._everyone, np.maximum(self._everyone, least)
        if self._cells is not None:
            wide = (-1, *(1,) * len(self.shape))
            sums = np.maximum(self._cells + before.reshape(wide), least.reshape(wide))
            self._cells, self._shared = sums - self._everyone.reshape(wide), False

    def copy(self) -> Meter:
        """An independent meter with the same sums."""
        twin = Meter(self.rows, self.shape)
        twin._everyone = self._everyone.copy()
        twin._cells = None if self._cells is None else self._cells.copy()
        return twin

    def over(self) -> Meter:
        """A meter with the same sums, which takes a copy of the cells only when it changes them;
        until then this one may not change.
        """
        twin = Meter(self.rows, self.shape)
        twin._everyone, twin._cells = self._everyone.copy(), self._cells
        twin._shared = self._cells is not None
        return twin

    def frozen(self) -> Meter:
        """A meter that stays as this one is now: from now on this one copies its cells before it
        changes them.
        """
        self._shared = self._cells is not None
        return self.over()

    def _own(self) -> Integers:
        """The cells, to be changed."""
        if self._cells is None:
            self._cells = np.zeros((self.rows, *self.shape), dtype=np.int64)
        elif self._shared:
            own = np.zeros((self.rows, *self.shape), dtype=np.int64)
            for row, sums in enumerate(self._cells):
                if sums.any():  # half of the rows are infinities: those pages are never touched
                    own[row] = sums
            self._cells, self._shared = own, False
        return self._cells

    def dump(self) -> list[bytes]:
        """What everyone has and, unless the meter is flat, the cells, for ``load``."""
        return [raw(sums) for sums in (self._everyone, self._cells) if sums is not None]

    @classmethod
    def load(cls, take: Take, rows: int, shape: tuple[int, ...], *, flat: bool) -> Meter:
        """What ``dump`` wrote. Raises ValueError if it is not there."""
        meter = cls(rows, shape)
        meter._everyone = integers(take, rows)
        if not flat:
            meter._cells = integers(take, rows * prod(shape)).reshape(rows, *shape)
        return meter

    def __eq__(self, other: object) -> bool:
        """Alike in every sum now and later: new cells begin with what everyone has."""
        if not isinstance(other, Meter):
            return NotImplemented
        return (
            (self.rows, self.shape, self.flat) == (other.rows, other.shape, other.flat)
            and np.array_equal(self._everyone, other._everyone)
            and np.array_equal(self.cells(), other.cells())
        )

    __hash__ = None  # type: ignore[assignment] # it changes


def _times_up(sums: Integers, factor: Fraction) -> Integers:
    """Exactly, in whole numbers of any size: few distinct sums, however many cells."""
    values, where = np.unique(sums, return_inverse=True)
    products = np.array([-(-int(value) * factor // 1) for value in values], dtype=np.int64)
    return products[where].reshape(sums.shape)
