"""Keys whose accounts have used the same hold one account."""

from __future__ import annotations

from collections import Counter

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import Ops, carry_on, ledger, ops
from support import hospital, laplace, snapshot

from accountant.budget.apply import follow
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.privacy.filters import FILTERS

TWO_LIMITS = """  - {id: lifetime, limit: {epsilon: 9, delta: 1e-6}}
  - {id: person, across: datasets, limit: {epsilon: 9, delta: 1e-6}}
"""


def holders(state: State) -> list[int]:
    """How many keys hold each key's account."""
    return [account.holders for account in state.accounts.values()]


@settings(max_examples=examples(30))
@given(st.sampled_from(sorted(FILTERS)), st.booleans(), ops, ops)
def test_sharing_changes_nothing(gate: str, wide: bool, first: Ops, then: Ops) -> None:
    """A ledger in which no two keys ever hold one account comes to the same, and every account
    knows how many keys hold it.
    """
    book = ledger(gate, wide, first)
    carry_on(book, gate, then, "then")
    apart = State(book.name)
    for data in book.stored:
        follow(apart, data)
        for key in apart.accounts:
            apart.accounts.alone(key)
    assert snapshot(apart) == snapshot(book.state)
    held = Counter(map(id, book.state.accounts.values()))
    assert all(one.holders == held[id(one)] for one in book.state.accounts.values())
    loaded = load(book.name, b"".join(dump(book.state)))
    assert snapshot(loaded) == snapshot(book.state)


def test_what_goes_to_all_is_booked_once() -> None:
    """A limit on one dataset and one across all hold one account, and so do the lifetimes, until
    another dataset is charged. So it is after a restart, and under a new policy.
    """
    book = hospital(TWO_LIMITS)
    book.dataset("e")
    book.grant(laplace("0.5"))
    assert sorted(holders(book.state)) == [2, 2, 2, 2]
    loaded = load(book.name, b"".join(dump(book.state)))
    assert sorted(holders(loaded)) == [2, 2, 2, 2]
    book.policy(TWO_LIMITS.replace("9,", "8,"))
    book.grant(laplace("0.5"))
    assert sorted(holders(book.state))[-4:] == [2, 2, 2, 2]
    book.grant(laplace("0.5"), dataset="e")
    assert book.used("lifetime", "d") == [(10**9, 0, *book.used("lifetime", "d")[0][2:])]
    assert book.used("person", "*")[0][0] == 3 * 5 * 10**8
    assert [book.state.accounts[book.key("lifetime", name)].holders for name in "de"] == [1, 1]
