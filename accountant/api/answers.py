"""Answers, made from events alone: the same event gives the same answer, however often asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson
from fastapi.responses import JSONResponse

from accountant.budget.batches import OPENED, REFUSED, as_single
from accountant.gateway.problem import problem
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import FIXED, Charge
from accountant.service import Answer, Preview

REPLAYED = {"Idempotent-Replay": "true"}


def amounts(charge: Charge | dict[str, Any]) -> dict[str, str]:
    """A charge in decimal strings, "infinite" where it is."""
    if isinstance(charge, Charge):
        return {str(currency): charge.amount(currency) for currency in charge.axis or FIXED}
    return _amounts(orjson.dumps(charge))


@lru_cache(maxsize=4_096)
def _amounts(charge: bytes) -> dict[str, str]:
    """Of a charge as events hold it: few are asked for over and over."""
    return amounts(Charge.from_json(orjson.loads(charge)))


class Json(JSONResponse):
    """JSON of what events hold, written by the library that wrote them."""

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return orjson.dumps(content)


def respond(answer: Answer) -> JSONResponse:
    """The response to a command; the last event is the one that answers it."""
    headers = REPLAYED if answer.repeated else {}
    event = Event.of_entry(answer.ledger, answer.entries[-1])
    if event.type == "grant.refused.v1":
        return _refused(event, headers)
    status = 201 if event.type in ("grant.reserved.v1", "invocation.recorded.v1") else 200
    return Json(_body(event), status, headers)


def respond_to_batch(answer: Answer, order: Sequence[int]) -> JSONResponse:
    """The answers to the items of a batch, as they were listed; they were decided in ``order``."""
    headers = REPLAYED if answer.repeated else {}
    events = answer.events
    last = events[-1]
    if last.type == REFUSED:
        return _refused(as_single(last), headers, order[last.body["item"]])
    *_, header = (i for i, event in enumerate(events) if event.type == OPENED)
    items = [_body(event) for event in events[header + 1 :]]
    listed = [item for _, item in sorted(zip(order, items, strict=True), key=lambda pair: pair[0])]
    return Json({"sequence": events[header].sequence, "items": listed}, 201, headers)


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


def _body(event: Event) -> dict[str, Any]:
    body = event.body
    common = {"sequence": event.sequence, "time": rfc3339(event.time)}
    match event.type:
        case "grant.reserved.v1":
            return {
                "id": body["grant"],
                "state": "reserved",
                "expires": body["expires"],
                "charge": amounts(body["total"]),
                "mechanisms": _priced(body["charges"]),
                "decision": body["decision"],
            } | common
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
