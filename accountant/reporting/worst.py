"""The most charged cell under a rule: what bounds everybody's loss under parallel composition.

A person lies in one cell, so a group's number is the largest of its cells' numbers. Each cell is
judged by itself: the largest sum of epsilons and the largest sum of squares may lie in different
cells, and together they would describe nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts import Integers, N, room
from accountant.budget.policy import LimitRule
from accountant.privacy.gates import Capacity, Gate, Limit
from accountant.privacy.units import AXIS, NOTHING, Currency

_UNBOUNDED: Final = 2**63 - 1
"""Stands for an infinite sum in comparisons; finite sums stay at or below 2**62."""

_MOST_PEELED: Final = 64
"""Cells that are looked at one by one; what then remains is bounded from above."""


@dataclass(frozen=True, slots=True)
class Worst:
    """The numbers that bound every cell of a group. In units; None is infinite."""

    epsilon: int | None
    """Spent under the rule, rounded up."""
    path_sum: int | None
    """The largest plain sum of epsilons."""
    own_delta: int | None
    """The largest sum of the mechanisms' own deltas."""
    over: bool
    """Some cell holds more than the rule's capacity."""
    cell: int
    """The cell with the largest ``epsilon``, as an index into the flattened group."""


class Ruler:
    """Reads cells as one limit rule does: capacity and gate are worked out once."""

    def __init__(self, rule: LimitRule) -> None:
        self.promise: Limit = rule.promise
        self.gate: Gate = rule.filter
        self.capacity: Capacity = self.gate.capacity(self.promise)
        self._known: dict[tuple[int, int | None], int] = {}

    def worst(self, cells: Integers) -> Worst:
        """Over all ``cells`` (2N, …)."""
        return self.by_value(cells.reshape(2 * N, 1, -1))[0]

    def by_value(self, cells: Integers) -> list[Worst]:
        """For ``cells`` (2N, values, rest): the worst of each value."""
        epsilon, second = self._columns(cells)
        tops = epsilon.argmax(axis=1)
        rows = np.arange(len(tops))
        alone = second[rows, tops] >= second.max(axis=1)
        sums, deltas = epsilon.max(axis=1), _sums(cells, Currency.DELTA).max(axis=1)
        fit = room(self.capacity, cells.reshape(2 * N, -1), NOTHING).reshape(epsilon.shape)
        within: NDArray[np.bool_] = np.all(fit, axis=1)
        found = []
        for i in range(len(tops)):
            if alone[i]:
                top = int(tops[i])
                places = [(int(epsilon[i, top]), int(second[i, top]), top)]
            else:
                places = _frontier(epsilon[i], second[i])
            spent, cell = max((self._spent(e, s), -at) for e, s, at in places)
            found.append(
                Worst(
                    _finite(spent), _finite(sums[i]), _finite(deltas[i]), not bool(within[i]), -cell
                )
            )
        return found

    def _columns(self, cells: Integers) -> tuple[Integers, Integers]:
        epsilon = _sums(cells, Currency.EPSILON)
        if self.capacity.second_currency is None:
            return epsilon, np.zeros_like(epsilon)
        return epsilon, _sums(cells, self.capacity.second_currency)

    def _spent(self, epsilon: int, second: int) -> int:
        if epsilon == _UNBOUNDED:
            return epsilon
        key = (epsilon, None if second == _UNBOUNDED else second)
        if key not in self._known:
            self._known[key] = self.gate.spent(self.promise, *key)
        return self._known[key]


def _sums(cells: Integers, currency: Currency) -> Integers:
    i = AXIS[currency]
    sums: Integers = np.where(cells[N + i] > 0, _UNBOUNDED, cells[i])
    return sums


def _finite(value: int | np.int64) -> int | None:
    return None if value == _UNBOUNDED else int(value)


def _frontier(epsilon: Integers, second: Integers) -> list[tuple[int, int, int]]:
    """(epsilon, second, cell) of the cells that no other cell exceeds in both.

    Every gate's number grows with both sums, so its largest value lies on this frontier.
    """
    found: list[tuple[int, int, int]] = []
    left: NDArray[np.intp] = np.arange(len(epsilon))
    while left.size and len(found) < _MOST_PEELED:
        tied = left[epsilon[left] == epsilon[left].max()]
        top = tied[second[tied].argmax()]
        found.append((int(epsilon[top]), int(second[top]), int(top)))
        left = left[second[left] > second[top]]
    if left.size:
        found.append((int(epsilon[left].max()), int(second[left].max()), int(left[0])))
    return found
