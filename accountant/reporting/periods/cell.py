"""What one cell of one account holds, and what open grants hold of it: event by event, in units.

A cell is a position on each dimension. Values are only ever appended to a dimension, so a cell
keeps its position; before its values were there it holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import sub
from typing import Final, NamedTuple

import numpy as np

from accountant.budget.accounts.classes import Cell
from accountant.budget.facts import grant_in
from accountant.budget.outcome import ADMITTED, REGISTRATIONS, RESERVED
from accountant.budget.population.selection import Selection
from accountant.budget.state import AccountKey, State
from accountant.ledger.events import Event
from accountant.reporting.history import ADOPTED, RECOVERED, SETTLING
from accountant.reporting.peak_cell import Columns

ALL_GRANTS: Final = frozenset(
    {
        ADOPTED,
        "population.registered.v1",
        "population.extended.v1",
        *REGISTRATIONS,
        "ledger.carried_over.v1",
        RECOVERED,
    }
)
"""Events that may change the bookings of any open grant."""


class Held(NamedTuple):
    """The sums of a cell in each currency of its account, finite ones and below them the numbers of
    infinite charges: ``used``, and what of it is ``reserved``.
    """

    used: tuple[int, ...]
    reserved: tuple[int, ...]

    @property
    def spent(self) -> tuple[int, ...]:
        """What is used and not reserved."""
        return minus(self.used, self.reserved)

    def column(self, *, spent: bool = False) -> Columns:
        """Return the sums as a rule reads those of one cell."""
        sums = np.array(self.spent if spent else self.used, dtype=np.int64)
        return Columns.stacked(sums.reshape(-1, 1))


def minus(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """Return the difference, row by row."""
    return tuple(map(sub, left, right))


class CellBook:
    """Follows a cell of an account, whose key may change with each policy."""

    def __init__(self, state: State, key: AccountKey, cell: Cell) -> None:
        self.key, self._cell = key, cell
        self._grants: dict[str, tuple[int, ...]] = {}
        """What each open grant holds of the cell."""
        self._sum: tuple[int, ...] = ()
        self._recount(state)

    def turn_to(self, state: State, key: AccountKey) -> None:
        """Follow the cell in another account from now on."""
        self.key = key
        self._recount(state)

    def add(self, state: State, event: Event) -> None:
        """Follow an event that the state has folded in."""
        if event.type in (RESERVED, ADMITTED):
            name = grant_in(event)
            self._hold(state, name)
        elif event.type in SETTLING:
            if (gone := self._grants.pop(grant_in(event), None)) is not None:
                self._sum = minus(self._sum, gone)
        elif event.type in ALL_GRANTS:
            self._recount(state)

    def holds(self, grant: str) -> bool:
        """Return whether an open grant holds anything of the cell."""
        return grant in self._grants

    def read(self, state: State) -> Held:
        """Return what the cell holds now, at the stamp of the state."""
        sums = state.seen(self.key).used
        shape = sums.shape
        there = all(at < size for at, size in zip(self._cell, shape, strict=False))
        if len(shape) != len(self._cell) or not there:
            return Held((0,) * (2 * sums.rows), (0,) * (2 * sums.rows))
        return Held(sums.column(self._cell), self._sum or (0,) * (2 * sums.rows))

    def _recount(self, state: State) -> None:
        self._grants, self._sum = {}, ()
        for name in state.open:
            self._hold(state, name)

    def _hold(self, state: State, name: str) -> None:
        grant = state.open[name]
        for key, booked in grant.bookings:
            if key == self.key and self._reached(state.cells(key.unit, grant.selection)):
                held = (*booked.finite, *booked.infinite)
                self._grants[name] = held
                self._sum = tuple(map(sum, zip(self._sum or (0,) * len(held), held, strict=True)))

    def _reached(self, selection: Selection) -> bool:
        if selection.everyone:
            return True
        pairs: Iterable[bool] = (
            all(at in side for at, side in zip(self._cell, box, strict=True))
            for box in selection.boxes
        )
        return any(pairs)
