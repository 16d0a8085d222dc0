"""Reading an account over a selection: whether a charge fits on every cell, and which cell is
quoted.

A charge fits on a cell if own delta fits, and epsilon fits or the gate's own currency fits
(privacy/filters). The cell that is quoted, the *peak*, is the one that has spent most, among those
that the charge does not fit on or among all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.sums import Integers, Part
from accountant.budget.population.selection import Selection
from accountant.privacy.filters import Capacity, Filter, Limit
from accountant.privacy.units import LARGEST, Charge, Currency

_MOST_PEELED: Final = 64
"""Cells that ``frontier`` looks at one by one; what then remains is bounded from above."""
_EPSILON: Final = 0
_DELTA: Final = 1
"""Rows that every account begins with."""

Cell = tuple[int, ...]
Mask = NDArray[np.bool_]


class Peak(NamedTuple):
    """The sums of one cell in the currencies that are compared: epsilon, own delta and the gate's.
    None stands for infinity; so does it for the cell where all cells are alike.
    """

    cell: Cell | None
    used: tuple[int | None, ...]


class Reading:
    """The sums of one account over the cells of one selection, with cached results."""

    __slots__ = (
        "_charge",
        "_dominants",
        "_most",
        "_parts",
        "_peaks",
        "_plain",
        "account",
        "selection",
    )

    def __init__(self, account: Account, selection: Selection) -> None:
        self.account, self.selection = account, selection
        self._charge: Charge | None = None
        """The charge that was compared last; ``_plain``: nothing is infinite in it or the sums."""
        self._plain = False
        self._parts: list[Part] | None = None
        self._most: dict[int, int | None] = {}
        self._dominants: dict[int | None, Peak | None] = {}
        self._peaks: dict[tuple[int | None, Limit], Peak] = {}

    @property
    def parts(self) -> list[Part]:
        """The sums of the selected cells, a part a box."""
        if self._parts is None:
            self._parts = self.account.used.parts(self.selection)
        return self._parts

    def most(self, row: int) -> int | None:
        """Return the largest sum of a selected cell; None if one is infinite."""
        if row not in self._most:
            self._most[row] = self._find_most(row)
        return self._most[row]

    def _find_most(self, row: int) -> int | None:
        plain = self.account.used.plain
        if not plain and any(bool(part.infinite_row(row).any()) for part in self.parts):
            return None
        return max(part.most(row) for part in self.parts)

    def fits(self, charge: Charge, capacity: Capacity) -> bool:
        """Return True if every selected cell can take ``charge``, which is on the axis of the
        account.
        """
        second = row_of(charge, capacity.second_currency)
        return self._surely(charge, capacity, second) or self._everywhere(charge, capacity)

    def _surely(self, charge: Charge, capacity: Capacity, second: int | None) -> bool:
        """Return True if a cell with all that was ever booked could take it: no cell holds more."""
        if charge is not self._charge:
            self._charge = charge
            self._plain = self.account.used.plain and not any(charge.infinite)
        if not self._plain:
            return False
        bound, finite = self.account.bound, charge.finite
        if bound[_DELTA] + finite[_DELTA] > capacity.own_delta:
            return False
        if bound[_EPSILON] + finite[_EPSILON] <= capacity.epsilon:
            return True
        most = capacity.second
        return second is not None and most is not None and bound[second] + finite[second] <= most

    def _everywhere(self, charge: Charge, capacity: Capacity) -> bool:
        second, most = row_of(charge, capacity.second_currency), capacity.second
        along = second is not None and most is not None and self._all(charge, second, most)
        basic = along or self._all(charge, _EPSILON, capacity.epsilon)
        if basic and self._all(charge, _DELTA, capacity.own_delta):
            return True
        return all(bool(mask.all()) for mask in self._masks(charge, capacity))

    def _all(self, charge: Charge, row: int, capacity: int) -> bool:
        most = None if charge.infinite[row] else self.most(row)
        return most is not None and most + charge.finite[row] <= capacity

    def _masks(self, charge: Charge, capacity: Capacity) -> list[Mask]:
        """Return a mask of the cells that can take ``charge``, for each part."""
        second = row_of(charge, capacity.second_currency)
        found = []
        for part in self.parts:
            fit = _fits(part, charge, _EPSILON, capacity.epsilon)
            if second is not None and capacity.second is not None:
                fit = fit | _fits(part, charge, second, capacity.second)
            found.append(fit & _fits(part, charge, _DELTA, capacity.own_delta))
        return found

    def peak(
        self, gate: Filter, limit: Limit, charge: Charge, capacity: Capacity
    ) -> tuple[bool, Peak]:
        """Return whether ``charge`` fits everywhere, and the peak: the cell that has spent most
        under ``gate``, among the cells that the charge does not fit on if there are any.
        """
        second = row_of(charge, capacity.second_currency)
        if not (self._surely(charge, capacity, second) or self._everywhere(charge, capacity)):
            return False, self._peak(_spent(gate, limit), second, self._masks(charge, capacity))
        if second not in self._dominants:
            self._dominants[second] = self._dominant(second)
        peak = self._dominants[second]
        if peak is None and (peak := self._peaks.get((second, limit))) is None:
            peak = self._peaks[second, limit] = self._peak(_spent(gate, limit), second, None)
        return True, peak

    def _dominant(self, second: int | None) -> Peak | None:
        """Return the first cell with the largest sums in all currencies that count, if there is
        one: it has spent most under every gate.
        """
        account, selection = self.account, self.selection
        sums = account.used
        if not sums.plain:
            return None
        beside = sums.everyone
        if sums.flat and len(selection.boxes) <= 1:
            used = (beside[0], beside[1]) if second is None else (*beside[:2], beside[second])
            return Peak(self._cell(0, 0), used)
        if (few := sums.few(_EPSILON, second, selection)) is not None:
            return self._dominant_of_few(few, second)
        if len(selection.boxes) > 1:
            return None
        [part] = self.parts
        epsilon = part.view(_EPSILON)
        at = int(epsilon.argmax())
        used = epsilon.item(at) + beside[_EPSILON], self._at(part, _DELTA, at)
        if second is not None:
            other = part.view(second)
            along = other.item(at)
            if along < other.item(other.argmax()):  # faster than max, which is a ufunc
                return None
            used = *used, along + beside[second]
        return Peak(self._cell(0, at), used)

    def _dominant_of_few(self, few: Integers, second: int | None) -> Peak | None:
        """Find the dominant cell where there are few cells; ``few`` are their sums by row, of
        epsilons first and in the gate's currency last.
        """
        sums = self.account.used
        most = np.maximum.reduce(few, axis=1)
        at = (few[0] == most[0]).tobytes().index(1)
        if few.item(-1, at) < most.item(-1):
            return None
        rows = (_EPSILON, _DELTA) if second is None else (_EPSILON, _DELTA, second)
        return Peak(_position(at, sums.shape), sums.at(rows, at))

    def _at(self, part: Part, row: int, at: int) -> int:
        """Return one sum. A row without any booking is not read."""
        return part.view(row).item(at) + part.everyone[row] if self.account.bound[row] else 0

    def _peak(self, spent: Spent, second: int | None, fit: list[Mask] | None) -> Peak:
        best: tuple[int, int, int] | None = None
        cell: Cell | None = None
        place = 0, 0
        for number, part in enumerate(self.parts):
            among = None if fit is None else np.flatnonzero(~fit[number])
            if among is not None and not among.size:
                continue
            *key, at = _top(part, second, spent, among)
            mine = self._cell(number, at)
            if best is None or tuple(key) > best or (tuple(key) == best and _before(mine, cell)):
                best, cell, place = (key[0], key[1], key[2]), mine, (number, at)
        number, at = place
        rows = (_EPSILON, _DELTA) if second is None else (_EPSILON, _DELTA, second)
        part = self.parts[number]
        closed = [bool(part.infinite_row(row)[at]) for row in rows]
        sums = [int(part.row(row)[at]) for row in rows]
        return Peak(cell, tuple(None if c else s for c, s in zip(closed, sums, strict=True)))

    def _cell(self, number: int, at: int) -> Cell | None:
        part, selection, shape = self.parts[number], self.selection, self.account.used.shape
        if part.cells is None:
            if selection.everyone:
                return None
            # All cells are alike; the first is quoted.
            return min(tuple(min(side) for side in box) for box in selection.boxes)
        if selection.everyone:
            return _position(at, shape) if shape else None
        return selection.layouts[number].cell(at)


def row_of(charge: Charge, currency: Currency | None) -> int | None:
    """Return the row of a currency in an account with the axis of ``charge``."""
    return None if currency is None else charge.axis.index(currency)


@lru_cache(maxsize=1_024)
def _position(at: int, shape: tuple[int, ...]) -> Cell:
    """Return the index in an array of ``shape`` of the cell at ``at`` in row-major order."""
    found = []
    for size in reversed(shape):
        at, place = divmod(at, size)
        found.append(place)
    return tuple(reversed(found))


Spent = Callable[[int, int], int]
"""Units of epsilon spent at sums of epsilons and of the gate's own currency; beyond ``LARGEST`` a
sum stands for one without a bound."""


def _spent(gate: Filter, limit: Limit) -> Spent:
    def spent(epsilon: int, second: int) -> int:
        found = gate.spent(
            limit,
            None if epsilon > LARGEST else epsilon,
            None if second > LARGEST else second,
        )
        return epsilon if found is None else found

    return spent


def _before(mine: Cell | None, other: Cell | None) -> bool:
    return mine is not None and other is not None and mine < other


def _fits(part: Part, charge: Charge, row: int, capacity: int) -> Mask:
    """Return a mask of the cells that stay within ``capacity`` in one currency. An infinite charge
    fits nowhere.
    """
    if charge.infinite[row]:
        return np.zeros(part.size, dtype=np.bool_)
    fit: Mask = (part.row(row) <= capacity - charge.finite[row]) & (part.infinite_row(row) == 0)
    return fit


def _top(
    part: Part, second: int | None, spent: Spent, among: NDArray[np.intp] | None
) -> tuple[int, int, int, int]:
    """Return (spent, epsilon, second, place) of the cell that has spent most, of the cells
    ``among`` or of all; of equals the one with the larger sums, then the first.
    """
    epsilon = _sums(part, _EPSILON, among)
    top = int(epsilon.argmax())
    places = [(int(epsilon[top]), 0, top)]
    if second is not None:
        other = _sums(part, second, among)
        places = [(int(epsilon[top]), int(other[top]), top)]
        if other[top] < other.max():
            places = frontier(epsilon, other)
            if len(places) > _MOST_PEELED:
                places = _crossing(epsilon, other, spent)
    *key, minus = max((spent(e, s), e, s, -at) for e, s, at in places)
    return key[0], key[1], key[2], -minus if among is None else int(among[-minus])


def _crossing(epsilon: Integers, second: Integers, spent: Spent) -> list[tuple[int, int, int]]:
    """Return the two cells of a long frontier among which the peak is. Along the frontier the sum
    of epsilons falls while the gate's own sum, and its epsilon, grow: the smaller of both is
    largest where they cross.
    """
    order = np.lexsort((-second, -epsilon))
    along = second[order]
    order = order[along > np.concatenate([[-1], np.maximum.accumulate(along)[:-1]])]

    def point(place: int) -> tuple[int, int, int]:
        at = int(order[place])
        return int(epsilon[at]), int(second[at]), at

    def comes_to(place: int) -> int:
        return spent(*point(place)[:2])

    places = range(len(order))
    first = bisect_left(places, True, key=lambda place: comes_to(place) >= point(place)[0])
    found = list(places[first : first + 1])
    if first:
        found.append(bisect_left(places, comes_to(first - 1), 0, first - 1, key=comes_to))
    return list(map(point, found))


def _sums(part: Part, row: int, among: NDArray[np.intp] | None) -> Integers:
    """Return the sums of a row, an infinite one as ``LARGEST`` and one for each infinite charge."""
    finite = part.row(row)
    if among is not None:
        finite = finite[among]
    if part.infinite is None and not part.everyone_infinite[row]:
        return finite
    infinite = part.infinite_row(row)
    if among is not None:
        infinite = infinite[among]
    return np.where(infinite > 0, LARGEST + infinite, finite)


def frontier(epsilon: Integers, second: Integers) -> list[tuple[int, int, int]]:
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


def times(reading: Reading, charge: Charge, capacity: Capacity) -> int:
    """Return how many times ``charge``, which is on the account's axis, fits on every selected
    cell.
    """
    second = row_of(charge, capacity.second_currency)
    fewest = []
    for part in reading.parts:
        basic = _times(part, charge, _EPSILON, capacity.epsilon)
        if second is not None and capacity.second is not None:
            basic = np.maximum(basic, _times(part, charge, second, capacity.second))
        own = _times(part, charge, _DELTA, capacity.own_delta)
        fewest.append(int(np.minimum(basic, own).min()))
    return min(fewest)


def _times(part: Part, charge: Charge, row: int, capacity: int) -> Integers:
    one = charge.finite[row]
    closed = part.infinite_row(row) > 0
    left = np.where(closed, -1, min(capacity, LARGEST) - part.row(row))
    if charge.infinite[row]:
        return np.zeros_like(left)
    return np.where(left < 0, 0, left // one if one else np.iinfo(np.int64).max)
