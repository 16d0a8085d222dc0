"""The selected cells that cannot take a charge, as few disjoint boxes.

Cells are grouped along one dimension by what is left of the others: values whose rest is the same
are one side of a box. The shortest dimension comes first, so that groups are few and a long list of
values stays one set of positions. The boxes follow from the cells alone, however sums are kept.
Cells that are scattered over one dimension are one box.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts.classes import Met
from accountant.budget.accounts.part import Part
from accountant.budget.accounts.peak import Mask, Reading
from accountant.budget.accounts.pieces import Sides, index_of
from accountant.privacy.filters import Capacity
from accountant.privacy.units import Charge

MOST_BOXES: Final = 1_024
"""Boxes beyond which cells are too scattered to be told."""

Places = NDArray[np.intp]
"""Positions on one dimension, ascending."""
Boxed = tuple[Places, ...]
"""A box of cells, a side a dimension."""
Rows = Iterable[tuple[int, Mask]]
"""The place of each position on the first dimension, with a mask of the rest."""


class Misfits(NamedTuple):
    """The selected cells that a charge does not fit on: ``everywhere``, or those in ``boxes``; None
    where these were not asked for, or would be more than ``MOST_BOXES``.
    """

    everywhere: bool
    boxes: tuple[Boxed, ...] | None = ()


EVERYWHERE: Final = Misfits(everywhere=True)


def misfits(reading: Reading, charge: Charge, capacity: Capacity, *, boxes: bool) -> Misfits:
    """Return the cells of ``reading`` that ``charge``, which is on the axis of the account and does
    not fit on all of them, does not fit on; without ``boxes`` only whether these are all.
    """
    parts = reading.misfits(charge, capacity)
    if all(bool(mask.all()) for _, mask in parts):
        return EVERYWHERE
    if not boxes:
        return Misfits(everywhere=False, boxes=None)

    def find() -> tuple[Boxed, ...]:
        return tuple(islice(_boxed(reading, parts), MOST_BOXES + 1))

    part, mask = parts[0]
    if part.met is None:
        found = find()
    else:  # by class there is one part; to look at all cells takes long
        found = part.met.classes.marked(reading.selection, mask.tobytes(), find)
    return Misfits(everywhere=False, boxes=None if len(found) > MOST_BOXES else found)


def _boxed(reading: Reading, parts: Sequence[tuple[Part, Mask]]) -> Iterator[Boxed]:
    """Yield the boxes of the cells that are marked, in each selected box."""
    shape = reading.account.used.shape
    order = sorted(range(len(shape)), key=shape.__getitem__)
    back = [order.index(axis) for axis in range(len(shape))]
    for number, sides in enumerate(_sides(reading)):
        part, mask = parts[0] if len(parts) == 1 else parts[number]
        along = [np.asarray(sides[axis], dtype=np.intp) for axis in order]
        if part.met is not None:
            boxes = _grouped(_of_classes(part.met, mask, sides, order), along)
        else:
            boxes = _marked(_whole(part, mask, sides).transpose(order), along)
        for box in boxes:
            yield tuple(box[at] for at in back)


def _sides(reading: Reading) -> list[Sides]:
    """Return the positions of each selected box."""
    if reading.selection.everyone:
        return [tuple(map(range, reading.account.used.shape))]
    return [layout.sides for layout in reading.selection.layouts]


def _whole(part: Part, mask: Mask, sides: Sides) -> Mask:
    """Return a mask over all cells of a box. One may stand for all that hold nothing beside
    everyone: no cell holds less, so that the charge fits on these if it fits on any.
    """
    sizes = tuple(map(len, sides))
    if part.where is None:
        return mask.reshape(sizes)
    found = np.zeros(sizes, dtype=np.bool_)
    found.reshape(-1)[part.where] = mask
    return found


def _of_classes(met: Met, mask: Mask, sides: Sides, order: Sequence[int]) -> Rows:
    """Yield the rows of a box along the first dimension in ``order``: ``mask`` marks classes."""
    among = np.zeros(met.known, dtype=np.bool_)
    among[met.numbers] = mask
    first = order[0]
    for place, at in enumerate(sides[first]):
        index = index_of((*sides[:first], range(at, at + 1), *sides[first + 1 :]))
        numbers = met.classes.numbers[index]
        if numbers.max() >= met.known:  # parted since
            numbers = met.classes.ancestors(numbers, met.known)
        yield place, among[numbers].transpose(order)[0]


def _grouped(rows: Rows, sides: Sequence[Places]) -> Iterator[Boxed]:
    """Yield disjoint boxes of the cells that ``rows`` mark, as many as are told and one more."""
    if len(sides) == 1:
        marks = np.array([mark for _, mark in rows], dtype=np.bool_)
        yield from _marked(marks, sides)
        return
    same: dict[bytes, tuple[Mask, list[int]]] = {}
    for place, row in rows:
        if row.any():
            same.setdefault(np.packbits(row).tobytes(), (row, []))[1].append(place)
        if len(same) > MOST_BOXES:  # each is a box at least
            break
    for row, places in same.values():
        for box in _marked(row, sides[1:]):
            yield (sides[0][places], *box)


def _marked(mask: Mask, sides: Sequence[Places]) -> Iterator[Boxed]:
    if len(sides) > 1:
        yield from _grouped(enumerate(mask), sides)
    elif mask.any():
        yield (sides[0][mask],)
