"""The boxes of the cells that cannot take a charge are those cells, each once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_classes import BOXES, CHARGES, SHAPE, by_class
from test_touched import apart

from accountant.budget.accounts import misfits as misfits_
from accountant.budget.accounts.account import Account
from accountant.budget.accounts.classes import Classes
from accountant.budget.accounts.misfits import Boxed, misfits
from accountant.budget.accounts.peak import Reading
from accountant.budget.accounts.sums import Sums
from accountant.budget.population.selection import EVERYONE, Selection
from accountant.privacy.filters import Capacity
from accountant.privacy.units import SURE, Charge

BEYOND = Charge.over(SURE, [3, 2])
MOST = Capacity(epsilon=14, own_delta=14)
PAIRS = st.tuples(BOXES, st.integers(0, SHAPE[1] - 1)).map(lambda pair: parted(*pair))
"""Two boxes, one of which has a single value of the second dimension and the other all others."""


def parted(one: Selection, at: int) -> Selection:
    """Cells as two disjoint boxes."""
    [(first, _, last)] = one.boxes
    others = frozenset(range(SHAPE[1])) - {at}
    boxes = (first, range(at, at + 1), last), (first, others, last)
    return Selection(everyone=False, boxes=boxes)


def over(charges: list[Any], space: Any) -> Reading:
    """An account that was charged, before it is read."""
    sums = Sums(2, space)
    for charge in charges:
        sums.add(*charge)
    return Reading(Account(SURE, sums, [9_999, 9_999], [0, 0]), EVERYONE)


def cells_in(boxes: Sequence[Boxed]) -> list[tuple[int, ...]]:
    """The cells of some boxes."""
    return [cell for box in boxes for cell in product(*(side.tolist() for side in box))]


@given(st.lists(CHARGES, max_size=8), st.one_of(st.just(EVERYONE), BOXES, PAIRS))
def test_boxes_are_the_cells_that_do_not_fit(charges: list[Any], asked: Selection) -> None:
    """Whether sums are kept by cell, by the cells apart or by class, the boxes are the same, and
    they are the cells for which both sums are compared alone.
    """
    mask = np.ones(SHAPE) if asked.everyone else asked.mask(SHAPE)
    readings = [over(charges, SHAPE)]
    with apart(99):
        readings.append(over(charges, SHAPE))
    with by_class():
        readings.append(over(charges, classes := Classes(SHAPE)))
        Sums(2, classes).add(BOXED, [1, 1], [0, 0])  # another account parts what this one knows
    sums = readings[0].account.used
    naive = [
        cell
        for cell in np.ndindex(SHAPE)
        if mask[cell]
        if any(sums.of(row, cell)[1] for row in range(2))
        or sums.of(0, cell)[0] + 3 > 14
        or sums.of(1, cell)[0] + 2 > 14
    ]
    found = []
    for reading in readings if naive else ():
        with by_class():
            each = Reading(reading.account, asked)
            assert not each.fits(BEYOND, MOST)
            found += [misfits(each, BEYOND, MOST, boxes=True) for _ in "12"]  # found, and known
    for one in found:
        assert one.everywhere == (len(naive) == mask.sum())
        assert one.boxes is not None
        cells = naive if one.everywhere else cells_in(one.boxes)
        assert sorted(cells) == naive
        first = [tuple(map(tuple, box)) for box in found[0].boxes or ()]
        assert [tuple(map(tuple, box)) for box in one.boxes] == first


BOXED = Selection(everyone=False, boxes=((range(1), range(1), range(1)),))


def test_scattered_cells_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """More boxes than a list may have are none; neither are those that nobody asks for."""
    diagonal = [
        (Selection(False, ((range(at, at + 1), range(at, at + 1), range(2)),)), [99, 0], [0, 0])
        for at in range(3)
    ]
    reading = over(diagonal, SHAPE)
    found = misfits(reading, BEYOND, MOST, boxes=True)
    assert found.boxes is not None
    assert len(found.boxes) == 3
    assert misfits(reading, BEYOND, MOST, boxes=False).boxes is None
    monkeypatch.setattr(misfits_, "MOST_BOXES", 2)
    assert misfits(reading, BEYOND, MOST, boxes=True) == (False, None)
