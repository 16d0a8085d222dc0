"""Decisions: ``decide(state, asked, now) -> outcomes``. Pure: the state does not change.

``now`` is the stamp of the new events. Each event answers exactly one command and holds it, so
that ``replay`` can ask again and compare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from accountant.budget.apply import Happened
from accountant.budget.commands import (
    AcceptTime,
    AdoptEngine,
    AdoptPolicy,
    AdoptSigningKey,
    AskGrant,
    Batch,
    CarryOver,
    CloseSparseVector,
    Command,
    CommitGrant,
    CountAnswers,
    Envelope,
    EraseText,
    ExpireGrant,
    ExtendPopulation,
    OpenSparseVector,
    RecordInvocations,
    Recover,
    RegisterDataset,
    RegisterPopulation,
    ReleaseGrant,
    ResumePublication,
    Revalue,
    StopPublication,
)
from accountant.budget.decide.asking import ask_grant, record
from accountant.budget.decide.batching import batch
from accountant.budget.decide.custody import (
    accept_time,
    adopt_engine,
    adopt_signing_key,
    carry_over,
    erase_text,
    recover,
    resume_publication,
    revalue,
    stop_publication,
)
from accountant.budget.decide.registering import (
    adopt_policy,
    extend_population,
    register_dataset,
    register_population,
)
from accountant.budget.decide.sessions import close, count
from accountant.budget.decide.settling import SYSTEM, commit, expire, release
from accountant.budget.errors import Invalid
from accountant.budget.idempotency import DIGEST
from accountant.budget.outcome import Outcome
from accountant.budget.state import State
from accountant.ledger.events import MAX_BYTES, Entry, Event, EventTooLarge, canonical

__all__ = ["SYSTEM", "Repeated", "decide", "repeated"]


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same request was answered before, by the event at ``sequence``."""

    sequence: int


def decide(state: State, asked: Envelope, now: int) -> list[Outcome] | Repeated:
    """Decide ``asked`` at stamp ``now``: an outcome for each event; none if nothing has to change.

    Raises budget.errors.Problem if it cannot be answered.
    """
    if state.batch is not None:
        state.batch.fits(asked)
    elif (before := repeated(state, asked)) is not None:
        return before
    if not isinstance(asked.command, RegisterPopulation):
        if len(asked.canonical) > MAX_BYTES:  # before any work is done under the ledger's lock
            raise Invalid("event-too-large", str(EventTooLarge(len(asked.canonical))))
        state.people()
    return _decide(state, asked, asked.command, max(now, state.time))


def _decide(state: State, asked: Envelope, command: Command, now: int) -> list[Outcome]:
    if isinstance(command, Batch):
        return batch(state, asked, command, now, _decide)
    kind = type(command)
    if kind in _SPENDING:
        return _SPENDING[kind](state, asked, command, now)
    return [happened(event) for event in _HAPPENING[kind](state, asked, command, now)]


def happened(event: Event) -> Outcome:
    """Make the outcome of an event about the ledger as a whole."""
    entry = Entry.of(event)
    read = Event.of_entry(event.ledger, entry)  # as whoever follows the ledger reads it
    command = canonical(read.body["command"])
    return Outcome(entry, event.by, event.body.get("key"), command, Happened(read))


def repeated(state: State, asked: Envelope) -> Repeated | None:
    """Return where ``asked`` was answered before, or None. Raises Invalid if its key was used for
    another request, or is missing.
    """
    if asked.key is None:
        if asked.command.needs_key:
            raise Invalid(
                "idempotency-key-required",
                "this request can spend: send an Idempotency-Key header, the same for every retry, "
                "so that a retry is never charged twice",
            )
        return None
    if (before := state.idempotency.get(asked.by, asked.key)) is None:
        return None
    fingerprint, sequence = before
    if fingerprint != asked.fingerprint[:DIGEST]:
        raise Invalid(
            "idempotency-key-reused",
            f"the key {asked.key!r} was used for another request (event {sequence}); "
            "use a new key for a new request",
            sequence=sequence,
        )
    return Repeated(sequence)


_SPENDING: Final[dict[type[Command], Callable[[State, Envelope, Any, int], list[Outcome]]]] = {
    AskGrant: ask_grant,
    OpenSparseVector: ask_grant,
    RecordInvocations: record,
    CommitGrant: commit,
    ReleaseGrant: release,
    ExpireGrant: expire,
    CountAnswers: count,
    CloseSparseVector: close,
}
_HAPPENING: Final[dict[type[Command], Callable[[State, Envelope, Any, int], list[Event]]]] = {
    RegisterPopulation: register_population,
    ExtendPopulation: extend_population,
    RegisterDataset: register_dataset,
    AdoptPolicy: adopt_policy,
    AdoptSigningKey: adopt_signing_key,
    StopPublication: stop_publication,
    ResumePublication: resume_publication,
    CarryOver: carry_over,
    Recover: recover,
    EraseText: erase_text,
    AdoptEngine: adopt_engine,
    Revalue: revalue,
    AcceptTime: accept_time,
}
