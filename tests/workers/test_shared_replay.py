"""Replay on several processes: the findings and the state are those of one process."""

from __future__ import annotations

import io
import json
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from budget.test_replay import STORED, changed, paths
from effort import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from support import last_replay, snapshot

from accountant.auditing.verify import verify
from accountant.budget.replay import Replay
from accountant.budget.rules import KINDS
from accountant.budget.rules.require import RequireRule
from accountant.budget.state import State
from accountant.ledger.events import Event, canonical
from accountant.workers import replaying
from accountant.workers.helpers import HelperError, Helpers
from accountant.workers.replaying import Helping, Shared, replay_on

BUNDLES = Path(__file__).parent.parent / "golden" / "evidence"


class _Inline:
    """Helpers that answer within the same process, each after ``lag`` more messages."""

    def __init__(self, count: int, lag: int) -> None:
        self.each: Sequence[Any] = [_Slow() for _ in range(count)]
        self._lag = lag

    def post(self, message: Any, to: int | None = None) -> None:
        for helper in self.each if to is None else [self.each[to]]:
            helper.waiting.append(message)

    def exchange(self, *, wait: bool = False) -> list[tuple[int, Any]]:
        came = []
        for number, helper in enumerate(self.each):
            while len(helper.waiting) > (0 if wait else self._lag):
                if (answer := helper.take()) is not None:
                    came.append((number, answer))
        return came


class _Slow:
    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        self._helping: Helping | None = None

    def take(self) -> Any:
        message = self.waiting.popleft()
        if self._helping is None:
            self._helping = Helping(*message)
            return None
        return self._helping.answer(message)


@pytest.fixture(autouse=True, scope="module")
def _short_runs() -> Iterator[None]:
    """Small ledgers are handed round in many runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replaying, "_RUN", 2)
        yield


def last(steps: Iterator[Replay]) -> Replay:
    """The end of a replay."""
    return deque(steps, maxlen=1).pop()


def same(one: Replay, other: Replay) -> None:
    """Both replays came to the same."""
    assert (one.findings, one.events) == (other.findings, other.events)
    assert (one.broken, one.expected) == (other.broken, other.expected)
    assert snapshot(one.state) == snapshot(other.state)


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(0, 5))
def test_a_shared_replay_finds_what_one_finds(data: st.DataObject, helpers: int, lag: int) -> None:
    """Whatever was forged, and however slow the helpers are: the same findings in the same order,
    and the same state.
    """
    bodies: list[Any] = list(STORED)
    for at in data.draw(st.lists(st.integers(0, len(STORED) - 1), max_size=3)):
        document = json.loads(STORED[at])
        path, _ = data.draw(st.sampled_from(list(paths(document))))
        value = data.draw(st.sampled_from([None, True, -1, "", "0", "7", "g4", [], {}]))
        forged = canonical(changed(document, path, value))
        kinds = [forged, forged, forged[:-1] + b" }", forged.replace(b",", b", "), b"", None, 5]
        bodies[at] = data.draw(st.sampled_from(kinds))
    bodies = bodies[: data.draw(st.sampled_from([len(bodies), len(bodies) - 3, 9, 0]))]
    same(last(Shared("fair", _Inline(helpers, lag)).run(bodies)), last_replay("fair", bodies))


@pytest.mark.parametrize("at", range(len(STORED)))
def test_believing_an_event_does_what_deciding_it_does(at: int) -> None:
    """A sound event changes the state alike, whether it is decided again or believed."""
    deciding, believing = Replay(State("fair")), Replay(State("fair"))
    for place, body in enumerate(STORED):
        deciding.decide([body])
        (believing.decide if place == at else believing.believe)([body])
    same(believing, deciding)


@pytest.mark.parametrize("processes", some([3, 2, 1], 2))
def test_processes_agree_with_one(processes: int) -> None:
    """The real processes: a sound ledger, a forged one, and one that is cut off in a batch."""
    same(last(replay_on("fair", STORED, 0, processes)), last_replay("fair", STORED))
    event = next(e for e in map(Event.from_bytes, STORED) if "total" in e.body)
    forged = list(STORED)
    forged[event.sequence] = canonical(changed(event.to_json(), ("total", "epsilon"), "7"))
    forged[-2] = b"{}"
    for bodies in (forged, forged[: event.sequence + 1], STORED[:-2]):
        same(last(replay_on("fair", bodies, 0, processes)), last_replay("fair", bodies))


def test_a_kind_that_only_this_process_knows_is_decided_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Helpers import the shipped kinds only; with another one registered there are none."""

    class Own(RequireRule):
        """A kind of this test."""

    def refuse(*_: object) -> None:
        raise AssertionError("a helper was started")

    monkeypatch.setitem(KINDS, "own", Own)
    monkeypatch.setattr(replaying, "Helpers", refuse)
    same(last(replay_on("fair", STORED, 0, 2)), last_replay("fair", STORED))


def test_states_that_differ_are_a_finding() -> None:
    """Processes that folded the same events compare what they have come to."""
    steps = Shared("fair", _Inline(1, 0)).run(STORED)
    step = next(steps)
    step.state.grants._clients.number("nobody")
    assert [f.reason for f in last(steps).findings] == [
        "processes that folded the same events have come to different states"
    ]


@pytest.mark.parametrize("path", some(sorted(BUNDLES.glob("*.tar")), 2), ids=lambda path: path.stem)
def test_an_audit_on_two_processes_says_the_same(path: Path) -> None:
    """The verdict on a bundle, sound or damaged, does not depend on the processes."""
    sound = path.read_bytes()
    middle = sound.rindex(b'"epsilon":"') + 11
    for data in (sound, sound[:middle] + b"8" + sound[middle + 1 :]):
        one, two = (verify([io.BytesIO(data)], processes=n) for n in (1, 2))
        if one.state and two.state:
            assert snapshot(one.state) == snapshot(two.state)
        told = [
            [*sorted(map(str, verdict.findings)), replace(verdict, state=None, findings=[])]
            for verdict in (one, two)
        ]
        assert told[0] == told[1]
        assert (one.count == 0) == (data is sound)


@pytest.mark.parametrize("when", ["early", "late"])
def test_the_death_of_a_helper_is_an_error(when: str) -> None:
    """Nothing is said to agree that a helper was to decide and did not."""
    with Helpers("accountant.workers.replaying", 1) as helpers:
        steps = Shared("fair", helpers).run(iter(STORED))
        if when == "late":
            next(steps)
        helpers.each[0]._process.send_signal(signal.SIGKILL)
        with pytest.raises(HelperError, match=r"exit status -9"):
            last(steps)


def test_no_helper_outlives_a_replay_that_was_given_up() -> None:
    """Who stops in the middle, by Ctrl-C or by an error, leaves no process behind."""

    def bodies() -> Iterator[bytes]:
        yield from STORED[:20]
        raise KeyboardInterrupt

    before = _children()
    with pytest.raises(KeyboardInterrupt):
        last(replay_on("fair", bodies(), 0, 2))
    assert _children() == before


def test_a_helper_that_cannot_start_is_an_error() -> None:
    """What is no helper ends at once, and that is said."""
    with (
        Helpers("accountant.workers", 1) as helpers,
        pytest.raises(HelperError, match="ended too early"),
    ):
        last(Shared("fair", helpers).run(STORED))


def _children() -> list[str]:
    return sorted(
        stat.parent.name
        for stat in Path("/proc").glob("[0-9]*/stat")
        if _parent_of(stat) == Path("/proc/self").resolve().name
    )


def _parent_of(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(")")[2].split()[1]
    except OSError:
        return ""
