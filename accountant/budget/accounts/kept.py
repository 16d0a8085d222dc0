"""What allotments keep of a limit, cell by cell, beside what is used of it (rules/allotment.py).

To those who do not draw from an allotment, what is left of it is like a reservation that nobody
owns: a charge has to fit beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.part import Integers, Part
from accountant.budget.accounts.peak import Cell, Peak, Reading, Rows
from accountant.budget.population.selection import Selection
from accountant.privacy.filters import Capacity
from accountant.privacy.units import Charge

_ROWS: Final = 2
"""Epsilon and delta, the currencies that allotments keep."""


class Kept(NamedTuple):
    """An allotment: how much it keeps, and what was drawn from it."""

    most: Capacity
    drawn: Account

    @property
    def sides(self) -> tuple[int, int]:
        """The units of epsilon and delta that it keeps."""
        return self.most.epsilon, self.most.own_delta

    def left(self, cell: Cell | None) -> list[int]:
        """Return the units of epsilon and delta that it still keeps in a cell."""
        found = (self.drawn.used.of(row, cell) for row in range(_ROWS))
        sides = zip(self.sides, found, strict=True)
        return [0 if infinite else max(0, most - used) for most, (used, infinite) in sides]


class Beside(Reading):
    """The sums of an account with what allotments keep of it, over the cells of one selection."""

    __slots__ = ("_kept",)

    def __init__(self, account: Account, selection: Selection, kept: Sequence[Kept]) -> None:
        super().__init__(account, selection)
        self._kept = kept

    @property
    def parts(self) -> list[Part]:
        """The sums of the selected cells, a part a box."""
        if self._parts is None:
            of = [self.account, *(one.drawn for one in self._kept)]
            met = self.account.used.met(self.selection)
            each = [account.used.parts(self.selection, alike=True, met=met) for account in of]
            most = max(
                map(len, each)
            )  # an account whose cells are alike has one part for all boxes
            boxes = zip(*(parts * (most // len(parts)) for parts in each), strict=True)
            self._parts = [self._beside(used, drawn) for used, *drawn in boxes]
        return self._parts

    def _beside(self, used: Part, drawn: Sequence[Part]) -> Part:
        rows = len(self.account.axis)
        size = max(part.size for part in (used, *drawn))
        sums = [np.broadcast_to(used.row(row), size) for row in range(rows)]
        infinite = [np.broadcast_to(used.infinite_row(row), size) for row in range(rows)]
        for one, part in zip(self._kept, drawn, strict=True):
            for row, most in enumerate(one.sides):
                sums[row] = sums[row] + _left(part, row, most)
        if size == 1 and all(part.cells is None for part in (used, *drawn)):
            everyone, closed = ([int(row[0]) for row in each] for each in (sums, infinite))
            return Part(None, None, everyone, closed)
        beside = [0] * rows
        met = next((part.met for part in (used, *drawn) if part.met is not None), None)
        return Part(np.stack(sums), np.stack(infinite), beside, beside, met=met)

    def split(self, peak: Peak) -> tuple[Peak, list[int]]:
        """Return the peak without what is kept there, and that."""
        left = [
            sum(each) for each in zip(*(one.left(peak.cell) for one in self._kept), strict=True)
        ]
        pairs = zip(peak.used, (*left, *[0] * (len(peak.used) - _ROWS)), strict=True)
        used = tuple(None if sums is None else sums - kept for sums, kept in pairs)
        return Peak(peak.cell, used), left

    def _surely(self, charge: Charge, capacity: Capacity, rows: Rows) -> bool:
        """Return False: what was booked in all says nothing of what is kept."""
        return False

    def _dominant(self, rows: Rows) -> Peak | None:
        """Return None: each cell is looked at."""
        return None

    def _few(self) -> Integers | None:
        """Return None: the account's sums are not all that counts."""
        return None


def _left(part: Part, row: int, most: int) -> Integers:
    """Return what is left of ``most`` in each cell, nothing where an infinite charge was drawn."""
    left: Integers = np.maximum(most - part.row(row), 0)
    left[part.infinite_row(row) > 0] = 0
    return left
