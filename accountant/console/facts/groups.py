"""Who has lost how much: the use of a limit over two dimensions, each place by its worst cell.

A person lies in one cell, so that a place shows the most that anyone in it has lost, whatever they
are on the other dimensions. Of a dimension of many values the most charged ones are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np
from msgspec import Struct

from accountant.budget.accounts.part import Integers
from accountant.budget.population.selection import Box, ordered, side_of
from accountant.budget.state import Counted, State
from accountant.privacy.units import SURE, Currency, amount, show
from accountant.reporting.peak_cell import ByValue, Region, Ruler, Split, Worst

MOST_ROWS: Final = 24
MOST_COLUMNS: Final = 12
_UNBOUNDED: Final = 2**63
MOST_LOOKED_AT: Final = 4_000
"""Values of a dimension up to which the most charged ones are looked for; of more the first are
shown."""


class Side(Struct, frozen=True):
    """A dimension and those of its values that are shown, of ``values`` in all; ``chosen``: how
    they were chosen, empty if they are all.
    """

    dimension: str
    shown: tuple[str, ...]
    values: int
    chosen: str = ""


class Place(Struct, frozen=True):
    """The most that is spent or reserved of anyone in a place, and what is left there."""

    used: str
    left: str
    over: bool


class Groups(Struct, frozen=True):
    """Rows of places. Without ``columns`` each row has one place."""

    rows: Side
    columns: Side | None
    places: tuple[tuple[Place, ...], ...]


def groups(
    state: State, counted: Counted, by: Sequence[str], sums: Integers | None = None
) -> Groups | None:
    """Return the use of a limit by the dimensions ``by``, of which unknown ones are passed over;
    the first ones of the population where fewer than two are named. None without a dimension.
    ``sums``: what ``cells_of`` returns, if that is known.
    """
    people = state.people()
    names = [name for name, _ in people.dimensions]
    known = [name for name in dict.fromkeys(by) if name in names]
    axes = [names.index(name) for name in [*known, *(n for n in names if n not in known)][:2]]
    if not axes:
        return None
    cells = _Cells(state, counted, cells_of(state, counted) if sums is None else sums)
    chosen = [
        cells.chosen(axis, most)
        for axis, most in zip(axes, (MOST_ROWS, MOST_COLUMNS), strict=False)
    ]
    places = cells.by_two(axes, [positions for positions, _ in chosen])
    wide = len(chosen[1][0]) if len(axes) > 1 else 1
    sides = [
        Side(name, tuple(values[at] for at in positions), len(cells.box[axis]), how)
        for axis, (positions, how) in zip(axes, chosen, strict=True)
        for name, values in [people.dimensions[axis]]
    ]
    return Groups(
        rows=sides[0],
        columns=sides[1] if len(sides) > 1 else None,
        places=tuple(tuple(places[at : at + wide]) for at in range(0, len(places), wide)),
    )


def cells_of(state: State, counted: Counted) -> Integers:
    """Return the sums of an account (rows, ...), of all cells or classes; one that stands for all
    where nothing narrower than everyone was ever charged.
    """
    used = state.seen(counted.key).used
    if used.flat and counted.rule.subjects is None:
        one = [*used.everyone, *used.everyone_infinite]
        return np.array(one, dtype=np.int64).reshape(-1, 1)
    return used.stacked()


class _Cells:
    """The cells that a limit is about, read as it reads them."""

    def __init__(self, state: State, counted: Counted, sums: Integers) -> None:
        rule, people = counted.rule, state.people()
        self.box: Box = rule.box(people)
        self._region = Region(state.classes, None if rule.subjects is None else self.box)
        self._ruler = Ruler(rule, counted.epoch)
        # Only the sums that are compared: every pass over a million cells counts.
        known = self._ruler.axis
        axis = *SURE, *self._ruler.capacity.currencies
        rows = [known.index(currency) for currency in axis]
        self._sums: Integers = sums[[*rows, *(len(known) + row for row in rows)]]
        self._ruler.axis = axis
        self._alike = self._sums.shape[1:] == (1,)

    def chosen(self, axis: int, most: int) -> tuple[list[int], str]:
        """Return the positions that are shown of a dimension, at most so many, in their order, and
        how they were chosen.
        """
        positions = list(ordered(self.box[axis]))
        if len(positions) <= most:
            return positions, ""
        if self._alike or len(positions) > MOST_LOOKED_AT:
            return positions[:most], "the first"
        found = self._ruler.by_value(self._region.by_axis(self._sums, axis))
        used = [_UNBOUNDED if one.epsilon is None else one.epsilon for one in found]
        worst = sorted(range(len(used)), key=lambda at: (-used[at], at))[:most]
        return [positions[at] for at in sorted(worst)], "the most charged"

    def by_two(self, axes: Sequence[int], shown: Sequence[list[int]]) -> list[Place]:
        """Return the place of each pair of positions, row by row."""
        if self._alike:
            worst = self._ruler.worst(self._sums)
            return [self._place(worst)] * prod(map(len, shown))
        if self._region.classes is None:
            split: Split = self._of_cells(axes, shown)
        else:
            split = [ByValue(self._sums, self._classes(axes, shown))]
        return list(map(self._place, self._ruler.by_value(split)))

    def _of_cells(self, axes: Sequence[int], shown: Sequence[list[int]]) -> Integers:
        sides = [list(ordered(side)) for side in self.box]
        for axis, positions in zip(axes, shown, strict=True):
            sides[axis] = positions
        sums = self._sums
        for axis, side in enumerate(sides):
            if len(side) < sums.shape[axis + 1]:
                sums = sums.take(side, axis=axis + 1)
        first = np.moveaxis(sums, [axis + 1 for axis in axes], range(1, len(axes) + 1))
        return first.reshape(len(sums), prod(map(len, shown)), -1)

    def _classes(self, axes: Sequence[int], shown: Sequence[list[int]]) -> list[Integers]:
        classes = self._region.classes
        assert classes is not None  # noqa: S101 for the type checker
        box = list(self.box)
        for axis, positions in zip(axes, shown, strict=True):
            box[axis] = side_of(positions)
        if len(axes) == 1:
            return classes.by_value(axes[0], tuple(box))
        found = list[Integers]()
        for position in shown[0]:
            box[axes[0]] = side_of([position])
            found += classes.by_value(axes[1], tuple(box))
        return found

    def _place(self, worst: Worst) -> Place:
        capacity = self._ruler.capacity.epsilon
        left = 0 if worst.epsilon is None else max(0, capacity - worst.epsilon)
        return Place(
            used=amount(worst.epsilon, Currency.EPSILON),
            left=show(left, Currency.EPSILON),
            over=worst.over,
        )
