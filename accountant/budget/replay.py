"""Replay: every event's command is asked again of the state before it, and the answer compared.

It believes nothing that an event says was booked or decided: a ledger that replays without a
finding has every total and every decision as this code would take them from the commands alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from accountant.budget.decide import Repeated, decide
from accountant.budget.folding import apply
from accountant.budget.state import State, asked_of
from accountant.ledger.chain import EMPTY, link
from accountant.ledger.events import Event, canonical


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, at a sequence."""

    sequence: int
    reason: str


@dataclass(slots=True)
class Replay:
    """The state that the events lead to, their last link, and every finding."""

    state: State
    head: bytes = EMPTY
    findings: list[Finding] = field(default_factory=list)


def replay(ledger: str, stored: Iterable[tuple[bytes, bytes | None]]) -> Iterator[Replay]:
    """Replays (event bytes, link or None) pairs in order, yielding the same Replay after each.

    Where an event cannot be folded at all, the rest is checked for its bytes, links and order only.
    """
    progress = Replay(State(ledger))
    broken, expected = False, 0
    for place, (data, claimed) in enumerate(stored):
        findings: list[str] = []
        _continue_chain(progress, data, claimed, findings)
        try:
            event = Event.from_bytes(data)
        except (ValueError, TypeError) as error:  # a database may hand out text or nothing at all
            findings.append(f"not a canonical event: {error}")
            event = None
        if event is not None and (event.ledger, event.sequence) != (ledger, expected):
            findings.append(f"{event.ledger}/{event.sequence} stands where {expected} belongs")
        expected = event.sequence + 1 if event else expected + 1
        if not broken:
            if event is not None:
                findings += _again(progress.state, event)
            if event is None or not _fold(progress.state, event, findings):
                broken = True
                findings.append("from here on no decision can be taken again")
        progress.findings += [Finding(place, reason) for reason in findings]
        yield progress
    if progress.state.sequence == 0 and not broken:
        yield progress


def _continue_chain(
    progress: Replay, data: bytes, claimed: bytes | None, findings: list[str]
) -> None:
    progress.head = link(progress.head, data if isinstance(data, bytes) else b"")
    if claimed is None or claimed == progress.head:
        return
    findings.append("the hash chain does not continue: this event, or one before, changed")
    if isinstance(claimed, bytes):
        progress.head = claimed  # go on from what is claimed, so that one change is one finding


def _again(state: State, event: Event) -> list[str]:
    """Takes the decision again; at most one reason why it differs."""
    try:
        asked = asked_of(event)
        events = decide(state, asked, event.time)
    except Exception as error:  # noqa: BLE001 a forged event may ask for anything: a finding
        return [f"the command would have been refused: {error}"]
    if isinstance(events, Repeated):
        return [f"it repeats the answer at {events.sequence}: a retry must not be recorded"]
    if not events or canonical(_facts(events[0])) != canonical(_facts(event)):
        return ["the decision, taken again, differs: " + _difference(events, event)]
    return []


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
