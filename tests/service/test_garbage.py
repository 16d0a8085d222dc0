"""What is decided leaves nothing to the collector: the service looks at all there is but seldom."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from math import inf
from typing import Any

import pytest
from support import World, hundredth, laplace, make

from accountant.api.hot import Hot
from accountant.budget.commands import CommitGrant, Envelope
from accountant.budget.decide import decide
from accountant.budget.errors import Problem
from accountant.budget.state import State
from accountant.door.messages import Request
from accountant.runtime import dispatcher
from accountant.runtime.command_queue import Waiting, tell
from accountant.store import StoreError

_numbers = count()


class Unforeseen(Exception):
    """What no code expects."""


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    """Nobody collects."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def crowd(world: World, size: int, *odd: Any) -> list[Waiting]:
    """Grants in line, with what is ``odd`` in their middle; nobody is told."""
    sound = [make("ask_grant", dataset="d", mechanisms=[laplace("0.0001")])] * size
    asked = [*sound[: size // 2], *odd, *sound[size // 2 :]]
    return [Waiting(Envelope("pipe", c, f"k{next(_numbers)}"), lambda _: None) for c in asked]


@pytest.fixture
def busy(world: Callable[..., World]) -> World:
    """A service that has answered crowds before."""
    made = world().hospital("  - {id: a, limit: {epsilon: 1000}}\n")
    for _ in range(4):
        made.service.dispatcher.answer("fair", crowd(made, 60))
    return made


def test_a_problem_does_not_keep_its_round(busy: World) -> None:
    """A request that cannot be answered, among those that can: when it was told, it is gone."""
    some = crowd(busy, 60, make("commit_grant", grant="g999999"))
    busy.service.dispatcher.answer("fair", some)
    problem = some[30].outcome
    assert isinstance(problem, Problem)
    told = weakref.ref(problem)
    del some, problem
    assert told() is None


@pytest.mark.parametrize("foreseen", [True, False])
def test_a_reply_does_not_keep_its_round(
    busy: World, monkeypatch: pytest.MonkeyPatch, foreseen: bool
) -> None:
    """Who is told by the line's own thread, as on the quick way, is told something that is gone
    afterwards, be it a problem or what nobody has foreseen.
    """
    if not foreseen:

        def failing(state: State, asked: Envelope, now: int) -> Any:
            if isinstance(asked.command, CommitGrant):
                raise Unforeseen
            return decide(state, asked, now)

        monkeypatch.setattr("accountant.runtime.unit_of_work.decide", failing)
    hot, outcomes = Hot(busy.service), []
    request = Request("r", "POST", "/p", "/p", "", [], b"")

    def reply(outcome: Any) -> None:
        if isinstance(outcome, Exception):
            outcomes.append((weakref.ref(outcome), hot._reply(request, "pipe", outcome).status))

    some = crowd(busy, 60, make("commit_grant", grant="g999999"))
    for one in some:
        one.tell = reply
    busy.service.dispatcher.answer("fair", some)
    tell(some)
    del some, one
    [(told, status)] = outcomes
    assert (told(), status) == (None, 404 if foreseen else 500)


def test_a_state_that_is_dropped_is_gone(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the database fails where something cannot be taken back, the state is read back; the one
    before does not stay, nor what those who asked were told.
    """

    def fail(_: Any) -> None:
        raise StoreError("no")

    busy.service.state("fair")
    book = busy.service._projections.of("fair")
    monkeypatch.setattr(busy.service.ledgers, "commit", fail)
    monkeypatch.setattr(dispatcher, "_LONGEST", inf)  # one batch, also where the machine is busy
    before = weakref.ref(book.state)
    some = crowd(busy, 60, make("register_dataset", id="e", namespace="n", name="e"))
    busy.service.dispatcher.answer("fair", some)
    told = weakref.ref(some[0].outcome)
    assert isinstance(told(), Problem)
    del some
    assert (before(), told()) == (None, None)
    monkeypatch.undo()
    assert hundredth(busy.service, "pipe", "after").type == "grant.reserved.v1"


def test_who_waits_is_told_and_leaves_nothing(busy: World) -> None:
    """A request that is answered with a problem, by who waits for it in a thread of its own."""
    told = []
    for number in range(5):
        asked = Envelope("pipe", make("commit_grant", grant="g999999"), f"w{number}")
        try:
            busy.service.execute("fair", asked)
        except Problem as problem:
            told.append(weakref.ref(problem))
    hundredth(busy.service, "pipe", "after")  # the line holds on to its last batch until the next
    assert [one() for one in told] == [None] * 5
