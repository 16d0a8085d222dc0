"""Apply outcomes: fold events into a state, and roll them back. Nothing else changes a state.

What an event says was booked is believed; ``replay`` checks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from accountant.budget import batches
from accountant.budget.batches import Gathered, OpenBatch
from accountant.budget.changes import End
from accountant.budget.outcome import DECLINED, PROPOSED, Change, Outcome
from accountant.budget.proposals import CONFIRMING, Proposal, after
from accountant.budget.reading import Happened, read, read_checked
from accountant.budget.state import State
from accountant.budget.waiting.queue import Index
from accountant.budget.waiting.waking import wake
from accountant.ledger.events import Event, check_canonical


def fold(ledger: str, events: Iterable[Event]) -> State:
    """Return the state after ``events``."""
    state = State(ledger)
    for event in events:
        apply(state, read(state, event))
    return state


def follow(state: State, data: bytes) -> None:
    """Apply the next event, which another process decided, from its bytes. Raises ValueError if it
    does not fit, or they are not canonical.
    """
    check_canonical(data)
    follow_checked(state, data)


def follow_checked(state: State, data: bytes) -> None:
    """Do as ``follow``, with bytes that ``check_canonical`` has taken."""
    apply(state, read_checked(state, data))


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
