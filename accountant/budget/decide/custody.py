"""Keys, alarms, recoveries and erasures: what is decided about the ledger itself."""

from __future__ import annotations

from accountant.budget.commands import (
    AcceptTime,
    AdoptEngine,
    AdoptSigningKey,
    CarryOver,
    Envelope,
    EraseText,
    Recover,
    ResumePublication,
    Revalue,
    StopPublication,
)
from accountant.budget.errors import Conflict, Invalid, NotFound
from accountant.budget.request import price_all
from accountant.budget.state import State
from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.events import Event
from accountant.ledger.notes import ED25519, BadNote, Verifier
from accountant.privacy import engine as bounds
from accountant.privacy.units import Charge, total


def adopt_signing_key(
    state: State, asked: Envelope, command: AdoptSigningKey, now: int
) -> list[Event]:
    """The first key, the next one, or the first of a new epoch, which has another name."""
    try:
        key = Verifier.from_text(command.key)
    except ValueError as error:
        raise Invalid("malformed-key", str(error)) from None
    if key.kind != ED25519:
        raise Invalid("malformed-key", "a ledger signs with an Ed25519 key (type 1)")
    custody = state.custody
    if command.key in (old.text for old in custody.keys):
        raise Conflict("key-used", "this key was adopted before; make a fresh one")
    names = {old.name for old in custody.keys}
    if custody.key is not None and key.name != custody.key.name:
        raise Conflict(
            "origin-fixed", f"this ledger signs as {custody.key.name}, and goes on under that name"
        )
    if custody.key is None and key.name in names:
        raise Conflict(
            "origin-used", f"{key.name} has signed what was lost; a new epoch has another name"
        )
    return [state.next_event(asked, "signing_key.adopted.v1", now, {})]


def stop_publication(
    state: State, asked: Envelope, command: StopPublication, now: int
) -> list[Event]:
    """Raises the alarm, once."""
    if state.custody.stopped is not None:
        return []
    return [state.next_event(asked, "publication.stopped.v1", now, {})]


def resume_publication(
    state: State, asked: Envelope, command: ResumePublication, now: int
) -> list[Event]:
    """Ends the alarm. Raises Conflict if there is none."""
    if state.custody.stopped is None:
        raise Conflict("not-stopped", "publication goes on: no witness has contradicted the ledger")
    body = {"alarm": state.custody.stopped}
    return [state.next_event(asked, "publication.resumed.v1", now, body)]


def carry_over(state: State, asked: Envelope, command: CarryOver, now: int) -> list[Event]:
    """Takes what was signed as spent for the least that is spent."""
    for account in command.accounts:
        try:
            Charge.from_json(account.used)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Invalid("malformed-account", f"what {account.dataset} used: {error!r}") from None
    return [state.next_event(asked, "ledger.carried_over.v1", now, {})]


def recover(state: State, asked: Envelope, command: Recover, now: int) -> list[Event]:
    """Opens a new epoch of the log; grants that are open are charged, for what became of them in
    the events that are lost nobody knows.
    """
    heads = []
    for text in command.lost:
        try:
            lost = Checkpoint.from_text(notes.parse(text.encode()).text)
        except BadNote as error:
            raise Invalid("malformed-checkpoint", f"the lost checkpoint: {error}") from None
        heads.append({"origin": lost.origin, "size": lost.size, "root": lost.root.hex()})
    body = {"lost": heads, "charged": sorted(state.open)}
    return [state.next_event(asked, "ledger.recovered.v1", now, body)]


def adopt_engine(state: State, asked: Envelope, command: AdoptEngine, now: int) -> list[Event]:
    """Goes over to a later version of the bounds, that this program has."""
    if not state.custody.engine < command.version <= bounds.CURRENT:
        raise Conflict(
            "engine-order",
            f"version {state.custody.engine} of the bounds decides here, and this program knows up "
            f"to {bounds.CURRENT}: version {command.version} cannot follow",
        )
    return [state.next_event(asked, "engine.adopted.v1", now, {})]


def revalue(state: State, asked: Envelope, command: Revalue, now: int) -> list[Event]:
    """Books the difference to what today's bounds say; nothing if they say no more."""
    engine = state.custody.engine
    if command.event >= state.sequence:
        raise NotFound("unknown-event", f"ledger {state.ledger} has no event {command.event}")
    if state.revalued.get(command.event, 0) >= engine:
        raise Conflict(
            "already-revalued", f"event {command.event} was revalued by version {engine} already"
        )
    state.dataset(command.dataset)
    booked = Charge.from_json(command.booked)
    prices = price_all(command.mechanisms, state.people().relation, booked.orders, engine)
    more = total(priced.charge for priced in prices).on(booked.axis).beyond(booked)
    if more is None:
        return []
    before = state.revalued.get(command.event, state.custody.engine_at(command.event))
    body = {"more": more.to_json(), "engines": [before, engine]}
    return [state.next_event(asked, "charge.revalued.v1", now, body)]


def erase_text(state: State, asked: Envelope, command: EraseText, now: int) -> list[Event]:
    """Says what is erased. Raises NotFound for an event that is not there yet."""
    if command.event >= state.sequence:
        raise NotFound("unknown-event", f"ledger {state.ledger} has no event {command.event}")
    return [state.next_event(asked, "text.erased.v1", now, {})]


def accept_time(state: State, asked: Envelope, command: AcceptTime, now: int) -> list[Event]:
    """Goes on by a clock that was in doubt. Raises Invalid if it does not show this stamp."""
    if now != max(command.stamp, state.time):
        raise Invalid("clock-differs", "what is accepted is the time at which it is accepted")
    return [state.next_event(asked, "clock.accepted.v1", now, {})]
