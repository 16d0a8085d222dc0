"""The changes that were written, added up again: they must be what the accounts hold."""

from __future__ import annotations

import numpy as np

from accountant.budget.accounts.sums import Integers
from accountant.budget.accounts.sums import Sums as Cells
from accountant.budget.grants import AccountKey
from accountant.budget.population.selection import Selection
from accountant.budget.state import State
from accountant.publishing.fleet.changes import Change
from accountant.publishing.fleet.differences import pictures
from accountant.store.ledgers import StoreError


class Sums:
    """A sum for each account and group of cells, as any SQL engine makes them of the same rows."""

    def __init__(self) -> None:
        self._of: dict[AccountKey, dict[Selection, Integers]] = {}

    def add(self, change: Change) -> None:
        """Adds one change."""
        groups = self._of.setdefault(change.key, {})
        units = np.array(change.reserved + change.spent, dtype=np.int64)
        known = groups.setdefault(change.selection, units)
        if known is not units:
            known += units

    def agree(self, state: State) -> None:
        """Raises StoreError unless they are what ``state`` holds, in every cell of every account:
        tables that say something else must not come into the world.
        """
        for key, (everyone, cells) in pictures(state, state.time).items():
            shape = state.people().shape
            rows = len(everyone)
            added = Cells(rows, shape)
            for selection, units in self._of.pop(key, {}).items():
                added.add(selection, units.tolist(), [0] * rows)
            held = everyone.reshape(-1, *(1,) * len(shape)) + (0 if cells is None else cells)
            if not np.array_equal(added.cells(), np.broadcast_to(held, added.cells().shape)):
                raise StoreError(
                    f"the charges of {state.ledger} do not add up to what {tuple(key)} holds: "
                    "nothing is exported; run `accountant replay` on the ledger"
                )
        if self._of:
            raise StoreError(f"charges of {state.ledger} are in no account: {list(self._of)}")
