"""How two pictures of an account differ, as charges to groups of cells.

Some events do not add one charge to one group: new cells inherit a largest sum, a lift goes up to
a least one, a new epoch starts from what another account holds. What they did is the difference
between before and after; cells that differ alike are one group, so that plain addition gets there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts import Account
from accountant.budget.meter import Integers
from accountant.budget.selection import EVERYONE, Box, Selection


class Picture(NamedTuple):
    """What an account holds, reserved above spent: everyone's part, and the cells' beside it."""

    everyone: Integers
    cells: Integers | None

    @classmethod
    def of(cls, account: Account) -> Picture:
        """A copy of what ``account`` holds now."""
        [used], [reserved] = account.used.parts(EVERYONE), account.reserved.parts(EVERYONE)
        everyone = np.concatenate([reserved.everyone, used.everyone - reserved.everyone])
        if used.cells is None and reserved.cells is None:
            return cls(everyone, None)
        rows, shape = account.used.rows, account.used.shape
        nothing = np.zeros((rows, *shape), dtype=np.int64)
        both = nothing if used.cells is None else used.cells
        held = nothing if reserved.cells is None else reserved.cells
        return cls(everyone, np.concatenate([held, both - held]))


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
    for boxes, column in _alike(cells):
        yield Selection(everyone=False, boxes=boxes), *_halves(column)


def _halves(column: Integers) -> tuple[list[int], list[int]]:
    values = column.tolist()
    return values[: len(values) // 2], values[len(values) // 2 :]


def _alike(cells: Integers) -> Iterator[tuple[tuple[Box, ...], Integers]]:
    """The cells that hold anything, those with the same sums together."""
    flat = cells.reshape(len(cells), -1)
    where = np.flatnonzero(flat.any(axis=0))
    if not where.size:
        return
    columns, kinds = np.unique(flat[:, where], axis=1, return_inverse=True)
    kinds = kinds.reshape(-1)
    places = np.stack(np.unravel_index(where, cells.shape[1:]), axis=1)
    order = np.argsort(kinds, kind="stable")  # within a kind the cells keep their order
    ends = np.cumsum(np.bincount(kinds))[:-1]
    for kind, part in enumerate(np.split(places[order], ends)):
        yield tuple(_boxes(part)), columns[:, kind]


def _boxes(places: NDArray[np.intp]) -> Iterator[Box]:
    """Disjoint boxes that are made of these cells, which are given in order, a row a cell."""
    if places.shape[1] == 1:
        yield (frozenset(places[:, 0].tolist()),)
        return
    firsts, starts = np.unique(places[:, 0], return_index=True)
    alike: dict[bytes, tuple[NDArray[np.intp], list[int]]] = {}
    for first, rest in zip(firsts.tolist(), np.split(places[:, 1:], starts[1:]), strict=True):
        alike.setdefault(rest.tobytes(), (rest, []))[1].append(first)
    for rest, side in alike.values():
        for box in _boxes(rest):
            yield (frozenset(side), *box)
