"""Decisions: ``decide(state, asked, now) -> outcomes``. Pure: the state does not change.

``now`` is the stamp of the new events. Each event answers exactly one command and holds it, so
that ``replay`` can decide it again and compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from accountant.budget import commands as ask
from accountant.budget.apply import Happened
from accountant.budget.commands import Batch, Command, Envelope, RegisterPopulation
from accountant.budget.decide import adopting, custody, datasets, registering
from accountant.budget.decide.batching import batch
from accountant.budget.decide.spending import SPENDING, SYSTEM
from accountant.budget.errors import Invalid
from accountant.budget.idempotency import DIGEST
from accountant.budget.outcome import Body, Outcome
from accountant.budget.state import State
from accountant.ledger.events import MAX_BYTES, Entry, Event, EventTooLarge, canonical

__all__ = ["SYSTEM", "Repeated", "decide", "repeated"]


class Repeated(NamedTuple):
    """The same request was answered before, by the event at ``sequence``."""

    sequence: int


def decide(state: State, asked: Envelope, now: int) -> list[Outcome] | Repeated:
    """Decide ``asked``: an outcome for each event, none if nothing changes. Raises Problem."""
    if state.batch is not None:
        state.batch.fits(asked)
    elif (before := repeated(state, asked)) is not None:
        return before
    if not isinstance(asked.command, RegisterPopulation):
        if len(asked.canonical) > MAX_BYTES:  # before any work is done under the ledger's lock
            raise Invalid("event-too-large", str(EventTooLarge(len(asked.canonical))))
        state.people()
    command, now = asked.command, max(now, state.time)
    if isinstance(command, Batch):
        return batch(state, asked, command, now)
    kind = type(command)
    if kind in SPENDING:
        return SPENDING[kind](state, asked, command, now)
    if isinstance(command, RegisterPopulation):
        return list(map(_happened, registering.register_population(state, asked, command, now)))
    event_type, decider = _HAPPENING[kind]
    body = decider(state, asked, command, now)
    return [] if body is None else [_happened(state.next_event(asked, event_type, now, body))]


def _happened(event: Event) -> Outcome:
    """Return the outcome of an event about the ledger as a whole."""
    entry = Entry.of(event)
    read = Event.from_bytes(entry.body)  # as it is read back from the ledger
    command = canonical(read.body["command"])
    return Outcome(entry, event.by, event.body.get("key"), command, Happened(read))


def repeated(state: State, asked: Envelope) -> Repeated | None:
    """Return where ``asked`` was answered before. Raises Invalid for a missing or reused key."""
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


_Decider = Callable[[State, Envelope, Any, int], Body | None]
_HAPPENING: Final[dict[type[Command], tuple[str, _Decider]]] = {
    ask.ExtendPopulation: ("population.extended.v1", registering.extend_population),
    ask.RegisterDataset: ("dataset.registered.v1", datasets.register_dataset),
    ask.AdoptPolicy: ("policy.adopted.v1", adopting.adopt_policy),
    ask.AdoptSigningKey: ("signing_key.adopted.v1", custody.adopt_signing_key),
    ask.StopPublication: ("publication.stopped.v1", custody.stop_publication),
    ask.ResumePublication: ("publication.resumed.v1", custody.resume_publication),
    ask.CarryOver: ("ledger.carried_over.v1", custody.carry_over),
    ask.Recover: ("ledger.recovered.v1", custody.recover),
    ask.EraseText: ("text.erased.v1", custody.erase_text),
    ask.AdoptEngine: ("engine.adopted.v1", custody.adopt_engine),
    ask.Revalue: ("charge.revalued.v1", custody.revalue),
    ask.AcceptTime: ("clock.accepted.v1", custody.accept_time),
}
"""Commands about the ledger as a whole: the type of the event, and its decider."""
