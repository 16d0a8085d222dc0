"""Decide about requests that wait: whether one may, which is admitted, and how a wait ends."""

from __future__ import annotations

from typing import Final

from accountant.budget.changes import NOTHING, Admit, Leave, Reserve, Wait, arrival
from accountant.budget.commands import (
    APPROVAL_WAIT,
    AdmitGrant,
    AskGrant,
    Envelope,
    TimeOutGrant,
)
from accountant.budget.decide.judging import grant_for, judged, judgement_body, listed
from accountant.budget.errors import Conflict, Invalid
from accountant.budget.evaluate import Judgement
from accountant.budget.facts import SECOND
from accountant.budget.outcome import (
    ADMITTED,
    CANCELLED,
    REFUSED,
    TIMED_OUT,
    WAITING,
    Body,
    Outcome,
    outcome,
)
from accountant.budget.request import Request, prepare
from accountant.budget.state import State
from accountant.budget.waiting.asked import Waiting, waiting_for
from accountant.budget.waiting.due import blocks_only_by_limits, never_fits
from accountant.budget.waiting.looking import Admitted, witness_of
from accountant.ledger.events import rfc3339

MOST_BYTES: Final = 3_000
"""Bytes of a request that waits: its admission has room under every policy (decide/adopting.py)."""
SYSTEM: Final = ":accountant"
"""The client of what no client asks for. (No key's name begins with a colon.)"""


def wait_or_refuse(
    state: State,
    asked: Envelope,
    command: AskGrant,
    now: int,
    judged_as: tuple[Request, Judgement, Body],
) -> Outcome:
    """Let a request that is not granted wait: for a person, if nothing blocks it; for budget, if it
    says for how long, and if budget alone is missing that may come, whether or not a person has to
    approve it then. Refuse it otherwise. Raises Conflict where too many wait.
    """
    request, judgement, body = judged_as
    arriving = arrival(state, asked.by, [command])
    may_wait = command.wait is not None and blocks_only_by_limits(state, judgement)
    if not may_wait and judgement.outcome != "approve":
        body |= listed(state, request, judgement, body, asked)
        return outcome(state, asked, REFUSED, now, body, arriving)
    waiting = waiting_for(
        asked.by,
        request.on,
        asked.canonical,
        (now, now + (command.wait or APPROVAL_WAIT) * SECOND, state.sequence),
        (request.costs.bill, state.custody.engine),
    )
    least = request
    if command.at_least is not None:
        asks = waiting.asks(command.at_least)
        least = prepare(state, asked.by, asks, now, emptied=asked.emptied)
    if never := never_fits(state, least):
        body["never"] = [one.rule for one in never]
        body |= listed(state, request, judgement, body, asked)
        return outcome(state, asked, REFUSED, now, body, arriving)
    state.waiting.check(asked.by)
    size = len(asked.canonical) + len(request.costs.each_written)
    if size > MOST_BYTES:
        raise Invalid(
            "wait-too-large",
            f"the request takes {size} bytes of an event; one that waits has at most {MOST_BYTES}, "
            "so that it can be admitted under any policy: ask for less at once, or, if only limits "
            "hold it up, without wait",
        )
    body |= listed(state, request, judgement, body, asked)
    # What may be admitted in part, or has unlocked something, is looked at with all that wait.
    filed = command.at_least is None and arriving is NOTHING
    change = Wait(waiting, witness_of(state, request, judgement) if filed else None, arriving)
    return outcome(state, asked, WAITING, now, body, change)


def admit(state: State, found: Admitted, now: int) -> Outcome:
    """Grant a request that has waited, as if it asked at stamp ``now``."""
    waiting, request = found.waiting, found.request
    plain = Envelope(waiting.by, found.asks)
    command = AdmitGrant(grant=waiting.id, client=waiting.by, request=plain.document)
    grant = grant_for(state, plain, request, found.asks.ttl_seconds, now)
    body = judgement_body(state, request, found.judgement)
    change = Admit(waiting.sequence, Reserve(grant, request.purpose, request.allotment))
    return outcome(state, Envelope(SYSTEM, command), ADMITTED, now, body, change)


def time_out(state: State, asked: Envelope, command: TimeOutGrant, now: int) -> list[Outcome]:
    """Refuse a request that has waited long enough, by what fails now. Raises Conflict if it does
    not wait, or not long enough.
    """
    waiting = state.waiting.requests.get(command.grant)
    if waiting is None or not waiting.due(now):
        raise Conflict("not-due", f"request {command.grant} does not wait past its time")
    asks = waiting.asks()
    request, judgement, body = judged(state, waiting.by, asks, now, arrives=0, emptied=True)
    asked = Envelope(asked.by, waiting.timing_out())
    body |= listed(state, request, judgement, body, asked)
    return [outcome(state, asked, TIMED_OUT, now, body, Leave(waiting.sequence, "timed out"))]


def cancel(state: State, asked: Envelope, waiting: Waiting, now: int) -> list[Outcome]:
    """End the wait of a request, which its client does not want any more."""
    if waiting.due(now):
        raise Conflict(
            "wait-is-over",
            f"request {waiting.id} waited until {rfc3339(waiting.expires)} and is refused",
            expires=rfc3339(waiting.expires),
        )
    return [
        outcome(state, asked, CANCELLED, now, {}, Leave(waiting.sequence, "cancelled")),
    ]
