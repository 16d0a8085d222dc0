"""The calls of whoever approves: requests that wait for a person, and what becomes of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import JSONResponse

from accountant.api.access import (
    Body,
    Call,
    Custodian,
    GrantId,
    Idempotency,
    Name,
    Overseer,
    TheService,
    of_a_population,
)
from accountant.api.answers import REPLAYED, Json, respond
from accountant.api.models import approving as models
from accountant.api.models import spending
from accountant.api.requests import ask
from accountant.api.views import approval_view
from accountant.budget.commands import ApproveGrant, DeclineGrant
from accountant.ledger.events import rfc3339

router = of_a_population("approvals")


@router.get("/approvals")
@Call(models.Approvals)
def list_approvals(
    population: Name,
    key: Overseer,
    service: TheService,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JSONResponse:
    """List the requests that wait for a person, in the order in which they came."""
    found = service.approvals(population, limit)
    return JSONResponse({"approvals": [approval_view(service, population, one) for one in found]})


@router.get("/approvals/{grant}")
@Call(models.Approval, topics="grant approval")
def show_approval(
    population: Name, grant: GrantId, key: Overseer, service: TheService
) -> JSONResponse:
    """Show a request that waits for a person: what asks for approval, what blocks it now, and what
    it would do to each account.
    """
    return JSONResponse(approval_view(service, population, service.approval(population, grant)))


@router.post("/approvals/{grant}/approve", status_code=201)
@Call(
    spending.Reservation,
    ApproveGrant,
    within="grant",
    topics="grant asking data approval approving",
)
def approve_grant(
    population: Name,
    grant: GrantId,
    key: Custodian,
    body: Body,
    idempotency: Idempotency,
    service: TheService,
) -> JSONResponse:
    """Approve another person's request, by the digest of what you read.

    It is decided as things are now. If a rule blocks it nothing happens, and it waits on.
    """
    asked = ask(ApproveGrant, key, body, idempotency, grant=grant)
    return respond(service, service.confirm(population, asked, key))


@router.post("/approvals/{grant}/decline")
@Call(spending.Settlement, DeclineGrant, within="grant", topics="grant approval approving")
def decline_grant(
    population: Name,
    grant: GrantId,
    key: Custodian,
    body: Body,
    idempotency: Idempotency,
    service: TheService,
) -> JSONResponse:
    """Decline another person's request, with a reason that its client is told. That ends it."""
    asked = ask(DeclineGrant, key, body, idempotency, grant=grant)
    answer = service.confirm(population, asked, key)
    event = answer.events[-1]
    ended: spending.Settlement = {
        "id": grant,
        "state": "declined",
        "sequence": event.sequence,
        "time": rfc3339(event.time),
    }
    return Json(ended, 200, REPLAYED if answer.repeated else {})
