"""The sums of an account over one box of cells, as they are read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accountant.budget.accounts.classes import Met
from accountant.budget.accounts.integers import Integers
from accountant.budget.population.selection import Index

__all__ = ["Integers", "Part"]


class Part(NamedTuple):
    """The sums over one box of cells. A row is only looked at when it is asked for."""

    cells: Integers | None
    """Of all cells (rows, *shape); of those ``where`` or ``met`` tells (rows, cells)."""
    infinite: Integers | None
    everyone: list[int]
    """What everyone has beside, by row."""
    everyone_infinite: list[int]
    box: Index | None = None
    """Where the box is; None stands for all cells."""
    tops: dict[int, int] | None = None
    """The places of the largest finite sums, by row, as far as they were found."""
    where: Integers | None = None
    """The places in the box of the cells that are here: one stands for all that hold nothing beside
    everyone. None where all are here."""
    met: Met | None = None
    """The classes of cells that are here, in place of cells, whatever boxes they lie in."""

    def place(self, at: int) -> int:
        """Return the place in the box of the cell at ``at`` here."""
        return at if self.where is None else int(self.where[at])

    def view(self, row: int) -> Integers:
        """Return the finite sums of a row without the sums of everyone. There must be cells."""
        assert self.cells is not None  # noqa: S101 for the type checker
        cells: Integers = self.cells[row]
        return cells if self.box is None else cells[self.box]

    @property
    def size(self) -> int:
        """How many cells; one stands for all where they are alike."""
        return 1 if self.cells is None else self.view(0).size

    def row(self, row: int) -> Integers:
        """Return the finite sums of one currency, flat."""
        beside = self.everyone[row]
        if self.cells is None:
            return np.array([beside], dtype=np.int64)
        flat: Integers = self.view(row).reshape(-1)
        return flat + beside if beside else flat

    def most(self, row: int) -> int:
        """Return the largest finite sum of one currency."""
        if self.cells is None:
            return self.everyone[row]
        return self.view(row).item(self.top(row)) + self.everyone[row]

    def top(self, row: int) -> int:
        """Return the place of the largest finite sum of one currency, the first of equals."""
        known = {} if self.tops is None else self.tops
        if row not in known:
            known[row] = int(self.view(row).argmax())
        return known[row]

    def at(self, row: int, place: int) -> int | None:
        """Return the sum of one currency in the cell at ``place`` here; None if it is infinite."""
        if self.everyone_infinite[row]:
            return None
        if self.cells is None:
            return self.everyone[row]
        if self.infinite is not None and self.infinite_row(row)[place]:
            return None
        return self.view(row).item(place) + self.everyone[row]

    def infinite_row(self, row: int) -> Integers:
        """Return the numbers of infinite charges in one currency, flat."""
        beside = self.everyone_infinite[row]
        if self.infinite is None:
            return np.full(self.size, beside, dtype=np.int64)
        counts = self.infinite[row]
        flat: Integers = (counts if self.box is None else counts[self.box]).reshape(-1)
        return flat + beside
