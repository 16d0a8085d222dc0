"""Reading an account over a selection: whether a charge fits on every cell, and which cell is
quoted.

A charge fits on a cell if own delta fits, and epsilon fits or the gate's own currency fits
(privacy/filters). The cell that is quoted, the *peak*, is the one that has spent most, among those
that the charge does not fit on or among all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from operator import add, le
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.part import Integers, Part
from accountant.budget.population.selection import Selection
from accountant.privacy.filters import Capacity, Filter, Limit, Line
from accountant.privacy.units import INFINITE, LARGEST, Axis, Charge

_EPSILON: Final = 0
_DELTA: Final = 1
"""Rows that every account begins with."""

_BY_HAND: Final = 64
"""Sums up to which lists take less time than arrays."""
_EXACTLY: Final = 256
"""Sums up to which what cells have spent is worked out in less time than guessed."""

Cell = tuple[int, ...]
Rows = tuple[int, ...]
"""The rows of a gate's own currencies."""
Mask = NDArray[np.bool_]


class Peak(Struct, frozen=True, eq=False, gc=False):
    """The sums of one cell in the currencies that are compared: epsilon, own delta and the gate's
    own. None stands for infinity; so does it for the cell where all cells are alike.
    """

    cell: Cell | None
    used: tuple[int | None, ...]
    _kept: dict[str, Any] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Peak):
            return NotImplemented
        return (self.cell, self.used) == (other.cell, other.used)

    __ne__ = object.__ne__  # the structure's own would look at all fields

    def __hash__(self) -> int:
        return hash((self.cell, self.used))

    @property
    def kept(self) -> dict[str, Any]:
        """The integers as events hold them, with the cell. They are spelled once for all rules that
        count the same: do not change them.
        """
        if self._kept is None:
            kept: dict[str, Any] = {"used": [INFINITE if u is None else str(u) for u in self.used]}
            force_setattr(self, "_kept", kept if self.cell is None else kept | {"cell": self.cell})
        return self._kept or {}


_UNKNOWN: Final = Peak(None, ())


class Reading:
    """The sums of one account over the cells of one selection, with cached results."""

    __slots__ = (
        "_charge",
        "_dominants",
        "_most",
        "_most_after",
        "_parts",
        "_peaks",
        "account",
        "selection",
    )

    def __init__(self, account: Account, selection: Selection) -> None:
        self.account, self.selection = account, selection
        self._charge: Charge | None = None
        """The charge that was compared last."""
        self._most_after: list[int] | None = None
        """What no cell would hold more of with it; None if it, or a sum, is infinite."""
        self._parts: list[Part] | None = None
        self._most: dict[int, int | None] = {}
        self._dominants: dict[Rows, Peak | None] = {}
        self._peaks: dict[tuple[Rows, Limit], Peak] = {}

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
        rows = rows_of(charge.axis, capacity.currencies)
        return self._surely(charge, capacity, rows) or self._everywhere(charge, capacity, rows)

    def _surely(self, charge: Charge, capacity: Capacity, rows: Rows) -> bool:
        """Return True if a cell with all that was ever booked could take it: no cell holds more."""
        if charge is not self._charge:
            self._charge, account = charge, self.account
            plain = account.used.plain and not any(charge.infinite)
            self._most_after = list(map(add, account.bound, charge.finite)) if plain else None
        after = self._most_after
        if after is None or after[_DELTA] > capacity.own_delta:
            return False
        within = after[_EPSILON] <= capacity.epsilon
        return within or any(map(le, map(after.__getitem__, rows), capacity.along))

    def _everywhere(self, charge: Charge, capacity: Capacity, rows: Rows) -> bool:
        along = zip(rows, capacity.along, strict=True)
        basic = any(self._all(charge, row, most) for row, most in along)
        basic = basic or self._all(charge, _EPSILON, capacity.epsilon)
        if basic and self._all(charge, _DELTA, capacity.own_delta):
            return True
        return all(bool(mask.all()) for mask in self._masks(charge, capacity, rows))

    def _all(self, charge: Charge, row: int, capacity: int) -> bool:
        most = None if charge.infinite[row] else self.most(row)
        return most is not None and most + charge.finite[row] <= capacity

    def _masks(self, charge: Charge, capacity: Capacity, rows: Rows) -> list[Mask]:
        """Return a mask of the cells that can take ``charge``, for each part."""
        return [_mask(part, charge, capacity, rows) for part in self.parts]

    def misfits(self, charge: Charge, capacity: Capacity) -> list[tuple[Part, Mask]]:
        """Return the parts, each with a mask of the cells that cannot take ``charge``, which is on
        the axis of the account.
        """
        parts, rows = self.parts, rows_of(charge.axis, capacity.currencies)
        met = parts[0].met
        if met is not None and met.known < met.classes.count:  # of cells that came later, too
            whole = met.classes.met(self.selection)
            parts = self.account.used.parts(self.selection, met=whole)
        return [(part, ~_mask(part, charge, capacity, rows)) for part in parts]

    def peak(
        self, gate: Filter, limit: Limit, charge: Charge, capacity: Capacity
    ) -> tuple[bool, Peak]:
        """Return whether ``charge`` fits everywhere, and the peak: the cell that has spent most
        under ``gate``, among the cells that the charge does not fit on if there are any.
        """
        rows = rows_of(charge.axis, capacity.currencies)
        if not (self._surely(charge, capacity, rows) or self._everywhere(charge, capacity, rows)):
            return False, self._peak(gate, limit, rows, self._masks(charge, capacity, rows))
        peak = self._dominants.get(rows, _UNKNOWN)
        if peak is _UNKNOWN:
            peak = self._dominants[rows] = self._dominant(rows)
        if peak is None and (peak := self._peaks.get((rows, limit))) is None:
            peak = self._peaks[rows, limit] = self._peak(gate, limit, rows, None)
        return True, peak

    def _dominant(self, rows: Rows) -> Peak | None:
        """Return the first cell with the largest sums in all currencies that count, if there is
        one: it has spent most under every gate.
        """
        account, selection = self.account, self.selection
        sums = account.used
        beside = sums.everyone
        if self._most_after is None and not sums.plain:
            return None
        if sums.flat and len(selection.boxes) <= 1:
            return Peak(self._cell(0, 0), (beside[0], beside[1], *[beside[row] for row in rows]))
        if (few := self._few()) is not None:
            return self._dominant_of_few(few, rows)
        part = self.parts[0]
        if part.met is not None:
            return self._dominant_class(part, rows)
        return None if len(selection.boxes) > 1 else self._dominant_in(part, rows)

    def _few(self) -> Integers | None:
        """Return the finite sums (rows, cells) of few cells, without those of everyone: of those
        selected, or of all, far below zero where they are not. None if there are too many.
        """
        sums, selection = self.account.used, self.selection
        picked = sums.picked(selection)
        return sums.few(selection) if picked is None else picked

    def _cell_of_few(self, at: int, count: int) -> Cell:
        """Return the cell at a place of the ``count`` cells that ``_few`` has returned. Where these
        are all cells, their order is that of a selection of all.
        """
        shape = self.account.used.shape
        return _position(at, shape) if count == prod(shape) else self.selection.cell(at)

    def _dominant_in(self, part: Part, rows: Rows) -> Peak | None:
        """Find the dominant cell of a box."""
        beside = self.account.used.everyone
        at = part.top(_EPSILON)
        used = [part.view(_EPSILON).item(at) + beside[_EPSILON], self._at(part, _DELTA, at)]
        for row in rows:
            other = part.view(row)
            along = other.item(at)
            if along < other.item(part.top(row)):  # faster than max, which is a ufunc
                return None
            used.append(along + beside[row])
        return Peak(self._cell(0, at), tuple(used))

    def _dominant_of_few(self, few: Integers, rows: Rows) -> Peak | None:
        """Find the dominant cell of ``few``."""
        at = 0
        if few.size <= _BY_HAND:
            return self._dominant_of_some(few.tolist(), rows)
        if few.size > len(few):  # of one cell there is nothing to find
            most = np.maximum.reduce(few, axis=1)
            at = (few[_EPSILON] == most[_EPSILON]).tobytes().index(1)
            for row in rows:
                if few.item(row, at) < most.item(row):
                    return None
        return self._peak_at(few, rows, at)

    def _peak_at(self, few: Integers, rows: Rows, at: int) -> Peak:
        """Return the cell at a place of ``few`` with its sums."""
        beside, shown = self.account.used.everyone, (_EPSILON, _DELTA, *rows)
        used = [few.item(row, at) + beside[row] for row in shown]
        return Peak(self._cell_of_few(at, few.shape[1]), tuple(used))

    def _dominant_of_some(self, few: list[list[int]], rows: Rows) -> Peak | None:
        """Return the same of so few cells that it takes less time without arrays."""
        beside, epsilons = self.account.used.everyone, few[_EPSILON]
        at = 0
        if len(epsilons) > 1:
            at = epsilons.index(max(epsilons))
            for row in rows:
                if few[row][at] < max(few[row]):
                    return None
        used = [few[row][at] + beside[row] for row in (_EPSILON, _DELTA, *rows)]
        return Peak(self._cell_of_few(at, len(epsilons)), tuple(used))

    def _dominant_class(self, part: Part, rows: Rows) -> Peak | None:
        """Find the first cell of the dominant classes."""
        at = part.top(_EPSILON)
        for row in rows:
            if part.view(row).item(at) < part.view(row).item(part.top(row)):
                return None
        at, cell = self._first_alike(part, [part.view(row) for row in (_EPSILON, *rows)], at, None)
        beside = self.account.used.everyone
        used = [part.view(row).item(at) + beside[row] for row in (_EPSILON, _DELTA, *rows)]
        return Peak(cell, tuple(used))

    def _first_alike(
        self, part: Part, columns: Sequence[Integers], top: int, among: Integers | None
    ) -> tuple[int, Cell]:
        """Return the class, by its place in ``part``, and the cell itself, of the first cell of the
        classes that hold the same in ``columns`` as the one at ``top``: those ``among``, or all.
        """
        assert part.met is not None  # noqa: S101 for the type checker
        same = np.logical_and.reduce([column == column[top] for column in columns])
        alike = np.flatnonzero(same)
        alike = alike if among is None else among[alike]
        cell = part.met.first(self.selection, alike)
        return part.met.place(cell), cell

    def _at(self, part: Part, row: int, at: int) -> int:
        """Return one sum. A row without any booking is not read."""
        return part.view(row).item(at) + part.everyone[row] if self.account.bound[row] else 0

    def _peak(self, gate: Filter, limit: Limit, rows: Rows, fit: list[Mask] | None) -> Peak:
        sums = self.account.used
        if fit is None and sums.plain and (few := self._few()) is not None:
            columns = [few[row] + sums.everyone[row] for row in (_EPSILON, *rows)]
            return self._peak_at(few, rows, most_spent(gate, limit, columns)[-1])
        best: tuple[int, ...] | None = None
        cell: Cell | None = None
        place = 0, 0
        for number, part in enumerate(self.parts):
            among = None if fit is None else np.flatnonzero(~fit[number])
            if among is not None and not among.size:
                continue
            columns = [sums_of(part, row, among) for row in (_EPSILON, *rows)]
            *key, top = most_spent(gate, limit, columns)
            at = top if among is None else int(among[top])
            if part.met is not None:  # the only part
                at, cell = self._first_alike(part, columns, top, among)
                place = number, at
                break
            mine = self._cell(number, at)
            if best is None or tuple(key) > best or (tuple(key) == best and _before(mine, cell)):
                best, cell, place = tuple(key), mine, (number, at)
        number, at = place
        part = self.parts[number]
        return Peak(cell, tuple([part.at(row, at) for row in (_EPSILON, _DELTA, *rows)]))

    def _cell(self, number: int, at: int) -> Cell | None:
        part, selection, shape = self.parts[number], self.selection, self.account.used.shape
        if part.cells is None:
            if selection.everyone:
                return None
            # All cells are alike; the first is quoted.
            return min(tuple(min(side) for side in box) for box in selection.boxes)
        if selection.everyone:
            return _position(part.place(at), shape) if shape else None
        return selection.layouts[number].cell(part.place(at))


@lru_cache(maxsize=1_024)
def rows_of(axis: Axis, currencies: Axis) -> Rows:
    """Return the rows of ``currencies`` in an account with this axis."""
    return tuple(map(axis.index, currencies))


@lru_cache(maxsize=1_024)
def _position(at: int, shape: tuple[int, ...]) -> Cell:
    """Return the index in an array of ``shape`` of the cell at ``at`` in row-major order."""
    found = []
    for size in reversed(shape):
        at, place = divmod(at, size)
        found.append(place)
    return tuple(reversed(found))


def _before(mine: Cell | None, other: Cell | None) -> bool:
    return mine is not None and other is not None and mine < other


def _mask(part: Part, charge: Charge, capacity: Capacity, rows: Rows) -> Mask:
    """Return a mask of the cells of a part that can take ``charge``."""
    fit = _fits(part, charge, _EPSILON, capacity.epsilon)
    for row, most in zip(rows, capacity.along, strict=True):
        fit = fit | _fits(part, charge, row, most)
    return fit & _fits(part, charge, _DELTA, capacity.own_delta)


def _fits(part: Part, charge: Charge, row: int, capacity: int) -> Mask:
    """Return a mask of the cells that stay within ``capacity`` in one currency. An infinite charge
    fits nowhere.
    """
    if charge.infinite[row]:
        return np.zeros(part.size, dtype=np.bool_)
    fit: Mask = (part.row(row) <= capacity - charge.finite[row]) & (part.infinite_row(row) == 0)
    return fit


def most_spent(gate: Filter, limit: Limit, columns: Sequence[Integers]) -> tuple[int, ...]:
    """Return (spent, epsilon, sums along the lines ..., place) of the cell that has spent most, by
    ``columns`` of the sums of epsilons and along the lines of ``gate``. Of equals it is the one
    with the larger sums, then the first. A sum above ``LARGEST`` has an infinite charge.

    Where one cell has the largest sum of each column, it is the first such cell. Else the cells
    that have spent least are left out by whole numbers, and if many others are left, floats find
    those of them that come into question; among those it is exact.
    """

    def spent(sums: Sequence[int]) -> int:
        return spent_in(gate, limit, sums)

    tops = [int(column.argmax()) for column in columns]
    places: Sequence[int] = tops[:1]
    if any(column[tops[0]] < column[top] for column, top in zip(columns, tops, strict=True)):
        least = max(spent([int(column[top]) for column in columns]) for top in tops)
        kept = _spending(gate, limit, columns, least)
        if kept.size * len(columns) > _EXACTLY:
            kept = _nearest(gate, limit, columns, kept)
        places = kept.tolist()

    each = [[int(column[at]) for column in columns] for at in places]
    *key, minus = max((spent(sums), *sums, -at) for sums, at in zip(each, places, strict=True))
    return (*key, -minus)


def _nearest(
    gate: Filter, limit: Limit, columns: Sequence[Integers], among: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return the places of the cells that may have spent most by floats, of equals the first."""
    epsilon, *along = [column[among] for column in columns]
    about, slack = gate.roughly(limit, epsilon, along)
    near = among[about >= about.max() - 2 * slack]
    _, first = np.unique(np.stack([column[near] for column in columns]), axis=1, return_index=True)
    found: NDArray[np.intp] = near[first]
    return found


def spent_in(gate: Filter, limit: Limit, sums: Sequence[int]) -> int:
    """Return what a cell has spent, by its sum of epsilons and its sums along the lines of
    ``gate``; one above ``LARGEST`` has an infinite charge.
    """
    finite = [None if one > LARGEST else one for one in sums]
    found = gate.spent(limit, finite[0], finite[1:])
    return sums[0] if found is None else found


def _spending(
    gate: Filter, limit: Limit, columns: Sequence[Integers], least: int
) -> NDArray[np.intp]:
    """Return the places of the cells that may have spent ``least`` or more, among them all that
    have: what a cell has spent is at most its sum of epsilons, and at most what each line shows.
    """
    may: Mask = columns[0] >= least
    for line, sums in zip(gate.lines(limit) if least > 0 else (), columns[1:], strict=False):
        # Up to this sum the line shows less; one above LARGEST is infinite, and bounds nothing.
        less = min((line.d * (least - 1) - line.b) // line.a, LARGEST)
        may &= sums > max(-1, less)
    return np.flatnonzero(may)


def deciding(
    gate: Filter, limit: Limit, epsilon: int | None, along: Sequence[int | None]
) -> Line | None:
    """Return the line of ``gate`` that decides what a cell with these sums has spent; None if the
    sum of epsilons does. Arguments as of ``Filter.spent``.
    """
    least, found = epsilon, None
    for line, second in zip(gate.lines(limit), along, strict=True):
        if second is None:
            continue
        units = line.spent(second)
        if least is None or units < least:
            least, found = units, line
    return found


def sums_of(part: Part, row: int, among: NDArray[np.intp] | None = None) -> Integers:
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


def times(reading: Reading, charge: Charge, capacity: Capacity) -> int:
    """Return how many times ``charge``, which is on the account's axis, fits on every selected
    cell.
    """
    rows = rows_of(charge.axis, capacity.currencies)
    along = zip(rows, capacity.along, strict=True)
    basic = [_Room.of(charge, row, most) for row, most in ((_EPSILON, capacity.epsilon), *along)]
    own = _Room.of(charge, _DELTA, capacity.own_delta)
    fewest = []
    for part in reading.parts:
        fewest.append(int(own.times(sums_of(part, _DELTA).max())))
        fewest.append(_fewest(basic, [sums_of(part, room.row) for room in basic]))
    return min(fewest)


class _Room(NamedTuple):
    """What a row may come to, and what a charge adds to it each time; None if that is infinite."""

    row: int
    most: int
    each: int | None

    @classmethod
    def of(cls, charge: Charge, row: int, capacity: int) -> _Room:
        each = None if charge.infinite[row] else charge.finite[row]
        return cls(row, min(capacity, LARGEST), each)

    def times(self, sums: Any) -> Integers:
        """Return how many times the charge fits beside ``sums``, which are infinite above
        ``LARGEST``.
        """
        left = self.most - np.asarray(sums, dtype=np.int64)
        often = np.iinfo(np.int64).max if self.each == 0 else left // (self.each or 1)
        return np.where((left < 0) | (self.each is None), 0, often)

    def beyond(self, times: int) -> int:
        """Return the largest sum beside which the charge fits ``times`` times, if any does."""
        return self.most - times * (self.each or 0) if self.each is not None else -1


def _fewest(rooms: Sequence[_Room], columns: Sequence[Integers]) -> int:
    """Return how often a charge fits on every cell, where on each the row with most room counts.

    It fits least often where sums are large. So only cells are looked at that have less room, in
    every row, than that which has the largest sum of one row.
    """
    tops = [int(column.argmax()) for column in columns]
    found = _most_room(rooms, [column[tops] for column in columns])
    if not found:
        return 0
    less = [column > room.beyond(found) for room, column in zip(rooms, columns, strict=True)]
    among = np.flatnonzero(np.logical_and.reduce(less))
    if not among.size:
        return found
    return min(found, _most_room(rooms, [column[among] for column in columns]))


def _most_room(rooms: Sequence[_Room], columns: Sequence[Integers]) -> int:
    each = [room.times(column) for room, column in zip(rooms, columns, strict=True)]
    return int(np.maximum.reduce(each).min())
