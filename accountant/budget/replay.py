"""Replay: decide every event's command again from the state before it, and compare the answer.

Replay believes no amount and no decision of an event: a ledger that replays without a finding has
the totals and decisions that this code derives from the commands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
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
_MOST_SHOWN: Final = 600


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """Something that is wrong at a sequence."""

    sequence: int
    reason: str


@dataclass(slots=True)
class Replay:
    """The state after the first ``events`` events, and every finding.

    From an event that cannot be folded on, only bytes and order are checked.
    """

    state: State
    events: int = 0
    findings: list[Discrepancy] = field(default_factory=list)
    broken: bool = False
    """An event could not be folded: ``state`` is that before it."""
    expected: int = 0
    """The sequence of the next event."""

    def decide(self, data: bytes) -> None:
        """Decide the next event's command again, compare, and fold the event in."""
        place, reasons, event = self.events, list[str](), None
        try:
            event = Event.from_bytes(data, compared=True)
        except (ValueError, TypeError) as error:  # a database may hand out text or nothing at all
            reasons.append(f"not a canonical event: {error}")
        if event and (event.ledger, event.sequence) != (self.state.ledger, self.expected):
            name = f"{event.ledger}/{event.sequence}"
            reasons.append(f"{name} stands where {self.expected} belongs")
        self._pass(event)
        if not self.broken:
            self.broken = not _take(self.state, event, data, reasons)
        self.findings += [Discrepancy(place, reason) for reason in reasons]

    def believe(self, data: bytes) -> None:
        """Fold the next event in as it is; another process decides it again. It ends in the same
        state as ``decide``, and breaks at the same event.
        """
        event, readable = None, True
        try:
            event = Event.from_bytes(data)
        except (ValueError, TypeError):
            readable = False
            with suppress(ValueError, TypeError):
                event = Event.from_bytes(data, compared=True)
        self._pass(event)
        if not self.broken:
            try:
                if event is None or not readable:
                    raise ValueError("it cannot be read")
                apply(self.state, read(self.state, event, data))
            except Exception:  # noqa: BLE001 it is a finding of the process that decides it again
                self.broken = True

    def end(self) -> None:
        """Report a batch that lacks items: no event is to follow."""
        if (batch := self.state.batch) is not None and not self.broken:
            reason = f"the ledger ends inside the batch at {batch.header}"
            self.findings.append(Discrepancy(self.events - 1, reason))

    def _pass(self, event: Event | None) -> None:
        self.events += 1
        self.expected = event.sequence + 1 if event else self.expected + 1


def replay(ledger: str, bodies: Iterable[bytes]) -> Iterator[Replay]:
    """Replay events in order, yielding the same Replay after every ``RUN`` and in the end."""
    progress = Replay(State(ledger))
    for data in bodies:
        progress.decide(data)
        if progress.events % RUN == 0:
            yield progress
    progress.end()
    yield progress


def _take(state: State, event: Event | None, data: bytes, reasons: list[str]) -> bool:
    """Decide again and fold the event in. Returns False if nothing can be folded after it."""
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
    """Decide again. Returns the outcome if it is ``event`` to the byte, else adds a reason."""
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
    shown = ", ".join(f"{k} is {theirs.get(k)!r}, should be {mine.get(k)!r}" for k in names)
    return shown[:_MOST_SHOWN]
