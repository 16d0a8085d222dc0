"""Who decides with the express way beside gives the answers that ``decide`` gives, to the byte."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import Ops, carry_on, ledger, ops
from support import START, Book, laplace, make, snapshot

from accountant.budget.commands import Asked
from accountant.budget.decide import Repeated
from accountant.budget.errors import Problem
from accountant.budget.express import Express
from accountant.budget.keeper import Keeper
from accountant.budget.state import State
from accountant.privacy.gates import GATES


class Watched(Book):
    """A ledger in memory whose every question is put to a keeper too."""

    def __init__(self) -> None:
        super().__init__()
        self.keeper = Keeper(State(self.name))

    def _take(self, asked: Asked) -> Any:
        told = self._told(asked)
        try:
            events = super()._take(asked)
        except Problem as problem:
            refused = problem.code, problem.detail
            assert told == refused
            raise
        if isinstance(events, Repeated):
            assert told == events
        else:
            assert told == [(e.sequence, e.type, e.time, e.to_bytes()) for e in events]
        return events

    def _told(self, asked: Asked) -> Any:
        try:
            return self.keeper.decide(asked, self.now)
        except Problem as problem:
            return problem.code, problem.detail


@settings(max_examples=150)
@given(st.sampled_from(sorted(GATES)), st.booleans(), ops)
def test_a_keeper_answers_as_decide_does(gate: str, wide: bool, todo: Ops) -> None:
    """Whatever is asked, in whatever order, answers, refusals and the state are the same."""
    book = ledger(gate, wide, todo, Watched())
    assert isinstance(book, Watched)
    assert snapshot(book.keeper.whole()) == snapshot(book.state)


@settings(max_examples=60)
@given(st.sampled_from(sorted(GATES)), st.booleans(), ops, st.integers(0, 7_200))
def test_a_keeper_knows_what_is_due(gate: str, wide: bool, todo: Ops, seconds: int) -> None:
    """The open grants whose time has passed are those of the whole state, none twice, before and
    after what was booked is written to it.
    """
    book = ledger(gate, wide, todo, Watched())
    assert isinstance(book, Watched)
    now = book.now + seconds * 1_000_000
    due = sorted(grant.id for grant in book.state.open.values() if grant.due(now))
    assert sorted(book.keeper.due(now)) == due
    book.keeper.whole()
    assert sorted(book.keeper.due(now)) == due


@settings(max_examples=60)
@given(st.sampled_from(sorted(GATES)), st.booleans(), ops, ops)
def test_a_keeper_that_followed_answers_as_well(
    gate: str, wide: bool, first: Ops, then: Ops
) -> None:
    """Who has folded what others decided goes on as they would."""
    book = ledger(gate, wide, first)
    other = Watched()
    other.state, other.stored, other.now, other.keys = book.state, book.stored, book.now, book.keys
    for body in book.stored:
        other.keeper.follow(body)
    assert snapshot(other.keeper.whole()) == snapshot(book.state)
    carry_on(other, gate, then, "later")
    assert snapshot(other.keeper.whole()) == snapshot(other.state)


def test_what_comes_again_takes_the_express_way() -> None:
    """From the third time on a request is answered from its form, or nothing is tested here."""
    keeper, book = Keeper(State("fair")), Watched()
    book.register()
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 1}}\n")
    for body in book.stored:
        keeper.follow(body)
    asked = [
        Asked("pipe", make("ask_grant", dataset="d", mechanisms=[laplace("0.01")]), f"k{number}")
        for number in range(9)
    ]
    express = Express.decide
    found = []
    for one in asked:
        found.append(express(keeper._express, one, START) is not None)
        if not found[-1]:
            keeper.decide(one, START)
    assert found == [False] * found.index(True) + [True] * (len(found) - found.index(True))
    assert found.index(True) <= 2
