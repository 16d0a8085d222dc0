"""A ledger under another policy, without a look at its grants, is as with all of them."""

from __future__ import annotations

import pytest
from effort import examples
from hypothesis import given, settings
from random_ledgers import POLICY, Ops, ledger, ops

from accountant.budget.errors import Problem
from accountant.budget.policy_file import parse_policy
from accountant.budget.trials.backtest import Backtest
from accountant.console.facts.adopting import adopted
from accountant.ledger.merkle import leaf_hash
from accountant.reporting.desk import Page
from accountant.reporting.following import Followed
from accountant.reporting.statement import balances, scopes
from accountant.reporting.texts import Texts
from accountant.store.ledgers import Stored

OTHERS = (
    ("limit: {{epsilon: {limit},", "limit: {{epsilon: 7,"),  # carried
    ("gate: {gate}", "gate: basic"),  # converted
    ("a,", "b,"),  # brought
    ("{{id: a,", "{{id: a, carry: none,"),  # reset
    ("window: 1h,", "window: 2h,"),
    ("{{id: person, across: datasets, limit: {{epsilon: 3", "{{id: person, limit: {{epsilon: 3"),
    ("limit: {{epsilon: 0.7, delta: 1e-5}}, clients", "limit: {{epsilon: 0.4}}, clients"),
)
"""What another policy says in place of the one in force."""


@pytest.mark.parametrize("change", OTHERS, ids=[one[1][:24] for one in OTHERS])
@settings(max_examples=examples(4))
@given(todo=ops)
def test_what_would_be_left_is_what_all_grants_together_leave(
    change: tuple[str, str], todo: Ops
) -> None:
    """Each limit of another policy would stand where it would if every open grant had been looked
    at, whatever the policy changes.
    """
    book, texts = ledger("zcdp", True, todo), Texts()
    followed = Followed(book.name)
    rows = (Stored(at, body, leaf_hash(body)) for at, body in enumerate(book.stored))
    followed.follow(rows, texts)
    state = followed.state
    assert state.adopted is not None
    text = POLICY.replace(*change).format(limit="1.5", gate="zcdp")
    policy, _ = parse_policy("policy: p\nrules:\n" + text)
    page = Page(followed, texts, state.time + 1)
    expected = state.frozen(page.now)
    try:
        Backtest(expected).adopt(policy, page.now)
    except Problem:
        with pytest.raises(Problem):
            adopted(page, policy, state.frozen(page.now, requests=False))
        return
    expected.now = page.now
    found = adopted(page, policy, state.frozen(page.now, requests=False))
    assert scopes(found.state) == scopes(expected)
    for counted in scopes(expected):
        assert [found.balance(counted)] == balances(expected, counted, None)
