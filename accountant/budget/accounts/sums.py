"""Sums of charges per cell, as they change (held.py: what they are, and how they are read)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import prod
from operator import add, sub

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts.arrays import add_to, add_to_cells, extended, lifted, times_up
from accountant.budget.accounts.classes import Classes, Space
from accountant.budget.accounts.growing import Growth
from accountant.budget.accounts.held import Held
from accountant.budget.accounts.part import Integers
from accountant.budget.accounts.pieces import size_of
from accountant.budget.accounts.touched import MOST, Touched, holds, places_in
from accountant.budget.columns import Take, integers, raw
from accountant.budget.population.selection import Selection


class Sums(Held):
    """Sums per cell in ``rows`` currencies. The caller guards against overflow."""

    __slots__ = ()

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
        if self.classes is not None:
            inside = self.classes.align(selection)
            add_to(self._own(), inside, finite, sign)
            if any(infinite):
                add_to(self._own_infinite(), inside, infinite, sign)
            return
        cells = self._cells
        if cells is None and (touched := self._few_touched(selection)) is not None:
            places = places_in(selection, self.shape)
            self._touched, self._tops = touched.plus(places, finite, infinite, sign), {}
            return
        if cells is None or self._shared or self._tops:
            cells = self._own()
        add_to_cells(cells, selection, finite, sign)
        if any(infinite):
            add_to_cells(self._own_infinite(), selection, infinite, sign)

    def _few_touched(self, selection: Selection) -> Touched | None:
        """Return the cells that are held apart, if with those selected they are few enough."""
        touched = self._touched
        if touched is None:
            if self.classes is not None or not holds(self.shape):
                return None
            touched = Touched.nothing(self.rows)
        return touched if touched.places.size + size_of(selection) <= MOST else None

    def kinds(self, row: int, most: int) -> tuple[list[int], Sums]:
        """Return the values of a row up to ``most``, which stands for all above, and in one row of
        which of them each cell is, by its place.
        """
        values, of = np.unique(np.minimum(self.cells()[row], most), return_inverse=True)
        return values.tolist(), Sums.of_kinds(self.space, of)

    @classmethod
    def of_kinds(cls, space: Space, kinds: Integers) -> Sums:
        """Return one row that holds ``kinds``, of all cells or of all classes."""
        found = cls(1, space)
        found._cells = kinds.reshape(1, *found.sides)
        return found

    def shifted(self, kinds: Sums, columns: Integers) -> Sums:
        """Return these sums with one of ``columns`` (rows, kinds) added in each cell."""
        twin = self.over()
        cells = twin._own()
        cells += columns[:, kinds.cells()[0]]
        return twin

    def to_classes(self, classes: Classes, firsts: Integers) -> None:
        """Keep sums by these classes from now on: each holds what the cell, or the class of before,
        at its place of ``firsts`` holds.
        """
        held = [one.reshape(self.rows, -1)[:, firsts] for one in self.by_cell()]
        self._touched, self._shared, self._tops, self._room = None, False, {}, None
        self._cells, self._infinite = (*held, None, None)[:2]
        self.space = classes

    def _grown(self, growth: Growth, inherit: bool) -> None:
        """Append cells, by class. Sums stand for nothing in classes that they do not know."""
        if inherit:
            finite, infinite = self._arrays()
            self._cells = None if finite is None else growth.inherited(finite)
            self._infinite = None if infinite is None else growth.inherited(infinite)
            self._shared, self._tops, self._room = False, {}, None
        self.space = growth.classes

    def extend(self, axis: int, by: int, inherit: bool, growth: Growth | None = None) -> None:
        """Append ``by`` values on ``axis``. A new cell inherits the largest sum along the axis, for
        its members may have come from any of those cells, unless they are attested new: then it
        begins with the sums of everyone. ``growth`` says how sums by class grow.
        """
        if growth is not None:
            self._grown(growth, inherit)
            return
        self._spread()
        shape = list(self.shape)
        shape[axis] += by
        self.space = tuple(shape)
        self._cells = extended(self._cells, axis + 1, by, inherit)
        self._infinite = extended(self._infinite, axis + 1, by, inherit)
        self._shared, self._tops = False, {}

    def to_cells(self, kept: Sequence[int], kept_infinite: Sequence[int]) -> None:
        """Move what everyone has beyond ``kept`` into the cells there are: their sums stay."""
        more = list(map(sub, self.everyone, kept))
        infinite = list(map(sub, self.everyone_infinite, kept_infinite))
        wide = (-1, *(1,) * len(self.sides))
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
            cells = self._own()  # of as many classes as theirs
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
            cells[row] = times_up(cells[source], factor)
        if self._infinite is not None:
            counts = self._own_infinite()
            counts[row] = counts[source] + closed

    def lift(self, least: Sequence[int], least_infinite: Sequence[int]) -> None:
        """Raise every cell's sums to at least these, and those of cells yet to come."""
        self._spread()
        self._cells, self.everyone = lifted(self._cells, self.everyone, least)
        self._room = None
        self._infinite, self.everyone_infinite = lifted(
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
        twin = Sums(self.rows, self.space)
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

    def by(self, classes: Classes | None) -> Sums:
        """Take a reader's view of the classes, where sums are kept by class; return these sums."""
        self.space = classes or self.space
        return self

    def flatten(self) -> None:
        """Drop cells that hold nothing: the first narrower charge was taken back."""
        self._cells = self._infinite = self._touched = self._room = None
        self._shared, self._tops = False, {}

    def _spread(self) -> None:
        """Make arrays of all cells of the few that are held apart, if there are any."""
        if self._touched is not None:
            self._cells, self._infinite = self._arrays()
            self._touched, self._shared = None, False

    def _own(self) -> Integers:
        """Return the cells for writing, of all cells or of all classes."""
        self._spread()
        self._tops = {}
        if self._cells is None:
            self._cells = np.zeros((self.rows, *self.sides), dtype=np.int64)
        elif self.classes is not None:
            self._grow(self.classes)
        elif self._shared:
            self._cells = self._cells.copy()
            if self._infinite is not None:
                self._infinite = self._infinite.copy()
        self._shared = False
        return self._cells

    def _grow(self, classes: Classes) -> None:
        """Own a column for each class."""
        cells, count = self._cells, classes.count
        assert cells is not None  # noqa: S101 for the type checker
        known = cells.shape[1]
        if known == count and not self._shared:
            return
        if self._shared or self._room is None or self._room.shape[1] < count:
            self._room = np.empty((self.rows, count + count // 8), dtype=np.int64)
            self._room[:, :known] = cells
        if known < count:
            from_ = classes.ancestors(np.arange(known, count), known)
            self._room[:, known:count] = np.where(from_ < 0, 0, self._room[:, from_])
        self._cells = self._room[:, :count]
        if self._infinite is not None:
            self._infinite = self._columns(self._infinite, np.arange(count))

    def _own_infinite(self) -> Integers:
        """Return the infinities by cell for writing."""
        cells = self._own()
        if self._infinite is None:
            self._infinite = np.zeros(cells.shape, dtype=np.int64)
        return self._infinite

    def dump(self) -> list[bytes]:
        """Yield the sums of everyone and the cells, as far as there are any, for ``load``."""
        everyone = np.array([self.everyone, self.everyone_infinite], dtype=np.int64)
        if self.classes is None:
            return [raw(sums) for sums in (everyone, *self._arrays()) if sums is not None]
        held = [one for one in (self._cells, self._infinite) if one is not None]
        known = [np.array([len(one[0])]) for one in held[:1]]  # how many classes
        return [raw(np.ascontiguousarray(sums)) for sums in (everyone, *known, *held)]

    @property
    def parts_kept(self) -> int:
        """How many arrays of cells there are: none, sums, sums and infinities."""
        if self._touched is not None:
            return 1 + (self._touched.infinite is not None)
        return (self._cells is not None) + (self._infinite is not None)

    @classmethod
    def load(cls, take: Take, rows: int, space: Space, kept: int) -> Sums:
        """Load what ``dump`` wrote with ``parts_kept``. Raise ValueError if it is not there."""
        sums = cls(rows, space)
        sums.everyone, sums.everyone_infinite = integers(take, 2 * rows).reshape(2, rows).tolist()
        shape = sums.shape
        if sums.classes is not None and kept > 0:
            shape = (int(integers(take, 1)[0]),)
            if not 0 < shape[0] <= sums.classes.count:
                raise ValueError("sums are by more classes than there are")
        if kept > 0:
            sums._cells = integers(take, rows * prod(shape)).reshape(rows, *shape)
        if kept > 1:
            sums._infinite = integers(take, rows * prod(shape)).reshape(rows, *shape)
        if sums._cells is not None and sums.classes is None:
            touched = sums._touched = Touched.of(sums._cells, sums._infinite)
            if touched is not None:
                sums._cells = sums._infinite = None
        return sums

    def __eq__(self, other: object) -> bool:
        """Compare all sums, and those of everyone: with these cells to come begin."""
        if not isinstance(other, Sums):
            return NotImplemented
        if (self.rows, self.shape, self.flat) != (other.rows, other.shape, other.flat):
            return False
        return (
            self.everyone == other.everyone
            and self.everyone_infinite == other.everyone_infinite
            and (self.flat or _same_cells(self, other))
        )

    __hash__ = None  # type: ignore[assignment] # it changes


def _same_cells(one: Sums, other: Sums) -> bool:
    """Return whether all cells hold the same, beside the same sums of everyone."""
    arrays = one._cells, other._cells, one._infinite, other._infinite
    if one.classes is not None or arrays[0] is None or arrays[1] is None:
        return bool(np.equal(*_comparable(one, other)).all())
    pairs = (arrays[:2], arrays[2:])  # row by row, until one differs: there may be a million cells
    return all(_same_rows(mine, theirs) for mine, theirs in pairs)


def _same_rows(mine: Integers | None, theirs: Integers | None) -> bool:
    """Return whether two arrays are the same; None holds nothing."""
    if mine is theirs:
        return True
    if mine is None or theirs is None:
        some = mine if mine is not None else theirs
        return some is None or not some.any()
    return all(map(np.array_equal, mine, theirs))


def _comparable(*both: Sums) -> Iterator[Integers]:
    """Yield all sums of both in one layout: of the few cells that they hold apart, by class if they
    share the classes, else by cell.
    """
    if (few := both[0].stacked_apart(*both[1:])) is not None:
        yield from few
        return
    classes = [one.classes for one in both]
    shared = classes[0] and classes[1] and classes[0].same(classes[1])
    for one, kept in zip(both, classes, strict=True):
        stacked = one.stacked()
        yield stacked if kept is None or shared else kept.spread(stacked)
