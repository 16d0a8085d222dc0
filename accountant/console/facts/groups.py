"""Who has lost how much: the use of a limit over two dimensions, each place by its worst cell.

A person lies in one cell, so that a place shows the most that anyone in it has lost, whatever they
are on the other dimensions. Of a dimension of many values the most charged ones are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

import numpy as np
from msgspec import Struct

from accountant.budget.accounts.part import Integers
from accountant.budget.accounts.sums import Sums
from accountant.budget.population.selection import Box, ordered, side_of
from accountant.budget.state import Counted, State
from accountant.privacy.units import Currency, amount, show
from accountant.reporting.peak_cell import ByValue, Columns, Region, Ruler, Split, Worst, as_one

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
    state: State, counted: Counted, by: Sequence[str], used: Sums | None = None
) -> Groups | None:
    """Return the use of a limit by the dimensions ``by``, of which unknown ones are passed over;
    the first ones of the population where fewer than two are named. None without a dimension.
    ``used``: the sums of the account, if they are known.
    """
    people = state.people()
    names = [name for name, _ in people.dimensions]
    known = [name for name in dict.fromkeys(by) if name in names]
    axes = [names.index(name) for name in [*known, *(n for n in names if n not in known)][:2]]
    if not axes:
        return None
    cells = _Cells(state, counted, used or state.seen(counted.key).used)
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


class _Cells:
    """The cells that a limit is about, read as it reads them."""

    def __init__(self, state: State, counted: Counted, used: Sums) -> None:
        rule, people = counted.rule, state.people()
        self.box: Box = rule.box(people)
        self._region = Region(state.classes, None if rule.subjects is None else self.box)
        self._ruler = Ruler(rule, counted.epoch)
        self._used, self._sums, self._alike = used, Columns.of(used), used.flat

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
            worst = self._ruler.worst(as_one(self._used))
            return [self._place(worst)] * prod(map(len, shown))
        if self._region.classes is None:
            split: Split = self._sums.then(self._taken(axes, shown))
        else:
            split = [ByValue(self._sums, self._classes(axes, shown))]
        return list(map(self._place, self._ruler.by_value(split)))

    def _taken(
        self, axes: Sequence[int], shown: Sequence[list[int]]
    ) -> Callable[[Integers], Integers]:
        """Return what makes (places, rest) of the sums of all cells."""
        sides = [list(ordered(side)) for side in self.box]
        for axis, positions in zip(axes, shown, strict=True):
            sides[axis] = positions

        def taken(sums: Integers) -> Integers:
            for axis, side in enumerate(sides):
                if len(side) < sums.shape[axis]:
                    sums = sums.take(side, axis=axis)
            first = np.moveaxis(sums, axes, range(len(axes)))
            return first.reshape(prod(map(len, shown)), -1)

        return taken

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
