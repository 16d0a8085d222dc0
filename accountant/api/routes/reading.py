"""The calls that read accounts, reports, events, decisions and the log (C2SP), and erase texts."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Annotated, Final, Literal, cast

import orjson
from fastapi import Depends, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from accountant.api.access import (
    OVERSEE,
    Authorization,
    Body,
    Call,
    Custodian,
    EventNumber,
    Name,
    Overseer,
    Reader,
    TheDesk,
    ThePublisher,
    TheService,
    caller,
    of_a_population,
)
from accountant.api.apart import EXPORTS, READINGS, REPORTS
from accountant.api.models import reading as models
from accountant.api.models.deciding import Contributors, DecisionInFull, ExhaustedPage
from accountant.api.requests import narrowed_to, only_own
from accountant.api.views import in_full, in_names, listed_as
from accountant.budget.commands import Text
from accountant.budget.errors import Invalid, NotFound
from accountant.budget.facts import client_in
from accountant.door.sending import FileResponse
from accountant.ledger.events import Event
from accountant.ledger.tiles import WIDTH, Tile
from accountant.publishing.evidence import written
from accountant.reporting.making import About, period_report, report_texts, used_up
from accountant.reporting.periods.making import MEDIA, AskedReport
from accountant.reporting.periods.period import Period
from accountant.reporting.statement import accounts_json
from accountant.reporting.texts import Texts

router = of_a_population("reading")
evidence = of_a_population("evidence")

_REPORT_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""The report page contains its style, and loads no scripts or images."""


@router.get("/accounts")
@Call(models.Accounts, topics="data")
def show_accounts(
    population: Name,
    key: Reader,
    service: TheService,
    dataset: Annotated[str | None, Query(description="only this dataset")] = None,
    by: Annotated[str | None, Query(description="split by this dimension")] = None,
) -> JSONResponse:
    """Show for each limit: spent, reserved, remaining, most charged group, lifetime total. A
    pipeline sees the accounts that its requests may be charged to.
    """
    state = service.state(population)
    return JSONResponse(accounts_json(state, dataset, by, narrowed_to(key)))


@router.get("/report")
@Call(media="text/html application/json text/csv application/pdf", topics="data report")
async def show_report(
    *,
    population: Name,
    key: Overseer,
    request: Request,
    service: TheService,
    desk: TheDesk,
    publisher: ThePublisher,
    form: Annotated[Literal["html", "pdf", "json", "csv"], Query(alias="format")] = "html",
    kind: Annotated[
        Literal["officer", "statement", "population"] | None,
        Query(description="of a period: what an officer signs, a dataset, or by group"),
    ] = None,
    dataset: Annotated[str | None, Query(description="of the statement")] = None,
    month: Annotated[str | None, Query(description="the period: 2026-10")] = None,
    first: Annotated[str | None, Query(alias="from", description="its first day")] = None,
    last: Annotated[str | None, Query(alias="to", description="its last day; or today")] = None,
) -> Response:
    """Show the compliance report as of now; or, of a month or from a day to another, a report to
    sign. The same period gives the same bytes once it is over.
    """

    def made() -> Response:
        about = About(population, publisher.last_published(population), key.populations)
        if kind is None and not (month or first or last):
            if form == "pdf" or dataset is not None:
                text = "a PDF, and a dataset, are of a period: name a month"
                raise Invalid("unknown-report", text)
            text = report_texts(desk, service, about, [form])[form]
            return Response(text, media_type=MEDIA[form], headers=_REPORT_HEADERS)
        now = service.time()
        period = Period.asked(month, first, last, now)
        asked = AskedReport.of(kind or "officer", period, dataset, now)
        found = period_report(desk, service, about, asked, form).data
        name = f'inline; filename="{population}-{asked.name}.{form}"'
        headers = _REPORT_HEADERS | {"Content-Disposition": name}
        return Response(found, media_type=MEDIA[form], headers=headers)

    return await REPORTS.do(request, made)


@router.get("/events")
@Call(models.Events)
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


def _own_event(population: Name, sequence: EventNumber, key: Reader, service: TheService) -> Event:
    service.known(population)
    event = service.event(population, int(sequence))
    only_own(key, client_in(event), f"event {event.sequence}")
    return event


OwnEvent = Annotated[Event, Depends(_own_event)]  # An event that the caller may see


@router.get("/events/{sequence}")
@Call(models.Event, topics="event own")
def show_event(event: OwnEvent) -> Response:
    """Show one event as its canonical bytes, which a receipt proves. A pipeline sees its own."""
    return Response(event.to_bytes(), media_type="application/json")


@router.get("/decisions/{decision}")
@Call(DecisionInFull, topics="event judged own")
async def show_decision(
    population: Name,
    decision: Annotated[str, Path(pattern=r"^[dg]\d{1,18}$")],
    key: Reader,
    request: Request,
    service: TheService,
    desk: TheDesk,
    used_up_by: Annotated[
        Literal["yes", "no"],
        Query(description="no: without it, for which all events before the decision are read"),
    ] = "yes",
) -> JSONResponse:
    """Show every rule that was evaluated, with both sides of its comparison, and the charges that
    used up each limit that fired. Pipelines see their own decisions, without other clients.
    """

    def judged() -> tuple[Event, DecisionInFull]:
        service.known(population)
        event = service.event(population, int(decision[1:]))
        only_own(key, client_in(event), decision)
        texts = Texts(partial(service.texts, population), page=1)
        asked = in_names(service, population, texts.opened(event).body["command"])
        return event, in_full(event, service.explain(population, event), asked)

    event, document = await run_in_threadpool(judged)
    if used_up_by == "yes" and narrowed_to(key) is None:
        work = partial(used_up, desk, service, event, document["rules"])
        document["used_up_by"] = cast(list[Contributors], await READINGS.do(request, work))
    return JSONResponse(document)


@router.get("/decisions/{decision}/exhausted")
@Call(ExhaustedPage, topics="event judged own")
def list_exhausted(
    population: Name,
    decision: Annotated[str, Path(pattern=r"^[dg]\d{1,18}$")],
    key: Reader,
    service: TheService,
    after: Annotated[int, Query(ge=0, description="how many entries to pass over")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JSONResponse:
    """List every account in which the charge of a refused request did not fit, limit by limit, with
    the cells if these are not all. An answer ends early where cells have many names.
    """
    service.known(population)
    event = service.event(population, int(decision[1:]))
    only_own(key, client_in(event), decision)
    every = service.explain(population, event).exhausted
    page = every[after : after + limit]
    sizes = accumulate(one.size for one in page)
    page = page[: max(1, sum(size <= _MOST_NAMES for size in sizes))]
    found: ExhaustedPage = {
        "id": decision,
        "accounts": sum(len(one.datasets) for one in every),
        "listed": listed_as(page),
    }
    if after + len(page) < len(every):
        found["next"] = after + len(page)
    return JSONResponse(found)


_MOST_NAMES: Final = 100_000
"""Values that a page of exhausted accounts names, if it has more than one entry."""


_overseer = caller(*OVERSEE)


def may_read_log(
    request: Request, service: TheService, authorization: Authorization = None
) -> None:
    """Raise Problem unless the log is public or the caller's role may read it."""
    if not request.app.state.public_log:
        _overseer(request, service, authorization)


may_read_log.roles = OVERSEE  # type: ignore[attr-defined]
LogReader = Depends(may_read_log)


@evidence.get("/log/checkpoint", dependencies=[LogReader])
@Call(topics="log", media="text/plain")
def show_checkpoint(population: Name, publisher: ThePublisher) -> Response:
    """Show the last published checkpoint.

    A signed note (tlog-checkpoint): the log's origin, size and root, the ledger's signature, and
    those of the witnesses. Where the service runs with `ACCOUNTANT_PUBLIC_LOG=yes`, the
    log needs no key.
    """
    return _plain(publisher.published(population).full, "no-cache")


@evidence.get("/log/tile/{place:path}", dependencies=[LogReader])
@Call(topics="log tile", media="application/octet-stream")
def show_tile(
    population: Name,
    place: Annotated[str, Path(description="such as 0/000, 1/000.p/17, entries/x001/067")],
    request: Request,
    publisher: ThePublisher,
    service: TheService,
) -> Response:
    """Show a tile of hashes, or a bundle of entries, of the published log.

    As in tlog-tiles; entries are the events as they are stored. Full tiles never change.
    """
    try:
        tile = Tile.from_path(f"tile/{place}")
    except ValueError as error:
        raise NotFound("no-such-tile", str(error)) from None
    service.known(population)
    data = publisher.log(population).tile(tile, publisher.published(population).size)
    shared = "public" if request.app.state.public_log else "private"
    full = f"{shared}, max-age=31536000, immutable"
    headers = {"Cache-Control": full if tile.width == WIDTH else "no-cache"}
    return Response(data, media_type="application/octet-stream", headers=headers)


@evidence.get("/receipts/{sequence}")
@Call(topics="event own", media="text/plain")
def show_receipt(population: Name, event: OwnEvent, publisher: ThePublisher) -> Response:
    """Show a receipt: proof that an event is in the ledger, to keep beside the event's bytes.

    It holds the inclusion proof and the checkpoint (tlog-proof). If no checkpoint covers the event
    yet, one is signed now. A pipeline gets receipts of its own events.
    """
    signed = publisher.covering(population, event.sequence)
    receipt = publisher.log(population).receipt(event.sequence, signed)
    return _plain(receipt.to_bytes(), "private, no-cache")


@evidence.get("/evidence")
@Call(topics="evidence", media="application/x-tar")
async def show_evidence(
    population: Name,
    key: Overseer,
    request: Request,
    service: TheService,
    publisher: ThePublisher,
    first: Annotated[int, Query(alias="from", ge=0, le=2**53, description="first event")] = 0,
    last: Annotated[
        int | None, Query(alias="to", ge=0, le=2**53, description="last event; default: the last")
    ] = None,
    texts: Annotated[bool, Query(description="with the free texts that are not erased")] = True,
) -> Response:
    """Show the ledger as an evidence bundle, up to a checkpoint that is signed now.

    A tar archive, which `accountant verify` and `verify_minimal.py` check without the service. It
    is written whole before the answer begins, which takes a second for some 50,000 events.
    """
    work = partial(written, service, publisher, population, first, last, with_texts=texts)
    found = await EXPORTS.do(request, partial(work, gone=request.state.gone))
    name = f'attachment; filename="{population}-{found.signed.size}.tar"'
    headers = {"Content-Disposition": name, "Cache-Control": "no-store"}
    return FileResponse(found.file, found.size, "application/x-tar", headers)


_TEXT: Final = r"^((items\.[0-9]{1,3}\.)?(justification|purpose|reason)|confirms\.reason)$"


class Erasure(BaseModel, frozen=True, extra="forbid"):
    """The free texts of an event to erase, by default all, and the reason."""

    fields: list[Annotated[str, Field(pattern=_TEXT)]] | None = Field(
        None,
        min_length=1,
        description="which texts; absent: all that the event has; in a refused batch those of an "
        "item: items.3.purpose",
    )
    reason: Text = Field(description="why they are erased; kept as a text itself")


@evidence.post("/events/{sequence}/erase")
@Call(models.Erased, Erasure, topics="event text")
def erase_texts(
    population: Name, sequence: EventNumber, key: Custodian, body: Body, service: TheService
) -> JSONResponse:
    """Erase free texts of an event.

    The event and its salted digests stay, and no spent budget changes. The erasure, with its client
    and reason, is an event of its own.
    """
    asked, number = Erasure.model_validate(body), int(sequence)
    event = service.erase(population, key.name, number, asked.fields, asked.reason).events[-1]
    fields = event.body["command"]["fields"]
    return JSONResponse({"event": number, "erased": fields, "sequence": event.sequence})


def _plain(data: bytes, cache: str) -> Response:
    return Response(data, media_type="text/plain; charset=utf-8", headers={"Cache-Control": cache})
