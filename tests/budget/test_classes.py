"""Sums by classes of cells are those of arrays over all cells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import Ops, carry_on, ledger, ops
from support import Book, audited, hospital, laplace, make

from accountant.budget import request as of_request
from accountant.budget import state as of_state
from accountant.budget.accounts import classes as parting
from accountant.budget.accounts import growing, numbering, pieces, runs
from accountant.budget.accounts.classes import Classes
from accountant.budget.accounts.sums import Sums
from accountant.budget.decide import batching
from accountant.budget.errors import Conflict, Invalid
from accountant.budget.outcome import RESERVED
from accountant.budget.population.selection import EVERYONE, Selection, side_of
from accountant.budget.replay import replay
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.privacy.filters import FILTERS
from accountant.publishing.fleet.changes import ChargeSums, applied

SHAPE = (3, 4, 2)
SIDES = [st.sets(st.integers(0, size - 1), min_size=1).map(side_of) for size in SHAPE]
BOXES = st.tuples(*SIDES).map(lambda box: Selection(everyone=False, boxes=(box,)))
SELECTIONS = st.one_of(st.just(EVERYONE), BOXES)
AMOUNTS = st.tuples(st.integers(0, 9), st.integers(0, 9))
CHARGES = st.tuples(SELECTIONS, AMOUNTS, st.sampled_from([(0, 0), (0, 0), (1, 0), (0, 2)]))


@contextmanager
def by_class(above: int | None = 0) -> Iterator[None]:
    """Sums of more than so many cells are by class, and looked at in pieces of few cells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing, "MANY", 2**62 if above is None else above)
        patch.setattr(pieces.runs_in, "__defaults__", (3,))
        patch.setattr(parting, "_SOME", 2)
        patch.setattr(numbering, "ROOM", 2)
        for module in (parting, growing, runs):
            patch.setattr(module, "PIECE", 5)
        patch.setattr(growing, "_BLOCK", 4)
        patch.setattr(growing, "_BITS", 3)
        yield


def summed(charges: list[Any], *spaces: Any) -> list[Sums]:
    """The sums of these charges over each of the spaces, every third of them taken back at once."""
    found = [Sums(2, space) for space in spaces]
    with by_class():
        for place, (selection, finite, infinite) in enumerate(charges):
            for sums in found:
                sums.add(selection, finite, infinite)
                if place % 3 == 2:
                    sums.add(selection, finite, infinite, -1)
    return found


@given(st.lists(CHARGES, max_size=8), st.lists(CHARGES, max_size=4), SELECTIONS)
def test_sums_are_those_of_arrays(charges: list[Any], others: list[Any], asked: Selection) -> None:
    """In every cell and in the largest one, whatever another account was charged meanwhile."""
    classes = Classes(SHAPE)
    few, all_cells = summed(charges, classes, SHAPE)
    summed(others, classes)
    assert few == all_cells
    assert (few.most(), few.most_infinite()) == (all_cells.most(), all_cells.most_infinite())
    assert (few.flat, few.plain) == (all_cells.flat, all_cells.plain)
    assert few.copy() == few.frozen() == all_cells
    with by_class():
        for cell in np.ndindex(SHAPE):
            assert few.of(0, cell) == all_cells.of(0, cell)
        [part], parts = few.parts(asked), all_cells.parts(asked)
        for row in range(2):
            assert part.most(row) == max(one.most(row) for one in parts)
            seen = np.concatenate([one.infinite_row(row) for one in parts])
            assert set(part.infinite_row(row)) == set(seen)


@given(st.lists(CHARGES, max_size=6), BOXES)
def test_the_first_cell_is_the_first(charges: list[Any], asked: Selection) -> None:
    """Of some classes, in a box and in all cells."""
    classes = Classes(SHAPE)
    summed(charges, classes)
    with by_class():
        for selection in (asked, EVERYONE):
            met = classes.met(selection)
            mask = np.ones(SHAPE) if selection.everyone else selection.mask(SHAPE)
            for place in range(len(met.numbers)):
                there = (classes.numbers == met.numbers[place]) & (mask > 0)
                cell = met.first(selection, np.array([place]))
                assert cell == tuple(np.argwhere(there)[0].tolist())
                assert met.place(cell) == place


@given(st.lists(CHARGES, max_size=4), st.lists(BOXES, max_size=4))
def test_earlier_sums_find_the_first_cell(charges: list[Any], looked_at: list[Any]) -> None:
    """Of sums that know fewer classes than there are, whatever was looked at meanwhile."""
    classes = Classes(SHAPE)
    [sums] = summed(charges, classes)
    with by_class():
        for selection in looked_at:
            met = classes.met(EVERYONE)
            met.first(EVERYONE, np.array([0]))
            classes.align(selection)
            if not sums.flat:
                [part] = sums.parts(EVERYONE)
                top = part.top(0)
                there = np.argwhere(sums.cells()[0][classes.numbers] == part.most(0))
                same = np.flatnonzero(part.row(0) == part.row(0)[top])
                assert part.met is not None
                assert part.met.first(EVERYONE, same) == tuple(there[0].tolist())


@given(st.lists(CHARGES, max_size=6), CHARGES, CHARGES)
def test_what_is_frozen_stays(charges: list[Any], later: Any, theirs: Any) -> None:
    """A charge changes no view, and what a reader charges changes neither the sums nor the classes
    of the ledger.
    """
    classes = Classes(SHAPE)
    [few] = summed(charges, classes)
    view = classes.view()
    frozen, reader = few.frozen().by(view), few.frozen().by(view)
    before, same = few.copy(), few.frozen()
    count = classes.count
    with by_class():
        reader.add(*theirs)
        assert classes.count == count
        few.add(*later)
        [other] = summed([*charges, theirs], SHAPE) if len(charges) % 3 != 2 else [reader]
        assert reader == other
    assert frozen == before == same


def told(gate: str, wide: bool, todo: Ops, above: int | None) -> Book:
    """A ledger in which all this happened."""
    with by_class(above):
        book = Book()
        ledger(gate, wide, todo, book)
    return book


@settings(max_examples=examples(40))
@given(st.sampled_from(sorted(FILTERS)), st.booleans(), ops, st.sampled_from([0, 0, 6, 8]))
def test_every_event_is_that_of_arrays(gate: str, wide: bool, todo: Ops, above: int) -> None:
    """Whatever happens to a ledger, its events are the same, byte for byte, and so are its sums;
    also where the population is extended to so many cells.
    """
    few, all_cells = told(gate, wide, todo, above), told(gate, wide, todo, None)
    assert few.stored == all_cells.stored
    assert (few.state.classes is not None) == (few.state.people().cells > above)
    now = few.state.time
    with by_class(above):
        again = load(few.name, b"".join(dump(few.state)))
    assert (
        again.classes is None or again.classes.count <= (few.state.classes or again.classes).count
    )
    for key, account in few.state.accounts.items():
        assert account.at(now).used == all_cells.state.accounts[key].at(now).used
        assert again.accounts[key].at(now).used == account.at(now).used
    for key, arrived in few.state.arrivals.items():
        assert arrived.counts == all_cells.state.arrivals[key].counts
        assert again.arrivals[key].counts == arrived.counts


@contextmanager
def at_most(classes: int) -> Iterator[None]:
    """Requests may make so many classes."""
    with by_class(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_state, "MOST_CLASSES", classes)
        patch.setattr(of_request, "MOST_CLASSES", classes)
        yield


PEOPLE = {"age": ["17", "22", "27"], "sex": ["f", "m"]}
GROUPS = [{"age": ["17"]}, {"sex": ["f"]}, {"age": ["22"], "sex": ["m"]}]
"""Of six cells: the first parts two classes, the second four, the third five."""


def test_a_grant_that_parts_too_many_classes_is_refused() -> None:
    """With the numbers and what to ask for instead; what was named before, and everyone, fit."""
    with at_most(4):
        book = hospital("  - {id: a, limit: {epsilon: 9}}\n", PEOPLE)
        for group in GROUPS[:2]:
            assert book.grant(laplace("0.1"), subjects=group).type == RESERVED
        before = len(book.stored)
        with pytest.raises(Conflict, match="there would be 5") as refused:
            book.grant(laplace("0.1"), subjects=GROUPS[2])
        assert refused.value.numbers == {"classes": 5, "most": 4}
        assert len(book.stored) == before
        for subjects in (GROUPS[1], {"age": ["17"], "sex": ["m"]}, None):
            assert book.grant(laplace("0.1"), subjects=subjects).type == RESERVED
        assert book.state.classes is not None
        assert book.state.classes.count == 4


@pytest.mark.parametrize("room", [100, 48 * 1024], ids=["with parts", "one event"])
def test_a_refused_batch_beside_widened_records(room: int) -> None:
    """Records and requests do not mix in a batch: records are recorded, the widened ones too, and
    requests are refused. Each is decided again to the same bytes where there is room for all
    classes, and where those are parted that the refused requests had parted.
    """
    with at_most(4), pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "MOST_BYTES", room)
        book = hospital("  - {id: a, limit: {epsilon: 9}}\n", PEOPLE)
        about: dict[str, Any] = {"dataset": "d", "mechanisms": [laplace("0.1")]}
        records = [make("record_invocations", **about, subjects=group) for group in GROUPS]
        requests = [make("ask_grant", **about, subjects=group) for group in GROUPS[:2]]
        requests.append(make("ask_grant", dataset="d", mechanisms=[laplace("10")]))
        with pytest.raises(Invalid, match="cannot be here"):
            book.batch(*requests, *records)
        for turn in range(2):
            found = [event.type for event in book.batch(*requests)]
            assert found[-1] == "batch.refused.v1"
            assert (found[:-1] != []) == (room == 100)
            widened = [event.body.get("charged_to") for event in book.batch(*records)[1:]]
            assert (turn, widened) == (turn, [None, None, "everyone"])
        for most in (4, 2**20):
            patch.setattr(of_state, "MOST_CLASSES", most)
            [*_, last] = replay(book.name, book.stored)
            assert last.findings == []
            for key, account in book.state.accounts.items():
                assert last.state.accounts[key].used == account.used
        assert audited(book).findings == []


def test_a_record_that_parts_too_many_classes_is_charged_to_everyone() -> None:
    """The event says so. Replay believes it, also where it would have parted the classes, and each
    cell holds no less than if its group had been charged alone.
    """
    with at_most(4):
        book = hospital("  - {id: a, limit: {epsilon: 9}}\n", PEOPLE)
        events = [book.record(laplace("0.1"), subjects=group) for group in GROUPS]
    assert [event.body.get("charged_to") for event in events] == [None, None, "everyone"]
    with by_class():  # with room for all
        [*_, last] = replay(book.name, book.stored)
    assert last.findings == []
    assert audited(book).findings == []
    assert last.state.accounts.keys() == book.state.accounts.keys()
    assert all(last.state.accounts[k].used == one.used for k, one in book.state.accounts.items())
    narrow = hospital("  - {id: a, limit: {epsilon: 9}}\n", PEOPLE)
    for group in GROUPS:
        narrow.record(laplace("0.1"), subjects=group)
    pairs = zip(book.used(), narrow.used(), strict=True)
    assert all(a >= b for wide, alone in pairs for a, b in zip(wide, alone, strict=True))


@settings(max_examples=examples(15))
@given(st.sampled_from(sorted(FILTERS)), ops, st.sampled_from([0, 0, 6, 8]))
def test_changes_by_class_add_up(gate: str, todo: Ops, above: int) -> None:
    """What each event changes adds up to the sums of all cells, also of those that are added."""
    book = told(gate, False, todo, above)
    state, sums = State(book.name), ChargeSums()
    with by_class(above):
        for data in book.stored:
            for change in applied(state, Event.from_bytes(data)):
                sums.add(change)
        sums.agree(state)


@settings(max_examples=examples(15))
@given(st.sampled_from(sorted(FILTERS)), ops, ops, st.sampled_from([0, 8]))
def test_a_ledger_by_class_goes_on_from_its_snapshot(
    gate: str, first: Ops, then: Ops, above: int
) -> None:
    """As it goes on by arrays, though a start merges classes."""
    few, all_cells = told(gate, False, first, above), told(gate, False, first, None)
    with by_class(above):
        few.state = load(few.name, b"".join(dump(few.state)))
        carry_on(few, gate, then, "more")
    with by_class(None):
        carry_on(all_cells, gate, then, "more")
    assert few.stored == all_cells.stored


def test_the_minimal_verifier_says_that_it_cannot_hold_so_many_cells() -> None:
    """The service replays the same ledger."""
    dimensions = {"x": [f"x{at}" for at in range(1_001)], "y": [f"y{at}" for at in range(1_000)]}
    book = hospital("  - {id: a, limit: {epsilon: 9}}\n", dimensions)
    assert book.state.classes is not None
    book.grant(laplace("0.1"), subjects={"x": ["x7"], "y": ["y8", "y9"]})
    book.grant(laplace("0.1"), subjects={"y": {"from": "y0", "to": "y999"}})
    again = book.grant(laplace("0.1"), subjects={"x": ["x7"]})
    assert again.body["rules"]["a"]["cell"] == [7, 8]
    assert "too many cells for me" in str(audited(book, 2).findings[0])
    assert book.replayed().findings == []
