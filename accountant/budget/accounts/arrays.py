"""What is done to arrays of sums: of all cells (rows, *shape), or of all classes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from accountant.budget.accounts.integers import Integers
from accountant.budget.accounts.pieces import size_of
from accountant.budget.population.selection import FEW, Selection

_INTEGER: Final = np.dtype(np.int64)
_SMALL: Final = 4_096
"""Cells up to which all rows are added in one operation, those that add nothing included."""


def add_to(cells: Integers, inside: Integers, column: Sequence[int], sign: int) -> None:
    """Add a charge to the classes ``inside``."""
    for row, amount in enumerate(column):
        if amount:
            cells[row, inside] += sign * amount


def add_to_cells(cells: Integers, selection: Selection, column: Sequence[int], sign: int) -> None:
    """Add a charge to the selected cells."""
    size = cells.size // len(column)
    if size <= _SMALL or selection.few or size_of(selection) <= _SMALL:
        by = np.array(column, dtype=_INTEGER)
        if sign < 0:
            by = -by
        if selection.few and cells.flags.c_contiguous:
            spots, flat = selection.spots(len(column), cells.shape[1:]), cells.reshape(-1)
            flat[spots] += by.reshape(-1, 1)
            return
        by = by.reshape(-1, *(1,) * (cells.ndim - 1))
        if size <= FEW and not selection.views:
            cells += by * selection.mask(cells.shape[1:])
            return
        for layout in selection.layouts:
            if layout.views:
                part = cells[layout.in_all]
                part += by
            else:
                cells[layout.in_all] += by
        return
    for layout in selection.layouts:
        for row, amount in enumerate(column):
            if amount:
                cells[(row, *layout.in_row)] += sign * amount


def extended(cells: Integers | None, axis: int, by: int, inherit: bool) -> Integers | None:
    """Return the cells with more along an axis, which inherit the largest there or nothing."""
    if cells is None:
        return None
    if inherit:
        new = cells.max(axis=axis, keepdims=True).repeat(by, axis=axis)
    else:
        shape = list(cells.shape)
        shape[axis] = by
        new = np.zeros(shape, dtype=np.int64)
    return np.concatenate([cells, new], axis=axis)


def lifted(
    cells: Integers | None, everyone: list[int], least: Sequence[int]
) -> tuple[Integers | None, list[int]]:
    """Return the cells, and everyone's sums, so that each cell holds at least this."""
    lifted = [max(a, b) for a, b in zip(everyone, least, strict=True)]
    if cells is not None:
        wide = (-1, *(1,) * (cells.ndim - 1))
        before, floor, after = (
            np.array(row, dtype=np.int64).reshape(wide) for row in (everyone, least, lifted)
        )
        cells = np.maximum(cells + before, floor) - after
    return cells, lifted


def times_up(sums: Integers, factor: Fraction) -> Integers:
    """Multiply exactly, in integers of any size; fast because distinct sums are few."""
    values, where = np.unique(sums, return_inverse=True)
    products = np.array([-(-int(value) * factor // 1) for value in values], dtype=np.int64)
    return products[where].reshape(sums.shape)
