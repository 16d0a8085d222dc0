"""Classes of cells that every charge has met alike, for populations of too many cells for arrays.

All accounts of a ledger share one number for each cell, that of its *class*, and keep their sums by
class (sums.py). A charge to a selection parts each class that it meets in part: the cells that it
meets get a new number, whose *parent* is the number that they had. Sums that know fewer classes are
read through the parents, so that no account has to follow a charge to another one, and a reader of
earlier sums is not disturbed. What is only looked at parts nothing. What everyone is charged
touches no cell.

How many classes there are does not follow from the ledger alone: what was rolled back has parted
cells too, and a start merges classes that hold the same. No decision in an event depends on it,
but for one, which the event states (``charged_to``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts.integers import Integers
from accountant.budget.accounts.numbering import Numbering, Numbers, Shape, counted, plus
from accountant.budget.accounts.pieces import Sides, index_of, place_of, runs_in, size_of
from accountant.budget.population.selection import Box, Selection, boxes_of, ordered

Cell = tuple[int, ...]

MANY: Final = 10**6
"""Cells beyond which sums are kept by classes."""
MOST: Final = 2**20
"""Classes that requests may make: one row of sums takes 8 MiB then."""
_SOME: Final = 4_096
"""Cells up to which the numbers of a selection are sorted."""
_REMEMBERED: Final = 8
PIECE: Final = 2**22
"""Cells that are looked at together where all are."""
_FEW: Final = 4
"""Numbers up to which cells are compared with each, which is faster than to look them up."""


class Classes:
    """A partition of all cells into classes, which are numbered. ``view`` gives readers one of
    their own: what they charge parts nobody else's.
    """

    __slots__ = ("_known", "_map", "_marked", "_pinned", "_seen", "_split", "shape")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._map = Numbering(shape)
        self._pinned: int | None = None
        """How many classes a reader sees, whatever the ledger parts; None for the ledger's own."""
        self._known: dict[Selection, tuple[int, Integers]] = {}
        """Selections that were charged lately, with the classes that they consisted of when there
        were so many."""
        self._seen: dict[Selection, tuple[int, Integers, Integers]] = {}
        """Selections that were looked at lately, when there were so many classes: what ``_met``
        returned."""
        self._marked: dict[Selection, tuple[int, bytes, tuple[Any, ...]]] = {}
        """Selections of which some classes were marked lately, when there were so many: which, and
        what was found of their cells."""
        self._split: dict[int, tuple[int, list[Integers]]] = {}
        """By dimension: what ``by_value`` returned when there were so many classes."""

    @classmethod
    def of(cls, numbers: Numbers, parents: Numbers, born: Integers) -> Classes:
        """Return the partition of cells with these ``numbers``, each of which occurs."""
        found, count = cls(numbers.shape), len(parents)
        found._map = made = Numbering(())
        made.numbers, made.count = numbers, 0
        sizes, firsts = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        flat = numbers.reshape(-1)
        for start in reversed(range(0, flat.size, PIECE)):
            piece = flat[start : start + PIECE]
            sizes += np.bincount(piece, minlength=count)
            firsts[piece[::-1]] = np.arange(start, start + piece.size)[::-1]
        made.add(parents, sizes, firsts, born)
        return found

    def view(self) -> Classes:
        """Return the same partition for a reader."""
        twin: Classes = object.__new__(Classes)
        twin.shape, twin._map, twin._pinned = self.shape, self._map, self.count
        twin._known, twin._marked, twin._seen, twin._split = {}, {}, {}, {}
        return twin

    @property
    def count(self) -> int:
        """How many classes there are."""
        return self._map.count if self._pinned is None else self._pinned

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return prod(self.shape)

    @property
    def born(self) -> Integers:
        """The stamp at which the cells of each class were added."""
        return self._map.born[: self.count]

    @property
    def firsts(self) -> Integers:
        """Of each class a place that none of its cells comes before; as ``of`` makes it, that of
        its first cell.
        """
        return self._map.firsts[: self.count]

    @property
    def sizes(self) -> Integers:
        """How many cells each class has."""
        return self._map.sizes[: self.count]

    def same(self, other: Classes) -> bool:
        """Return whether numbers mean the same classes in both."""
        return self._map is other._map and self.count == other.count

    def widened(self, sums: Integers) -> Integers:
        """Return sums (rows, classes) of when there were fewer classes as those of all."""
        found: Integers = sums[:, from_ := self.ancestors(np.arange(self.count), sums.shape[1])]
        found[:, from_ < 0] = 0
        return found

    def gathered(self, sums: Integers) -> Integers:
        """Return sums (rows, *shape) of when there were fewer cells, which do not differ within a
        class, as sums by class.
        """
        _, places = np.unique(self._map.numbers, return_index=True)
        there = np.stack(np.unravel_index(places, self.shape))
        old = np.all(there < np.array(sums.shape[1:])[:, np.newaxis], axis=0)
        found = np.zeros((len(sums), self.count), dtype=np.int64)
        found[:, old] = sums[(slice(None), *there[:, old])]
        return found

    def spread(self, sums: Integers) -> Integers:
        """Return sums (rows, classes) as sums of all cells (rows, *shape)."""
        return sums[:, self._as_known(self._map.numbers)]

    def covers(self, selection: Selection) -> bool:
        """Return whether all cells are selected."""
        return selection.everyone or size_of(selection) == self.cells

    def number(self, cell: Cell) -> int:
        """Return the number of a cell."""
        return int(self._as_known(self._map.numbers[tuple([at] for at in cell)])[0])

    @property
    def parents(self) -> Numbers:
        """The class that each class was parted off."""
        return self._map.parents[: self.count]

    @property
    def numbers(self) -> Numbers:
        """The class of each cell. It is changed in place."""
        return self._map.numbers

    def ancestors(self, numbers: NDArray[Any], known: int) -> Integers:
        """Return the numbers below ``known`` that cells of the classes ``numbers`` had when there
        were so many; NONE of cells that were added since.
        """
        found = np.array(numbers, dtype=np.int64)
        parents = self._map.parents
        while (late := found >= known).any():
            found[late] = parents[found[late]]
        return found

    def _as_known(self, numbers: Numbers) -> NDArray[Any]:
        """Return numbers of the map as they were when there were ``count`` classes."""
        if self._pinned is None or numbers.max() < self._pinned:
            return numbers
        return self.ancestors(numbers, self._pinned)

    def met(self, selection: Selection) -> Met:
        """Return the classes that a selection meets."""
        count = self.count
        return Met(self, self._met(selection, count)[0], count)

    def parted(self, selection: Selection) -> int:
        """Return how many classes there would be if the selection were charged."""
        count = self._map.count
        numbers, cells = self._met(selection, count)
        return count + int((cells < self._map.sizes[numbers]).sum())

    def _met(self, selection: Selection, count: int) -> tuple[Integers, Integers]:
        """Return the classes that a selection meets, ascending, as they were numbered when there
        were ``count``, and how many cells it has in each.
        """
        if self.covers(selection):
            return np.arange(count), self._map.sizes[:count]
        if (known := self._remembered(selection, count)) is not None:
            return known, self._map.sizes[known]
        if (seen := self._seen.get(selection)) is not None and seen[0] == count:
            return seen[1], seen[2]
        numbers, cells = self._count(selection, count)
        _keep(self._seen, selection, (count, numbers, cells))
        return numbers, cells

    def _count(self, selection: Selection, count: int) -> tuple[Integers, Integers]:
        totals = np.zeros(0, dtype=np.int64)
        if size_of(selection) <= max(_SOME, count // 16):
            flat = np.concatenate([self._flat(sides) for sides in _pieces(selection)])
            numbers, cells = np.unique(flat, return_counts=True)
        else:
            for sides in _pieces(selection):
                totals = plus(totals, *counted(self._flat(sides)))
            numbers = np.flatnonzero(totals)
            cells = totals[numbers]
        if numbers[-1] >= count:  # parted meanwhile, while a reader looks
            numbers, which = np.unique(self.ancestors(numbers, count), return_inverse=True)
            cells = np.bincount(which, weights=cells).astype(np.int64)
        return numbers.astype(np.int64), cells

    def _remembered(self, selection: Selection, count: int) -> Integers | None:
        """Return the classes inside of a selection that was charged lately: those of then, and what
        was parted off them since.
        """
        if (found := self._known.get(selection)) is None or found[0] > count:
            return None
        then, inside = found
        if then < count:
            late = np.arange(then, count)
            inside = np.concatenate([inside, late[np.isin(self.ancestors(late, then), inside)]])
            self._known[selection] = count, inside
        return inside

    def marked(
        self, selection: Selection, marks: bytes, find: Callable[[], tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        """Return what ``find`` finds of the cells of a selection in classes with these ``marks``,
        without looking at the cells again if that was found lately.
        """
        found = self._marked.get(selection)
        if found is None or found[:2] != (self.count, marks):
            found = self.count, marks, find()
            _keep(self._marked, selection, found)
        return found[2]

    def align(self, selection: Selection) -> Integers:
        """Part the classes that a selection meets only in part; return those that it consists of,
        ascending.
        """
        if self.covers(selection):
            return np.arange(self.count)
        with self._map.mutex:
            count = self._map.count
            numbers, cells = self._met(selection, count)
            partly = cells < self._map.sizes[numbers]
            self._pinned = None if self._pinned is None else count
            if partly.any():
                if self._pinned is not None:
                    self._map, self._pinned = self._map.copy(), None
                numbers = np.sort(self._part(selection, numbers, cells, partly))
        self._seen.pop(selection, None)
        _keep(self._known, selection, (self.count, numbers))
        return numbers

    def _part(
        self, selection: Selection, numbers: Integers, cells: Integers, partly: NDArray[np.bool_]
    ) -> Integers:
        """Give the cells of ``selection`` in the classes that it meets ``partly`` new numbers."""
        shared, old = self._map, numbers[partly]
        inside = numbers.copy()
        inside[partly] = new = np.arange(shared.count, shared.count + len(old))
        few = len(numbers) * 16 < shared.count
        table = inside if few else np.arange(shared.count)
        if not few:
            table[old] = new
        table = table.astype(np.int32)
        corner = min(place_of(map(min, box), self.shape) for box in selection.boxes)
        firsts = np.maximum(shared.firsts[old], corner)
        shared.add(old.astype(np.int32), cells[partly], firsts, shared.born[old])
        shared.sizes[old] -= cells[partly]
        for sides in _pieces(selection):
            index = index_of(sides)
            before = shared.numbers[index]
            if (low := before.min()) == before.max():
                shared.numbers[index] = table[np.searchsorted(numbers, low) if few else low]
            else:
                shared.numbers[index] = table[np.searchsorted(numbers, before) if few else before]
        return inside

    def _flat(self, sides: Sides) -> Numbers:
        """Return the numbers of a piece as they are now."""
        return np.array(self._map.numbers[index_of(sides)], order="C").reshape(-1)

    def by_value(self, axis: int, box: Box | None = None) -> list[Integers]:
        """Return the classes that each value of a dimension meets, of a ``box`` or of all cells,
        ascending; values that meet the same have the same array. Found once for all cells, until
        classes are parted.
        """
        if box is not None:
            return self._by_value(self.numbers[index_of(list(map(ordered, box)))], axis)
        if (known := self._split.get(axis)) is None or known[0] != self.count:
            known = self._split[axis] = self.count, self._by_value(self.numbers, axis)
        return known[1]

    def _by_value(self, cells: Numbers, axis: int) -> list[Integers]:
        along = np.moveaxis(cells, axis, 0)
        step = max(1, PIECE // max(1, along[0].size))
        found, same = list[Integers](), dict[bytes, Integers]()
        for start in range(0, len(along), step):
            for part in np.ascontiguousarray(along[start : start + step]).reshape(
                min(step, len(along) - start), -1
            ):
                numbers = self._numbers_in(self._as_known(part))
                found.append(same.setdefault(numbers.tobytes(), numbers))
        return found

    def _numbers_in(self, flat: NDArray[Any]) -> Integers:
        if flat.size * 16 < self.count:
            return np.unique(flat).astype(np.int64)
        there = np.zeros(self.count, dtype=np.bool_)
        there[flat] = True
        return np.flatnonzero(there)

    def sides_of(self, numbers: Integers, box: Box) -> tuple[list[Integers], int]:
        """Return the positions on each dimension of the cells of some classes in a box, and how
        many cells these are.
        """
        among = np.zeros(self.count, dtype=np.bool_)
        among[numbers] = True
        seen = [np.zeros(side, dtype=np.bool_) for side in self.shape]
        count = 0
        for sides in runs_in(tuple(map(ordered, box))):
            index = index_of(sides)
            there = among[self._as_known(self._map.numbers[index])]
            if found := int(there.sum()):
                count += found
                for axis, marks in enumerate(seen):
                    others = tuple(at for at in range(len(seen)) if at != axis)
                    marks[np.asarray(sides[axis])] |= there.any(axis=others)
        return [np.flatnonzero(marks) for marks in seen], count

    def boxes(self, kinds: Integers) -> Iterator[tuple[int, tuple[Box, ...]]]:
        """Yield the cells of each kind as disjoint boxes; ``kinds`` are those of the classes, below
        zero if they are left out.
        """
        if len(self.shape) == 1:
            for kind in range(int(kinds.max()) + 1):
                yield kind, ((frozenset(np.flatnonzero(kinds[self.numbers] == kind).tolist()),),)
            return
        same: dict[int, dict[bytes, list[int]]] = {}
        for first, part in enumerate(self.numbers):
            flat = kinds[self._as_known(part.reshape(-1))]
            there = np.flatnonzero(flat >= 0)
            order = there[np.argsort(flat[there], kind="stable")]
            found, starts = np.unique(flat[order], return_index=True)
            for kind, rest in zip(found.tolist(), np.split(order, starts[1:]), strict=False):
                same.setdefault(kind, {}).setdefault(rest.tobytes(), []).append(first)
        for kind in sorted(same):
            yield kind, tuple(self._boxes(same[kind]))

    def _boxes(self, parts: dict[bytes, list[int]]) -> Iterator[Box]:
        """Yield the boxes of places, by those of the first dimension that have the same rest."""
        for places, firsts in parts.items():
            rest = np.unravel_index(np.frombuffer(places, dtype=np.intp), self.shape[1:])
            cells = np.stack(rest, axis=1)
            yield from ((frozenset(firsts), *box) for box in boxes_of(cells))

    def first(self, selection: Selection, numbers: Integers, known: int) -> Cell:
        """Return the first selected cell, in row-major order, of the classes ``numbers`` of when
        there were ``known``. It has to meet one of them.
        """
        if known < (count := self._map.count):  # with those that were parted off since
            among = np.isin(self.ancestors(np.arange(known, count), known), numbers)
            numbers, known = np.concatenate([numbers, known + np.flatnonzero(among)]), count
        firsts = self._map.firsts
        start = int(firsts[numbers].min())
        if count < self._map.count:  # parted while a reader looked
            return self.first(selection, numbers, known)
        boxes = [tuple(map(range, self.shape))] if selection.everyone else _sides(selection)
        best: Cell | None = None
        row = start // prod(self.shape[1:])
        for box in boxes:
            beginning = box[0][bisect_left(box[0], row) :]
            for sides in runs_in((beginning, *box[1:])) if beginning else ():
                last = place_of([side[-1] for side in sides], self.shape)
                corner = tuple(side[0] for side in sides)
                if last < start:
                    continue
                if best is not None and corner > best:
                    break
                if (at := self._in(sides, numbers, known)) is not None:
                    cell = _cell_at(sides, at)
                    best = cell if best is None else min(best, cell)
                    break
        if best is None:
            raise ValueError("no selected cell is of these classes")
        if selection.everyone:
            firsts[numbers] = np.maximum(firsts[numbers], place_of(best, self.shape))
        return best

    def _in(self, sides: Sides, numbers: Integers, known: int) -> int | None:
        """Return the place in a piece of the first cell in one of the classes ``numbers``."""
        flat: NDArray[Any] = self._flat(sides)
        if flat.max() >= known:  # parted since
            flat = self.ancestors(flat, known)
        if len(numbers) <= _FEW:
            found = flat == numbers[0]
            for number in numbers[1:].tolist():
                found |= flat == number
        else:
            among = np.zeros(known, dtype=np.bool_)
            among[numbers] = True
            found = among[flat]
        at = int(found.argmax())
        return at if found[at] else None


class Met(NamedTuple):
    """The classes that a selection meets, by their numbers of when so many were ``known``."""

    classes: Classes
    numbers: Integers
    known: int

    def first(self, selection: Selection, among: Integers) -> Cell:
        """Return the first cell of ``selection`` that lies in a class ``among`` these, by place."""
        return self.classes.first(selection, self.numbers[among], self.known)

    def place(self, cell: Cell) -> int:
        """Return the place of a cell's class among these."""
        number = np.array([self.classes.number(cell)])
        return int(np.searchsorted(self.numbers, self.classes.ancestors(number, self.known)[0]))


Space = Shape | Classes
"""What cells sums are of: their shape, with their classes if they are kept by these."""


def _keep(known: dict[Selection, Any], selection: Selection, found: Any) -> None:
    """Keep what was found for a selection, in place of the one that was found longest ago."""
    known.pop(selection, None)
    while len(known) >= _REMEMBERED:
        del known[next(iter(known))]
    known[selection.bare()] = found


def _sides(selection: Selection) -> list[Sides]:
    return [layout.sides for layout in selection.layouts]


def _pieces(selection: Selection) -> Iterator[Sides]:
    for sides in _sides(selection):
        yield from runs_in(sides)


def _cell_at(sides: Sequence[Sequence[int]], at: int) -> Cell:
    found = []
    for side in reversed(sides):
        at, place = divmod(at, len(side))
        found.append(int(side[place]))
    return tuple(reversed(found))
