"""What people put on record of a ledger: that they verified it, and which report they signed."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from accountant.api.access import (
    Body,
    Call,
    Custodian,
    Idempotency,
    Name,
    Overseer,
    TheDesk,
    ThePublisher,
    TheService,
    of_a_population,
)
from accountant.api.answers import REPLAYED, Json
from accountant.api.apart import REPORTS
from accountant.api.models import reading as models
from accountant.api.requests import ask
from accountant.budget.commands import Digest, Identifier, StateVerification
from accountant.ledger.events import rfc3339
from accountant.publishing.verified import record_verification
from accountant.reporting.filing import file_report
from accountant.reporting.making import About, period_report
from accountant.reporting.periods.making import AskedReport
from accountant.reporting.periods.period import Period
from accountant.runtime.service import Answer

router: APIRouter = of_a_population("evidence")


@router.post("/verifications")
@Call(models.Verified, StateVerification, topics="verified")
def state_verification(
    population: Name, key: Overseer, body: Body, idempotency: Idempotency, service: TheService
) -> JSONResponse:
    """Record the result of a verification, by who verified.

    A result without findings is taken only of this ledger: the root has to be that of its first
    `size` events. A result with findings is always taken, and stands as an alarm until the same
    person states one without.
    """
    asked = ask(StateVerification, key, body, idempotency)
    return _recorded(record_verification(service, population, asked))


class Filing(BaseModel, frozen=True, extra="forbid"):
    """A report of a period that is over: which one, and the digest of its bytes as they were read
    (`GET …/report`).
    """

    kind: Literal["officer", "statement", "population"] = Field(
        "officer", description="what an officer signs, a dataset, or the loss by group"
    )
    dataset: Identifier | None = Field(None, description="of the statement")
    month: str | None = Field(None, description="the period: 2026-10")
    first: str | None = Field(None, alias="from", description="or its first day: 2026-10-05")
    last: str | None = Field(None, alias="to", description="its last day; default: today")
    format: Literal["html", "pdf", "csv", "json"] = Field(description="of the file that was read")
    digest: Digest = Field(description="SHA-256 of its bytes, in hex")


@router.post("/reports")
@Call(models.Filed, Filing, topics="data report filing")
async def file_period_report(
    population: Name,
    key: Custodian,
    request: Request,
    body: Body,
    service: TheService,
    desk: TheDesk,
    publisher: ThePublisher,
) -> JSONResponse:
    """File the report of a period that is over, which somebody has read and signs.

    The report is made again, and filed if it has the digest that is sent. The same report of the
    same person is filed once.
    """

    def filed() -> Answer:
        said, now = Filing.model_validate(body), service.time()
        period = Period.asked(said.month, said.first, said.last, now)
        asked = AskedReport.of(said.kind, period, said.dataset, now)
        about = About(population, publisher.last_published(population), key.populations)
        made = period_report(desk, service, about, asked, said.format)
        return file_report(service, population, asked, said.format, made, key.name, said.digest)

    return _recorded(await REPORTS.do(request, filed))


def _recorded(answer: Answer) -> JSONResponse:
    event = answer.events[-1]
    fields = {name: value for name, value in event.body["command"].items() if name != "reason"}
    told = fields | {"sequence": event.sequence, "time": rfc3339(event.time)}
    told.pop("type")
    return Json(told, 200, REPLAYED if answer.repeated else {})
