"""The subject groups of requests that wait, as contiguous boxes of cells in columns.

Many requests with a group of their own each are looked at together: the tightest cell in each of
90,000 groups is found in some operations on arrays. What is found here only says where to look:
a cell is one of the group, and who fails there is told by integers (looking.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, product
from typing import Final, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from accountant.budget.accounts.integers import Integers
from accountant.budget.population.population import Population
from accountant.budget.population.selection import Box, Selection, Side, select
from accountant.budget.waiting.queue import MOST, Cell
from accountant.budget.waiting.shares import cells_in

flatten = chain.from_iterable
_BOXES: Final = 64
"""Contiguous boxes of a group that are looked at; in further ones the evaluator looks."""
Places = NDArray[np.int32]
Run = tuple[int, int]
"""The first and the last position of a part of a side without a gap."""


class Group(NamedTuple):
    """A subject group, compiled."""

    boxes: bytes
    """Contiguous boxes of its cells, the first ones: of each, on each dimension, the
    first position and the last."""
    cells: int
    """How many cells it has, in all boxes."""


class Groups:
    """The subject groups of a population, by their JSON, as far as they were asked for."""

    def __init__(self, people: Population) -> None:
        self.people = people
        self._known: dict[bytes, Group] = {}

    def still(self, people: Population) -> bool:
        """Return whether it is the same population, and they are not too many."""
        return self.people is people and len(self._known) <= 2 * MOST

    def of(self, subjects: bytes) -> Group:
        """Return a group. Raises Invalid if the population has no such."""
        if (found := self._known.get(subjects)) is None:
            found = self._known[subjects] = _compiled(self.selection(subjects), self.people.shape)
        return found

    def selection(self, subjects: bytes) -> Selection:
        """Return the cells of a group. Raises Invalid if the population has no such."""
        return select(self.people, orjson.loads(subjects) if subjects else None)

    def meet(self, subjects: bytes, box: Box) -> bool:
        """Return whether a group has cells in ``box``."""
        return self.selection(subjects).within(box) is not None


def _compiled(selection: Selection, shape: tuple[int, ...]) -> Group:
    boxes = (tuple(map(range, shape)),) if selection.everyone else selection.boxes
    sides = flatten(flatten(islice(_contiguous(boxes), _BOXES)))
    return Group(array("i", sides).tobytes(), cells_in(selection, shape))


def _contiguous(boxes: Iterable[Box]) -> Iterator[tuple[Run, ...]]:
    return flatten(product(*map(_runs, box)) for box in boxes)


def _runs(side: Side) -> list[Run]:
    if isinstance(side, range):
        return [(side[0], side[-1])]
    first, *others = sorted(side)
    found, last = list[Run](), first
    for place in others:
        if place > last + 1:
            found.append((first, last))
            first = place
        last = place
    return [*found, (first, last)]


class Boxes(NamedTuple):
    """The boxes of several groups, with the number of the group that each is of; ascending."""

    first: Places
    last: Places
    """The first cell and the last one (dimensions, boxes)."""
    of: Integers
    groups: int
    """How many groups there are."""

    @classmethod
    def among(cls, groups: Sequence[Group], dimensions: int) -> Boxes:
        """Return the boxes of groups."""
        if not dimensions:  # there is one cell, which each of them has
            nothing = np.zeros((0, len(groups)), dtype=np.int32)
            return cls(nothing, nothing, np.arange(len(groups)), len(groups))
        sides = np.frombuffer(b"".join([one.boxes for one in groups]), dtype=np.int32)
        sides = sides.reshape(-1, dimensions, 2)
        each = 2 * dimensions * sides.itemsize
        of = np.repeat(np.arange(len(groups)), [len(one.boxes) // each for one in groups])
        first, last = (np.ascontiguousarray(sides[:, :, end].T) for end in (0, 1))
        return cls(first, last, of, len(groups))

    def some(self, groups: Integers) -> Boxes:
        """Return the boxes of some of the groups, which ascend; they are numbered anew."""
        if len(groups) == self.groups:
            return self
        starts = np.searchsorted(self.of, groups)
        counts = np.searchsorted(self.of, groups, side="right") - starts
        of = np.repeat(np.arange(len(groups)), counts)
        here = np.arange(len(of)) + (starts - np.cumsum(counts) + counts)[of]
        return Boxes(self.first[:, here], self.last[:, here], of, len(groups))

    def all_over(self, shape: tuple[int, ...]) -> Boxes:
        """Return as many groups that have all cells of a population of ``shape`` each."""
        first = np.zeros((len(shape), self.groups), dtype=np.int32)
        last = first + _column(shape) - 1
        return Boxes(first, last, np.arange(self.groups), self.groups)

    def within(self, box: Box) -> Boxes:
        """Return the parts of the boxes that lie in ``box``."""
        parts = [self._within(sides) for sides in islice(_contiguous([box]), _BOXES)]
        first, last, of = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
        order = np.argsort(of, kind="stable")
        return Boxes(first[:, order], last[:, order], of[order], self.groups)

    def _within(self, sides: Sequence[Run]) -> tuple[Places, Places, Integers]:
        first = np.maximum(self.first, _column([first for first, _ in sides]))
        last = np.minimum(self.last, _column([last for _, last in sides]))
        here = (first <= last).all(axis=0)
        return first[:, here], last[:, here], self.of[here]

    def holding(self, cell: Cell) -> Integers:
        """Return the numbers of the groups that hold a cell."""
        at = _column(cell)
        of = self.of[((self.first <= at) & (self.last >= at)).all(axis=0)]
        found: Integers = of[np.diff(of, prepend=-1) != 0]
        return found

    def cells(self, places: Integers, shape: tuple[int, ...]) -> list[Cell | None]:
        """Return for each group that of the cells at ``places``, the least tight first, which is
        the tightest in it; else its first cell; None if it has no boxes.
        """
        some, starts = np.unique(self.of, return_index=True)
        cells = self.first[:, starts].astype(np.int64)
        if places.size and self.of.size:
            ranks = np.zeros(shape, dtype=np.int32)
            ranks.reshape(-1)[places] = np.arange(1, places.size + 1)
            each = _largest(ranks, [*self.first], [*self.last], 0)
            best = np.maximum.reduceat(each, starts)
            cells[:, best > 0] = np.unravel_index(places[best[best > 0] - 1], shape)
        found: list[Cell | None] = [None] * self.groups
        for group, cell in zip(some.tolist(), map(tuple, cells.T.tolist()), strict=True):
            found[group] = cell
        return found


def _column(cell: Sequence[int]) -> Places:
    return np.array(cell, dtype=np.int32).reshape(-1, 1)


def _largest(table: Places, first: list[Places], last: list[Places], axis: int) -> Places:
    """Return the largest entry of ``table`` in each box from ``first`` to ``last``: a side of any
    length is covered by two windows of a power of two, so that all boxes take one pass for each
    pair of powers (sparse tables: Bender, Farach-Colton, "The LCA problem revisited", 2000).
    """
    if axis == table.ndim:
        found: Places = table[tuple(first)]
        return found
    powers = np.frexp(last[axis] - first[axis] + 1)[1] - 1
    best = np.empty(len(powers), dtype=table.dtype)
    windows, ahead = table, [slice(None)] * axis
    for power in range(int(powers.max()) + 1):
        here = np.flatnonzero(powers == power)
        low, high = ([one[here] for one in side] for side in (first, last))
        if here.size and not power:
            best[here] = _largest(windows, low, high, axis + 1)
        elif here.size:
            ends = [*low]
            ends[axis] = high[axis] - (1 << power) + 1
            both = [np.concatenate(pair) for pair in zip(low, ends, strict=True)]
            lasts = [np.concatenate([one, one]) for one in high]
            left, right = np.split(_largest(windows, both, lasts, axis + 1), 2)
            best[here] = np.maximum(left, right)
        step = 1 << power
        windows = np.maximum(
            windows[(*ahead, slice(None, -step))], windows[(*ahead, slice(step, None))]
        )
    return best
