"""Replay: decide every event's command again from the state before it, and compare the answer.

Replay believes no amount and no decision of an event: a ledger that replays without a finding has
the totals and decisions that this code derives from the commands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import orjson

from accountant.budget.apply import apply, follow_checked
from accountant.budget.commands import Envelope
from accountant.budget.commands.recorded import asked_in
from accountant.budget.decide import Repeated, decide
from accountant.budget.outcome import Outcome
from accountant.budget.reading import read
from accountant.budget.request import work_out
from accountant.budget.state import State, envelope_of
from accountant.budget.waiting.due import due
from accountant.ledger.events import Event, check_canonical

RUN: Final = 1_000
"""Events between two reports of progress."""
_TOGETHER: Final = 128
"""Events that are read, then priced, then decided: each step for all (ADR 0022)."""
_MOST_SHOWN: Final = 600


class Discrepancy(NamedTuple):
    """Something that is wrong at a sequence."""

    sequence: int
    reason: str


@dataclass(slots=True)
class Replay:
    """The state after the first ``events`` events, and every finding. From an event that cannot be
    folded on, only bytes and order are checked.
    """

    state: State
    events: int = 0
    findings: list[Discrepancy] = field(default_factory=list)
    broken: bool = False
    """An event could not be folded: ``state`` is that before it."""
    expected: int = 0
    """The sequence of the next event."""

    def decide(self, run: Iterable[bytes]) -> None:
        """Decide the commands of the next events again, compare, and fold the events in."""
        bodies = iter(run)
        while some := list(map(_read, islice(bodies, _TOGETHER))):
            if not self.broken and self.state.population is not None:
                with suppress(Exception):  # forged commands may ask for anything
                    work_out(self.state, [one.asked.command for one in some if one.asked])
            for one in some:
                if self.broken or not self._confirm(one):
                    self._decide(one if one.whole else _read_whole(one.data))

    def _confirm(self, stored: _Stored) -> bool:
        """Decide again what was read of an event. If that comes to the stored bytes, fold it in:
        all of the event is what was decided, its place too, and nothing else of it needs a look.
        Returns False, with nothing changed, if it does not, or the event was read whole.
        """
        reasons: list[str] = []
        if stored.whole or (decided := _again(self.state, stored, reasons)) is None:
            return False
        self.events, self.expected = self.events + 1, self.expected + 1
        self.broken = not _fold(self.state, decided, reasons)
        self.findings += [Discrepancy(self.events - 1, reason) for reason in reasons]
        return True

    def _decide(self, stored: _Stored) -> None:
        event, place = stored.event, self.events
        reasons = [] if event else [f"not a canonical event: {stored.error}"]
        if event and (event.ledger, event.sequence) != (self.state.ledger, self.expected):
            name = f"{event.ledger}/{event.sequence}"
            reasons.append(f"{name} stands where {self.expected} belongs")
        self._pass(event)
        if not self.broken:
            self.broken = not _take(self.state, stored, reasons)
        self.findings += [Discrepancy(place, reason) for reason in reasons]

    def believe(self, run: Iterable[bytes]) -> None:
        """Fold the next events in undecided. It ends, or breaks, just as ``decide`` would."""
        bodies = iter(run)
        while some := list(islice(bodies, _TOGETHER)):
            for data, sound in zip(some, list(map(_is_canonical, some)), strict=True):
                if self.broken or not sound or not self._follow(data):
                    self.broken = True
                    self._pass(_event_in(data))

    def _follow(self, data: bytes) -> bool:
        """Fold the next event in, if it can be. What is wrong with another is a finding of the
        process that decides it again.
        """
        try:
            follow_checked(self.state, data)
        except Exception:  # noqa: BLE001 a damaged event may fail in any way
            return False
        self.events, self.expected = self.events + 1, self.state.sequence
        return True

    def end(self) -> None:
        """Report a batch that lacks items, or an admission that is due: no event is to follow."""
        if (batch := self.state.batch) is not None and not self.broken:
            reason = f"the ledger ends inside the batch at {batch.begins}"
            self.findings.append(Discrepancy(self.events - 1, reason))
        elif not self.broken and (left := due(self.state, self.state.time)) is not None:
            reason = f"the ledger ends before {left[0].waiting.id} is admitted, which fits"
            self.findings.append(Discrepancy(self.events - 1, reason))

    def _pass(self, event: Event | None) -> None:
        self.events += 1
        self.expected = event.sequence + 1 if event else self.expected + 1


def replay(ledger: str, bodies: Iterable[bytes]) -> Iterator[Replay]:
    """Replay events in order, yielding the same Replay after every ``RUN`` and in the end."""
    progress = Replay(State(ledger))
    rest = iter(bodies)
    while run := list(islice(rest, RUN)):
        progress.decide(run)
        yield progress
    progress.end()
    yield progress


def _is_canonical(data: bytes) -> bool:
    try:
        check_canonical(data)
    except (TypeError, ValueError):  # a database may hand out text or nothing at all
        return False
    return True


def _event_in(data: bytes) -> Event | None:
    """Return the event that ``data`` hold, if any, in canonical form or not."""
    with suppress(ValueError, TypeError):
        return Event.from_bytes(data, compared=True)
    return None


class _Stored(NamedTuple):
    """An event as it is stored, and as far as it was read."""

    data: bytes
    asked: Envelope | None
    """Its command."""
    time: int
    whole: bool = False
    """All of it was read that could be; else its command and its stamp alone."""
    event: Event | None = None
    error: Exception | None = None
    """Why there is no event, or no command."""


def _read(data: bytes) -> _Stored:
    """Read an event without regard to the state: what it asks, if that is plain, or all of it."""
    found = asked_in(data)
    return _read_whole(data) if found is None else _Stored(data, *found)


def _read_whole(data: bytes) -> _Stored:
    try:
        event = Event.from_bytes(data, compared=True)
    except (ValueError, TypeError) as error:  # a database may hand out text or nothing at all
        return _Stored(data, None, 0, whole=True, error=error)
    try:
        return _Stored(data, envelope_of(event), event.time, whole=True, event=event)
    except Exception as error:  # noqa: BLE001 a forged event may ask for anything: a finding
        return _Stored(data, None, event.time, whole=True, event=event, error=error)


def _take(state: State, stored: _Stored, reasons: list[str]) -> bool:
    """Decide again and fold the event in. Returns False if nothing can be folded after it."""
    event = stored.event
    decided = None if event is None else _again(state, stored, reasons)
    try:
        if event is None:
            raise ValueError("it cannot be read")
        if decided is None:
            event.check(stored.data)
            decided = read(state, event)
    except Exception as error:  # noqa: BLE001 a damaged event may fail in any way: a finding
        return _stop(error, reasons)
    return _fold(state, decided, reasons)


def _fold(state: State, outcome: Outcome, reasons: list[str]) -> bool:
    """Fold an outcome in. Returns False if nothing can be folded after it."""
    try:
        apply(state, outcome)
    except Exception as error:  # noqa: BLE001 a damaged event may fail in any way: a finding
        return _stop(error, reasons)
    return True


def _stop(error: Exception, reasons: list[str]) -> bool:
    reasons += [f"it cannot be folded: {error}", "from here on no decision can be taken again"]
    return False


def _again(state: State, stored: _Stored, reasons: list[str]) -> Outcome | None:
    """Decide again. Returns the outcome if it is the event to the byte, else adds a reason."""
    try:
        if stored.asked is None:
            raise stored.error or ValueError("it holds no command")
        outcomes = decide(state, stored.asked, stored.time)
    except Exception as error:  # noqa: BLE001 a forged event may ask for anything: a finding
        reasons.append(f"the command would have been refused: {error}")
        return None
    if isinstance(outcomes, Repeated):
        at = outcomes.sequence
        reasons.append(f"it repeats the answer at {at}: a retry must not be recorded")
    elif outcomes and outcomes[0].entry.body == stored.data:
        return outcomes[0]
    elif stored.event is not None:
        reasons.append("the decision, taken again, differs: " + _difference(outcomes, stored.event))
    return None


def _difference(outcomes: list[Outcome], event: Event) -> str:
    if not outcomes:
        return "nothing would have been recorded"
    mine, theirs = orjson.loads(outcomes[0].entry.body), event.to_json()
    names = sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k))
    shown = ", ".join(f"{k} is {theirs.get(k)!r}, should be {mine.get(k)!r}" for k in names)
    return shown[:_MOST_SHOWN]
