"""The atoms of one account as tables: which of them each known selection consists of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from accountant.budget.express.atoms import Atom, Places
from accountant.budget.meter import Integers


class Grid:
    """Rows are the known selections, by number."""

    __slots__ = ("_groups", "_members", "_one_box", "reached")

    def __init__(
        self,
        atoms: Sequence[Atom],
        inside: Sequence[Sequence[Atom] | None],
        places: Sequence[Places],
    ) -> None:
        """Of each selection: the atoms it consists of, None where these are not told apart, and
        where they lie.
        """
        number = {id(atom): i for i, atom in enumerate(atoms)}
        self.reached: Integers = np.zeros((len(inside), len(atoms)), dtype=np.int64)
        """1 where a charge on the selection reaches the atom, else 0."""
        for row, own in enumerate(inside):
            self.reached[row, [number[id(atom)] for atom in own or ()]] = 1
        most = max(len(boxes[0][1]) for boxes in places)
        self._members: NDArray[np.intp] = np.zeros((len(places), most), dtype=np.intp)
        self._groups: Integers = np.zeros((len(places), most), dtype=np.int64)
        # Which box counts depends on how many cells it has (``limits``).
        self._one_box = np.array([len(boxes) == 1 for boxes in places])
        for row, boxes in enumerate(places):
            members = boxes[0][1]
            members = members + [members[0]] * (most - len(members))  # never the first of equals
            self._members[row] = [number[id(atom)] for atom, _ in members]
            self._groups[row] = [group for _, group in members]

    def tightest(
        self, sums: Integers, selections: NDArray[np.intp]
    ) -> tuple[Integers, Integers, int]:
        """Of each request on one of the ``selections``: the sums of the tightest cell and its
        group, where the atoms hold ``sums`` (requests x atoms x currencies). And how many requests
        come before the first of which that cannot be told: no cell has used most in every currency.
        """
        each = np.arange(len(selections))
        among = sums[each[:, None], self._members[selections]]
        first = among[:, :, 0].argmax(axis=1)
        found = among[each, first]
        told = self._one_box[selections] & (found == among.max(axis=1)).all(axis=1)
        count = len(told) if told.all() else int(told.argmin())
        return found, self._groups[selections, first], count
