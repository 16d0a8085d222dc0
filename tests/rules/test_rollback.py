"""Whatever is folded in after ``keep_journal`` can be taken back, to the last unit and byte."""

from __future__ import annotations

from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import Ops, asking, batch, carry_on, ending, ledger, ops
from support import Book, cells_of, hospital, laplace, snapshot

from accountant.budget.apply import drop_journal, fold, keep_journal, rollback, savepoint
from accountant.budget.facts import grant_in
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.privacy.filters import FILTERS

quick = st.sampled_from([("wait", 1), ("wait", 4000), ("expire",), ("session",)])
spending = st.lists(asking | asking | ending | ending | batch | quick, max_size=12)
"""What can be taken back: nothing is registered, adopted or recovered."""


def seen(state: State) -> dict[str, Any]:
    """All of a state; of accounts without anything in them, nothing."""
    reserved = {key: cells_of(sums) for key, sums in state.reserved().items()}
    names = ("batch", "custody", "memories", "revalued")
    return (
        snapshot(state)
        | {name: getattr(state, name) for name in names}
        | {
            "reserved": {key: cells for key, cells in reserved.items() if any(map(any, cells))},
            "opened": [grant.id for grant in state.grants.in_order()],
            "settled": list(state.grants.settled()),
            "due": state.grants.due(state.time + 10**15, 10**6),
        }
    )


def told(book: Book) -> Book:
    """A ledger that has read the same events and has never taken anything back."""
    twin = Book(book.name, book.now)
    twin.stored, twin.keys = list(book.stored), book.keys
    twin.state = fold(book.name, map(Event.from_bytes, book.stored))
    return twin


@settings(max_examples=examples(20))
@given(st.sampled_from(sorted(FILTERS)), st.booleans(), ops, spending, spending, ops)
def test_a_transaction_that_is_taken_back_never_was(
    gate: str, wide: bool, before: Ops, some: Ops, more: Ops, after: Ops
) -> None:
    """Taken back to a mark or as a whole, the state is what it was, and later decisions are, to the
    byte, those of a ledger that never knew of it.
    """
    book = ledger(gate, wide, before)
    twin, was, size = told(book), seen(book.state), len(book.stored)
    keep_journal(book.state)
    carry_on(book, gate, some, "some")
    assert book.state.journal is not None
    mark, then, there = len(book.state.journal), seen(book.state), len(book.stored)
    for name in ("more", "again"):
        carry_on(book, gate, more, name)
        assert rollback(book.state, mark)
        del book.stored[there:]
        assert seen(book.state) == then
    assert rollback(book.state)
    drop_journal(book.state)
    del book.stored[size:]
    assert seen(book.state) == was
    twin.now, twin.keys = book.now, book.keys
    for each in (book, twin):
        carry_on(each, gate, after, "after")
    assert book.stored == twin.stored
    assert seen(book.state) == seen(twin.state)
    assert seen(load(book.name, b"".join(dump(book.state)))) == seen(book.state)


@settings(max_examples=examples(12))
@given(st.sampled_from(sorted(FILTERS)), ops, st.lists(batch, min_size=1, max_size=6))
def test_deciding_a_batch_within_a_transaction_changes_nothing(
    gate: str, before: Ops, batches: Ops
) -> None:
    """Batches take their items back when they have decided, also while a transaction is open that
    is itself taken back within another savepoint.
    """
    book = ledger(gate, False, before)
    was, size = seen(book.state), len(book.stored)
    keep_journal(book.state)
    with savepoint(book.state):
        carry_on(book, gate, batches, "outer")
        inner, there = seen(book.state), len(book.stored)
        with savepoint(book.state):
            carry_on(book, gate, batches, "inner")
        del book.stored[there:]
        assert seen(book.state) == inner
    assert seen(book.state) == was
    assert rollback(book.state)
    assert seen(book.state) == was
    del book.stored[size:]
    drop_journal(book.state)
    carry_on(book, gate, batches, "outer")
    assert seen(book.state) == seen(told(book).state)


def test_what_is_reserved_is_told_anew() -> None:
    """What open grants hold is remembered by the number of the next event; after something was
    taken back, another event with that number leads to another sum.
    """
    book = hospital()
    keep_journal(book.state)
    book.grant(laplace("0.3"))
    assert book.reserved() == [(300_000_000, 0, 0, 0)]
    assert rollback(book.state)
    book.grant(laplace("0.1"))
    assert book.reserved() == [(100_000_000, 0, 0, 0)]


def test_an_open_grant_is_where_it_was() -> None:
    """A grant that is opened again stands before those that were opened after it."""
    book = hospital()
    first, then = (grant_in(book.grant(laplace("0.1"))) for _ in range(2))
    keep_journal(book.state)
    book.do("commit_grant", grant=first)
    assert rollback(book.state)
    assert [grant.id for grant in book.state.grants.in_order()] == [first, then]


@pytest.mark.parametrize("rules", ["  - {id: a, limit: {epsilon: 0.5}}\n"])
def test_what_has_happened_is_not_taken_back(rules: str) -> None:
    """An adoption or a registration cannot be taken back: ``rollback`` says so and leaves all."""
    book = hospital()
    keep_journal(book.state)
    book.grant(laplace("0.1"))
    mark = len(book.state.journal or ())
    book.policy(rules)
    book.grant(laplace("0.1"))
    was = seen(book.state)
    assert not rollback(book.state)
    assert not rollback(book.state, mark)
    assert seen(book.state) == was
    assert rollback(book.state, mark + 1)
    assert book.used() == [(100_000_000, 0, 0, 0)]
