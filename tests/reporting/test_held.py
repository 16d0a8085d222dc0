"""What open grants hold is kept up with the events, not added up anew."""

from __future__ import annotations

import pytest
from effort import examples
from hypothesis import given, settings
from random_ledgers import Ops, ledger, ops
from support import Book, laplace

from accountant.budget.apply import apply
from accountant.budget.reading import read
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.reporting.burndown import Held
from accountant.reporting.peak_cell import Ruler, as_one
from accountant.reporting.statement import scopes


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
        for key in (key for key in state.accounts if key.rule):
            found = held.of(key)
            if found is None:
                sums = expected.get(key)
                assert sums is None or not sums.stacked().any()
            else:
                assert (found.stacked() == expected[key].stacked()).all()


@pytest.mark.parametrize("wide", [False, True])
@settings(max_examples=examples(20))
@given(todo=ops)
def test_accounts_that_everyone_shares_say_what_grants_hold(wide: bool, todo: Ops) -> None:
    """After every event some accounts hold what all grants together booked in each; so an account
    that says so is not read off the grants.
    """
    book = ledger("renyi", wide, todo)
    state = State(book.name)
    for data in book.stored:
        apply(state, read(state, Event.from_bytes(data)))
        found = state.reserved_of(state.accounts)
        state.held = None
        expected = state.reserved()
        state.held = None
        for key in state.accounts:
            alone, held = state.reserved_in(key), expected.get(key)
            nothing = held is None or not held.stacked().any()
            for one in (found.get(key), alone):
                assert nothing if one is None else (one.stacked() == held.stacked()).all()


@settings(max_examples=examples(8))
@given(todo=ops)
def test_what_everyone_has_spent_is_what_the_fullest_cell_has(todo: Ops) -> None:
    """Where all cells hold the same, one is read in whole numbers: as all of them would be, with
    and without what open grants hold.
    """
    book = ledger("zcdp", True, todo)
    state = State(book.name)
    for data in book.stored:
        apply(state, read(state, Event.from_bytes(data)))
        for counted in scopes(state):
            used, ruler = state.seen(counted.key).used, Ruler(counted.rule, counted.epoch)
            for less in (None, state.reserved_in(counted.key)):
                [worst] = ruler.by_value(as_one(used, less))
                assert ruler.peak(used, less) == worst
                assert ruler.spent(used, less) == worst.epsilon


def test_what_a_group_of_people_holds_is_on_all_cells() -> None:
    """Members of a household may lie in several cells: grants on two of them hold for it what both
    hold together, in the chart as in the account.
    """
    book = Book()
    home = {"group_of": "person", "at_most": 3, "called": "one household"}
    book.register({"sex": ["f", "m"]}, neighbouring="add_or_remove_one", units={"home": home})
    book.dataset("d")
    book.policy(
        "  - {id: a, limit: {epsilon: 100}}\n  - {id: homes, limit: {epsilon: 100}, unit: home}\n",
        "officer",
    )
    held = Held()
    for sex in ("f", "m"):
        granted = book.grant(laplace("0.5"), subjects={"sex": [sex]})
        held.add(book.state, granted)
    [key] = [key for key in book.state.accounts if key.rule == "homes"]
    found = held.of(key)
    assert found is not None
    assert (found.stacked() == book.state.reserved()[key].stacked()).all()
