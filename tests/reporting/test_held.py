"""What open grants hold is kept up with the events, not added up anew."""

from __future__ import annotations

import pytest
from effort import examples
from hypothesis import given, settings
from random_ledgers import Ops, ledger, ops

from accountant.budget.apply import apply, read
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.reporting.burndown import Held


@pytest.mark.parametrize("wide", [False, True])
@settings(max_examples=examples(20))
@given(todo=ops)
def test_what_is_held_is_the_sum_over_the_open_grants(wide: bool, todo: Ops) -> None:
    """After every event each account of a limit on data holds what open grants booked in it."""
    book = ledger("renyi", wide, todo)
    state, held = State(book.name), Held()
    for data in book.stored:
        event = Event.from_bytes(data)
        apply(state, read(state, event))
        held.add(state, event)
        state.held = None
        expected = state.reserved()
        for key in (key for key in state.accounts if key.rule and not key.client):
            found = held.of(key)
            if found is None:
                sums = expected.get(key)
                assert sums is None or not sums.stacked().any()
            else:
                assert (found.stacked() == expected[key].stacked()).all()
