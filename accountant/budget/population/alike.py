"""Cells that hold the same sums, as groups: as if they had been charged group by group."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from accountant.budget.population.selection import Box

Integers = NDArray[np.int64]


def alike(cells: Integers) -> Iterator[tuple[tuple[Box, ...], Integers]]:
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
