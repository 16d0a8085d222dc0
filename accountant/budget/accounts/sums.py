"""Sums of charges per cell, a row a currency; the number of infinite charges stands beside.

Charges to everyone stay one list of integers. Of many cells the few that were ever charged alone
are held apart (touched.py). The array of cells is made on the first narrower charge on too many of
them, and that of infinities on the first such infinite one: a population of a million cells costs
nothing until charges need the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from operator import add, sub
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts.part import Integers, Part
from accountant.budget.accounts.touched import MOST, Touched, holds, places_in, size_of
from accountant.budget.columns import Take, integers, raw
from accountant.budget.population.selection import Layout, Selection

_SMALL: Final = 4_096
"""Cells up to which all rows are added in one operation, those that add nothing included."""
FEW: Final = 500
"""Cells up to which a selection is a mask over all of them. NumPy lets other threads run while it
picks cells by index or looks for the largest, and then waits for its turn, which takes longer than
to look at all of so few cells by arithmetic, which does not.
"""


class Sums:
    """Sums per cell in ``rows`` currencies. The caller guards against overflow."""

    __slots__ = (
        "_cells",
        "_infinite",
        "_shared",
        "_tops",
        "_touched",
        "everyone",
        "everyone_infinite",
        "rows",
        "shape",
    )

    def __init__(self, rows: int, shape: tuple[int, ...]) -> None:
        self.rows, self.shape = rows, shape
        self.everyone = [0] * rows
        self.everyone_infinite = [0] * rows
        self._cells: Integers | None = None
        self._infinite: Integers | None = None
        self._touched: Touched | None = None
        """What few cells hold, as long as there are no arrays of all."""
        self._shared = False
        self._tops: dict[int, int] = {}
        """Of ``Part``, over all cells: a charge to everyone leaves them where they are. Another
        dictionary, never an emptied one, as soon as a cell changes: readers share it."""

    @property
    def flat(self) -> bool:
        """True as long as nothing narrower than everyone was ever added."""
        return self._cells is None and self._touched is None

    def add(
        self, selection: Selection, finite: Sequence[int], infinite: Sequence[int], sign: int = 1
    ) -> None:
        """Add a charge to every cell of ``selection``, or subtract it if ``sign`` is -1."""
        if selection.everyone:
            step = finite if sign > 0 else [-amount for amount in finite]
            self.everyone = list(map(add, self.everyone, step))
            if any(infinite):
                beside = zip(self.everyone_infinite, infinite, strict=True)
                self.everyone_infinite = [a + sign * b for a, b in beside]
            return
        cells = self._cells
        if cells is None and (touched := self._few_touched(selection)) is not None:
            places = places_in(selection, self.shape)
            self._touched, self._tops = touched.plus(places, finite, infinite, sign), {}
            return
        if cells is None or self._shared or self._tops:
            cells = self._own()
        _add(cells, selection, finite, sign)
        if any(infinite):
            _add(self._own_infinite(), selection, infinite, sign)

    def _few_touched(self, selection: Selection) -> Touched | None:
        """Return the cells that are held apart, if with those selected they are few enough."""
        touched = self._touched
        if touched is None:
            if not holds(self.shape):
                return None
            touched = Touched.nothing(self.rows)
        return touched if touched.places.size + size_of(selection) <= MOST else None

    @property
    def plain(self) -> bool:
        """True if no cell has an infinite charge."""
        if any(self.everyone_infinite):
            return False
        return (self._infinite if self._touched is None else self._touched.infinite) is None

    def few(self, selection: Selection) -> Integers | None:
        """Return all finite sums (rows, cells) without the sums of everyone, far below zero outside
        of the selection; None if there are too many cells.
        """
        cells = self._cells
        if cells is None or cells.size > FEW * self.rows:
            return None
        found = cells.reshape(self.rows, -1)
        return found if selection.everyone else found + selection.outside(self.shape)

    def at(self, rows: Sequence[int], at: int) -> tuple[int, ...]:
        """Return the finite sums of ``rows`` in the cell at ``at`` in row-major order. There must
        be cells.
        """
        cells, everyone = self._cells, self.everyone
        assert cells is not None  # noqa: S101 for the type checker
        size = cells.size // self.rows
        return tuple([cells.item(row * size + at) + everyone[row] for row in rows])

    def shifted(self, more: Integers) -> Sums:
        """Return these sums with ``more`` (rows, *shape) added in the cells."""
        twin = self.over()
        twin._own()[:] += more
        return twin

    def of(self, row: int, cell: tuple[int, ...] | None) -> tuple[int, int]:
        """Return the finite sum of a row in a cell, and the number of infinite charges; of None,
        those of everyone.
        """
        finite, infinite = self.everyone[row], self.everyone_infinite[row]
        if cell is None:
            return finite, infinite
        cells, closed = self._arrays()
        if cells is not None:
            finite += int(cells[(row, *cell)])
        if closed is not None:
            infinite += int(closed[(row, *cell)])
        return finite, infinite

    def parts(self, selection: Selection, *, alike: bool = False) -> list[Part]:
        """Return the sums of the selected cells, one part for each box; ``alike`` to those of other
        sums, cell by cell, also where few cells are held apart.
        """
        if self._touched is not None and not alike:
            return [self._part(self._touched, layout) for layout in _layouts(selection)]
        cells, infinite = self._arrays()
        of = cells, infinite, self.everyone, self.everyone_infinite
        if cells is None or selection.everyone:
            return [Part(*of, tops=self._tops)]
        return [Part(*of, layout.in_row) for layout in selection.layouts]

    def _part(self, touched: Touched, layout: Layout | None) -> Part:
        """Return the sums of one box (None: of all) where few cells hold any beside everyone."""
        (where, cells, infinite) = touched.within(layout, self.shape)
        return Part(cells, infinite, self.everyone, self.everyone_infinite, where=where)

    def _arrays(self) -> tuple[Integers | None, Integers | None]:
        """Return what the cells hold beside everyone, finite and infinite, as arrays of all cells,
        which may be these sums' own.
        """
        if self._touched is None:
            return self._cells, self._infinite
        finite, *infinite = self._touched.arrays(self.shape)
        return finite, infinite[0] if infinite else None

    def cells(self) -> Integers:
        """Return all finite sums (rows, *shape)."""
        return self._whole(self._arrays()[0], self.everyone)

    def stacked(self) -> Integers:
        """Return all finite sums, below them the numbers of infinite charges (2 x rows, *shape)."""
        cells, counts = self._arrays()
        infinite = self._whole(counts, self.everyone_infinite)
        return np.concatenate([self._whole(cells, self.everyone), infinite])

    def narrower(self) -> Integers:
        """Return what each cell holds beside the sums of everyone, in the rows of ``stacked``."""
        everyone = np.array(self.everyone + self.everyone_infinite, dtype=np.int64)
        return self.stacked() - everyone.reshape(-1, *(1,) * len(self.shape))

    def _whole(self, cells: Integers | None, everyone: list[int]) -> Integers:
        beside = np.array(everyone, dtype=np.int64).reshape(-1, *(1,) * len(self.shape))
        if cells is None:
            return np.broadcast_to(beside, (self.rows, *self.shape))
        return cells + beside

    def extend(self, axis: int, by: int, inherit: bool) -> None:
        """Append ``by`` values on ``axis``. A new cell inherits the largest sum along the axis, for
        its members may have come from any of those cells, unless they are attested new: then it
        begins with the sums of everyone.
        """
        self._spread()
        shape = list(self.shape)
        shape[axis] += by
        self.shape = tuple(shape)
        self._cells = _extended(self._cells, axis + 1, by, inherit)
        self._infinite = _extended(self._infinite, axis + 1, by, inherit)
        self._shared, self._tops = False, {}

    def to_cells(self, kept: Sequence[int], kept_infinite: Sequence[int]) -> None:
        """Move what everyone has beyond ``kept`` into the cells there are: their sums stay."""
        more = list(map(sub, self.everyone, kept))
        infinite = list(map(sub, self.everyone_infinite, kept_infinite))
        wide = (-1, *(1,) * len(self.shape))
        if any(more):
            self._own()[:] += np.array(more, dtype=np.int64).reshape(wide)
        if any(infinite):
            self._own_infinite()[:] += np.array(infinite, dtype=np.int64).reshape(wide)
        self.everyone, self.everyone_infinite = list(kept), list(kept_infinite)

    def absorb(self, other: Sums, as_infinite: NDArray[np.bool_]) -> None:
        """Add the sums of ``other``, whose currencies are the first of these, over the same cells;
        in those marked ``as_infinite`` one infinite charge to everyone instead of finite sums.
        """
        n = len(as_infinite)
        for row in range(n):
            self.everyone_infinite[row] += other.everyone_infinite[row] + bool(as_infinite[row])
            if not as_infinite[row]:
                self.everyone[row] += other.everyone[row]
        theirs, infinite = other._arrays()
        if theirs is not None:
            cells = self._own()
            for row in np.flatnonzero(~as_infinite).tolist():
                cells[row] += theirs[row]
        if infinite is not None:
            self._own_infinite()[:n] += infinite[:n]

    def restate(self, row: int, source: int, factor: Fraction | None, infinite: bool) -> None:
        """Make row ``row`` the sums of row ``source`` times ``factor``, rounded up, with its
        infinities; ``infinite`` adds one more for everyone. Without a factor every sum but zero
        becomes infinite.
        """
        one = self.everyone[source]
        self.everyone[row] = 0 if factor is None else int(-(-one * factor // 1))
        beside = int(factor is None and one > 0) + int(infinite)
        self.everyone_infinite[row] = self.everyone_infinite[source] + beside
        if self.flat:
            return
        cells = self._own()
        if factor is None:
            closed = (cells[source] > 0).astype(np.int64)
            if closed.any():
                self._own_infinite()
            cells[row] = 0
        else:
            closed = np.zeros((), dtype=np.int64)
            cells[row] = _times_up(cells[source], factor)
        if self._infinite is not None:
            counts = self._own_infinite()
            counts[row] = counts[source] + closed

    def most(self) -> list[int]:
        """Return the largest finite sum of any cell, by row."""
        beside = self._cells if self._touched is None else self._touched.finite
        return self._largest(beside, self.everyone)

    def most_infinite(self) -> list[int]:
        """Return the largest number of infinite charges of any cell, by row."""
        beside = self._infinite if self._touched is None else self._touched.infinite
        return self._largest(beside, self.everyone_infinite)

    def _largest(self, beside: Integers | None, everyone: list[int]) -> list[int]:
        if beside is None:
            return list(everyone)
        flat = beside.reshape(self.rows, -1)
        if self._touched is not None:  # the others hold nothing
            flat = np.pad(flat, ((0, 0), (0, 1)))
        most = flat.max(axis=1).tolist()
        return [a + b for a, b in zip(most, everyone, strict=True)]

    def lift(self, least: Sequence[int], least_infinite: Sequence[int]) -> None:
        """Raise every cell's sums to at least these, and those of cells yet to come."""
        self._spread()
        self._cells, self.everyone = _lifted(self._cells, self.everyone, least)
        self._infinite, self.everyone_infinite = _lifted(
            self._infinite, self.everyone_infinite, least_infinite
        )
        self._shared, self._tops = False, {}

    def copy(self) -> Sums:
        """Return an independent copy."""
        twin = self.over()
        if self._cells is not None:
            twin._own()
        return twin

    def over(self) -> Sums:
        """Return a view of these sums that copies the cells before it changes them; until then
        these may not change.
        """
        twin = Sums(self.rows, self.shape)
        twin.everyone, twin.everyone_infinite = list(self.everyone), list(self.everyone_infinite)
        twin._cells, twin._infinite, twin._tops = self._cells, self._infinite, self._tops
        twin._touched = self._touched
        twin._shared = self._cells is not None
        return twin

    def frozen(self) -> Sums:
        """Return sums that stay as these are now: from now on these copy their cells before
        changing.
        """
        self._shared = self._cells is not None
        return self.over()

    def flatten(self) -> None:
        """Drop cells that hold nothing: the first narrower charge was taken back."""
        self._cells = self._infinite = self._touched = None
        self._shared, self._tops = False, {}

    def _spread(self) -> None:
        """Make arrays of all cells of the few that are held apart, if there are any."""
        if self._touched is not None:
            self._cells, self._infinite = self._arrays()
            self._touched, self._shared = None, False

    def _own(self) -> Integers:
        """Return the cells for writing."""
        self._spread()
        self._tops = {}
        if self._cells is None:
            self._cells = np.zeros((self.rows, *self.shape), dtype=np.int64)
        elif self._shared:
            self._cells = self._cells.copy()
            if self._infinite is not None:
                self._infinite = self._infinite.copy()
            self._shared = False
        return self._cells

    def _own_infinite(self) -> Integers:
        """Return the infinities by cell for writing."""
        cells = self._own()
        if self._infinite is None:
            self._infinite = np.zeros_like(cells)
        return self._infinite

    def dump(self) -> list[bytes]:
        """Yield the sums of everyone and the cells, as far as there are any, for ``load``."""
        everyone = np.array([self.everyone, self.everyone_infinite], dtype=np.int64)
        return [raw(sums) for sums in (everyone, *self._arrays()) if sums is not None]

    @property
    def parts_kept(self) -> int:
        """How many arrays of cells there are: none, sums, sums and infinities."""
        if self._touched is not None:
            return 1 + (self._touched.infinite is not None)
        return (self._cells is not None) + (self._infinite is not None)

    @classmethod
    def load(cls, take: Take, rows: int, shape: tuple[int, ...], kept: int) -> Sums:
        """Load what ``dump`` wrote with ``parts_kept``. Raise ValueError if it is not there."""
        sums = cls(rows, shape)
        sums.everyone, sums.everyone_infinite = integers(take, 2 * rows).reshape(2, rows).tolist()
        if kept > 0:
            sums._cells = integers(take, rows * prod(shape)).reshape(rows, *shape)
        if kept > 1:
            sums._infinite = integers(take, rows * prod(shape)).reshape(rows, *shape)
        if sums._cells is not None:
            touched = sums._touched = Touched.of(sums._cells, sums._infinite)
            if touched is not None:
                sums._cells = sums._infinite = None
        return sums

    def __eq__(self, other: object) -> bool:
        """Compare all sums, and those of everyone: with these cells to come begin."""
        if not isinstance(other, Sums):
            return NotImplemented
        return (
            (self.rows, self.shape, self.flat) == (other.rows, other.shape, other.flat)
            and self.everyone == other.everyone
            and self.everyone_infinite == other.everyone_infinite
            and np.array_equal(self.stacked(), other.stacked())
        )

    __hash__ = None  # type: ignore[assignment] # it changes


def _layouts(selection: Selection) -> Sequence[Layout | None]:
    """Return the place of each box; None for everyone."""
    return [None] if selection.everyone else selection.layouts


def _add(cells: Integers, selection: Selection, column: Sequence[int], sign: int) -> None:
    size = cells.size // len(column)
    if size <= _SMALL:
        by = np.array(column, dtype=np.int64).reshape(-1, *(1,) * (cells.ndim - 1))
        if sign < 0:
            by = -by
        if size <= FEW and not selection.views:
            cells += by * selection.mask(cells.shape[1:])
            return
        for layout in selection.layouts:
            if layout.views:
                part = cells[layout.in_all]
                part += by
            else:
                cells[layout.in_all] += by
        return
    for layout in selection.layouts:
        for row, amount in enumerate(column):
            if amount:
                cells[(row, *layout.in_row)] += sign * amount


def _extended(cells: Integers | None, axis: int, by: int, inherit: bool) -> Integers | None:
    if cells is None:
        return None
    if inherit:
        new = cells.max(axis=axis, keepdims=True).repeat(by, axis=axis)
    else:
        shape = list(cells.shape)
        shape[axis] = by
        new = np.zeros(shape, dtype=np.int64)
    return np.concatenate([cells, new], axis=axis)


def _lifted(
    cells: Integers | None, everyone: list[int], least: Sequence[int]
) -> tuple[Integers | None, list[int]]:
    lifted = [max(a, b) for a, b in zip(everyone, least, strict=True)]
    if cells is not None:
        wide = (-1, *(1,) * (cells.ndim - 1))
        before, floor, after = (
            np.array(row, dtype=np.int64).reshape(wide) for row in (everyone, least, lifted)
        )
        cells = np.maximum(cells + before, floor) - after
    return cells, lifted


def _times_up(sums: Integers, factor: Fraction) -> Integers:
    """Multiply exactly, in integers of any size; fast because distinct sums are few."""
    values, where = np.unique(sums, return_inverse=True)
    products = np.array([-(-int(value) * factor // 1) for value in values], dtype=np.int64)
    return products[where].reshape(sums.shape)
