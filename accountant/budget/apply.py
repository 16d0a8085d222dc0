"""Apply outcomes: fold events into a state, and roll them back. Nothing else changes a state.

What an event says was booked is believed; ``replay`` checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson
from msgspec import Struct
from msgspec.structs import replace

from accountant.budget import batches
from accountant.budget.batches import Gathered, OpenBatch
from accountant.budget.bill import Bill, per_in
from accountant.budget.changes import (
    NOTHING,
    Admit,
    Count,
    End,
    Leave,
    Note,
    Record,
    Reserve,
    Wait,
    arrival,
)
from accountant.budget.commands import APPROVAL_WAIT, DEFAULT_TTL, Batch
from accountant.budget.facts import SECOND
from accountant.budget.grants import Ending, Grant
from accountant.budget.handlers import HANDLERS, selection_of
from accountant.budget.outcome import (
    ADMITTED,
    ANSWERED,
    CANCELLED,
    CLOSED,
    COMMITTED,
    DECLINED,
    EXPIRED,
    NOT_APPROVED,
    NOTED,
    PROPOSED,
    RECORDED,
    REFUSED,
    RELEASED,
    REPUBLISHED,
    RESERVED,
    TIMED_OUT,
    WAITING,
    Change,
    Outcome,
)
from accountant.budget.population.selection import EVERYONE
from accountant.budget.proposals import CONFIRMING, Proposal, after
from accountant.budget.reach import reach_in
from accountant.budget.state import State, envelope_of
from accountant.budget.waiting.asked import Waiting, waiting_for
from accountant.budget.waiting.queue import Index
from accountant.budget.waiting.waking import wake
from accountant.ledger.events import Entry, Event, to_keep, written
from accountant.privacy.units import Charge

_REMEMBERED: Final = 1_024
"""Charges that are kept as they were read."""


def fold(ledger: str, events: Iterable[Event]) -> State:
    """Return the state after ``events``."""
    state = State(ledger)
    for event in events:
        apply(state, read(state, event))
    return state


def follow(state: State, data: bytes) -> None:
    """Apply the next event, which another process decided. Raises ValueError if it does not fit."""
    apply(state, read(state, Event.from_bytes(data), data))


class _Undo(Struct, frozen=True, gc=False):
    """What ``rollback`` needs to take one outcome back."""

    change: Change
    before: Any
    sequence: int
    time: int
    batch: OpenBatch | Gathered | None
    answers: int
    memories: dict[str, Any]
    proposals: Mapping[int, Proposal]
    waiting: Index | None


def apply(state: State, outcome: Outcome) -> None:
    """Apply one outcome. Raises ValueError if it is not the next one; after that or any other
    exception the state may be half changed.
    """
    entry = outcome.entry
    if entry.sequence != state.sequence:
        raise ValueError(f"event {entry.sequence} does not follow {state.sequence - 1}")
    batch, time, memories = state.batch, state.time, state.memories
    proposals, index = state.proposals, state.waiting.index
    answers = len(state.idempotency)
    if batch is not None:
        state.batch = batch.taken(outcome)
    before = outcome.change.fold(state, entry)
    told = entry.type != batches.PART  # of what is refused rules are told once
    if told and state.adopted is not None and state.adopted.policy.remembering:
        event = batches.as_single(outcome.event())
        back = outcome.change.back(before) if isinstance(outcome.change, End) else None
        state.memories = state.memories | {
            rule.id: rule.next_memory(state.memories.get(rule.id), event, back)
            for rule in state.adopted.policy.remembering
        }
    if entry.type in (PROPOSED, DECLINED) or CONFIRMING in outcome.command:
        state.proposals = after(proposals, outcome.event())
    if outcome.key is not None:
        state.idempotency.put(outcome.by, outcome.key, outcome.fingerprint, entry.sequence)
    state.sequence, state.time = entry.sequence + 1, entry.time
    if index is not None:
        wake(state, outcome.change, before, entry)
    if state.journal is not None:
        kept = batch, answers, memories, proposals, index
        state.journal.append(_Undo(outcome.change, before, entry.sequence, time, *kept))


def keep_journal(state: State) -> None:
    """Begin a transaction: what is applied until ``drop_journal`` can be rolled back."""
    state.journal = []


def drop_journal(state: State) -> None:
    """End the transaction; what was applied stays."""
    state.journal = None


def rollback(state: State, mark: int = 0) -> bool:
    """Take back all outcomes but the first ``mark``. Returns False, unchanged, if one cannot."""
    journal = state.journal
    if journal is None or any(isinstance(u.change, Happened) for u in journal[mark:]):
        return False
    while len(journal) > mark:
        undo: _Undo = journal.pop()
        undo.change.undo(state, undo.before)
        state.idempotency.take_back(undo.answers)
        state.sequence, state.time = undo.sequence, undo.time
        state.batch, state.memories = undo.batch, undo.memories
        state.proposals = undo.proposals
        state.waiting.index = undo.waiting
    state.held = None
    return True


@contextmanager
def savepoint(state: State) -> Iterator[None]:
    """Roll back, at the end of the block, what was applied in it, which has to be possible."""
    if alone := state.journal is None:
        keep_journal(state)
    mark = len(state.journal) if state.journal else 0
    try:
        yield
    finally:
        rollback(state, mark)
        if alone:
            drop_journal(state)


class Happened(NamedTuple):
    """A change of the ledger as a whole, by the event that says it. It cannot be taken back."""

    event: Event

    def fold(self, state: State, entry: Entry) -> None:
        """Run the handler of the event's type."""
        HANDLERS[self.event.type](state, self.event)

    def undo(self, state: State, before: None) -> None:
        """Never called: ``rollback`` refuses."""


def read(state: State, event: Event, data: bytes | None = None) -> Outcome:
    """Return what ``event``, of bytes ``data``, records. Raises ValueError if it cannot follow."""
    if event.ledger != state.ledger or event.sequence != state.sequence:
        raise ValueError(
            f"{event.ledger}/{event.sequence} does not follow {state.ledger}/{state.sequence - 1}"
        )
    if event.time < state.time:
        raise ValueError(f"event {event.sequence} is stamped before the one it follows")
    body = event.body
    if state.batch is None and "batch" in body:
        raise ValueError(f"event {event.sequence} is an item of a batch that is not open")
    reader = _CHANGES.get(event.type)
    if reader is not None:
        change = reader(state, event)
    elif event.type in HANDLERS:
        change = Happened(event)
    else:
        raise ValueError(f"event {event.sequence} has the unknown type {event.type!r}")
    entry = Entry(event.sequence, event.type, event.time, data or event.to_bytes())
    kept = change.grant.command if isinstance(change, Reserve) else None
    kept = change.waiting.command if isinstance(change, Wait) else kept
    command = kept or to_keep(written(body["command"]))
    more = body.get("batch"), body.get("fired", ())
    return Outcome(entry, event.by, body.get("key"), command, change, *more)


def _reserve(state: State, event: Event) -> Reserve:
    reserve = _grant(state, event, event.by, event.body["command"])
    unlocks = state.adopted is not None and state.adopted.policy.unlocking
    return replace(reserve, arriving=reserve.grant.selection if unlocks else None)


def _grant(state: State, event: Event, by: str, command: dict[str, Any]) -> Reserve:
    """Return the grant that ``event`` opens for ``command`` of ``by``."""
    grant = Grant(
        id=f"g{event.sequence}",
        by=by,
        on=reach_in(event.body),
        selection=selection_of(state, command),
        command=to_keep(written(command)),
        total=_charge(event.body["total"]),
        opened=event.time,
        expires=event.time + command.get("ttl_seconds", DEFAULT_TTL) * SECOND,
        sequence=event.sequence,
        session=command["type"] == "open_sparse_vector",
        per=per_in(event.body),
    )
    return Reserve(grant, command.get("purpose"), command.get("allotment"))


def _wait(state: State, event: Event) -> Change:
    command = event.body["command"]
    until = event.time + command.get("wait", APPROVAL_WAIT) * SECOND
    waiting = waiting_for(
        event.by,
        reach_in(event.body),
        to_keep(written(command)),
        (event.time, until, event.sequence),
        (Bill(_charge(event.body["total"]), per_in(event.body)), state.custody.engine),
    )
    arriving = arrival(state, event.by, [envelope_of(event).command])
    return Wait(waiting, arriving=arriving)


def _admit(state: State, event: Event) -> Change:
    command = event.body["command"]
    reserve = _grant(state, event, command["client"], command["request"])
    return Admit(_waiting(state, command["grant"]).sequence, reserve)


def _leave(ending: Ending) -> Callable[[State, Event], Change]:
    def read_leave(state: State, event: Event) -> Change:
        return Leave(_waiting(state, event.body["command"]["grant"]).sequence, ending)

    return read_leave


def _waiting(state: State, name: str) -> Waiting:
    if (waiting := state.waiting.requests.get(name)) is None:
        raise ValueError(f"no request called {name} waits")
    return waiting


def _end(ending: Ending) -> Callable[[State, Event], Change]:
    def read_end(state: State, event: Event) -> Change:
        body = event.body
        name = body["command"]["grant"]
        if "charge" in body:
            return End(name, ending, _charge(body["charge"]), per_in(body))
        return End(name, ending, Charge().on(state.open[name].total.axis))

    return read_end


def _answered(state: State, event: Event) -> Change:
    body = event.body
    return Count(body["command"]["grant"], body["positives"], body["negatives"])


def _record(state: State, event: Event) -> Change:
    body = event.body
    command = body["command"]
    selection = EVERYONE if body.get("charged_to") == "everyone" else selection_of(state, command)
    asked = command.get("purpose"), command.get("allotment")
    about = reach_in(body).charged, event.by, selection, _charge(body["total"]), *asked
    return Record(*about, per=per_in(body))


def _part(state: State, event: Event) -> Gathered:
    before = state.batch if isinstance(state.batch, Gathered) else None
    return Gathered.after(before, event.sequence, event.time, envelope_of(event))


def _refused_batch(state: State, event: Event) -> Change:
    asked = envelope_of(event)
    if isinstance(state.batch, Gathered):
        asked = state.batch.whole(asked)
    elif "parts" in event.body:
        raise ValueError(f"event {event.sequence} lacks the parts of its batch")
    judged = asked.parts[: batches.first_of(event) + event.body["item"] + 1]
    return arrival(state, event.by, [one.command for one in judged])


def _open_batch(state: State, event: Event) -> Change:
    asked = envelope_of(event).command
    if not isinstance(asked, Batch):
        raise ValueError(f"event {event.sequence} answers {asked.command}, which is no batch")
    return OpenBatch(event.sequence, event.time, event.by, asked)


_CHANGES: Final[dict[str, Callable[[State, Event], Change]]] = {
    RESERVED: _reserve,
    REFUSED: lambda state, event: arrival(state, event.by, [envelope_of(event).command]),
    PROPOSED: lambda *_: NOTHING,
    DECLINED: lambda *_: NOTHING,
    COMMITTED: _end("committed"),
    RELEASED: _end("released"),
    EXPIRED: _end("expired"),
    REPUBLISHED: lambda *_: NOTHING,
    NOTED: lambda _, event: Note(event.body["command"]["grant"]),
    ANSWERED: _answered,
    CLOSED: _end("committed"),
    RECORDED: _record,
    WAITING: _wait,
    ADMITTED: _admit,
    TIMED_OUT: _leave("timed out"),
    CANCELLED: _leave("cancelled"),
    NOT_APPROVED: _leave("declined"),
    batches.OPENED: _open_batch,
    batches.PART: _part,
    batches.REFUSED: _refused_batch,
}


def _charge(document: Any) -> Charge:
    return _charge_of(to_keep(orjson.dumps(document)))


@lru_cache(maxsize=_REMEMBERED)
def _charge_of(data: bytes) -> Charge:
    return Charge.from_json(orjson.loads(data))


TYPES: Final = frozenset(_CHANGES) | frozenset(HANDLERS)
"""All types of events that can be folded in."""
