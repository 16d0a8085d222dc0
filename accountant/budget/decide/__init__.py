"""Decisions: ``decide(state, asked, now) -> outcomes``. Pure: the state does not change.

``now`` is the stamp of the new events. Each event answers exactly one command and holds it, so
that ``replay`` can decide it again and compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from accountant.budget import commands as ask
from accountant.budget.batches import OpenBatch
from accountant.budget.commands import (
    AppendValues,
    Command,
    Envelope,
    RegisterDataset,
    RegisterPopulation,
    command_from_json,
)
from accountant.budget.decide import (
    adopting,
    approving,
    custody,
    datasets,
    proposing,
    registering,
)
from accountant.budget.decide.batching import BATCHES
from accountant.budget.decide.proposing import SecondNeeded
from accountant.budget.decide.spending import SPENDING
from accountant.budget.decide.waiting import SYSTEM, admit
from accountant.budget.errors import Invalid
from accountant.budget.idempotency import DIGEST
from accountant.budget.outcome import Body, Outcome, Repeated
from accountant.budget.reading import Happened
from accountant.budget.state import State
from accountant.budget.waiting.due import due
from accountant.ledger.events import (
    MAX_BYTES,
    Entry,
    Event,
    EventTooLarge,
    canonical,
    microseconds,
)

__all__ = [
    "SYSTEM",
    "Repeated",
    "accepted",
    "admission",
    "before_of",
    "check_size",
    "decide",
    "repeated",
    "unchecked",
]


def decide(state: State, asked: Envelope, now: int) -> list[Outcome] | Repeated:
    """Decide ``asked``: an outcome for each event, none if nothing changes. Raises Problem.

    If a request that waits is to be admitted first, that is the one outcome (``admission``).
    """
    now = max(now, state.time)
    spends = type(asked.command) in SPENDING
    if not spends and isinstance(asked.command, (ask.ConfirmChange, ask.ApproveGrant)):
        found = _expanded(state, asked, asked.command, now)
        if isinstance(found, Repeated):
            return repeated(state, asked, found) or found
        asked = found
    if state.batch is not None:
        state.batch.fits(asked)
    if not isinstance(state.batch, OpenBatch):
        if (before := repeated(state, asked)) is not None:
            return before
        until = now if spends else before_of(state, asked, now)
        if (first := due(state, until)) is not None:
            return [admit(state, *first)]
    if spends or not isinstance(asked.command, RegisterPopulation):
        check_size(asked)  # before any work is done under the ledger's lock
        state.people()
    _check_confirmed(state, asked, now)
    try:
        return unchecked(state, asked, now)
    except SecondNeeded as needed:
        if state.batch is not None:
            raise needed.alone() from None
        return proposing.propose(state, needed, now)


def _expanded(
    state: State, asked: Envelope, command: ask.ConfirmChange | ask.ApproveGrant, now: int
) -> Envelope | Repeated:
    """Return the command that the event of a confirmation, or of an approval, holds."""
    if isinstance(command, ask.ApproveGrant):
        return approving.expanded(state, asked, command, now)
    return proposing.expanded(state, asked, command, now)


def check_size(asked: Envelope) -> None:
    """Raise Invalid if no event can hold the command."""
    if len(asked.canonical) > MAX_BYTES and not isinstance(asked.command, AppendValues):
        raise Invalid("event-too-large", str(EventTooLarge(len(asked.canonical))))


def _check_confirmed(state: State, asked: Envelope, now: int) -> None:
    """Raise Problem if ``asked`` confirms a proposal, and may not, or would do something else."""
    if (confirms := proposing.confirmation(asked)) is None:
        return
    if state.batch is not None:
        raise Invalid("mixed-batch", "no item of a batch confirms a proposal")
    proposal, effect = proposing.check(state, asked, confirms, now), Body()
    try:
        forgets = not asked.again or "unnamed" in proposal.effect
        command = command_from_json(dict(proposal.command))
        like = Envelope(proposal.by, command, charges=asked.charges, forgets=forgets)
        unchecked(state, like, now)
    except SecondNeeded as needed:
        effect = needed.effect
    proposing.check_same(proposal, effect)


def unchecked(state: State, asked: Envelope, now: int) -> list[Outcome]:
    """Decide ``asked`` without looking whether it was answered, or whose confirmation it has.
    Raises Problem, and SecondNeeded if it needs one and has none.
    """
    command = asked.command
    kind = type(command)
    if (spending := SPENDING.get(kind) or BATCHES.get(kind)) is not None:
        return spending(state, asked, command, now)
    if isinstance(command, ask.DeclineChange):
        return proposing.decline(state, asked, command, now)
    if isinstance(command, RegisterPopulation):
        return list(map(_happened, registering.register_population(state, asked, command, now)))
    if isinstance(command, AppendValues):
        return list(map(_happened, registering.append_values(state, asked, command, now)))
    if isinstance(command, RegisterDataset):
        return list(map(_happened, datasets.register_dataset(state, asked, command, now)))
    event_type, decider = _HAPPENING[kind]
    body = decider(state, asked, command, now)
    return [] if body is None else [_happened(state.next_event(asked, event_type, now, body))]


def admission(state: State, now: int) -> Outcome | None:
    """Return the admission that has to come before anything else at stamp ``now``: of a request
    that waits, and that the last event, or the time since, has let in. Apply it, and ask again.
    """
    first = due(state, now)
    return None if first is None else admit(state, *first)


def before_of(state: State, asked: Envelope, now: int) -> int:
    """Return the stamp up to which admissions come before ``asked``, at stamp ``now``: no time that
    an acceptance of the clock is about passes before it.
    """
    return now if accepted(asked.command) is None else state.time


def accepted(command: Command) -> int | None:
    """Return the time that ``command`` accepts, in microseconds; None if it accepts none."""
    if isinstance(command, ask.ConfirmChange):
        return None if command.clock is None else microseconds(command.clock)
    return command.stamp if isinstance(command, ask.AcceptTime) else None


def _happened(event: Event) -> Outcome:
    """Return the outcome of an event about the ledger as a whole."""
    entry = Entry.of(event)
    read = Event.from_bytes(entry.body)  # as it is read back from the ledger
    command = canonical(read.body["command"])
    return Outcome(entry, event.by, event.body.get("key"), command, Happened(read))


def repeated(state: State, asked: Envelope, known: Repeated | None = None) -> Repeated | None:
    """Return where ``asked`` was answered before, as is ``known`` of a confirmation. Raises Invalid
    for a missing or reused key.
    """
    if asked.key is None:
        if asked.command.needs_key:
            raise Invalid(
                "idempotency-key-required",
                "this request can spend: send an Idempotency-Key header, the same for every retry, "
                "so that a retry is never charged twice",
            )
        return known
    if (before := state.idempotency.get(asked.by, asked.key)) is None:
        return known
    fingerprint, sequence = before
    if known.sequence != sequence if known else fingerprint != asked.fingerprint[:DIGEST]:
        raise Invalid(
            "idempotency-key-reused",
            f"the key {asked.key!r} was used for another request (event {sequence}); "
            "use a new key for a new request",
            sequence=sequence,
        )
    return Repeated(sequence)


_Decider = Callable[[State, Envelope, Any, int], Body | None]
_HAPPENING: Final[dict[type[Command], tuple[str, _Decider]]] = {
    ask.ExtendPopulation: ("population.extended.v1", registering.extend_population),
    ask.AdoptPolicy: ("policy.adopted.v1", adopting.adopt_policy),
    ask.AdoptSigningKey: ("signing_key.adopted.v1", custody.adopt_signing_key),
    ask.StopPublication: ("publication.stopped.v1", custody.stop_publication),
    ask.ResumePublication: ("publication.resumed.v1", custody.resume_publication),
    ask.CarryOver: ("ledger.carried_over.v1", custody.carry_over),
    ask.Recover: ("ledger.recovered.v1", custody.recover),
    ask.EraseText: ("text.erased.v1", custody.erase_text),
    ask.FileReport: ("report.filed.v1", custody.file_report),
    ask.StateVerification: ("ledger.verified.v1", custody.state_verification),
    ask.AdoptEngine: ("engine.adopted.v1", custody.adopt_engine),
    ask.Revalue: ("charge.revalued.v1", custody.revalue),
    ask.AcceptTime: ("clock.accepted.v1", custody.accept_time),
}
"""Commands about the ledger as a whole: the type of the event, and its decider."""
