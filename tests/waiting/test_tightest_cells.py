"""The tightest cell of each group, found for all together: against looking at each cell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st
from support import Book

from accountant.budget.population.population import Population
from accountant.budget.population.selection import Box, Selection, box_of
from accountant.budget.waiting.groups import Boxes, Groups

SHAPES = ((7,), (1, 5), (6, 4), (3, 5, 2), (2, 1, 3, 4))


@st.composite
def populations(draw: st.DrawFn) -> tuple[Population, list[bytes]]:
    """A population, and groups of it as events hold them."""
    shape = draw(st.sampled_from(SHAPES))
    names = [(f"d{axis}", tuple(f"v{i}" for i in range(n))) for axis, n in enumerate(shape)]
    book = Book()
    book.register({name: list(values) for name, values in names})
    groups = draw(st.lists(subjects(names), min_size=1, max_size=12))
    return book.state.people(), [b"" if one is None else orjson.dumps(one) for one in groups]


@st.composite
def terms(draw: st.DrawFn, names: Sequence[tuple[str, tuple[str, ...]]]) -> dict[str, Any]:
    """Values of some dimensions: a list of them, or a range."""
    found: dict[str, Any] = {}
    for name, values in draw(st.lists(st.sampled_from(names), min_size=1, unique=True)):
        places = draw(st.sets(st.sampled_from(range(len(values))), min_size=1))
        if draw(st.booleans()):
            found[name] = {"from": values[min(places)], "to": values[max(places)]}
        else:
            found[name] = [values[at] for at in sorted(places)]
    return found


def subjects(names: Sequence[tuple[str, tuple[str, ...]]]) -> st.SearchStrategy[Any]:
    """A group: everyone, a term, or a union of terms."""
    return st.one_of(st.none(), terms(names), st.lists(terms(names), min_size=1, max_size=3))


def held(selection: Selection, shape: tuple[int, ...]) -> set[tuple[int, ...]]:
    """The cells of a selection, one by one."""
    every = set(product(*map(range, shape)))
    if selection.everyone:
        return every
    boxes = selection.boxes
    return {
        cell
        for cell in every
        if any(all(at in side for at, side in zip(cell, box, strict=True)) for box in boxes)
    }


@given(population=populations(), data=st.data())
def test_the_tightest_cell_of_each_group_is_found(
    population: tuple[Population, list[bytes]], data: st.DataObject
) -> None:
    """Of some cells in order, each group gets the last one that it holds, else one that it holds;
    so it does of the part of each group that lies in a box, and for some of the groups.
    """
    people, stated = population
    shape, groups = people.shape, Groups(people)
    every = list(product(*map(range, shape)))
    order = data.draw(st.lists(st.sampled_from(every), unique=True))
    places = np.array([np.ravel_multi_index(cell, shape) for cell in order], dtype=np.int64)
    name, values = people.dimensions[0]
    box: Box = box_of(people, {name: data.draw(st.lists(st.sampled_from(values), min_size=1))})
    some = sorted(data.draw(st.sets(st.sampled_from(range(len(stated))), min_size=1)))
    whole = Boxes.among([groups.of(one) for one in stated], len(shape))
    parts = {
        "all": (stated, whole, set(every)),
        "in a box": (stated, whole.within(box), held(Selection(False, (box,)), shape)),
        "some": ([stated[at] for at in some], whole.some(np.array(some)), set(every)),
    }
    for those, boxes, inside in parts.values():
        cells = [held(groups.selection(one), shape) & inside for one in those]
        for mine, found in zip(cells, boxes.cells(places, shape), strict=True):
            listed = [cell for cell in order if cell in mine]
            assert (found in mine) if mine else found is None
            assert not listed or found == listed[-1]
        for cell in every:
            holding = [at for at, mine in enumerate(cells) if cell in mine]
            assert boxes.holding(cell).tolist() == holding
    sizes = [groups.of(one).cells for one in stated]
    assert sizes == [len(held(groups.selection(one), shape)) for one in stated]
    assert [groups.meet(one, box) for one in stated] == [
        bool(held(groups.selection(one), shape) & parts["in a box"][2]) for one in stated
    ]


def test_of_a_scattered_group_some_boxes_are_looked_at() -> None:
    """A group that falls into more boxes than are looked at is found at cells of its own."""
    book = Book()
    book.register({"one": [f"v{i}" for i in range(40)], "two": [f"v{i}" for i in range(40)]})
    people, odd = book.state.people(), [f"v{i}" for i in range(0, 40, 2)]
    group = Groups(people).of(orjson.dumps({"one": odd, "two": odd}))
    boxes = Boxes.among([group], 2)
    assert group.cells == 400
    assert 1 < len(boxes.of) < 400
    assert all(at % 2 == 0 for cell in boxes.first.tolist() for at in cell)
    assert boxes.holding((1, 1)).tolist() == []
    [cell] = boxes.cells(np.arange(1600), (40, 40))
    assert cell is not None
    assert cell[0] % 2 == cell[1] % 2 == 0
