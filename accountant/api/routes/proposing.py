"""The calls of two people: proposals of changes and of keys are read, confirmed and declined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import JSONResponse

from accountant.api.access import (
    Body,
    Call,
    Custodian,
    Idempotency,
    Name,
    Overseer,
    TheService,
    known_parameters,
    of_a_population,
)
from accountant.api.answers import REPLAYED, Json
from accountant.api.models import proposing
from accountant.api.requests import ask
from accountant.api.views import new_keys, proposal_now
from accountant.budget.commands import Command, ConfirmChange, DeclineChange
from accountant.budget.proposals import Proposal
from accountant.ledger.events import Event, rfc3339
from accountant.runtime.service import Service

router = of_a_population("proposals")
keys = APIRouter(prefix="/v1/keys", dependencies=[Depends(known_parameters)], tags=["proposals"])

Number = Annotated[int, Path(ge=0, le=2**53, description="the proposal's number")]
Which = Annotated[
    Literal["proposed", "any"], Query(description="only those that can be confirmed, or all")
]
Most = Annotated[int, Query(ge=1, le=1000)]
Close = Callable[[type[Command]], JSONResponse]
"""Closes the proposal in the path by a command of this kind."""


@router.get("/proposals")
@Call(proposing.Proposals)
def list_proposals(
    population: Name, key: Overseer, service: TheService, state: Which = "any", limit: Most = 100
) -> JSONResponse:
    """List proposals: those that can be confirmed first, then the latest."""
    found, now = service.proposals(population)
    shown = [one for one in found if state == "any" or one.is_open(now)][:limit]
    return JSONResponse({"proposals": [_shown(service, population, one, now) for one in shown]})


@router.get("/proposals/{proposal}")
@Call(proposing.Proposal, topics="proposal")
def show_proposal(
    population: Name, proposal: Number, key: Overseer, service: TheService
) -> JSONResponse:
    """Show a proposal: what is to change, what that would do, and its digest."""
    one, now = service.proposal(population, proposal)
    return JSONResponse(_shown(service, population, one, now))


def _shown(service: Service, population: str, one: Proposal, now: int) -> proposing.Proposal:
    if not one.command:  # a state keeps what a proposal says only while it can be confirmed
        body = service.event(population, one.sequence).body
        one = replace(one, command=body["command"], effect=body["effect"])
    found = _with_new_keys(service, one, f"/v1/populations/{population}/proposals", now)
    if "owed" in one.effect and one.is_open(now):
        found["owed"] = service.owed(population)  # it may have grown since
    return found


def _with_new_keys(service: Service, one: Proposal, place: str, now: int) -> proposing.Proposal:
    """Return a proposal, and while it can be confirmed the new keys of whoever made it."""
    found = proposal_now(one, place, now)
    if one.is_open(now) and (new := new_keys(service, one.by)):
        found["new_keys"] = new
    return found


def _to_close(
    population: Name,
    proposal: Number,
    key: Custodian,
    body: Body,
    idempotency: Idempotency,
    service: TheService,
) -> Close:
    def close(kind: type[Command]) -> JSONResponse:
        asked = ask(kind, key, body, idempotency, proposal=proposal)
        if kind is ConfirmChange:
            answer = service.confirm(population, asked, key)
        else:
            answer = service.execute(population, asked)
        return _closed(proposal, kind, answer.events[-1], repeated=answer.repeated)

    return close


def _to_close_key(proposal: Number, key: Custodian, body: Body, service: TheService) -> Close:
    def close(kind: type[Command]) -> JSONResponse:
        command = ask(kind, key, body, None, proposal=proposal).command
        if isinstance(command, ConfirmChange):
            event = service.confirm_key(proposal, command.digest, key.name, key, body.get("reason"))
        else:
            event = service.decline_key(proposal, key.name, body["reason"])
        return _closed(proposal, kind, event)

    return close


def _closed(
    proposal: int, kind: type[Command], event: Event, *, repeated: bool = False
) -> JSONResponse:
    closed: proposing.Closed = {
        "proposal": proposal,
        "state": "confirmed" if kind is ConfirmChange else "declined",
        "event": event.type,
        "sequence": event.sequence,
        "time": rfc3339(event.time),
    }
    return Json(closed, 200, REPLAYED if repeated else {})


Closing = Annotated[Close, Depends(_to_close)]
ClosingKey = Annotated[Close, Depends(_to_close_key)]


@router.post("/proposals/{proposal}/confirm")
@Call(
    proposing.Closed,
    ConfirmChange,
    within="proposal",
    topics="proposal confirming dataset policy grant settling",
)
def confirm_proposal(close: Closing) -> JSONResponse:
    """Confirm a proposal of another person, by the digest of what you read.

    The change is decided as things are now. If it would do something else than when it was
    proposed, nothing happens: it has to be proposed anew.
    """
    return close(ConfirmChange)


@router.post("/proposals/{proposal}/decline")
@Call(proposing.Closed, DeclineChange, within="proposal", topics="proposal")
def decline_proposal(close: Closing) -> JSONResponse:
    """Decline a proposal, with a reason; or withdraw one of your own."""
    return close(DeclineChange)


@keys.get("/proposals")
@Call(proposing.Proposals)
def list_key_proposals(
    key: Overseer, service: TheService, state: Which = "any", limit: Most = 100
) -> JSONResponse:
    """List keys that were proposed: those that can be confirmed first, then the latest."""
    found, now = service.credentials.proposals()
    shown = [one for one in found if state == "any" or one.is_open(now)][:limit]
    return JSONResponse({"proposals": [_key_shown(service, one, now) for one in shown]})


@keys.get("/proposals/{proposal}")
@Call(proposing.Proposal, topics="proposal")
def show_key_proposal(proposal: Number, key: Overseer, service: TheService) -> JSONResponse:
    """Show a key that was proposed, and the digest of its proposal."""
    return JSONResponse(_key_shown(service, *service.credentials.proposal(proposal)))


def _key_shown(service: Service, one: Proposal, now: int) -> proposing.Proposal:
    return _with_new_keys(service, one, "/v1/keys/proposals", now)


@keys.post("/proposals/{proposal}/confirm")
@Call(proposing.Closed, ConfirmChange, within="proposal", topics="proposal confirming")
def confirm_key(close: ClosingKey) -> JSONResponse:
    """Confirm a key that another person proposed, which is valid from then on."""
    return close(ConfirmChange)


@keys.post("/proposals/{proposal}/decline")
@Call(proposing.Closed, DeclineChange, within="proposal", topics="proposal")
def decline_key(close: ClosingKey) -> JSONResponse:
    """Decline a key that was proposed, with a reason."""
    return close(DeclineChange)
