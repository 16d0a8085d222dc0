"""Who decides with the express way beside gives the answers that ``decide`` gives, to the byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import (
    Ops,
    asking,
    carry_on,
    clients,
    datasets,
    ending,
    few,
    ledger,
    ops,
    purposes,
)
from support import SECOND, START, Book, laplace, last_replay, make, snapshot, sparse_vector

from accountant.budget import express
from accountant.budget.commands import Asked
from accountant.budget.decide import SYSTEM, Repeated
from accountant.budget.errors import Conflict, Problem
from accountant.budget.express import Express
from accountant.budget.express.running import Running
from accountant.budget.keeper import Keeper
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.privacy.filters import GATES


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


class WatchedDue(Watched):
    """The keeper is asked what is due after each, as the service does every second."""

    def _take(self, asked: Asked) -> Any:
        events = super()._take(asked)
        what_is_due(self, self.now)
        return events


@settings(max_examples=100)
@given(st.sampled_from(sorted(GATES)), st.booleans(), ops)
def test_a_keeper_answers_as_decide_does(gate: str, wide: bool, todo: Ops) -> None:
    """Whatever is asked, in whatever order, answers, refusals and the state are the same."""
    book = ledger(gate, wide, todo, Watched())
    assert isinstance(book, Watched)
    assert snapshot(book.keeper.whole()) == snapshot(book.state)


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(GATES)),
    st.booleans(),
    ops,
    st.integers(0, 7_200),
    st.booleans(),
    st.sampled_from([-1_000, 0, 10_000]),
)
def test_a_keeper_knows_what_is_due(
    gate: str, wide: bool, todo: Ops, seconds: int, watched: bool, ended: int
) -> None:
    """The open grants whose time has passed are those of the whole state, soonest first and none
    twice, before and after what was booked is written to it; whether it is asked for the first time
    or has been asked after every event, and however many that have ended it still knows.
    """
    with patch.object(express, "_FEW_ENDED", ended):
        book = ledger(gate, wide, todo, WatchedDue() if watched else Watched())
        assert isinstance(book, Watched)
        what_is_due(book, book.now + seconds * 1_000_000)


def what_is_due(book: Watched, now: int) -> None:
    """Compares with the whole state."""
    expires = {grant.id: grant.expires for grant in book.state.open.values()}
    due = {name for name, at in expires.items() if at <= now}
    for most in (len(due), len(due) + 9, 2):
        found = book.keeper.due(now, most)
        assert len(found) == min(most, len(due))
        assert set(found) <= due
        assert found == list(dict.fromkeys(found))
        assert [expires[name] for name in found] == sorted(expires.values())[: len(found)]
        book.keeper.whole()


@pytest.mark.parametrize("again", [False, True])
def test_however_a_grant_is_opened_it_is_due(again: bool) -> None:
    """By a form or at length, alone or in a batch, as a session: a grant is due when its time has
    passed, also if it was asked before what is due; and no longer when it was settled.
    """
    book = WatchedDue()
    book.register()
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 9, delta: 1e-3}}\n")
    ask = make("ask_grant", dataset="d", mechanisms=[laplace("0.01")], ttl_seconds=9)
    for _ in range(1 + again):
        book.now += SECOND
        book.ask(ask)
        book.ask(ask, key="k" * (2 + book.keys) + "\u00e9")
        book.batch(ask, ask)
        book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector(), ttl_seconds=5)
    opened = list(book.state.open)
    assert len(opened) == 5 * (1 + again)
    book.now += 5 * SECOND
    assert len(book.keeper.due(book.now, 99)) == 1 + again
    book.now += 4 * SECOND
    assert sorted(book.keeper.due(book.now, 99)) == sorted(opened)
    for left, name in enumerate(opened, 1 - len(opened)):
        book.ask(make("expire_grant", grant=name), SYSTEM)
        assert len(book.keeper.due(book.now, 99)) == -left


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


again = st.tuples(
    st.just("batch"),
    st.booleans(),
    clients,
    st.lists(st.tuples(datasets, few, st.sampled_from([0, 2]), purposes), min_size=1, max_size=6),
)


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(GATES)),
    st.lists(again | again | asking | ending, min_size=20, max_size=60),
    st.booleans(),
)
def test_batches_of_what_comes_again(gate: str, todo: Ops, writes: bool) -> None:
    """Batches of few requests, many of which would break the limit: none leaves anything that a
    decision at length would not have left, whenever what is booked is written to the state.
    """
    with pytest.MonkeyPatch.context() as patch:
        if writes:
            ready = Running.ready
            patch.setattr(Running, "ready", lambda self, form: (self.write(), ready(self, form))[1])
        book = ledger(gate, False, todo, Watched())
        assert isinstance(book, Watched)
        assert snapshot(book.keeper.whole()) == snapshot(book.state)
        again = Keeper(State(book.name))
        for body in book.stored:
            again.follow(body)
        assert snapshot(again.whole()) == snapshot(book.state)


def test_nothing_was_booked_over_all_datasets_yet() -> None:
    """Where what was carried over of one dataset is all that a rule goes on from, the first to be
    granted makes the account over all datasets; until then nothing is taken the express way.
    """
    book = Watched()
    book.register()
    book.dataset("d")
    used = {"epsilon": "70000000", "delta": "7"}
    account = {"rule": "", "epoch": 0, "dataset": "d", "client": "", "used": used}
    book.do("carry_over", "admin", accounts=[account])
    book.policy("  - {id: a, limit: {epsilon: 9}}\n")
    for _ in range(3):
        book.grant(laplace("0.01"))
    assert snapshot(book.keeper.whole()) == snapshot(book.state)
    again = Keeper(State(book.name))
    for body in book.stored:
        again.follow(body)
    assert snapshot(again.whole()) == snapshot(book.state)
    assert last_replay(book.name, book.stored).findings == []


def asks(*epsilons: str) -> list[Any]:
    """Items of a batch."""
    return [make("ask_grant", dataset="d", mechanisms=[laplace(e)]) for e in epsilons]


@pytest.mark.parametrize("writes", [False, True])
def test_a_batch_of_what_comes_again_takes_the_express_way(
    monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    """From the third time on its items are answered from their forms; what is unknown or would be
    refused takes the whole batch the way at length, and what was booked on the way is taken back.
    """
    book, express, tried = Watched(), Express.decide, list[tuple[bool, int, int]]()

    def noted(self: Express, asked: Asked, now: int) -> Any:
        before = self._state.sequence
        found = express(self, asked, now)
        if asked.items:
            tried.append((found is not None, self._state.sequence - before, len(asked.items)))
        return found

    monkeypatch.setattr(Express, "decide", noted)
    if writes:  # what is booked is written to the state on the way
        ready = Running.ready
        eager = lambda self, form: (self.write(), ready(self, form))[1]  # noqa: E731
        monkeypatch.setattr(Running, "ready", eager)
    book.register()
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 1}}\n")
    for _ in range(4):
        book.batch(*asks("0.01", "0.02", "0.01"))
    assert tried[-1] == (True, 4, 3)
    book.batch(*asks("0.01", "0.02", "0.3"))  # a form that is not known
    assert tried[-1] == (False, 0, 3)
    book.batch(*asks("0.01", "0.02", "0.3"))
    assert tried[-1] == (True, 4, 3)
    for _ in range(3):
        [refused] = book.batch(*asks("0.01", "0.02", "0.3"))
        assert refused.type == "batch.refused.v1"
        assert tried[-1] == (False, 0, 3)
        book.batch(*asks("0.02", "0.01"))
        assert tried[-1] == (True, 3, 2)
        book.grant(laplace("0.01"))
    book.now += 9
    nowhere = make("ask_grant", dataset="nowhere", mechanisms=[laplace("0.01")])
    with pytest.raises(Problem):
        book.batch(*asks("0.01"), nowhere)
    book.now -= 9  # what did not happen has no time
    book.batch(*asks("0.01"))
    book.batch(*asks("0.01", "0.02", "0.3"))
    assert snapshot(book.keeper.whole()) == snapshot(book.state)
    assert book.replayed().findings == []


def repeated(*last: str) -> Book:
    """A ledger in which a batch came again and again, and then one of ``last``."""
    book = Book()
    book.register()
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 1}}\n")
    for _ in range(3):
        book.batch(*asks("0.01", "0.01"))
    book.grant(laplace("0.01"))
    book.batch(*asks(*last))
    return book


def test_an_item_of_no_open_batch_is_refused() -> None:
    """However well it is worded, an item that its batch does not have is no event; neither is one
    that stands alone where an item belongs.
    """
    short, long = repeated("0.01"), repeated("0.01", "0.01")
    for kept, more in ((len(short.stored), long.stored[-1]), (-1, short.stored[-3])):
        keeper = Keeper(State("fair"))
        for body in short.stored[:kept]:
            keeper.follow(body)
        event = Event.from_bytes(more)
        forged = replace(event, sequence=keeper.sequence).to_bytes()
        with pytest.raises(ValueError, match="batch"):
            keeper.follow(forged)


def following(stored: list[bytes]) -> Keeper:
    """A keeper that has folded what others decided."""
    keeper = Keeper(State("fair"))
    for body in stored:
        keeper.follow(body)
    return keeper


def test_an_event_of_before_the_last_one_is_refused() -> None:
    """However well it is worded, time does not go back."""
    book = repeated("0.01")
    book.now += 3_600 * SECOND
    book.grant(laplace("0.01"))
    early = Book()
    early.state, early.now, early.keys = following(book.stored).whole(), START, 99
    time, early.state.time = early.state.time, 0
    early.grant(laplace("0.01"))
    early.state.time = time
    keeper = following(book.stored)
    with pytest.raises(ValueError, match="before the one it follows"):
        keeper.follow(early.stored[-1])


def test_nothing_is_decided_within_a_batch() -> None:
    """Where a ledger ends in half a batch, what has come before is refused as all else is."""
    batch = Asked.together("pipe", [Asked("pipe", one) for one in asks("0.01", "0.01")], "z")
    alone = Asked("pipe", *asks("0.01"), "z")
    for asked in (alone, batch):
        keeper, other = (following(repeated("0.01").stored) for _ in range(2))
        for one in (keeper, other):
            one.decide(replace(asked, key="known"), START)
        entries = other.decide(replace(batch, key="half"), START)
        assert not isinstance(entries, Repeated)
        for entry in entries[:2]:
            keeper.follow(entry.body)
        with pytest.raises(Conflict, match="nothing else can follow"):
            keeper.decide(asked, START)
