"""The call that takes OpenLineage events, at the address where its clients post them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel, Field

from accountant.api.access import Body, Call, TheService, caller, known_parameters
from accountant.api.models import reading as models
from accountant.api.requests import SPEND
from accountant.auth.keys import Key
from accountant.budget.commands import LONGEST_TEXT
from accountant.budget.errors import Invalid
from accountant.budget.facts import SECOND
from accountant.ledger.events import rfc3339
from accountant.runtime.lineage import Run, note_reads

router = APIRouter(tags=["lineage"], dependencies=[Depends(known_parameters)])
Teller = Annotated[Key, Depends(caller(*SPEND, anywhere=True))]
MOST: Final = 500
"""Inputs of a run, and grants that it names."""
_DAY: Final = 86_400 * SECOND
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Text = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
GrantName = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9_.-]{0,63}/)?g\d{1,18}$")]


class LineageDataset(BaseModel, frozen=True, extra="allow"):
    """A dataset, by its names in OpenLineage."""

    namespace: Text = Field(description="such as postgres://warehouse")
    name: Text = Field(description="such as public.visits")


class LineageGrants(BaseModel, frozen=True, extra="allow"):
    """The facet of a run that names the grants under which it reads."""

    grants: list[GrantName] = Field(
        max_length=MOST, description="of the service: g17, or with the population: clinic/g17"
    )


class LineageFacets(BaseModel, frozen=True, extra="allow"):
    """The facets of a run; all others are passed over."""

    accountant_grants: LineageGrants | None = Field(None, description="its grants")


class LineageRun(BaseModel, frozen=True, extra="allow"):
    """A run of a job."""

    id: str = Field(alias="runId", pattern=r"^[0-9A-Za-z-]{1,64}$", description="its id, a UUID")
    facets: LineageFacets = Field(LineageFacets(), description="what is told of it")


class LineageJob(BaseModel, frozen=True, extra="allow"):
    """A job."""

    namespace: Text = Field(description="where it is defined")
    name: Text = Field(description="its name there")


class RunEvent(BaseModel, frozen=True, extra="allow"):
    """An OpenLineage run event; what it says beside is passed over."""

    time: AwareDatetime = Field(alias="eventTime", description="when, with a time zone")
    type: str = Field(
        "OTHER",
        alias="eventType",
        pattern="^(START|RUNNING|COMPLETE|ABORT|FAIL|OTHER)$",
        description="`START`, `RUNNING`, `COMPLETE`, `ABORT`, `FAIL` or `OTHER`",
    )
    run: LineageRun = Field(description="the run")
    job: LineageJob = Field(description="of which job")
    inputs: list[LineageDataset] = Field([], max_length=MOST, description="what it reads")


@router.post("/api/v1/lineage")
@Call(models.Lineage, RunEvent, topics="lineage")
def note_lineage(key: Teller, body: Body, service: TheService) -> JSONResponse:
    """Note which registered data a run reads, as an OpenLineage run event tells.

    A read has a grant if the run names it in the facet `accountant_grants`, if the run's id is the
    idempotency key of one, or if the key that sends the event has one open on the data. The others
    are findings, and alerts. Events about datasets and jobs without a run are passed over. Nothing
    is charged, and nothing of the event but the job, the run and the times is kept.
    """
    if "run" not in body and ("job" in body or "dataset" in body):
        return JSONResponse({"reads": []})
    event = RunEvent.model_validate(body)
    at = _stamp(event.time, service.time())
    named = event.run.facets.accountant_grants
    run = Run(
        event.run.id,
        f"{event.job.namespace}/{event.job.name}",
        at,
        tuple(dict.fromkeys((one.namespace, one.name) for one in event.inputs)),
        tuple(named.grants) if named else (),
    )
    found: list[dict[str, Any]] = [
        {"population": one.population, "dataset": one.dataset, "granted": bool(one.granted)}
        for one in note_reads(service, key, run)
    ]
    return JSONResponse({"reads": found})


def _stamp(time: datetime, now: int) -> int:
    """Return a time in microseconds. Raise Invalid for one that cannot have been by now."""
    found = (time - _EPOCH) // datetime.resolution
    if not 0 <= found <= now + _DAY:
        text = f"eventTime is {time.isoformat()}, and the clock of the service shows {rfc3339(now)}"
        raise Invalid("invalid-request", text)
    return found
