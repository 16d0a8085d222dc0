"""The calls that read accounts, reports, events and decisions."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal, cast

import orjson
from fastapi import Path, Query, Response
from fastapi.responses import JSONResponse

from accountant.api.access import (
    Call,
    EventNumber,
    Name,
    Overseer,
    Reader,
    ThePublisher,
    TheService,
    of_a_population,
)
from accountant.api.models.reading import Accounts, Event, Events
from accountant.api.models.spending import Contributors, DecisionInFull
from accountant.api.requests import only_own
from accountant.api.views import in_full, in_names
from accountant.reporting.files import rendered, report_of
from accountant.reporting.statement import accounts_json
from accountant.reporting.texts import Texts

router = of_a_population()

_REPORT_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""The report page contains its style, and loads no scripts or images."""


@router.get("/accounts", tags=["reading"])
@Call(Accounts, topics="data")
def show_accounts(
    population: Name,
    key: Reader,
    service: TheService,
    dataset: Annotated[str | None, Query(description="only this dataset")] = None,
    by: Annotated[str | None, Query(description="split by this dimension")] = None,
) -> JSONResponse:
    """Show for each limit: spent, reserved, remaining, most charged group, lifetime total."""
    with service.state(population) as state:
        return JSONResponse(accounts_json(state, dataset, by))


@router.get("/report", tags=["reading"])
@Call(media="text/html application/json text/csv")
def show_report(
    population: Name,
    key: Overseer,
    service: TheService,
    publisher: ThePublisher,
    form: Annotated[Literal["html", "json", "csv"], Query(alias="format")] = "html",
) -> Response:
    """Show the compliance report."""
    media = {"html": "text/html", "json": "application/json", "csv": "text/csv"}[form]
    report = report_of(service, population, publisher.last_published(population))
    return Response(rendered(report, form), media_type=media, headers=_REPORT_HEADERS)


@router.get("/events", tags=["reading"])
@Call(Events)
def list_events(
    population: Name,
    key: Overseer,
    service: TheService,
    after: Annotated[
        int, Query(ge=-1, le=2**53, description="only events after this sequence")
    ] = -1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List the events of the ledger. `leaf` is the hash of an event's canonical bytes."""
    service.known(population)
    rows = service.events(population, after + 1, limit)
    events = b",".join(
        b'{"event":' + row.body + b',"leaf":"' + row.leaf.hex().encode() + b'"}' for row in rows
    )
    last = rows[-1].sequence if rows else min(after, service.head(population).size - 1)
    return Response(
        b'{"events":[' + events + b'],"last":' + orjson.dumps(last) + b"}",
        media_type="application/json",
    )


@router.get("/events/{sequence}", tags=["reading"])
@Call(Event, topics="event own")
def show_event(
    population: Name, sequence: EventNumber, key: Reader, service: TheService
) -> Response:
    """Show one event as its canonical bytes, which a receipt proves. A pipeline sees its own."""
    service.known(population)
    event = service.event(population, int(sequence))
    only_own(key, event.by, f"event {event.sequence}")
    return Response(event.to_bytes(), media_type="application/json")


@router.get("/decisions/{decision}", tags=["reading"])
@Call(DecisionInFull, topics="event judged own")
def show_decision(
    population: Name,
    decision: Annotated[str, Path(pattern=r"^[dg]\d{1,18}$")],
    key: Reader,
    service: TheService,
) -> JSONResponse:
    """Show every rule that was evaluated, with both sides of its comparison, and the charges that
    used up each limit that fired. Pipelines see their own decisions, without other clients.
    """
    service.known(population)
    event = service.event(population, int(decision[1:]))
    only_own(key, event.by, decision)
    texts = Texts(partial(service.texts, population), page=1)
    request = in_names(service, population, texts.opened(event).body["command"])
    document = in_full(event, service.explain(population, event), request)
    if key.role != "pipeline":
        # Imported late, like everything that makes reports.
        from accountant.reporting.contributors import used_up_by  # noqa: PLC0415

        rows = service.stream(population)
        used = used_up_by(rows, document["rules"], event.sequence, texts)
        document["used_up_by"] = cast(list[Contributors], used)
    return JSONResponse(document)
