"""The peak cell under a rule: it bounds the loss of every person under parallel composition.

A person lies in one cell, so a group's number is the largest of its cells' numbers. Each cell is
read by itself: the largest sum of epsilons and the largest sum of squares may lie in different
cells, and together they would describe no person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np

from accountant.budget.accounts.classes import Classes
from accountant.budget.accounts.epochs import Epoch
from accountant.budget.accounts.part import Integers
from accountant.budget.accounts.peak import deciding, most_spent
from accountant.budget.population.selection import EVERYONE, Box, Selection, ordered
from accountant.budget.rules.limit import LimitRule
from accountant.privacy.filters import Filter, Line
from accountant.privacy.units import Currency, units_up

T = TypeVar("T")
_UNBOUNDED: Final = 2**63 - 1
"""Stands for an infinite sum in comparisons; finite sums stay at or below 2**62."""


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

    def worst(self, cells: Integers) -> Worst:
        """Return the numbers over all ``cells`` (rows, ...)."""
        return self.by_value(cells.reshape(len(cells), 1, -1))[0]

    def alike(self, cells: Integers, place: int) -> Integers:
        """Return the places of those of ``cells`` (rows, cells) that hold the same as the one at
        ``place`` in what is compared.
        """
        same = [sums == sums[place] for sums in self._compared(cells)]
        return np.flatnonzero(np.logical_and.reduce(same))

    def decides(self, cells: Integers) -> tuple[Line | None, bool]:
        """Return the line that decides what the peak of all ``cells`` (rows, ...) has spent, None
        for the sum of epsilons; and whether what it has spent is less than the line shows.
        """
        flat = cells.reshape(len(cells), -1)
        place = self.worst(cells).cell
        peak = flat[:, place : place + 1]
        epsilon, *along = (_finite(sums[0]) for sums in self._compared(peak))
        line = deciding(self.filter, self.limit, epsilon, along)
        if line is None:
            return None, False
        [second] = [
            s for one, s in zip(self.filter.lines(self.limit), along, strict=True) if one is line
        ]
        return line, second is not None and second <= line.first and line.spent(second) == line.most

    def by_value(self, cells: Split) -> list[Worst]:
        """Return the numbers of each value, for ``cells`` (rows, values, rest) or by class."""
        if not isinstance(cells, np.ndarray):
            return [worst for part in cells for worst in part.each(self.worst)]
        capacity, own = self._most, self._sums(cells, Currency.DELTA)
        epsilon, *along = columns = self._compared(cells)
        fit = epsilon <= capacity.epsilon
        for sums, most in zip(along, capacity.along, strict=True):
            fit |= sums <= most
        within = np.all(fit & (own <= capacity.own_delta), axis=1)
        paths, deltas = epsilon.max(axis=1), [_finite(delta) for delta in own.max(axis=1)]
        failing = [None if delta is None else delta + self._filter_delta for delta in deltas]
        return [
            Worst(
                epsilon=_finite(spent),
                path_sum=_finite(paths[i]),
                own_delta=deltas[i],
                delta=(deltas if spent >= paths[i] else failing)[i],
                over=not bool(within[i]),
                cell=cell,
            )
            for i, (spent, cell) in enumerate(self._peaks(columns))
        ]

    def epsilons(self, cells: Split) -> list[int | None]:
        """Return only the spent epsilon of each value, for ``cells`` (rows, values, rest)."""
        assert isinstance(cells, np.ndarray)  # noqa: S101 (of everyone there is one value)
        return [_finite(spent) for spent, _ in self._peaks(self._compared(cells))]

    def _peaks(self, columns: list[Integers]) -> Iterator[tuple[int, int]]:
        """Yield the largest spent epsilon of each value, and its cell."""
        for i in range(len(columns[0])):
            spent, *_, cell = most_spent(self.filter, self.limit, [each[i] for each in columns])
            yield spent, cell

    def _compared(self, cells: Integers) -> list[Integers]:
        """Return the sums of epsilons, and those along the filter's lines."""
        return [self._sums(cells, c) for c in (Currency.EPSILON, *self.capacity.currencies)]

    def _sums(self, cells: Integers, currency: Currency) -> Integers:
        i = self.axis.index(currency)
        sums: Integers = np.where(cells[len(self.axis) + i] > 0, _UNBOUNDED, cells[i])
        return sums


class ByValue(NamedTuple):
    """Sums (rows, classes), and the classes that each value of a dimension meets."""

    cells: Integers
    met: Sequence[Integers]

    def each(self, of: Callable[[Integers], T]) -> list[T]:
        """Return what ``of`` returns for the sums of each value, asked once for values that meet
        the same classes.
        """
        known: dict[int, T] = {}
        for numbers in self.met:
            if id(numbers) not in known:
                known[id(numbers)] = of(self.cells[:, numbers])
        return [known[id(numbers)] for numbers in self.met]


Split = Integers | Sequence[ByValue]
"""Sums (rows, values of a dimension, rest); or by class, the values one after the other."""


class Region(NamedTuple):
    """The cells that a limit is about: of a box, or all; and the classes if sums are by these."""

    classes: Classes | None = None
    box: Box | None = None

    @property
    def selection(self) -> Selection:
        """These cells."""
        return EVERYONE if self.box is None else Selection(everyone=False, boxes=(self.box,))

    @property
    def numbers(self) -> Integers:
        """The classes of these cells, where sums are by class."""
        assert self.classes is not None  # noqa: S101 for the type checker
        return self.classes.met(self.selection).numbers

    def of(self, cells: Integers) -> Integers:
        """Return, of sums of all cells or classes (rows, ...), those of these."""
        if self.box is None:
            return cells
        if self.classes is not None:
            return cells[:, self.numbers]
        found: Integers = cells[np.ix_(range(len(cells)), *map(ordered, self.box))]
        return found

    def by_axis(self, cells: Integers, axis: int | None) -> Split:
        """Return sums of all cells (rows, *shape) as (rows, values of a dimension, rest) of these;
        one value if None. By class where sums are.
        """
        if axis is not None and self.classes is not None:
            return [ByValue(cells, self.classes.by_value(axis, self.box))]
        cells = self.of(cells)
        if axis is None:
            return cells.reshape(len(cells), 1, -1)
        first = np.moveaxis(cells, axis + 1, 1)
        return first.reshape(*first.shape[:2], -1)

    def used_and_spent(
        self, used: Integers, reserved: Integers | None, axis: int | None = None
    ) -> Split:
        """Return what is used ``by_axis`` and, behind its values, what is spent of it, if less."""
        cells = self.by_axis(used, axis)
        if reserved is None:
            return cells
        spent = self.by_axis(used - reserved, axis)
        if isinstance(cells, np.ndarray) and isinstance(spent, np.ndarray):
            return np.concatenate([cells, spent], axis=1)
        return [*cells, *spent]


def most_of(cells: Split) -> list[list[int]]:
    """Return the largest sum of each value, row by row."""
    if isinstance(cells, np.ndarray):
        most: list[list[int]] = cells.max(axis=2).T.tolist()
        return most
    return [most for part in cells for most in part.each(lambda one: one.max(axis=1).tolist())]


def _finite(value: int | np.int64) -> int | None:
    return None if value == _UNBOUNDED else int(value)
