"""Decide commands about a ledger's custody: keys, publication, recovery, bounds, erasure, clock.

Each decider returns the body of the event, without the command; None if nothing has to change.
"""

from __future__ import annotations

from typing import Final

from accountant.budget import commands as ask
from accountant.budget.bill import Bill, bill_of, per_in
from accountant.budget.commands import Envelope
from accountant.budget.decide.proposing import second
from accountant.budget.errors import Conflict, Invalid, NotFound
from accountant.budget.facts import SECOND
from accountant.budget.outcome import Body
from accountant.budget.owed import owed
from accountant.budget.request import price_all
from accountant.budget.state import State
from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.events import microseconds, rfc3339
from accountant.ledger.notes import ED25519, BadNote, Verifier
from accountant.privacy import engine as bounds
from accountant.privacy.units import Charge

CONFIRMED_WITHIN: Final = ask.DAY * SECOND
"""How much later a clock that was proposed may show, in microseconds, when it is confirmed."""
ADJUSTED: Final = 60 * SECOND
"""How far it may have been set back since, by whatever keeps it right."""


def adopt_signing_key(
    state: State, asked: Envelope, command: ask.AdoptSigningKey, now: int
) -> Body:
    """Adopt the first key, the next one, or the first of a new epoch, which has another name."""
    try:
        key = Verifier.from_text(command.key)
    except ValueError as error:
        raise Invalid("malformed-key", str(error)) from None
    if key.kind != ED25519:
        raise Invalid("malformed-key", "a ledger signs with an Ed25519 key (type 1)")
    custody = state.custody
    if command.key in (old.text for old in custody.keys):
        raise Conflict("key-used", "this key was adopted before; make a fresh one")
    if custody.key is not None and key.name != custody.key.name:
        raise Conflict(
            "origin-fixed", f"this ledger signs as {custody.key.name}, and goes on under that name"
        )
    if custody.key is None and key.name in (old.name for old in custody.keys):
        raise Conflict(
            "origin-used",
            f"the origin {key.name} was used before the recovery: give the new key another name",
        )
    return {}


def stop_publication(
    state: State, asked: Envelope, command: ask.StopPublication, now: int
) -> Body | None:
    """Raise the alarm, once."""
    return {} if state.custody.stopped is None else None


def resume_publication(
    state: State, asked: Envelope, command: ask.ResumePublication, now: int
) -> Body:
    """End the alarm. Raises Conflict if there is none."""
    if state.custody.stopped is None:
        raise Conflict("not-stopped", "publication goes on: no witness has contradicted the ledger")
    return {"alarm": state.custody.stopped}


def carry_over(state: State, asked: Envelope, command: ask.CarryOver, now: int) -> Body:
    """Keep signed sums as spent. Raises Invalid if an account's sums cannot be read."""
    for account in command.accounts:
        try:
            Charge.from_json(account.used)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Invalid("malformed-account", f"sums of {account.dataset}: {error!r}") from None
    return {}


def recover(state: State, asked: Envelope, command: ask.Recover, now: int) -> Body:
    """Open a new epoch of the log. Open grants are charged: lost events may have settled them. What
    lost events had spent was carried over before: a second person is told the sums with it.
    """
    heads = []
    for text in command.lost:
        try:
            lost = Checkpoint.from_text(notes.parse(text.encode()).text)
        except BadNote as error:
            raise Invalid("malformed-checkpoint", f"the lost checkpoint: {error}") from None
        heads.append({"origin": lost.origin, "size": lost.size, "root": lost.root.hex()})
    sizes = [f"{head['origin']} at {head['size']}" for head in heads]
    effect = {"recovers": sizes or ["its signing key"], "open": len(state.open)}
    second(asked, effect | {"owed": owed(state)})
    return {"lost": heads, "charged": sorted(state.open)}


def adopt_engine(state: State, asked: Envelope, command: ask.AdoptEngine, now: int) -> Body:
    """Go over to a later version of the bounds. Raises Conflict unless this program has it."""
    if not state.custody.engine < command.version <= bounds.CURRENT:
        raise Conflict(
            "engine-order",
            f"version {state.custody.engine} of the bounds decides here, and this program knows up "
            f"to {bounds.CURRENT}: version {command.version} cannot follow",
        )
    return {}


def revalue(state: State, asked: Envelope, command: ask.Revalue, now: int) -> Body | None:
    """Book the difference to the price by today's bounds; nothing if that is not higher."""
    engine = state.custody.engine
    _recorded(state, command.event)
    if state.revalued.get(command.event, 0) >= engine:
        raise Conflict(
            "already-revalued", f"event {command.event} was revalued by version {engine} already"
        )
    state.reach(command.dataset)  # which raises Invalid for an unknown one
    per = per_in({"per": command.booked_per})
    booked, people = Bill(Charge.from_json(command.booked), per), state.people()
    terms = people.relation, booked.total.orders, engine, people.units
    due = bill_of(price_all(command.mechanisms, *terms), people.units)
    more = due.beyond(booked, [unit.name for unit in people.units])
    if more is None:
        return None
    before = state.revalued.get(command.event, state.custody.engine_at(command.event))
    return {"more": more.total.to_json(), "engines": [before, engine]} | more.written()


def erase_text(state: State, asked: Envelope, command: ask.EraseText, now: int) -> Body:
    """Erase texts of an event. Raises NotFound if the event is not recorded yet."""
    _recorded(state, command.event)
    return {}


def file_report(state: State, asked: Envelope, command: ask.FileReport, now: int) -> Body:
    """File a report. Raises Invalid unless its period is over, and it rests on events of before."""
    start, end = f"{command.first}T00:00:00.000000Z", f"{command.last}T23:59:59.999999Z"
    try:
        over = microseconds(start) <= microseconds(end) < now
    except ValueError:
        over = False
    if not over:
        raise Invalid(
            "unknown-report",
            f"a report is filed once its period is over, and {command.first} to {command.last} is "
            "not: file it later",
        )
    if command.size > state.sequence:
        raise Invalid(
            "unknown-report",
            f"the report rests on {command.size} events, and ledger {state.ledger} has "
            f"{state.sequence}: make it from this ledger",
        )
    if (command.report == "statement") != (command.dataset is not None):
        raise Invalid("unknown-report", "a statement names its dataset, and nothing else does")
    if command.dataset is not None:
        state.dataset(command.dataset)
    return {}


def state_verification(
    state: State, asked: Envelope, command: ask.StateVerification, now: int
) -> Body:
    """Record the result of a verification. Raises Conflict if more events than there are were found
    to be in order: they were another ledger's, and that is a finding.
    """
    if not command.findings and command.size > state.sequence:
        raise Conflict(
            "another-ledger",
            f"{command.size} events were verified, and {state.ledger} has {state.sequence}: what "
            "was verified is not this ledger, which is a finding: state it with findings",
            size=state.sequence,
        )
    return {}


def accept_time(state: State, asked: Envelope, command: ask.AcceptTime, now: int) -> Body:
    """Go on by a clock that was in doubt, once a second person has read it too. Raises Invalid if
    both did not read the same clock, or it does not show this stamp.
    """
    second(asked, {"accepts": command.clock})
    shown, proposed = command.stamp, microseconds(command.clock)
    if shown is None or now != max(shown, state.time):
        raise Invalid("clock-differs", "the accepted time has to be the stamp of its own event")
    if not proposed - ADJUSTED <= shown <= proposed + CONFIRMED_WITHIN:
        raise Invalid(
            "clock-differs",
            f"the clock shows {rfc3339(shown)}, and whoever proposed to accept it read "
            f"{command.clock}: it is confirmed within a day after that; propose it again",
        )
    return {}


def _recorded(state: State, event: int) -> None:
    if event >= state.sequence:
        raise NotFound("unknown-event", f"ledger {state.ledger} has no event {event}")
