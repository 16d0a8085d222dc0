"""Answers, made from events alone: the same event gives the same answer, however often asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import orjson
from starlette.responses import JSONResponse

from accountant.budget.batches import OPENED, REFUSED, as_single
from accountant.door.problem import problem
from accountant.ledger.events import Entry, Event, rfc3339, to_keep
from accountant.privacy.units import FIXED, Charge
from accountant.runtime.service import Answer, Preview, Service

REPLAYED = {"Idempotent-Replay": "true"}
RESERVED: Final = "grant.reserved.v1"
_CHARGES: Final = b'"charges":'
_EXPIRES: Final = b',"expires":"'
_TOTAL: Final = b',"total":'


def amounts(charge: Charge | dict[str, Any]) -> dict[str, str]:
    """A charge in decimal strings, "infinite" where it is."""
    if isinstance(charge, Charge):
        return {str(currency): charge.amount(currency) for currency in charge.axis or FIXED}
    return _amounts(to_keep(orjson.dumps(charge)))


@lru_cache(maxsize=4_096)
def _amounts(charge: bytes) -> dict[str, str]:
    """Of a charge as events hold it: few are asked for over and over."""
    return amounts(Charge.from_json(orjson.loads(charge)))


class Json(JSONResponse):
    """JSON of what events hold, written by the library that wrote them."""

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return content if isinstance(content, bytes) else orjson.dumps(content)


def respond(answer: Answer) -> JSONResponse:
    """The response to a command; the last event is the one that answers it."""
    headers = REPLAYED if answer.repeated else {}
    entry = answer.entries[-1]
    if entry.type == "grant.refused.v1":
        return _refused(Event.of_entry(answer.ledger, entry), headers)
    status = 201 if entry.type in (RESERVED, "invocation.recorded.v1") else 200
    return Json(_body(answer.ledger, entry), status, headers)


def respond_to_batch(answer: Answer, order: Sequence[int]) -> JSONResponse:
    """The answers to the items of a batch, as they were listed; they were decided in ``order``."""
    headers = REPLAYED if answer.repeated else {}
    entries = answer.entries
    if entries[-1].type == REFUSED:
        refused = Event.of_entry(answer.ledger, entries[-1])
        return _refused(as_single(refused), headers, order[refused.body["item"]])
    *_, header = (i for i, entry in enumerate(entries) if entry.type == OPENED)
    items = [_body(answer.ledger, entry) for entry in entries[header + 1 :]]
    listed = [item for _, item in sorted(zip(order, items, strict=True), key=lambda pair: pair[0])]
    sequence = entries[header].sequence
    return Json(b'{"sequence":%d,"items":[%b]}' % (sequence, b",".join(listed)), 201, headers)


def _refused(event: Event, headers: dict[str, str], item: int | None = None) -> JSONResponse:
    decision = event.body["decision"]
    where = {} if item is None else {"item": item}
    reason = next(r for r in decision["rules"] if r["fired"] and r["action"] == "block")
    return problem(
        reason["code"],
        403,
        ("" if item is None else f"item {item}: ")
        + f"refused by rule {reason['rule']}: {reason['text']}",
        headers,
        **where,
        decision=decision,
        charge=amounts(event.body["total"]),
        sequence=event.sequence,
    )


def _body(ledger: str, entry: Entry) -> bytes:
    """What is answered to a command that led to ``entry``."""
    if entry.type == RESERVED:
        return _reserved(entry)
    return orjson.dumps(_document(Event.of_entry(ledger, entry)))


def _document(event: Event) -> dict[str, Any]:
    body = event.body
    common = {"sequence": event.sequence, "time": rfc3339(event.time)}
    match event.type:
        case "invocation.recorded.v1":
            return {
                "overrun": body["overrun"],
                "charge": amounts(body["total"]),
                "mechanisms": _priced(body["charges"]),
                "decision": body["decision"],
            } | common
        case "sparse_vector.answered.v1":
            counts = {name: body[name] for name in ("positives", "negatives")}
            return {"id": body["grant"], "state": "reserved"} | counts | common
        case "grant.noted.v1":
            note = "the grant had expired and is charged in full; this is noted, nothing changed"
            return {"id": body["grant"], "state": "expired", "note": note} | common
        case "grant.committed.v1" | "grant.released.v1" | "sparse_vector.closed.v1":
            state = "released" if event.type == "grant.released.v1" else "committed"
            return {
                "id": body["grant"],
                "state": state,
                "charged": amounts(body["charge"]),
                "returned": amounts(body["returned"]),
            } | common
    return common


def _reserved(entry: Entry) -> bytes:
    """What is answered to most commands, cut out of the event's bytes: the decision stands there as
    it is answered, and few prices are asked for over and over. A quote within a text is written
    with a backslash, so what is looked for is never found within one.
    """
    data = entry.body
    number = b"%d" % entry.sequence
    priced, asked = data.index(_CHARGES), data.index(b',"command":{')
    decided, expires = data.index(b',"decision":{"id":"d%b",' % number), data.rindex(_EXPIRES)
    granted, total = data.index(b',"grant":', expires), data.rindex(_TOTAL)
    return b"".join(
        (
            b'{"id":"g%b","state":"reserved"' % number,
            data[expires:granted],
            b',"charge":',
            _written(data[total + len(_TOTAL) : data.rindex(b',"type":')]),
            b',"mechanisms":',
            _all_written(data[priced + len(_CHARGES) : asked]),
            data[decided:expires],
            b',"sequence":%b,"time":"%b"}' % (number, rfc3339(entry.time).encode()),
        )
    )


@lru_cache(maxsize=4_096)
def _written(total: bytes) -> bytes:
    return to_keep(orjson.dumps(amounts(orjson.loads(total))))


@lru_cache(maxsize=4_096)
def _all_written(charges: bytes) -> bytes:
    return to_keep(orjson.dumps(_priced(orjson.loads(charges))))


def _priced(charges: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**charge, "charge": amounts(charge["charge"])} for charge in charges]


def preview_view(preview: Preview) -> dict[str, Any]:
    """What a request would get, without an event."""
    return {
        "decision": preview.decision.to_json(),
        "charge": amounts(preview.request.total),
        "fits": preview.fits,
        "sequence": preview.sequence,
    }


def ready(service: Service) -> dict[str, str]:
    """That it can decide: the database can be read and written to. Raises Unavailable."""
    service.ready()
    return {"status": "ready"}
