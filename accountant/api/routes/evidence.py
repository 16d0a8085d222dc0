"""The calls that serve the log (C2SP), receipts, and the erasure of texts."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from accountant.api.access import (
    OVERSEE,
    Authorization,
    Body,
    Call,
    Custodian,
    EventNumber,
    Name,
    Reader,
    ThePublisher,
    TheService,
    caller,
    of_a_population,
)
from accountant.api.models.reading import Erased
from accountant.api.requests import only_own
from accountant.budget.commands import Text
from accountant.budget.errors import NotFound
from accountant.ledger.tiles import WIDTH, Tile

router = of_a_population("evidence")

_FOR_EVER = "max-age=31536000, immutable"


_overseer = caller(*OVERSEE)


def may_read_log(
    request: Request, service: TheService, authorization: Authorization = None
) -> None:
    """Raise Problem unless the log is public or the caller's role may read it."""
    if not request.app.state.public_log:
        _overseer(request, service, authorization)


may_read_log.roles = OVERSEE  # type: ignore[attr-defined]
LogReader = Depends(may_read_log)


@router.get("/log/checkpoint", dependencies=[LogReader])
@Call(topics="log", media="text/plain")
def show_checkpoint(population: Name, publisher: ThePublisher) -> Response:
    """Show the last published checkpoint.

    A signed note (tlog-checkpoint): the log's origin, size and root, the ledger's signature, and
    those of the witnesses. Where the service runs with `ACCOUNTANT_PUBLIC_LOG=yes`, the
    log needs no key.
    """
    signed = publisher.published(population)
    return _plain(signed.full, "no-cache")


@router.get("/log/tile/{place:path}", dependencies=[LogReader])
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
    media = "application/octet-stream"
    shared = "public" if request.app.state.public_log else "private"
    cache = f"{shared}, {_FOR_EVER}" if tile.width == WIDTH else "no-cache"
    return Response(data, media_type=media, headers={"Cache-Control": cache})


@router.get("/receipts/{sequence}")
@Call(topics="event own", media="text/plain")
def show_receipt(
    population: Name,
    sequence: EventNumber,
    key: Reader,
    publisher: ThePublisher,
    service: TheService,
) -> Response:
    """Show a receipt: proof that an event is in the ledger, to keep beside the event's bytes.

    It holds the inclusion proof and the checkpoint (tlog-proof). If no checkpoint covers the event
    yet, one is signed now. A pipeline gets receipts of its own events.
    """
    service.known(population)
    event = service.event(population, int(sequence))
    only_own(key, event.by, f"event {event.sequence}")
    signed = publisher.covering(population, event.sequence)
    receipt = publisher.log(population).receipt(event.sequence, signed)
    return _plain(receipt.to_bytes(), "private, no-cache")


_TEXT: Final = r"^(items\.[0-9]{1,3}\.)?(justification|purpose|reason)$"


class Erasure(BaseModel):
    """The free texts of an event to erase, by default all, and the reason."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    fields: Annotated[
        list[Annotated[str, Field(pattern=_TEXT)]] | None,
        Field(
            min_length=1,
            description="which texts; absent: all that the event has; in a refused "
            "batch those of an item: items.3.purpose",
        ),
    ] = None
    reason: Annotated[Text, Field(description="why they are erased; kept as a text itself")]


@router.post("/events/{sequence}/erase")
@Call(Erased, Erasure, topics="event text")
def erase_texts(
    population: Name, sequence: EventNumber, key: Custodian, body: Body, service: TheService
) -> JSONResponse:
    """Erase free texts of an event.

    The event and its salted digests stay, and no spent budget changes. The erasure, with its client
    and reason, is an event of its own.
    """
    asked = Erasure.model_validate(body)
    answer = service.erase(population, key.name, int(sequence), asked.fields, asked.reason)
    event = answer.events[-1]
    fields = event.body["command"]["fields"]
    return JSONResponse({"event": int(sequence), "erased": fields, "sequence": event.sequence})


def _plain(data: bytes, cache: str) -> Response:
    return Response(data, media_type="text/plain; charset=utf-8", headers={"Cache-Control": cache})
