"""Replay: every event's command is asked again of the state before it, and the answer compared.

It believes nothing that an event says was booked or decided: a ledger that replays without a
finding has every total and every decision as this code would take them from the commands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import orjson

from accountant.budget.apply import apply, read
from accountant.budget.decide import Repeated, decide
from accountant.budget.outcome import Outcome
from accountant.budget.state import State, envelope_of
from accountant.ledger.events import Event

RUN: Final = 1_000
"""Events between two reports of progress."""
_MOST_TOLD: Final = 600


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, at a sequence."""

    sequence: int
    reason: str


@dataclass(slots=True)
class Replay:
    """The state that the first ``events`` events lead to, and every finding."""

    state: State
    events: int = 0
    findings: list[Finding] = field(default_factory=list)


def replay(ledger: str, bodies: Iterable[bytes]) -> Iterator[Replay]:
    """Replays events in order, yielding the same Replay after every ``RUN`` and in the end.

    Where an event cannot be folded at all, the rest is checked for its bytes and order only.
    """
    progress = Replay(State(ledger))
    broken, expected = False, 0
    for place, data in enumerate(bodies):
        progress.events = place + 1
        event, reasons = _read(ledger, data, expected)
        expected = event.sequence + 1 if event else expected + 1
        if not broken:
            broken = not _take(progress.state, event, data, reasons)
        progress.findings += [Finding(place, reason) for reason in reasons]
        if progress.events % RUN == 0:
            yield progress
    if (batch := progress.state.batch) is not None and not broken:
        reason = f"the ledger ends inside the batch at {batch.header}"
        progress.findings.append(Finding(progress.events - 1, reason))
    yield progress


def _read(ledger: str, data: bytes, expected: int) -> tuple[Event | None, list[str]]:
    """The event, and what is wrong with its bytes and its place."""
    try:
        event = Event.from_bytes(data, compared=True)
    except (ValueError, TypeError) as error:  # a database may hand out text or nothing at all
        return None, [f"not a canonical event: {error}"]
    if (event.ledger, event.sequence) != (ledger, expected):
        return event, [f"{event.ledger}/{event.sequence} stands where {expected} belongs"]
    return event, []


def _take(state: State, event: Event | None, data: bytes, reasons: list[str]) -> bool:
    """Takes the decision again and folds the event in; False if nothing can be folded after it."""
    decided = None if event is None else _again(state, event, data, reasons)
    try:
        if event is None:
            raise ValueError("it cannot be read")
        if decided is None:
            event.check(data)
        # A decision that came out the same is folded as it was taken.
        apply(state, decided or read(state, event))
    except Exception as error:  # noqa: BLE001 a damaged event may fail in any way: a finding
        reasons += [f"it cannot be folded: {error}", "from here on no decision can be taken again"]
        return False
    return True


def _again(state: State, event: Event, data: bytes, reasons: list[str]) -> Outcome | None:
    """Takes the decision again; at most one reason why it differs. What it comes to, if that is
    ``event`` to the byte.
    """
    try:
        outcomes = decide(state, envelope_of(event), event.time)
    except Exception as error:  # noqa: BLE001 a forged event may ask for anything: a finding
        reasons.append(f"the command would have been refused: {error}")
        return None
    if isinstance(outcomes, Repeated):
        at = outcomes.sequence
        reasons.append(f"it repeats the answer at {at}: a retry must not be recorded")
    elif not outcomes or outcomes[0].entry.body != data:
        reasons.append("the decision, taken again, differs: " + _difference(outcomes, event))
    else:
        return outcomes[0]
    return None


def _difference(outcomes: list[Outcome], event: Event) -> str:
    if not outcomes:
        return "nothing would have been recorded"
    mine, theirs = orjson.loads(outcomes[0].entry.body), event.to_json()
    names = sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k))
    told = ", ".join(f"{k} is {theirs.get(k)!r}, should be {mine.get(k)!r}" for k in names)
    return told[:_MOST_TOLD]
