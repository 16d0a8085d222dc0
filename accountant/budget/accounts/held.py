"""What cells hold, as it is read: sums of charges, a row a currency; the number of infinite charges
stands beside.

Charges to everyone stay one list of integers. Of many cells the few that were ever charged alone
are held apart (touched.py). The array of cells is made on the first narrower charge on too many of
them, and that of infinities on the first such infinite one: a population of a million cells costs
nothing until charges need the cells. Of more cells there are sums by class (classes.py): arrays
whose last axis are classes, those that there were at the last narrower charge here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from operator import add
from typing import Any

import numpy as np

from accountant.budget.accounts.classes import Cell, Classes, Met, Space
from accountant.budget.accounts.numbering import Shape
from accountant.budget.accounts.part import Integers, Part
from accountant.budget.accounts.pieces import size_of
from accountant.budget.accounts.touched import Touched, places_apart
from accountant.budget.population.selection import FEW, Box, Layout, Selection, alike


class Held:
    """What each cell holds in ``rows`` currencies, to read; ``Sums`` changes it."""

    __slots__ = (
        "_cells",
        "_infinite",
        "_room",
        "_shared",
        "_tops",
        "_touched",
        "everyone",
        "everyone_infinite",
        "rows",
        "space",
    )

    def __init__(self, rows: int, space: Space) -> None:
        self.rows, self.space = rows, space
        self.everyone = [0] * rows
        self.everyone_infinite = [0] * rows
        self._cells: Integers | None = None
        self._infinite: Integers | None = None
        self._room: Integers | None = None
        """An array that the sums by class are the beginning of, so that they can grow."""
        self._touched: Touched | None = None
        """What few cells hold, as long as there are no arrays of all."""
        self._shared = False
        self._tops: dict[int, int] = {}
        """Of ``Part``, over all cells: a charge to everyone leaves them where they are. Another
        dictionary, never an emptied one, as soon as a cell changes: readers share it."""

    @property
    def classes(self) -> Classes | None:
        """The classes that sums are kept by; None where they are kept by cells."""
        return self.space if isinstance(self.space, Classes) else None

    @property
    def shape(self) -> Shape:
        """The number of values of each dimension."""
        return self.space.shape if isinstance(self.space, Classes) else self.space

    @property
    def sides(self) -> Shape:
        """The axes of the arrays beside rows: of all cells, or the number of classes."""
        return (self.space.count,) if isinstance(self.space, Classes) else self.space

    @property
    def flat(self) -> bool:
        """True as long as nothing narrower than everyone was ever added."""
        return self._cells is None and self._touched is None

    @property
    def plain(self) -> bool:
        """True if no cell has an infinite charge."""
        if any(self.everyone_infinite):
            return False
        return (self._infinite if self._touched is None else self._touched.infinite) is None

    def touched(self) -> Touched | None:
        """Return the cells that hold something beside everyone, with it; None where sums are kept
        by class.
        """
        if self.classes is not None or self._touched is not None:
            return self._touched
        if self._cells is None:
            return Touched.nothing(self.rows)
        return Touched.among(None, self._cells, self._infinite)

    def picked(self, selection: Selection) -> Integers | None:
        """Return the finite sums (rows, cells) of one box without the sums of everyone; None if
        there are too many cells, or picking them takes longer than ``few``.
        """
        cells = self._cells
        if cells is None or len(selection.boxes) != 1 or self.classes is not None:
            return None
        if selection.few:
            return cells.reshape(-1)[selection.spots(self.rows, self.shape)]
        if cells.size > FEW * self.rows:
            if size_of(selection) > FEW:
                return None
        elif not selection.views:
            return None
        return cells[selection.layouts[0].in_all].reshape(self.rows, -1)

    def few(self, selection: Selection) -> Integers | None:
        """Return all finite sums (rows, cells) without the sums of everyone, far below zero outside
        of the selection; None if there are too many cells.
        """
        cells = self._cells
        if cells is None or cells.size > FEW * self.rows or self.classes is not None:
            return None
        found = cells.reshape(self.rows, -1)
        return found if selection.everyone else found + selection.outside(self.shape)

    def of(self, row: int, cell: Cell | None) -> tuple[int, int]:
        """Return the finite sum of a row in a cell, and the number of infinite charges; of None,
        those of everyone.
        """
        finite, infinite = self.everyone[row], self.everyone_infinite[row]
        if cell is None:
            return finite, infinite
        if self._touched is not None:
            place = np.ravel_multi_index(cell, self.shape)
            finite_here, infinite_here = self._touched.at(np.array([place])).reshape(2, -1)
            return finite + int(finite_here[row]), infinite + int(infinite_here[row])
        cells, closed = self._arrays()
        if self.classes is not None:
            cell = (self.classes.number(cell),)
        if cells is not None:
            finite += int(cells[(row, *cell)])
        if closed is not None:
            infinite += int(closed[(row, *cell)])
        return finite, infinite

    def column(self, cell: Cell) -> tuple[int, ...]:
        """Return all that a cell holds: finite sums, then the numbers of infinite charges."""
        beside = *self.everyone, *self.everyone_infinite
        if self._touched is not None:
            place = np.ravel_multi_index(cell, self.shape)
            held = self._touched.at(np.array([place]))[:, 0].tolist()
        elif (cells := self._cells) is None:
            return beside
        else:
            if self.classes is not None:
                cells, counts = self._arrays()
                cell = (self.classes.number(cell),)
            else:
                counts = self._infinite
            assert cells is not None  # noqa: S101 for the type checker
            there: Any = (slice(None), *cell)
            held = cells[there].tolist()
            held += [0] * self.rows if counts is None else counts[there].tolist()
        return tuple(map(add, held, beside))

    def met(self, selection: Selection) -> Met | None:
        """Return the classes that a selection meets, where sums are kept by class."""
        return None if self.classes is None else self.classes.met(selection)

    def parts(
        self, selection: Selection, *, alike: bool = False, met: Met | None = None
    ) -> list[Part]:
        """Return the sums of the selected cells, one part for each box; ``alike`` to those of other
        sums, cell by cell, also where few cells are held apart. By class there is one part, of the
        classes that are ``met``.
        """
        if self.classes is not None and self._cells is not None:
            return [self._part_by_class(selection, met)]
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

    def _part_by_class(self, selection: Selection, met: Met | None) -> Part:
        assert self.classes is not None and self._cells is not None  # noqa: S101, PT018 (types)
        beside = self.everyone, self.everyone_infinite
        if met is None and self.classes.covers(selection):  # as many as are known here
            known = self._cells.shape[1]
            met = Met(self.classes, np.arange(known), known)
            return Part(self._cells, self._infinite, *beside, tops=self._tops, met=met)
        met = met or self.classes.met(selection)
        cells, infinite = (self._columns(one, met.numbers) for one in (self._cells, self._infinite))
        return Part(cells, infinite, *beside, met=met)

    def _columns(self, cells: Integers | None, numbers: Integers | slice) -> Integers | None:
        """Return the columns of these classes. Those of classes that are younger than the sums are
        those of their ancestors.
        """
        if cells is None or self.classes is None:
            return None
        known = cells.shape[1]
        if isinstance(numbers, slice):
            if numbers.stop <= known:
                return cells[:, numbers]
            numbers = np.arange(numbers.stop)
        from_ = self.classes.ancestors(numbers, known)
        found: Integers = cells[:, from_]
        found[:, from_ < 0] = 0
        return found

    def _arrays(self) -> tuple[Integers | None, Integers | None]:
        """Return what the cells hold beside everyone, finite and infinite, as arrays of all cells,
        or of all classes, which may be these sums' own.
        """
        if self.classes is not None:
            there = slice(0, self.classes.count)
            return self._columns(self._cells, there), self._columns(self._infinite, there)
        if self._touched is None:
            return self._cells, self._infinite
        finite, *infinite = self._touched.arrays(self.shape)
        return finite, infinite[0] if infinite else None

    def cells(self) -> Integers:
        """Return all finite sums (rows, *sides)."""
        return self._whole(self._arrays()[0], self.everyone)

    def row(self, row: int, *, infinite: bool = False) -> Integers:
        """Return the finite sums of a row, or the numbers of ``infinite`` charges: of all cells or
        classes (*sides), or one that stands for all where they are alike ().
        """
        beside = (self.everyone_infinite if infinite else self.everyone)[row]
        if self._touched is not None:
            held = self._touched[2 if infinite else 1]
            if held is None:
                return np.array(beside)
            cells = np.full(prod(self.shape), beside, dtype=np.int64)
            cells[self._touched.places] += held[row]
            return cells.reshape(self.shape)
        kept = self._infinite if infinite else self._cells
        if kept is None:
            return np.array(beside)
        if self.classes is None:
            found: Integers = kept[row]
        else:
            columns = self._columns(kept[row : row + 1], slice(0, self.classes.count))
            assert columns is not None  # noqa: S101 for the type checker
            found = columns[0]
        return found + beside if beside else found

    def stacked(self) -> Integers:
        """Return all finite sums, below them the numbers of infinite charges (2 x rows, *sides)."""
        cells, counts = self._arrays()
        finite = self._whole(cells, self.everyone)
        infinite = self._whole(counts, self.everyone_infinite)
        return np.concatenate([finite, infinite])

    def stacked_apart(self, *others: Held) -> list[Integers] | None:
        """Return the rows of ``stacked``, of these sums and of others, for the cells that any of
        them holds apart and for one of all those that hold nothing (2 x rows, cells); None where
        arrays of all cells, or classes, are kept.
        """
        each = [self, *others]
        if self.classes is None and all(one.flat and one._infinite is None for one in each):
            return [one._of_everyone() for one in each]  # as of most accounts
        held = [one._apart() for one in each]
        known = [one for one in held if one is not None]
        if len(known) < len(held):
            return None
        places = places_apart(known, self.shape)
        return [one.at(places) + sums._of_everyone() for one, sums in zip(known, each, strict=True)]

    def _of_everyone(self) -> Integers:
        """Return the sums of everyone, below them the numbers of infinite charges (2 x rows, 1)."""
        return np.array(self.everyone + self.everyone_infinite, dtype=np.int64).reshape(-1, 1)

    def _apart(self) -> Touched | None:
        """Return the cells that are held apart, none of sums that are alike in all cells."""
        arrays = self._cells is not None or self._infinite is not None
        if self.classes is not None or arrays:
            return None
        return Touched.nothing(self.rows) if self._touched is None else self._touched

    def narrower(self) -> Integers:
        """Return what each cell holds beside the sums of everyone, in the rows of ``stacked``."""
        everyone = np.array(self.everyone + self.everyone_infinite, dtype=np.int64)
        return self.stacked() - everyone.reshape(-1, *(1,) * len(self.sides))

    def beyond(self, held: Held | None = None, within: Selection | None = None) -> Integers:
        """Return what each cell holds beside everyone, as ``narrower`` does, more than in ``held``,
        which are sums by the same classes; only ``within`` some cells.
        """
        if within is not None and self.classes is not None:
            inside = self.classes.align(within)
        found = self.narrower()
        if held is not None:
            found = found - held.narrower()
        if within is None:
            return found
        part = np.zeros_like(found)
        if self.classes is not None:
            part[:, inside] = found[:, inside]
            return part
        for layout in within.layouts:
            part[layout.in_all] = found[layout.in_all]
        return part

    def groups(self, cells: Integers) -> Iterator[tuple[tuple[Box, ...], Integers]]:
        """Yield the groups of cells with the same in ``cells``, which are as ``narrower`` returns
        them, and what that is; without those that hold nothing.
        """
        if self.classes is None:
            yield from alike(cells)
            return
        columns, kinds = np.unique(cells, axis=1, return_inverse=True)
        some = columns.any(axis=0)
        of = np.where(some, np.cumsum(some) - 1, -1)[kinds.reshape(-1)]
        there = np.flatnonzero(some)
        for kind, boxes in self.classes.boxes(of):
            yield boxes, columns[:, there[kind]]

    def _whole(self, cells: Integers | None, everyone: list[int]) -> Integers:
        beside = np.array(everyone, dtype=np.int64).reshape(-1, *(1,) * len(self.sides))
        if cells is None:
            return np.broadcast_to(beside, (self.rows, *self.sides))
        return cells + beside

    def by_cell(self) -> Iterator[Integers]:
        """Yield what the cells hold beside everyone as arrays over all cells, if there are any."""
        return (one for one in self._arrays() if one is not None)

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


def _layouts(selection: Selection) -> Sequence[Layout | None]:
    """Return the place of each box; None for everyone."""
    return [None] if selection.everyone else selection.layouts
