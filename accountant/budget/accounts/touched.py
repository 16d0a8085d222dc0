"""What few cells of many hold beside everyone, by the cell: an array over all cells would be zeros.

All other cells hold nothing beside everyone, so that one of them stands for all. What is read and
written grows with the cells that were ever charged and those that are selected, never with all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import prod
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts.part import Integers
from accountant.budget.population.selection import Layout, Selection

Shape = tuple[int, ...]
MANY: Final = 2**16
"""Cells from which on few of them are held apart; an array of fewer is copied in a millisecond."""
MOST: Final = 2**15
"""Cells that are held apart; each narrow charge copies their sums."""
_NARROW: Final = 2**12
"""Cells up to which those of a box are looked up one by one among the touched ones."""


class Touched(NamedTuple):
    """Cells with their sums; immutable. ``places`` are positions in row-major order, ascending."""

    places: Integers
    finite: Integers
    """(rows, places)"""
    infinite: Integers | None = None
    """Numbers of infinite charges (rows, places); None as long as there is none."""

    @classmethod
    def nothing(cls, rows: int) -> Touched:
        """Return no cell."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros((rows, 0), dtype=np.int64))

    @classmethod
    def of(cls, cells: Integers, infinite: Integers | None) -> Touched | None:
        """Return what arrays over all cells (rows, *shape) hold; None if that is too much."""
        if not holds(cells.shape[1:]):
            return None
        places = _charged(cells, infinite)
        return None if places.size > MOST else cls.among(places, cells, infinite)

    @classmethod
    def among(cls, places: Integers | None, cells: Integers, infinite: Integers | None) -> Touched:
        """Return what arrays over all cells (rows, *shape) hold at ``places``; None: wherever they
        hold anything.
        """
        places = _charged(cells, infinite) if places is None else places
        held = (one.reshape(len(one), -1) for one in (cells, infinite) if one is not None)
        return cls(places, *(one[:, places] for one in held))

    def plus(
        self, new: Integers, finite: Sequence[int], infinite: Sequence[int], sign: int
    ) -> Touched:
        """Return these with a charge added to the cells at ``new``, or subtracted."""
        places, sums, counts = self
        if not (known := self.holding(new)).all():
            missing = np.sort(new[~known])
            at = np.searchsorted(places, missing)
            places, sums = np.insert(places, at, missing), np.insert(sums, at, 0, axis=1)
            counts = None if counts is None else np.insert(counts, at, 0, axis=1)
        at = np.searchsorted(places, new)
        sums = _added(sums, at, finite, sign)
        if any(infinite):
            counts = _added(np.zeros_like(sums) if counts is None else counts, at, infinite, sign)
        return Touched(places, sums, counts)

    def holding(self, places: Integers) -> NDArray[np.bool_]:
        """Return which of ``places`` are among these."""
        if not self.places.size:
            return np.zeros(len(places), dtype=np.bool_)
        at = np.searchsorted(self.places, places)
        at[at == len(self.places)] = 0
        found: NDArray[np.bool_] = self.places[at] == places
        return found

    def arrays(self, shape: Shape) -> Iterator[Integers]:
        """Yield the finite sums over all cells (rows, *shape); then the infinite, if any are."""
        for one in self[1:]:
            if one is not None:
                whole = np.zeros((len(one), prod(shape)), dtype=np.int64)
                whole[:, self.places] = one
                yield whole.reshape(len(one), *shape)

    def at(self, places: Integers) -> Integers:
        """Return what the cells at ``places`` hold: finite sums, below them the numbers of infinite
        charges (2 x rows, places).
        """
        rows, known = len(self.finite), self.holding(places)
        found = np.zeros((2 * rows, len(places)), dtype=np.int64)
        here = np.searchsorted(self.places, places[known])
        found[:rows, known] = self.finite[:, here]
        if self.infinite is not None:
            found[rows:, known] = self.infinite[:, here]
        return found

    def within(self, layout: Layout | None, shape: Shape) -> Touched:
        """Return the cells of a box (None: of all) by their places in the box, with one for all
        those that hold nothing. That one is the first of them, so that of cells with equal sums the
        first in row-major order is the first here, too.
        """
        if layout is None:
            at, where = np.arange(len(self.places)), self.places
            size = prod(shape)
        else:
            at, where = self._in_box(layout, shape)
            size = prod(map(len, layout.sides))
        first = _first_left_out(where)
        finite = self.finite[:, at]
        infinite = None if self.infinite is None else self.infinite[:, at]
        if first < size:
            spot = int(np.searchsorted(where, first))
            where, finite = np.insert(where, spot, first), np.insert(finite, spot, 0, axis=1)
            infinite = None if infinite is None else np.insert(infinite, spot, 0, axis=1)
        return Touched(where, finite, infinite)

    def _in_box(self, layout: Layout, shape: Shape) -> tuple[Integers, Integers]:
        """Return which of these cells are in a box, by number, and their places in it."""
        if prod(map(len, layout.sides)) <= _NARROW:
            there = places_of(layout, shape)
            where = np.flatnonzero(self.holding(there))
            return np.searchsorted(self.places, there[where]), where
        at, where = np.arange(len(self.places)), np.zeros(len(self.places), dtype=np.int64)
        for axis, side in enumerate(layout.sides):
            stride = prod(shape[axis + 1 :])
            position = np.full(shape[axis], -1)
            position[np.asarray(side)] = np.arange(len(side))
            found = position[self.places[at] // stride % shape[axis]]
            inside = found >= 0
            at, where = at[inside], where[inside] * len(side) + found[inside]
        return at, where


def _charged(cells: Integers, infinite: Integers | None) -> Integers:
    """Return the places of the cells that hold anything."""
    held = (one.reshape(len(one), -1) for one in (cells, infinite) if one is not None)
    return np.flatnonzero(np.logical_or.reduce([one.any(axis=0) for one in held]))


def holds(shape: Shape) -> bool:
    """Return whether cells of an array of ``shape`` are so many that few are held apart."""
    return prod(shape) >= MANY


def places_in(selection: Selection, shape: Shape) -> Integers:
    """Return the places of the selected cells, box after box."""
    return np.concatenate([places_of(layout, shape) for layout in selection.layouts])


def places_of(layout: Layout, shape: Shape) -> Integers:
    """Return the places of the cells of a box in an array of ``shape``, ascending."""
    found = np.zeros((), dtype=np.int64)
    for side, size in zip(layout.sides, shape, strict=True):
        found = found[..., np.newaxis] * size + np.asarray(side, dtype=np.int64)
    return found.reshape(-1)


def places_apart(each: Sequence[Touched], shape: Shape) -> Integers:
    """Return the places of all cells that any of ``each`` hold, with one for all others."""
    places = reduce(np.union1d, (one.places for one in each))
    other = _first_left_out(places)
    if other < prod(shape):
        places = np.insert(places, np.searchsorted(places, other), other)
    found: Integers = places
    return found


def _first_left_out(places: Integers) -> int:
    """Return the least number that is not among ``places``, which ascend."""
    gaps = np.flatnonzero(places != np.arange(len(places)))
    return int(gaps[0]) if gaps.size else len(places)


def _added(sums: Integers, at: Integers, column: Sequence[int], sign: int) -> Integers:
    after = sums.copy()
    after[:, at] += sign * np.array(column, dtype=np.int64).reshape(-1, 1)
    return after
