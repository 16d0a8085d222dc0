"""What is decided leaves nothing to the collector: the service looks at all there is but seldom."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from support import World, hundredth, laplace, make

from accountant.budget.commands import Asked
from accountant.budget.errors import Problem
from accountant.sequencer import Waiting
from accountant.store.errors import StoreError

_numbers = count()


@contextmanager
def uncollected() -> Iterator[Callable[[], int]]:
    """While nobody collects; what it gives says how many objects only a collector would find."""
    gc.collect()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.enable()


def crowd(world: World, size: int, *odd: Any) -> list[Waiting]:
    """Grants in line, with what is ``odd`` in their middle; nobody is told."""
    sound = [make("ask_grant", dataset="d", mechanisms=[laplace("0.0001")])] * size
    asked = [*sound[: size // 2], *odd, *sound[size // 2 :]]
    return [Waiting(Asked("pipe", c, f"k{next(_numbers)}"), lambda _: None) for c in asked]


@pytest.fixture
def busy(database: str) -> World:
    """A service that has answered crowds before."""
    world = World(database).hospital("  - {id: a, limit: {epsilon: 1000}}\n")
    for _ in range(4):
        world.service.answering.answer("fair", crowd(world, 60))
    return world


def test_crowds_leave_nothing_behind(busy: World) -> None:
    """Neither those that go well nor those with a request that cannot be answered: else a whole
    round would stay for each of them.
    """
    poison = make("commit_grant", grant="g999999")
    with uncollected() as garbage:
        for _ in range(10):
            busy.service.answering.answer("fair", crowd(busy, 60))
        assert garbage() == 0
        for _ in range(10):
            some = crowd(busy, 60, poison)
            busy.service.answering.answer("fair", some)
            assert isinstance(some[30].outcome, Problem)
        del some
        assert garbage() == 0


def test_a_state_that_is_dropped_is_gone(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the database fails, round after round, and the state is read back each time."""
    database = busy.service.ledgers._database

    def fail(_: Any) -> None:
        raise StoreError("no")

    with uncollected() as garbage:
        monkeypatch.setattr(database, "commit", fail)
        for _ in range(5):
            some = crowd(busy, 60)
            busy.service.answering.answer("fair", some)
            assert isinstance(some[0].outcome, Problem)
        monkeypatch.undo()
        del some
        assert garbage() == 0
    assert hundredth(busy.service, "pipe", "after").type == "grant.reserved.v1"


def test_who_waits_is_told_and_leaves_nothing(busy: World) -> None:
    """A request that is answered with a problem, by who waits for it in a thread of its own."""
    asks = [Asked("pipe", make("commit_grant", grant="g999999"), f"w{i}") for i in range(50)]
    with uncollected() as garbage:
        for asked in asks:
            with pytest.raises(Problem):
                busy.service.execute("fair", asked)
        assert garbage() < len(asks)
