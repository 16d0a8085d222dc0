"""Whoever waits in line is told something, whatever happens; who would wait too long is told so."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import World, ask, clean, laplace, make

from accountant.budget.commands import Envelope
from accountant.budget.errors import NotFound, Unavailable
from accountant.runtime.command_queue import CommandQueue, Waiting, _Line, settle

ASKED = Envelope("pipe", make("ask_grant", dataset="d", mechanisms=[laplace("0.01")]), "k")
SECONDS = 20
FAILURES = (
    NotFound("x", "x"),
    ValueError("x"),
    StopIteration(3),
    MemoryError("x"),
    SystemExit(1),
    KeyboardInterrupt(),
    GeneratorExit(),
)


def line(sequencer: CommandQueue, count: int, ledger: str = "fair") -> list[Future[Any]]:
    """So many commands in line."""
    futures = [Future[Any]() for _ in range(count)]
    for future in futures:
        sequencer.submit(ledger, Waiting(ASKED, settle(future)))
    return futures


def answer(_: str, batch: list[Waiting]) -> None:
    """Answers everybody."""
    for one in batch:
        one.outcome = "answered"


@settings(max_examples=examples(15))
@given(st.lists(st.sampled_from([None, *FAILURES]), min_size=1, max_size=6))
def test_whatever_answering_fails_with_everybody_is_told(failures: list[Any]) -> None:
    """An exception of any kind is told to who has no answer yet, and the line goes on."""
    left = list(failures)

    def answering(_: str, batch: list[Waiting]) -> None:
        batch[0].outcome = "answered"
        failure = left.pop() if left else None
        if failure is not None:
            raise failure
        answer(_, batch)

    sequencer = CommandQueue(answering)
    for _ in range(len(failures) + 1):
        first, *others = line(sequencer, 3)
        assert first.result(SECONDS) == "answered"
        told = [one.exception(SECONDS) for one in others]
        assert all(error is None or isinstance(error, Exception) for error in told)
    assert [one.result(SECONDS) for one in line(sequencer, 2)] == ["answered"] * 2
    sequencer.close()


@pytest.mark.parametrize("failure", FAILURES, ids=repr)
def test_what_waiters_are_told_ends_nobodys_program(failure: BaseException) -> None:
    """Neither what no future takes nor what ends programs is told as it is."""
    told = list[Any]()

    def answering(_: str, batch: list[Waiting]) -> None:
        for one in batch:
            one.outcome = failure

    sequencer = CommandQueue(answering)
    sequencer.submit("fair", Waiting(ASKED, told.append))
    sequencer.close()
    [outcome] = told
    assert isinstance(outcome, Exception)
    assert not isinstance(outcome, StopIteration)


def test_a_waiter_that_cannot_be_told_takes_nobody_with_it() -> None:
    """Who fails when told is left alone; the others are answered, and the line goes on."""
    gate = threading.Event()

    def answering(ledger: str, batch: list[Waiting]) -> None:
        gate.wait(SECONDS)
        answer(ledger, batch)

    def failing(_: Any) -> None:
        raise RuntimeError("gone")

    sequencer = CommandQueue(answering)
    for _ in range(2):
        sequencer.submit("fair", Waiting(ASKED, failing))
    [other] = line(sequencer, 1)
    gate.set()
    assert other.result(SECONDS) == "answered"
    assert [one.result(SECONDS) for one in line(sequencer, 2)] == ["answered"] * 2
    sequencer.close()


def test_a_thread_that_cannot_be_started_leaves_no_line_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who comes then is told; who comes later is answered."""
    sequencer = CommandQueue(answer)

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError):
            line(sequencer, 1)
    [later] = line(sequencer, 1)
    assert later.result(SECONDS) == "answered"
    sequencer.close()


def test_too_many_are_asked_to_come_again(world: Callable[..., World]) -> None:
    """While the database is busy a few wait, the next gets 503 with Retry-After; who waits is
    answered, once, and afterwards everybody is.
    """
    made = world(most_waiting=3).hospital("  - {id: a, limit: {epsilon: 100}}\n")
    size, told = len(made.stored()), list[Any]()
    grant = ask(laplace("0.01"))
    book = made.service._projections.of("fair")
    with book.lock:
        threads = []
        for number in range(8):
            threads.append(
                threading.Thread(
                    target=lambda n=number: told.append(made.post("/grants", grant, key=f"k{n}"))
                )
            )
            threads[-1].start()
            time.sleep(0.05)  # the first is taken at once, the next three wait
        deadline = time.monotonic() + SECONDS
        while len(told) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        turned_away = list(told)
    for thread in threads:
        thread.join(SECONDS)
    assert len(turned_away) == 4
    for one in turned_away:
        assert one.status_code == 503
        assert one.json()["type"] == "urn:accountant:problem:too-many-waiting"
        assert one.headers["Retry-After"] == "1"
    assert sorted(one.status_code for one in told) == [201] * 4 + [503] * 4
    assert len(made.stored()) == size + 4
    again = [made.post("/grants", grant, key=f"k{n}") for n in range(8)]
    assert [one.status_code for one in again] == [201] * 8
    assert sum("Idempotent-Replay" in one.headers for one in again) == 4
    clean(made)


@pytest.mark.parametrize(
    ("waiting", "sizes"),
    [(1, [1]), (16, [16]), (17, [16, 1]), (40, [21, 19]), (1_500, [512, 512, 476])],
)
def test_half_of_those_who_ask_are_answered_at_once(waiting: int, sizes: list[int]) -> None:
    """While some are told and ask again the others are decided; few are not divided, and of many
    not more than the most are taken. Their order stays.
    """
    gate, batches = threading.Event(), list[list[Waiting]]()

    def answering(ledger: str, batch: list[Waiting]) -> None:
        gate.wait(SECONDS)
        batches.append(batch)
        answer(ledger, batch)

    sequencer = CommandQueue(answering)
    first = line(sequencer, 1)  # while it is answered the others come
    while sequencer._lines["fair"].waiting:
        time.sleep(0.001)
    some = [Waiting(ASKED, lambda _: None) for _ in range(waiting)]
    for one in some:
        sequencer.submit("fair", one)
    gate.set()
    sequencer.close()
    assert first[0].result(SECONDS) == "answered"
    assert [len(batch) for batch in batches] == [1, *sizes]
    assert [one for batch in batches[1:] for one in batch] == some


def halves(bursts: int, *, back: bool) -> int:
    """How many of so many bursts of 40 are taken in halves; ``back``: those of the first half are
    there again when the others were told.
    """
    line, taken = _Line(threading.Lock()), 0
    for number in range(bursts):
        come = 40 - len(line.waiting)
        line.waiting.extend(Waiting(ASKED, lambda _: None) for _ in range(come))
        first = line.batch(idle=not back or number == 0)
        taken += len(first) < 40
        while line.waiting:
            first += line.batch(idle=False)
        assert len(first) == 40
        if back:
            line.waiting.extend(Waiting(ASKED, lambda _: None) for _ in range(20))
    return taken


def test_who_waits_for_all_answers_does_not_pay_for_two_commits() -> None:
    """Who asks for many things at once and goes on when all are answered gains nothing by halves:
    they are tried some times in a row, then less and less.
    """
    assert 8 <= halves(40, back=False) <= 14
    assert halves(4_000, back=False) <= 40
    assert halves(40, back=True) == 40


def test_a_hot_ledger_starves_no_other() -> None:
    """While thousands wait for one ledger, and its answers are slow, another one's are not."""

    def answering(ledger: str, batch: list[Waiting]) -> None:
        if ledger == "hot":
            gate.wait(SECONDS)
        answer(ledger, batch)

    gate = threading.Event()
    sequencer = CommandQueue(answering)
    hot = line(sequencer, 2_000, "hot")
    for _ in range(20):
        [one] = line(sequencer, 1, "cold")
        assert one.result(SECONDS) == "answered"
    assert not any(one.done() for one in hot)
    gate.set()
    assert {one.result(SECONDS) for one in hot} == {"answered"}
    sequencer.close()


def test_closed_under_load_everybody_is_answered_or_turned_away() -> None:
    """Threads that go on asking while it is closed: none is left waiting."""
    dice = random.Random(20261121)  # noqa: S311 (for variety)

    def answering(ledger: str, batch: list[Waiting]) -> None:
        time.sleep(dice.random() * 0.002)
        if dice.random() < 0.2:
            raise SystemExit
        answer(ledger, batch)

    sequencer = CommandQueue(answering, most_waiting=16)
    futures, away = list[Future[Any]](), list[Unavailable]()

    def load() -> None:
        while True:
            future: Future[Any] = Future()
            try:
                sequencer.submit("fair", Waiting(ASKED, settle(future)))
                futures.append(future)
            except Unavailable as problem:
                away.append(problem)
                if problem.code == "service-stopping":
                    return

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    sequencer.close()
    for thread in threads:
        thread.join(SECONDS)
    assert {problem.code for problem in away} == {"service-stopping", "too-many-waiting"}
    assert futures
    assert all(future.done() for future in futures)
