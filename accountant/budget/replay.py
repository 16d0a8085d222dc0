"""Replay: every event's command is asked again of the state before it, and the answer compared.

It believes nothing that an event says was booked or decided: a ledger that replays without a
finding has every total and every decision as this code would take them from the commands alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from accountant.budget.commands import Asked
from accountant.budget.decide import Repeated, decide
from accountant.budget.express import Express
from accountant.budget.folding import apply
from accountant.budget.state import State, asked_of
from accountant.ledger.events import Event, canonical

RUN: Final = 1_000
"""Events between two reports of progress."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, at a sequence."""

    sequence: int
    reason: str


@dataclass(slots=True)
class Replay:
    """The state that the first ``events`` events lead to, and every finding. The state is whole
    only in the end: until then a part of what was booked may be kept beside it.
    """

    state: State
    events: int = 0
    findings: list[Finding] = field(default_factory=list)


def replay(ledger: str, bodies: Iterable[bytes], *, express: bool = False) -> Iterator[Replay]:
    """Replays events in order, yielding the same Replay after every ``RUN`` and in the end.

    Every decision is taken again at length, unless ``express``: then what repeats is compared with
    what has to follow, as whoever decided it did. Where an event cannot be folded at all, the rest
    is checked for its bytes and order only.
    """
    progress = Replay(State(ledger))
    way = Express(progress.state) if express else None
    broken, expected = False, 0
    for place, data in enumerate(bodies):
        progress.events = place + 1
        follows = not broken and expected == progress.state.sequence
        alone = progress.state.batch is None  # items of a batch go the long way
        if way is not None and follows and alone and way.take(data):
            expected += 1
        else:
            event, findings = _read(ledger, data, expected)
            expected = event.sequence + 1 if event else expected + 1
            if not broken:
                broken = not _at_length(progress.state, event, data, findings, way)
            progress.findings += [Finding(place, reason) for reason in findings]
        if progress.events % RUN == 0:
            yield progress
    if way is not None:
        way.write_back()
    if (batch := progress.state.batch) is not None and not broken:
        reason = f"the ledger ends inside the batch at {batch.header}"
        progress.findings.append(Finding(progress.events - 1, reason))
    yield progress


def _read(ledger: str, data: bytes, expected: int) -> tuple[Event | None, list[str]]:
    """The event, and what is wrong with its bytes and its place."""
    try:
        event = Event.from_bytes(data)
    except (ValueError, TypeError) as error:  # a database may hand out text or nothing at all
        return None, [f"not a canonical event: {error}"]
    if (event.ledger, event.sequence) != (ledger, expected):
        return event, [f"{event.ledger}/{event.sequence} stands where {expected} belongs"]
    return event, []


def _at_length(
    state: State, event: Event | None, data: bytes, findings: list[str], way: Express | None
) -> bool:
    """Takes the decision again and folds the event in. False if nothing can be folded after it."""
    if event is not None:
        if way is not None:
            way.before(event)
        asked = _again(state, event, data, findings)
        alone = state.batch is None
        if way is not None and alone and asked is not None and way.take_decided(event, asked):
            return True
    if way is not None:
        way.write_back()
    if event is None or not _fold(state, event, findings):
        findings.append("from here on no decision can be taken again")
        return False
    if way is not None:
        way.forget() if findings else way.folded(event)
    return True


def _again(state: State, event: Event, data: bytes, findings: list[str]) -> Asked | None:
    """Takes the decision again; at most one reason why it differs. What was asked, if nothing is
    wrong with the event.
    """
    before = len(findings)
    try:
        asked = asked_of(event)
        events = decide(state, asked, event.time)
    except Exception as error:  # noqa: BLE001 a forged event may ask for anything: a finding
        findings.append(f"the command would have been refused: {error}")
        return None
    if isinstance(events, Repeated):
        findings.append(f"it repeats the answer at {events.sequence}: a retry must not be recorded")
    elif not _same(events, event, data):
        findings.append("the decision, taken again, differs: " + _difference(events, event))
    return asked if len(findings) == before == 0 else None


def _same(events: list[Event], event: Event, data: bytes) -> bool:
    """The first of ``events`` is ``event``, which has the bytes ``data``, but for wording."""
    return bool(events) and (
        canonical(events[0].to_json()) == data
        or canonical(_facts(events[0])) == canonical(_facts(event))
    )


_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?|infinite|unbounded")


def _facts(event: Event) -> dict[str, Any]:
    """The event with only the numbers of its findings' wording: that may become better in a later
    version, a number may not change.
    """
    document = event.to_json()
    decision = document.get("decision")
    if not (isinstance(decision, dict) and isinstance(decision.get("rules"), list)):
        return document
    rules = [
        rule | {"text": _NUMBER.findall(str(rule.get("text")))} if isinstance(rule, dict) else rule
        for rule in decision["rules"]
    ]
    return document | {"decision": decision | {"rules": rules}}


def _difference(events: list[Event], event: Event) -> str:
    if not events:
        return "nothing would have been recorded"
    mine, theirs = _facts(events[0]), _facts(event)
    names = sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k))
    return ", ".join(f"{k} is {theirs.get(k)!r}, should be {mine.get(k)!r}" for k in names)[:600]


def _fold(state: State, event: Event, findings: list[str]) -> bool:
    try:
        apply(state, event)
    except Exception as error:  # noqa: BLE001 a damaged event may fail in any way: a finding
        findings.append(f"it cannot be folded: {error}")
        return False
    return True
