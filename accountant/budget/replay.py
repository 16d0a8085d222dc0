"""Replay: every event's command is asked again of the state before it, and the answer compared.

It believes nothing that an event says was booked or decided: a ledger that replays without a
finding has every total and every decision as this code would take them from the commands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import orjson

from accountant.budget.apply import apply, read
from accountant.budget.commands import Envelope
from accountant.budget.decide import Repeated, decide
from accountant.budget.outcome import Outcome
from accountant.budget.request import work_out
from accountant.budget.state import State, envelope_of
from accountant.ledger.events import Event

RUN: Final = 256
RUN_BYTES: Final = 1 << 18
"""A run, which is read at once, ends with the event that reaches either."""
_MOST_TOLD: Final = 600


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, at a sequence."""

    sequence: int
    reason: str


@dataclass(slots=True)
class Replay:
    """The state that the first ``events`` events lead to, and every finding.

    Where an event cannot be folded at all, the rest is checked for its bytes and order only.
    """

    state: State
    events: int = 0
    findings: list[Finding] = field(default_factory=list)
    broken: bool = False
    """Some event could not be folded: ``state`` is that before it."""
    expected: int = 0
    """The sequence of the next event."""

    def decide(self, run: Sequence[bytes]) -> None:
        """Decide the commands of the next events again, compare, and fold the events in.

        All are read before the first is decided: one step for all, then the next, keeps what the
        processor needs for it at hand (``work_out``).
        """
        read_as = [self._next(data) for data in run]
        asked = [] if self.broken else [_asked(event) for event, _ in read_as]
        if self.state.population is not None:
            with suppress(Exception):  # it is met again when that event is decided
                work_out(self.state, [one.command for one in asked if isinstance(one, Envelope)])
        for place, (event, reasons) in enumerate(read_as, self.events - len(run)):
            if not self.broken:
                at = place - self.events  # from the end
                self.broken = not _take(self.state, event, asked[at], run[at], reasons)
            self.findings += [Finding(place, reason) for reason in reasons]

    def believe(self, run: Sequence[bytes]) -> None:
        """Fold the next events in as they say; another process decides them again. It ends in the
        same state as ``decide``, and breaks at the same event.
        """
        events = [self._next(data, compared=False)[0] for data in run]
        for event, data in zip(events, run, strict=True):
            if self.broken:
                return
            try:
                if event is None:
                    raise ValueError("it cannot be read")
                apply(self.state, read(self.state, event, data))
            except Exception:  # noqa: BLE001 it is a finding of the process that decides it again
                self.broken = True

    def end(self) -> None:
        """Report a batch that lacks items: no event is to follow."""
        if (batch := self.state.batch) is not None and not self.broken:
            reason = f"the ledger ends inside the batch at {batch.header}"
            self.findings.append(Finding(self.events - 1, reason))

    def _next(self, data: bytes, *, compared: bool = True) -> tuple[Event | None, list[str]]:
        """Read the next event; return it, and what is wrong with its bytes and its place. Unless
        it is going to be ``compared``, it is None if its bytes are not canonical.
        """
        self.events += 1
        expected = self.expected
        self.expected += 1
        event, sound = None, compared
        with suppress(ValueError, TypeError):
            if not compared:
                event, sound = Event.from_bytes(data), True
        try:
            event = event or Event.from_bytes(data, compared=True)
        except (ValueError, TypeError) as error:  # a database may hand out text or nothing at all
            return None, [f"not a canonical event: {error}"]
        self.expected = event.sequence + 1
        reasons = []
        if (event.ledger, event.sequence) != (self.state.ledger, expected):
            reasons.append(f"{event.ledger}/{event.sequence} stands where {expected} belongs")
        return event if sound else None, reasons


def replay(ledger: str, bodies: Iterable[bytes]) -> Iterator[Replay]:
    """Replay events in order, yielding the same Replay after every run and in the end."""
    progress = Replay(State(ledger))
    for run in runs(bodies):
        progress.decide(run)
        yield progress
    progress.end()
    yield progress


def runs(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut events into runs of at most ``RUN`` events, and not much more than ``RUN_BYTES``."""
    run: list[bytes] = []
    size = 0
    for body in bodies:
        run.append(body)
        size += len(body) if isinstance(body, bytes) else 0  # a database may hand out anything
        if len(run) >= RUN or size >= RUN_BYTES:
            yield run
            run, size = [], 0
    if run:
        yield run


def _asked(event: Event | None) -> Envelope | Exception | None:
    """Return the command that an event answers, or why it cannot be read."""
    try:
        return None if event is None else envelope_of(event)
    except Exception as error:  # noqa: BLE001 a forged event may ask for anything: a finding
        return error


def _take(
    state: State,
    event: Event | None,
    asked: Envelope | Exception | None,
    data: bytes,
    reasons: list[str],
) -> bool:
    """Decide again and fold the event in; False if nothing can be folded after it."""
    decided = None if event is None or asked is None else _again(state, event, asked, data, reasons)
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


def _again(
    state: State, event: Event, asked: Envelope | Exception, data: bytes, reasons: list[str]
) -> Outcome | None:
    """Decide again; return the outcome if it is ``event`` to the byte, else add the reason."""
    try:
        if isinstance(asked, Exception):
            raise asked
        outcomes = decide(state, asked, event.time)
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
