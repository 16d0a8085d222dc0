"""Cells that are added to a population whose sums are kept by class.

A new cell whose members may have come from anywhere inherits the largest sum of the cells in its
*line*: those that differ from it on the dimension that grows only. Lines that meet the same classes
inherit the same, so that their new cells are one class. Where nothing is inherited all new cells
are one class, that nobody has charged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from accountant.budget.accounts.classes import MANY, PIECE, Classes
from accountant.budget.accounts.integers import Integers
from accountant.budget.accounts.numbering import NONE, Numbers, Shape

if TYPE_CHECKING:
    from accountant.budget.accounts.sums import Sums

_BLOCK: Final = 2**20
"""Cells of the lines that are looked at together."""
_BITS: Final = 62
"""Classes up to which a set of them is a number."""
_WORTH: Final = 0.9
"""The share of classes that is left, above which classes are not merged."""
_LAST: Final = np.iinfo(np.int32).max


class Growth(NamedTuple):
    """New cells: the classes of old and new ones, and for each new class those that its cells
    inherit from.
    """

    classes: Classes
    lines: tuple[Integers, ...]

    def inherited(self, cells: Integers) -> Integers:
        """Return sums (rows, old classes) with the columns of the new classes."""
        starts = np.cumsum([0, *map(len, self.lines[:-1])])
        most = np.maximum.reduceat(cells[:, np.concatenate(self.lines)], starts, axis=1)
        return np.concatenate([cells, most], axis=1)


def grow(classes: Classes, axis: int, by: int, inherit: bool, now: int) -> Growth:
    """Return the classes of cells with ``by`` more values on ``axis``, added at stamp ``now``."""
    shape, count = classes.shape, classes.count
    beside = (*shape[:axis], *shape[axis + 1 :])
    lines: tuple[Integers, ...] = ()
    of = np.zeros(beside, dtype=np.int32)
    if inherit:
        lines, of = _lines(classes.numbers, axis)
    side = (*shape[:axis], by, *shape[axis + 1 :])
    new = np.broadcast_to(np.expand_dims(of + np.int32(count), axis), side)
    numbers = np.concatenate([classes.numbers, new], axis=axis)
    made = max(1, len(lines))
    born = np.concatenate([classes.born, np.full(made, now)])
    parents = np.concatenate([classes.parents, np.full(made, NONE, dtype=np.int32)])
    return Growth(Classes.of(numbers, parents, born), lines)


def _lines(numbers: Numbers, axis: int) -> tuple[tuple[Integers, ...], Numbers]:
    """Return the different sets of classes that lines along ``axis`` meet, and the set of each."""
    along = np.moveaxis(numbers, axis, -1)
    first, size = along.shape[:-1], along.shape[-1]
    count, few = along.size // size, int(numbers.max()) < _BITS
    step, known = max(1, _BLOCK // size), dict[bytes, int]()
    of = np.empty(count, dtype=np.int32)
    for start in range(0, count, step):
        there = np.unravel_index(np.arange(start, min(start + step, count)), first or (1,))
        block = along[there] if first else along.reshape(1, -1)
        rows, which = np.unique((_bits if few else _sets)(block), axis=0, return_inverse=True)
        found = [known.setdefault(row.tobytes(), len(known)) for row in rows]
        of[start : start + len(block)] = np.array(found, dtype=np.int32)[which.reshape(-1)]
    return tuple(_members(each, few=few) for each in known), of.reshape(first)


def _bits(block: Numbers) -> Integers:
    """Return the set of numbers in each row, as the bits of one."""
    bits: Integers = np.bitwise_or.reduce(np.left_shift(1, block.astype(np.int64)), axis=1)
    return bits.reshape(-1, 1)


def _sets(block: Numbers) -> Numbers:
    """Return the set of numbers in each row, ascending, with ``_LAST`` in its free places."""
    block = np.sort(block, axis=1)
    block[:, 1:][block[:, 1:] == block[:, :-1]] = _LAST
    block.sort(axis=1)
    return block


def _members(data: bytes, *, few: bool) -> Integers:
    """Return the numbers of a set."""
    if few:
        bits = int.from_bytes(data, sys.byteorder)
        return np.array([number for number in range(_BITS) if bits >> number & 1])
    every = np.frombuffer(data, dtype=np.int32).astype(np.int64)
    found: Integers = every[every != _LAST]
    return found


def by_class(shape: Shape, kept: Iterable[Sums], born: Integers) -> Classes:
    """Return classes of the cells of ``shape``: those hold the same in all that is ``kept`` by
    cell, and were added at the same stamp. The sums are by class from then on.
    """
    every = list(kept)
    kinds = _Kinds(born.reshape(-1))
    for sums in every:
        for one in sums.by_cell():
            kinds.part(one.reshape(len(one), -1))
    numbers, firsts = kinds.found()
    classes = Classes.of(
        numbers.reshape(shape).astype(np.int32),
        np.full(len(firsts), NONE, dtype=np.int32),
        born.reshape(-1)[firsts],
    )
    for sums in every:
        sums.to_classes(classes, firsts)
    return classes


def merged(classes: Classes, kept: Sequence[Sums]) -> Classes:
    """Return the classes with those made one that hold the same in all that is ``kept`` and were
    added at the same stamp; the same classes if there are few such. The sums are by those that are
    returned from then on.
    """
    kinds = _Kinds(classes.born)
    for sums in kept:
        for one in sums.by_cell():
            kinds.part(one)
    of, firsts = kinds.found()
    if len(firsts) > _WORTH * classes.count:
        return classes
    numbers = classes.numbers
    for piece in np.array_split(numbers.reshape(-1), numbers.size // PIECE + 1):
        piece[:] = of[piece]
    found = Classes.of(numbers, np.full(len(firsts), NONE, dtype=np.int32), classes.born[firsts])
    for sums in kept:
        sums.to_classes(found, firsts)
    return found


def many(shape: Sequence[int]) -> bool:
    """Return whether sums of so many cells are kept by class."""
    return int(np.prod(shape, dtype=np.float64)) > MANY


class _Kinds:
    """Columns that are the same in all rows that were looked at."""

    def __init__(self, row: Integers) -> None:
        self._of = np.unique(row, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def part(self, rows: Integers) -> None:
        """Tell columns apart that differ in ``rows``."""
        for row in rows:
            values, which = np.unique(row, return_inverse=True)
            if len(values) > 1:
                both = self._of * len(values) + which.reshape(-1)
                self._of = np.unique(both, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def found(self) -> tuple[Integers, Integers]:
        """Return the kind of each column, and the first column of each kind."""
        _, firsts = np.unique(self._of, return_index=True)
        return self._of, firsts
