"""Few scattered cells are picked by their places in the flat array: the same cells, and the same
sums, as a naive look at each cell finds.
"""

from __future__ import annotations

from itertools import product

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.budget.accounts.sums import Sums
from accountant.budget.population.selection import Box, Selection, side_of

SHAPE = (23, 29)
"""More cells than are looked at one and all, fewer than are held apart where they are touched."""
SMALL = (5, 7)
"""So few that all are looked at where a group is several boxes."""


def boxes_in(shape: tuple[int, ...]) -> st.SearchStrategy[Box]:
    """Boxes of up to six positions on a side."""
    sides = (st.sets(st.integers(0, n - 1), min_size=1, max_size=6) for n in shape)
    return st.tuples(*sides).map(lambda found: tuple(map(side_of, found)))


boxes = boxes_in(SHAPE)
charges = st.tuples(*[st.integers(0, 50)] * 3)


def cells_of(box: Box) -> set[tuple[int, ...]]:
    """The cells of a box, one by one."""
    return set(product(*box))


@pytest.mark.parametrize("shape", [SHAPE, SMALL])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_what_is_added_to_a_box_is_picked_from_its_cells(
    shape: tuple[int, int], data: st.DataObject
) -> None:
    """Whatever was added where, each picked sum is that of its cell, in row-major order; and what
    is taken back leaves what was there.
    """
    some = boxes_in(shape)
    steps = data.draw(st.lists(st.tuples(some, charges), min_size=1, max_size=8))
    asked = data.draw(some)
    sums, most = Sums(3, shape), (range(shape[0]), range(shape[1] - 1))
    sums.add(Selection(False, (most,)), [0] * 3, [0] * 3)  # more than are held apart
    held = dict.fromkeys(product(*map(range, shape)), (0, 0, 0))
    for box, charge in [*steps, *steps[:1]]:
        sums.add(Selection(False, (box,)), charge, [0] * 3)
        for cell in cells_of(box):
            held[cell] = tuple(map(sum, zip(held[cell], charge, strict=True)))
    box, charge = steps[0]
    sums.add(Selection(False, (box,)), charge, [0] * 3, -1)
    for cell in cells_of(box):
        held[cell] = tuple(a - b for a, b in zip(held[cell], charge, strict=True))
    selection = Selection(False, (asked,))
    picked = sums.picked(selection)
    assert picked is not None
    found = {selection.cell(at): tuple(column) for at, column in enumerate(picked.T.tolist())}
    assert list(found) == sorted(cells_of(asked))
    assert found == {cell: held[cell] for cell in cells_of(asked)}


@given(asked=boxes)
def test_places_are_those_of_the_array_that_is_asked_for(asked: Box) -> None:
    """One selection is looked up in arrays of several rows, before and after cells came: in each
    its places are where its cells are.
    """
    selection = Selection(False, (asked,))
    for rows, shape in [(3, SHAPE), (2, SHAPE), (2, (23, 31)), (3, (23, 31)), (3, SHAPE)]:
        sums = Sums(rows, shape)
        one = [*range(1, rows + 1)]
        sums.add(Selection(False, ((range(23), range(28)),)), [0] * rows, [0] * rows)
        sums.add(selection, one, [0] * rows)
        places = zip(*sums.cells()[-1].nonzero(), strict=True)
        assert {(int(one), int(two)) for one, two in places} == cells_of(asked)
        assert sums.most() == one
