"""The numbers of classes of cells, and what is known of each class."""

from __future__ import annotations

from math import prod
from threading import Lock as Mutex
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts.integers import Integers

Numbers = NDArray[np.int32]
Shape = tuple[int, ...]
NONE: Final = -1
"""The parent of a class of cells that were added: before, nobody had charged them."""
ROOM: Final = 4_096
"""Classes that there is room for at first."""


class Numbering:
    """What the views of one partition share. Only ``Classes`` changes it, under the mutex."""

    def __init__(self, shape: Shape) -> None:
        self.numbers: Numbers = np.full(shape, 0, dtype=np.int32)  # takes its memory now
        self.count = 1
        self.parents: Numbers = np.full(ROOM, NONE, dtype=np.int32)
        self.sizes: Integers = np.zeros(ROOM, dtype=np.int64)
        self.sizes[0] = prod(shape)
        self.firsts: Integers = np.zeros(ROOM, dtype=np.int64)
        """Of each class a place that none of its cells comes before."""
        self.born: Integers = np.zeros(ROOM, dtype=np.int64)
        """The stamps at which the cells of each class were added."""
        self.mutex = Mutex()

    def copy(self) -> Numbering:
        """Return an independent copy. Hold the mutex."""
        twin = object.__new__(Numbering)
        twin.numbers, twin.count, twin.mutex = self.numbers.copy(), self.count, Mutex()
        for name in ("parents", "sizes", "firsts", "born"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def add(self, parents: Numbers, sizes: Integers, firsts: Integers, born: Integers) -> None:
        """Add classes. Readers see parents before they see a number."""
        first, count = self.count, self.count + len(parents)
        new = {"parents": parents, "sizes": sizes, "firsts": firsts, "born": born}
        for name, column in new.items():
            known = getattr(self, name)
            if len(known) < count:
                room = np.zeros(count + count // 4 + ROOM, dtype=known.dtype)
                room[:first] = known[:first]
                known = room
            known[first:count] = column
            setattr(self, name, known)
        self.count = count


def counted(flat: Numbers) -> tuple[Integers, Integers]:
    """Return the numbers that are in a piece, ascending, and how often each is."""
    low, high = int(flat.min()), int(flat.max())
    if low == high:
        return np.array([low]), np.array([flat.size])
    if high - low < 4 * flat.size:
        cells = np.bincount(flat - low)
        found = np.flatnonzero(cells)
        return found + low, cells[found]
    found, cells = np.unique(flat, return_counts=True)
    return found.astype(np.int64), cells


def plus(totals: Integers, numbers: Integers, cells: Integers) -> Integers:
    """Return totals by number with more of these."""
    if numbers[-1] >= len(totals):
        room = np.zeros(2 * int(numbers[-1]) + 1, dtype=np.int64)
        room[: len(totals)] = totals
        totals = room
    totals[numbers] += cells
    return totals
