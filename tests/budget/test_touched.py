"""Sums of the few cells that were ever charged are those of arrays over all cells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import Ops, ledger, ops
from support import START, Book, hospital, laplace

from accountant.budget.accounts import sums as of_all
from accountant.budget.accounts import touched
from accountant.budget.accounts.account import Account
from accountant.budget.accounts.sums import Sums
from accountant.budget.accounts.touched import MANY
from accountant.budget.population.selection import EVERYONE, Selection, side_of
from accountant.budget.snapshot import dump, load
from accountant.privacy.filters import FILTERS
from accountant.reporting.peak_cell import Columns, as_one
from accountant.reporting.statement import balances, scopes

SHAPE = (3, 4, 2)
SIDES = [st.sets(st.integers(0, size - 1), min_size=1).map(side_of) for size in SHAPE]
SELECTIONS = st.one_of(
    st.just(EVERYONE), st.tuples(*SIDES).map(lambda box: Selection(everyone=False, boxes=(box,)))
)
AMOUNTS = st.tuples(st.integers(0, 9), st.integers(0, 9))
CHARGES = st.tuples(SELECTIONS, AMOUNTS, st.sampled_from([(0, 0), (0, 0), (1, 0), (0, 2)]))


@contextmanager
def apart(most: int | None) -> Iterator[None]:
    """Up to ``most`` cells are held apart, of however few; None: none are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(touched, "MANY", 1 if most else 2**62)
        patch.setattr(touched, "MOST", most or 0)
        patch.setattr(of_all, "MOST", most or 0)
        patch.setattr(touched, "_NARROW", 3)  # so that both ways to find them are taken
        yield


def summed(charges: list[Any], most: int | None) -> Sums:
    """The sums of these charges, every third of which is taken back at once."""
    found = Sums(2, SHAPE)
    with apart(most):
        for place, (selection, finite, infinite) in enumerate(charges):
            found.add(selection, finite, infinite)
            if place % 3 == 2:
                found.add(selection, finite, infinite, -1)
    return found


@given(st.lists(CHARGES, max_size=8), SELECTIONS, st.sampled_from([1, 6, 99]))
def test_sums_are_those_of_arrays(charges: list[Any], asked: Selection, most: int) -> None:
    """In every cell, in the largest, and in all that a snapshot or a copy keeps of them."""
    few, all_cells = summed(charges, most), summed(charges, None)
    assert few == all_cells
    assert (few.most(), few.most_infinite()) == (all_cells.most(), all_cells.most_infinite())
    assert few.flat == all_cells.flat
    assert few.plain == all_cells.plain or few.most_infinite() == [0, 0]
    assert few.copy() == few.frozen() == all_cells
    for one, other in zip(few.parts(asked), all_cells.parts(asked), strict=True):
        for row in range(2):
            assert one.most(row) == other.most(row)
            assert few.flat or one.place(one.top(row)) == other.top(row)
            assert set(one.infinite_row(row)) == set(other.infinite_row(row))


@given(st.lists(CHARGES, max_size=6), st.lists(CHARGES, max_size=6), st.sampled_from([1, 6, 99]))
def test_several_sums_are_those_of_the_cells_apart(one: Any, other: Any, most: int) -> None:
    """Of two sums together, each pair that some cell has is there, and no other."""
    few, all_cells = ([summed(c, limit) for c in (one, other)] for limit in (most, None))
    with apart(most):
        found = few[0].stacked_apart(few[1])
    if found is None:
        assert not all(one.flat for one in few)
        return
    pairs = [np.concatenate([one.reshape(4, -1) for one in both]) for both in (
        found, [one.stacked() for one in all_cells]
    )]  # fmt: skip
    assert {tuple(c) for c in pairs[0].T.tolist()} == {tuple(c) for c in pairs[1].T.tolist()}


@given(st.lists(CHARGES, max_size=6), st.lists(CHARGES, max_size=6), st.sampled_from([0, 1, 99]))
def test_columns_are_the_rows_of_all_sums(used: Any, held: Any, most: int) -> None:
    """A row that is read alone, less what is held of it, is that of all rows."""
    sums, less = summed([*used, *held], most), summed(held, most)
    columns, rows = Columns.of(sums, less), Columns.stacked(sums.stacked() - less.stacked())
    with apart(most):
        one = as_one(sums, less)
    for row in range(2):
        assert np.array_equal(columns[row], rows[row])
        assert set(one[row].flat) == set(rows[row].flat)


@given(st.lists(CHARGES, max_size=6), CHARGES)
def test_what_is_frozen_stays(charges: list[Any], later: Any) -> None:
    """A charge changes neither a frozen view nor a copy."""
    few = summed(charges, 99)
    frozen, twin, before = few.frozen(), few.copy(), few.stacked().copy()
    with apart(99):
        few.add(*later)
    assert np.array_equal(frozen.stacked(), before)
    assert np.array_equal(twin.stacked(), before)


def told(gate: str, wide: bool, todo: Ops, most: int | None) -> Book:
    """A ledger in which all this happened."""
    with apart(most):
        book = Book()
        ledger(gate, wide, todo, book)
    return book


@settings(max_examples=examples(25))
@given(st.sampled_from(sorted(FILTERS)), st.booleans(), ops, st.sampled_from([3, 99]))
def test_every_event_is_that_of_arrays(gate: str, wide: bool, todo: Ops, most: int) -> None:
    """Whatever happens to a ledger, its events are the same, byte for byte; so are its sums, those
    of its snapshot, and what each limit has left.
    """
    few, all_cells = told(gate, wide, todo, most), told(gate, wide, todo, None)
    assert few.stored == all_cells.stored
    now = few.state.time
    with apart(most):
        again = load(few.name, b"".join(dump(few.state)))
    for key, account in few.state.accounts.items():
        assert account.at(now).used == all_cells.state.accounts[key].at(now).used
        assert again.accounts[key].at(now).used == account.at(now).used
    for counted, other in zip(scopes(few.state), scopes(all_cells.state), strict=True):
        left = [
            balances(book.state, one, None) for book, one in ((few, counted), (all_cells, other))
        ]
        assert left[0] == left[1]


def test_many_cells_cost_nothing_until_many_are_charged() -> None:
    """A narrow grant on a million cells makes no array of them, and leaves no copy to be made after
    a report has read the accounts.
    """
    names = [f"v{number}" for number in range(100)]
    book = hospital("  - {id: a, limit: {epsilon: 1}}\n", dict.fromkeys(("x", "y", "z"), names))
    for number in range(20):
        group = {"x": names[number], "y": names[2 * number], "z": names[:3]}
        subjects = {name: [one] if isinstance(one, str) else one for name, one in group.items()}
        event = book.grant(laplace("0.1"), subjects=subjects)
        assert event.body["rules"]["a"]["cell"] == [number, 2 * number, 0]
        kept = [account.frozen() for account in book.state.accounts.distinct()]
        assert all(isinstance(account, Account) for account in kept)
    for account in book.state.accounts.distinct():
        assert account.at(START).used._touched is not None
        assert account.used._touched.places.size == 60
    assert MANY < 10**6
