"""How two pictures of an account differ, as charges to groups of cells.

Some events do not add one charge to one group: new cells inherit a largest sum, a lift goes up to
a least one, a new epoch starts from what another account holds. What they did is the difference
between before and after; cells that differ alike are one group, so that plain addition gets there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.sums import Integers, Sums
from accountant.budget.grants import AccountKey
from accountant.budget.population.alike import alike
from accountant.budget.population.selection import EVERYONE, Selection
from accountant.budget.state import State


class Picture(NamedTuple):
    """What an account holds, reserved above spent: everyone's part, and the cells' beside it."""

    everyone: Integers
    cells: Integers | None

    @classmethod
    def of(cls, account: Account, reserved: Sums | None) -> Picture:
        """What ``account`` holds now, and of that what is only reserved."""
        used = account.used
        nothing = Sums(used.rows, used.shape)
        held = reserved or nothing
        everyone = _everyone(used) - _everyone(held)
        both = np.concatenate([_everyone(held), everyone])
        if used.flat and held.flat:
            return cls(both, None)
        wide = (-1, *(1,) * len(used.shape))
        mine = used.stacked() - _everyone(used).reshape(wide)
        theirs = held.stacked() - _everyone(held).reshape(wide)
        return cls(both, np.concatenate([theirs, mine - theirs]))


def _everyone(sums: Sums) -> Integers:
    return np.array(sums.everyone + sums.everyone_infinite, dtype=np.int64)


def pictures(state: State, now: int) -> dict[AccountKey, Picture]:
    """What all accounts hold at stamp ``now``."""
    reserved = state.reserved()
    return {key: Picture.of(one.at(now), reserved.get(key)) for key, one in state.accounts.items()}


def differences(
    before: Picture | None, after: Picture
) -> Iterator[tuple[Selection, list[int], list[int]]]:
    """(cells, reserved, spent): added to ``before`` (None: nothing) they make ``after``, which may
    have more cells.
    """
    everyone = after.everyone - (0 if before is None else before.everyone)
    if everyone.any():
        yield EVERYONE, *_halves(everyone)
    if after.cells is None:
        return
    cells = after.cells.copy()
    if before is not None and before.cells is not None:
        cells[tuple(slice(side) for side in before.cells.shape)] -= before.cells
    for boxes, column in alike(cells):
        yield Selection(everyone=False, boxes=boxes), *_halves(column)


def _halves(column: Integers) -> tuple[list[int], list[int]]:
    values = column.tolist()
    return values[: len(values) // 2], values[len(values) // 2 :]
