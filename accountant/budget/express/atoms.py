"""The cells of an account that no known selection tells apart, each such set with its sums once.

Whoever compares cells then compares a few sets of them, as plain integers. The first cell of a set
stands for it: among equals the first is the tightest (limits.py).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts import Account
from accountant.budget.limits import cell_of
from accountant.budget.meter import Integers
from accountant.budget.population import Population
from accountant.budget.selection import EVERYONE, Selection, index_of
from accountant.privacy.units import Currency

MOST_ATOMS: Final = 64
"""More would be slower than looking at all cells, and ``frontier`` peels no more than these."""
MOST_CELLS: Final = 1 << 14

Atom = list[int]
"""Finite sums and infinities of epsilon, of delta and in the gate's own currency, by turns."""

Member = tuple[Atom, int]
"""An atom with the number of the group that a finding names for it."""

Places = list[tuple[int, list[Member]]]
"""By box of a selection: how many cells, and its atoms in the order of their first cells."""


class Atoms:
    """The atoms of one account, and where they lie in the selections that are known."""

    __slots__ = ("_account", "_classes", "_groups", "_rows", "all", "cells")

    def __init__(self, account: Account, compared: tuple[Currency, ...]) -> None:
        n = len(account.axis)
        self._account = account
        self._rows = [r for c in compared for i in [account.axis.index(c)] for r in (i, n + i)]
        self.all: list[Atom] = []
        self._classes: NDArray[np.intp] | None = None
        self._groups: dict[tuple[int, ...] | None, int] = {}
        self.cells: list[tuple[int, ...] | None] = []
        """Those that a finding may name, by number; None is nobody in particular."""

    def look(self, selections: list[Selection]) -> bool:
        """Reads the sums as they stand. False if there are too many different ones."""
        used = self._account.used
        [sums] = used.parts(EVERYONE)
        if used.flat:
            column = sums.column(0).tolist()
            self._classes, self.all = None, [self._atom(column)]
            return True
        if sums.size > MOST_CELLS:
            return False
        classes: NDArray[np.intp] = np.zeros(sums.size, dtype=np.intp)
        for labels in [*(sums[row] for row in self._rows), *map(self._labels, selections)]:
            if labels is not None:
                classes = _finer(classes, labels)
        _, first = np.unique(classes, return_index=True)
        if len(first) > MOST_ATOMS:
            return False
        self._classes = classes.reshape(used.shape)
        self.all = [self._atom(sums.column(int(at)).tolist()) for at in first]
        return True

    def _atom(self, column: list[int]) -> Atom:
        found = [column[row] for row in self._rows]
        return found + [0] * (6 - len(found))

    def _labels(self, selection: Selection) -> Integers | None:
        if selection.everyone:
            return None
        labels = np.zeros(self._account.used.shape, dtype=np.int64)
        for number, box in enumerate(selection.boxes, 1):
            labels[index_of(box)] = number
        return labels.reshape(-1)

    def within(self, selection: Selection) -> list[Atom] | None:
        """The atoms of a known selection; None if none can be told apart yet."""
        if selection.everyone:
            return self.all
        if self._classes is None:
            return None
        found = {int(a) for box in selection.boxes for a in self._classes[index_of(box)].flat}
        return [self.all[number] for number in sorted(found)]

    def places(self, selection: Selection, people: Population) -> Places:
        """The atoms of each box of a known selection, in the order of their first cells."""
        found: Places = []
        for box, part in enumerate(self._account.used.parts(selection)):
            if self._classes is None:
                first = {0: 0}
            else:
                whole = selection.everyone
                classes = self._classes if whole else self._classes[index_of(selection.boxes[box])]
                numbers, at = np.unique(classes.reshape(-1), return_index=True)
                first = dict(zip(at.tolist(), numbers.tolist(), strict=True))
            members = []
            for at_cell, number in sorted(first.items()):
                cell = cell_of(self._account, selection, box, at_cell, part)
                group = self._groups.setdefault(cell, len(self.cells))
                if group == len(self.cells):
                    self.cells.append(cell)
                members.append((self.all[number], group))
            found.append((part.size, members))
        return found


def _finer(classes: NDArray[np.intp], labels: Integers) -> NDArray[np.intp]:
    """The classes, told apart by ``labels`` too."""
    values, which = np.unique(labels, return_inverse=True)
    _, finer = np.unique(classes * len(values) + which.reshape(-1), return_inverse=True)
    found: NDArray[np.intp] = finer.reshape(-1)
    return found
