"""Balances that a page has worked out before are those that it would work out now."""

from __future__ import annotations

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import Ops, ledger, ops

from accountant.console.facts.standing import balance_of
from accountant.ledger.merkle import leaf_hash
from accountant.reporting.desk import Page
from accountant.reporting.following import Followed
from accountant.reporting.statement import balances, scopes
from accountant.reporting.texts import Texts
from accountant.store.ledgers import Stored


@settings(max_examples=examples(30))
@given(todo=ops, ahead=st.lists(st.integers(0, 3_000_000_000), min_size=1))
def test_what_no_event_has_changed_is_not_worked_out_again(todo: Ops, ahead: list[int]) -> None:
    """After each event of a ledger, and at any later stamp, every limit stands where it would if
    its balance had not been kept.
    """
    book, texts = ledger("zcdp", True, todo), Texts()
    followed = Followed(book.name)
    for number, body in enumerate(book.stored):
        followed.follow([Stored(number, body, leaf_hash(body))], texts)
        state = followed.state
        if state.batch is not None or state.population is None:
            continue
        state.now = state.time + ahead[number % len(ahead)]
        page = Page(followed, texts, state.now)
        for counted in scopes(state):
            assert [balance_of(page, counted)] == balances(state, counted, None)
        state.now = 0
