"""Boxes of many cells, piece by piece: what is worked out of one stays in a processor's cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from accountant.budget.population.selection import Selection

Sides = Sequence[Sequence[int]]
"""The positions of a box on each dimension, ascending."""
MOST: Final = 2**18
"""Cells of a piece."""


def size_of(selection: Selection) -> int:
    """Return how many cells are selected by boxes."""
    boxes = selection.boxes
    if len(boxes) == 1:  # as of most requests
        return prod(map(len, boxes[0]))
    return sum(prod(map(len, box)) for box in boxes)


def runs_in(sides: Sides, most: int = MOST) -> Iterator[Sides]:
    """Yield a box in pieces of at most ``most`` cells, in row-major order."""
    if prod(map(len, sides)) <= most:
        yield sides
        return
    axis = next(place for place, side in enumerate(sides) if len(side) > 1)
    side, rest = sides[axis], prod(map(len, sides[axis + 1 :]))
    step = max(1, most // rest)
    for at in range(0, len(side), step):
        yield from runs_in((*sides[:axis], side[at : at + step], *sides[axis + 1 :]), most)


def index_of(sides: Sides) -> tuple[Any, ...]:
    """Return the index of a piece in an array over all cells: slices where there are no gaps."""
    gaps = [side[-1] - side[0] + 1 != len(side) for side in sides]
    if sum(gaps) > 1:
        return np.ix_(*(np.asarray(side, dtype=np.intp) for side in sides))
    return tuple(
        np.asarray(side, dtype=np.intp) if gap else slice(side[0], side[-1] + 1)
        for side, gap in zip(sides, gaps, strict=True)
    )


def place_of(cell: Iterable[int], shape: Sequence[int]) -> int:
    """Return the place of a cell in row-major order."""
    found = 0
    for at, size in zip(cell, shape, strict=True):
        found = found * size + at
    return found
