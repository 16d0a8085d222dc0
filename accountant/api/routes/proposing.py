"""The calls of two people: proposals are read, confirmed and declined."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from fastapi.responses import JSONResponse

from accountant.api.access import (
    Body,
    Call,
    Custodian,
    Idempotency,
    Name,
    Overseer,
    TheService,
    of_a_population,
)
from accountant.api.answers import REPLAYED, Json
from accountant.api.models import proposing
from accountant.api.requests import ask
from accountant.api.views import proposal_of
from accountant.budget.commands import ConfirmChange, DeclineChange
from accountant.budget.proposals import Proposal
from accountant.ledger.events import rfc3339
from accountant.runtime.service import Answer, Service

router = of_a_population("proposals")

Number = Annotated[int, Path(ge=0, le=2**53, description="the proposal's number")]


@router.get("/proposals")
@Call(proposing.Proposals)
def list_proposals(
    population: Name,
    key: Overseer,
    service: TheService,
    state: Annotated[
        Literal["proposed", "any"], Query(description="only those that can be confirmed, or all")
    ] = "any",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
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
    found = proposal_of(service.event(population, one.sequence), one)
    if not one.is_open(now):
        found.pop("next", None)
        found["state"] = "expired" if one.status == "open" else one.status
    return found


@router.post("/proposals/{proposal}/confirm")
@Call(
    proposing.Closed,
    ConfirmChange,
    within="proposal",
    topics="proposal confirming dataset policy grant settling",
)
def confirm_proposal(
    population: Name,
    proposal: Number,
    key: Custodian,
    body: Body,
    idempotency: Idempotency,
    service: TheService,
) -> JSONResponse:
    """Confirm a proposal of another person, by the digest of what you read.

    The change is decided as things are now. If it would do something else than when it was
    proposed, nothing happens: it has to be proposed anew.
    """
    asked = ask(ConfirmChange, key, body, idempotency, proposal=proposal)
    return _closed(proposal, "confirmed", service.confirm(population, asked, key))


@router.post("/proposals/{proposal}/decline")
@Call(proposing.Closed, DeclineChange, within="proposal", topics="proposal")
def decline_proposal(
    population: Name,
    proposal: Number,
    key: Custodian,
    body: Body,
    idempotency: Idempotency,
    service: TheService,
) -> JSONResponse:
    """Decline a proposal, with a reason; or withdraw one of your own."""
    asked = ask(DeclineChange, key, body, idempotency, proposal=proposal)
    return _closed(proposal, "declined", service.execute(population, asked))


def _closed(proposal: int, state: str, answer: Answer) -> JSONResponse:
    event = answer.events[-1]
    closed: proposing.Closed = {
        "proposal": proposal,
        "state": state,
        "event": event.type,
        "sequence": event.sequence,
        "time": rfc3339(event.time),
    }
    return Json(closed, 200, REPLAYED if answer.repeated else {})
