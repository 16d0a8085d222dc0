"""What is read of an event's bytes is the change that was decided; what lacks something is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import ledger, ops
from support import Book, hospital, laplace, snapshot, sparse_vector

from accountant.budget.apply import apply, follow
from accountant.budget.changes import Admit, Record, Reserve, Wait
from accountant.budget.errors import Invalid
from accountant.budget.facts import grant_in, in_clear
from accountant.budget.outcome import Outcome
from accountant.budget.reading import read, read_checked
from accountant.budget.replay import Replay
from accountant.budget.state import State
from accountant.ledger.events import Event, canonical
from accountant.privacy.filters import FILTERS


class Deciding(Book):
    """Keeps the outcomes that were decided."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.decided: list[Outcome] = []

    def fold(self, outcome: Outcome) -> None:
        """Keeps the outcome, too."""
        self.decided.append(outcome)
        super().fold(outcome)


def bare(change: Any) -> Any:
    """A change without what only the process that decided knows. Sealed purposes are in no scope:
    how they are held is all the same.
    """
    if isinstance(change, Reserve):
        held = change.grant.holding(())
        return held, in_clear(change.purpose), change.allotment, change.arriving
    if isinstance(change, Record):
        return change._replace(purpose=in_clear(change.purpose))
    if isinstance(change, Admit):
        return change.sequence, bare(change.reserve)
    if isinstance(change, Wait):
        return change.waiting, change.arriving
    return change


@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(FILTERS)), st.booleans(), ops)
def test_an_event_reads_as_it_was_decided(gate: str, wide: bool, todo: Any) -> None:
    """Client, key, command, stamp, batch and change are those of the outcome, event by event."""
    book = Deciding()
    ledger(gate, wide, todo, book)
    state = State(book.name)
    for decided in book.decided:
        data = decided.entry.body
        for found in (read_checked(state, data), read(state, Event.from_bytes(data), data)):
            assert found.entry == decided.entry
            assert (found.by, found.key, found.command) == (
                decided.by,
                decided.key,
                decided.command,
            )
            assert (found.batch, found.fingerprint) == (decided.batch, decided.fingerprint)
            assert list(map(list, found.fired)) == list(map(list, decided.fired))
            assert bare(found.change) == bare(decided.change)
        apply(state, found)
    assert snapshot(state) == snapshot(book.state)  # windows pass when somebody looks


def spent() -> Book:
    """A ledger with an event of each type that is read plainly."""
    book = hospital("  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n", {"sex": ["f", "m"]})
    first = grant_in(book.grant(laplace("0.3", 2), subjects={"sex": ["f"]}))
    book.do("commit_grant", grant=first, mechanisms=[laplace("0.3")], key="commit")
    session = grant_in(book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector()))
    book.do("count_answers", grant=session, positives=1, negatives=3)
    book.record(laplace("0.2"), subjects={"sex": ["f"]})
    book.do("ask_grant", dataset="d", mechanisms=[laplace("0.9")], wait=3_600)
    return book


STORED = spent().stored
NEEDED = [
    ("grant.reserved.v1", "total"),
    ("grant.reserved.v1", "command.dataset"),
    ("grant.reserved.v1", "command.type"),
    ("grant.committed.v1", "command.grant"),
    ("invocation.recorded.v1", "total"),
    ("invocation.recorded.v1", "command.dataset"),
    ("sparse_vector.answered.v1", "positives"),
    ("sparse_vector.answered.v1", "negatives"),
    ("grant.waiting.v1", "total"),
    *(("grant.reserved.v1", name) for name in ("by", "command", "ledger", "sequence", "time")),
]
WRONG: list[Callable[[dict[str, Any]], Any]] = [
    lambda event: event.update(time=event["time"].replace("Z", "+00:00")),
    lambda event: event.update(time=event["time"][:-8] + "Z"),
    lambda event: event.update(sequence=str(event["sequence"])),
    lambda event: event.update(sequence=event["sequence"] + 1),
    lambda event: event.update(ledger="other"),
    lambda event: event.update(type="grant.reserved.v9"),
    lambda event: event.update(batch=3),
    lambda event: event.update(batch="3"),
    lambda event: event.update(total="12"),
    lambda event: event.update(charged="d"),
    lambda event: event["command"].update(ttl_seconds="60"),
    lambda event: event["command"].update(subjects={"sex": "f"}),
    lambda event: event["command"].update(subjects={"sex": ["unknown"]}),
]


def before(kind: str) -> tuple[State, dict[str, Any]]:
    """The state before the first event of a type, and the event."""
    state = State("fair")
    for data in STORED:
        document = orjson.loads(data)
        if document["type"] == kind:
            return state, document
        follow(state, data)
    raise AssertionError(f"no {kind} in the ledger")


@pytest.mark.parametrize(("kind", "name"), NEEDED)
def test_an_event_that_lacks_a_field_is_refused(kind: str, name: str) -> None:
    """What an event of a type always says has no default."""
    state, document = before(kind)
    *inside, last = name.split(".")
    del (document[inside[0]] if inside else document)[last]
    with pytest.raises(ValueError, match=r"lacks a field|lacks the field|missing"):
        follow(state, canonical(document))


@pytest.mark.parametrize("wrong", WRONG)
def test_an_event_with_a_wrong_field_is_refused(wrong: Callable[[dict[str, Any]], Any]) -> None:
    """A field of another kind, or another place, is never read as the right one."""
    state, document = before("grant.reserved.v1")
    wrong(document)
    with pytest.raises((ValueError, LookupError, Invalid)):
        follow(state, canonical(document))


@pytest.mark.parametrize(
    ("name", "value"), [("fired", "a"), ("fired", [0]), ("key", 3), ("charged_to", {})]
)
def test_what_changes_nothing_does_not_end_a_replay(name: str, value: Any) -> None:
    """A forged field on which no change rests is no reason not to look at what comes after it: the
    process that decides again and those that believe go on, to the same state.
    """
    at, [forged] = len(STORED) - 2, [orjson.loads(STORED[-2]) | {name: value}]
    bodies = [*STORED[:at], canonical(forged), STORED[-1]]
    deciding, believing = Replay(State("fair")), Replay(State("fair"))
    deciding.decide(bodies)
    believing.believe(bodies)
    assert not deciding.broken
    assert deciding.state == believing.state
    assert deciding.state.sequence == len(STORED)
    assert {one.sequence for one in deciding.findings} <= {at}


def test_bytes_that_are_not_canonical_are_refused() -> None:
    """The same event in other bytes is none."""
    state, document = before("grant.reserved.v1")
    for data in (orjson.dumps(document, option=orjson.OPT_INDENT_2), canonical(document) + b" "):
        with pytest.raises(ValueError, match="canonical"):
            follow(state, data)


def test_no_event_is_stamped_before_the_one_it_follows() -> None:
    """Stamps never go back within a ledger."""
    state, document = before("grant.committed.v1")
    document["time"] = "2020" + document["time"][4:]
    with pytest.raises(ValueError, match="stamped before"):
        follow(state, canonical(document))
