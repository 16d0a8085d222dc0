"""The peak cell under a rule: it bounds the loss of every person under parallel composition.

A person lies in one cell, so a group's number is the largest of its cells' numbers. Each cell is
read by itself: the largest sum of epsilons and the largest sum of squares may lie in different
cells, and together they would describe no person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np

from accountant.budget.accounts.classes import Classes
from accountant.budget.accounts.epochs import Epoch
from accountant.budget.accounts.part import Integers
from accountant.budget.accounts.peak import deciding, most_spent, spent_in
from accountant.budget.accounts.sums import Sums
from accountant.budget.population.selection import EVERYONE, Box, Selection, ordered
from accountant.budget.rules.limit import LimitRule
from accountant.privacy.filters import Filter, Line
from accountant.privacy.units import LARGEST, Currency, units_up

T = TypeVar("T")
_UNBOUNDED: Final = 2**63 - 1
"""Stands for an infinite sum in comparisons; finite sums stay at or below 2**62."""


class Columns:
    """The sums of cells by the row of an account's axis, all of one shape. A row is read when it is
    asked for, once: of a million cells each pass counts, and few rows are compared.
    """

    def __init__(self, read: Callable[[int], Integers]) -> None:
        self._read, self._known = read, dict[int, Integers]()

    @classmethod
    def of(cls, used: Sums, less: Sums | None = None) -> Columns:
        """Return the sums of all cells or classes; ``less`` those that others hold of them."""
        return cls(lambda row: _sums(used, less, row).reshape(used.sides))

    @classmethod
    def stacked(cls, cells: Integers) -> Columns:
        """Return the rows of ``Sums.stacked`` (2 x rows, ...)."""
        rows = len(cells) // 2
        return cls(lambda row: np.where(cells[rows + row] > 0, _UNBOUNDED, cells[row]))

    def __getitem__(self, row: int) -> Integers:
        """Return the sums of a row; an infinite one as 2**63 - 1."""
        if row not in self._known:
            self._known[row] = self._read(row)
        return self._known[row]

    def then(self, change: Callable[[Integers], Integers]) -> Columns:
        """Return these with each row changed: cells chosen of it, say, or another shape."""
        return Columns(lambda row: change(self[row]))

    def plus(self, more: Integers) -> Columns:
        """Return these with something finite added to each row."""

        def added(row: int) -> Integers:
            sums = self[row]
            return np.where(sums == _UNBOUNDED, sums, sums + more[row])

        return Columns(added)


def as_one(used: Sums, less: Sums | None = None) -> Columns:
    """Return the sums of all cells as of one value; one cell stands for those that are alike where
    few cells are held apart.
    """
    few = used.stacked_apart(*([] if less is None else [less]))
    if few is None:
        return Columns.of(used, less).then(_as_one)
    return Columns.stacked(few[0] if less is None else few[0] - few[1]).then(_as_one)


def _alike(used: Sums, less: Sums | None) -> bool:
    """Return whether all cells hold the same."""
    return used.flat and (less is None or less.flat)


def _of_everyone(used: Sums, less: Sums | None, row: int) -> int:
    """Return what all cells hold of a row; ``_UNBOUNDED`` if that is infinite."""
    units, infinite = used.everyone[row], used.everyone_infinite[row]
    if less is not None:
        units, infinite = units - less.everyone[row], infinite - less.everyone_infinite[row]
    return _UNBOUNDED if infinite > 0 else units


def _sums(used: Sums, less: Sums | None, row: int) -> Integers:
    """Return one row, an infinite sum as ``_UNBOUNDED``; one cell where all are alike."""
    finite, infinite = used.row(row), used.row(row, infinite=True)
    if less is not None:
        finite, infinite = finite - less.row(row), infinite - less.row(row, infinite=True)
    if infinite.any():
        finite = np.where(infinite > 0, _UNBOUNDED, finite)
    # NumPy copies what was broadcast, as it cannot be written, before it looks for the largest.
    return finite if finite.shape == used.sides else np.broadcast_to(finite, used.sides)


@dataclass(frozen=True, slots=True)
class Worst:
    """The numbers that bound every cell of a group. In units; None is infinite."""

    epsilon: int | None
    """Spent under the rule, rounded up."""
    path_sum: int | None
    """The largest plain sum of epsilons."""
    own_delta: int | None
    """The largest sum of the mechanisms' own deltas."""
    delta: int | None
    """The delta of ``epsilon``: own deltas, and the filter's where it is below ``path_sum``."""
    over: bool
    """Some cell holds more than the rule promises, whatever is asked for."""
    cell: int
    """The cell with the largest ``epsilon``, as an index into the flattened group."""


class Ruler:
    """Reads cells as a limit rule does in one epoch, or as another filter would."""

    def __init__(self, rule: LimitRule, epoch: Epoch, other: Filter | None = None) -> None:
        self.filter = other or rule.filter
        self.limit = epoch.limit
        self.capacity = other.capacity(epoch.limit) if other else epoch.capacity
        self._most = self.capacity if other else rule.largest_in(epoch)
        self.axis = epoch.axis
        self._filter_delta = units_up(epoch.limit.filter_delta, Currency.DELTA)

    def worst(self, cells: Columns) -> Worst:
        """Return the numbers over all ``cells``, of any shape."""
        return self.by_value(cells.then(_as_one))[0]

    def alike(self, cells: Columns, place: int) -> Integers:
        """Return the places of those of ``cells`` that hold the same as the one at ``place`` in
        what is compared.
        """
        same = [sums == sums[place] for sums in self._compared(cells)]
        return np.flatnonzero(np.logical_and.reduce(same))

    def decides(self, cells: Columns) -> tuple[Line | None, bool]:
        """Return the line that decides what the peak of all ``cells`` has spent, None for the sum
        of epsilons; and whether what it has spent is less than the line shows.
        """
        place = self.worst(cells).cell
        epsilon, *along = (finite(sums.item(place)) for sums in self._compared(cells))
        line = deciding(self.filter, self.limit, epsilon, along)
        if line is None:
            return None, False
        [second] = [
            s for one, s in zip(self.filter.lines(self.limit), along, strict=True) if one is line
        ]
        return line, second is not None and second <= line.first and line.spent(second) == line.most

    def by_value(self, cells: Split) -> list[Worst]:
        """Return the numbers of each value, for cells of (values, rest) or by class."""
        if not isinstance(cells, Columns):
            return [worst for part in cells for worst in part.each(self.worst)]
        columns, own = self._compared(cells), self._of(cells, Currency.DELTA)
        paths, *most = [sums.max(axis=1).tolist() for sums in columns]
        deltas = [finite(delta) for delta in own.max(axis=1).tolist()]
        return [
            Worst(
                epsilon=finite(spent),
                path_sum=finite(paths[i]),
                own_delta=deltas[i],
                delta=deltas[i] if spent >= paths[i] else self._failing(deltas[i]),
                over=not self._within([one[i] for one in (paths, *most)], columns, own, i),
                cell=cell,
            )
            for i, (spent, cell) in enumerate(self._peaks(columns))
        ]

    def _failing(self, delta: int | None) -> int | None:
        return None if delta is None else delta + self._filter_delta

    def _within(
        self, most: Sequence[int], columns: Sequence[Integers], own: Integers, value: int
    ) -> bool:
        """Return whether all cells of a value keep to the largest limit; ``most``: the largest of
        each column there.
        """
        capacity = self._most
        if not (own[value] <= capacity.own_delta).all():
            return False
        allowed = self._allowed
        if any(one <= limit for one, limit in zip(most, allowed, strict=True)):
            return True
        each = zip(columns, allowed, strict=True)
        return bool(np.logical_or.reduce([sums[value] <= limit for sums, limit in each]).all())

    def peak(self, used: Sums, less: Sums | None = None) -> Worst:
        """Return the numbers over all cells of what is ``used`` beside what others hold, ``less``.
        Where all cells hold the same, as in most accounts, one is read in whole numbers.
        """
        if not _alike(used, less):
            return self.by_value(as_one(used, less))[0]
        epsilon, *along = self._everyone(used, less)
        own = _of_everyone(used, less, self.axis.index(Currency.DELTA))
        spent = spent_in(self.filter, self.limit, [epsilon, *along])
        pairs = zip([epsilon, *along], self._allowed, strict=True)
        fits = own <= self._most.own_delta and any(one <= most for one, most in pairs)
        return Worst(
            epsilon=finite(spent),
            path_sum=finite(epsilon),
            own_delta=finite(own),
            delta=finite(own) if spent >= epsilon else self._failing(finite(own)),
            over=not fits,
            cell=0,
        )

    def spent(self, used: Sums, less: Sums | None = None) -> int | None:
        """Return only the spent epsilon of ``peak``."""
        if not _alike(used, less):
            [found] = self.epsilons(as_one(used, less))
            return found
        return finite(spent_in(self.filter, self.limit, self._everyone(used, less)))

    def _everyone(self, used: Sums, less: Sums | None) -> list[int]:
        """Return the sum of epsilons, and those along the filter's lines, that all cells hold."""
        rows = map(self.axis.index, (Currency.EPSILON, *self.capacity.currencies))
        return [_of_everyone(used, less, row) for row in rows]

    @property
    def _allowed(self) -> list[int]:
        """The most that each compared sum may come to: what is allowed may be more units than any
        sum, and one without a bound is above it, too.
        """
        capacity = self._most
        return [min(one, LARGEST) for one in (capacity.epsilon, *capacity.along)]

    def epsilons(self, cells: Columns) -> list[int | None]:
        """Return only the spent epsilon of each value, for cells of (values, rest)."""
        return [finite(spent) for spent, _ in self._peaks(self._compared(cells))]

    def _peaks(self, columns: list[Integers]) -> Iterator[tuple[int, int]]:
        """Yield the largest spent epsilon of each value, and its cell."""
        for i in range(len(columns[0])):
            spent, *_, cell = most_spent(self.filter, self.limit, [each[i] for each in columns])
            yield spent, cell

    def _compared(self, cells: Columns) -> list[Integers]:
        """Return the sums of epsilons, and those along the filter's lines."""
        return [self._of(cells, c) for c in (Currency.EPSILON, *self.capacity.currencies)]

    def _of(self, cells: Columns, currency: Currency) -> Integers:
        return cells[self.axis.index(currency)]


class ByValue(NamedTuple):
    """Sums of classes, and the classes that each value of a dimension meets."""

    cells: Columns
    met: Sequence[Integers]

    def each(self, of: Callable[[Columns], T]) -> list[T]:
        """Return what ``of`` returns for the sums of each value, asked once for values that meet
        the same classes.
        """
        known: dict[int, T] = {}
        for numbers in self.met:
            if id(numbers) not in known:
                known[id(numbers)] = of(self.cells.then(_taking(numbers)))
        return [known[id(numbers)] for numbers in self.met]


Split = Columns | Sequence[ByValue]
"""Sums of (values of a dimension, rest); or by class, the values one after the other."""


def _taking(numbers: Integers) -> Callable[[Integers], Integers]:
    return lambda sums: sums[numbers]


def _as_one(sums: Integers) -> Integers:
    return sums.reshape(1, -1)


class Region(NamedTuple):
    """The cells that a limit is about: of a box, or all; and the classes if sums are by these."""

    classes: Classes | None = None
    box: Box | None = None

    @property
    def selection(self) -> Selection:
        """The cells as a selection."""
        return EVERYONE if self.box is None else Selection(everyone=False, boxes=(self.box,))

    @property
    def numbers(self) -> Integers:
        """The classes of these cells, where sums are by class."""
        assert self.classes is not None  # noqa: S101 for the type checker
        return self.classes.met(self.selection).numbers

    def of(self, cells: Columns) -> Columns:
        """Return, of sums of all cells or classes, those of these."""
        if (box := self.box) is None:
            return cells
        if self.classes is not None:
            return cells.then(_taking(self.numbers))
        places = np.ix_(*map(ordered, box))
        return cells.then(lambda sums: sums[places])

    def by_axis(self, cells: Columns, axis: int | None) -> Split:
        """Return sums of all cells as (values of a dimension, rest) of these; one value if None. By
        class where sums are.
        """
        if axis is not None and self.classes is not None:
            return [ByValue(cells, self.classes.by_value(axis, self.box))]
        cells = self.of(cells)
        if axis is None:
            return cells.then(_as_one)
        return cells.then(lambda sums: np.moveaxis(sums, axis, 0).reshape(sums.shape[axis], -1))


def most_of(cells: Split, rows: Iterable[int]) -> list[list[int]]:
    """Return the largest sum of each value, of each of ``rows``; 2**63 - 1 if it is infinite."""
    rows = tuple(rows)
    if isinstance(cells, Columns):
        return [
            list(most) for most in zip(*(cells[r].max(axis=1).tolist() for r in rows), strict=True)
        ]
    return [
        most for part in cells for most in part.each(lambda one: [int(one[r].max()) for r in rows])
    ]


def finite(value: int) -> int | None:
    """Return a sum as it was read from columns; None if it is infinite."""
    return None if value == _UNBOUNDED else value
