"""Answers to commands, made from events alone: a retry gets the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import msgspec
import orjson
from starlette.responses import JSONResponse

from accountant.api.models import deciding
from accountant.api.models import spending as models
from accountant.api.models.fields import Flag, Stamped
from accountant.api.models.reading import Health
from accountant.api.views import amounts, named, proposal_of
from accountant.budget import batches, outcome
from accountant.budget.advice import in_words
from accountant.budget.commands import DEFAULT_TTL, Envelope
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Conflict
from accountant.budget.facts import SECOND
from accountant.budget.previewing import (
    Foreseen,
)
from accountant.budget.rules.comparing import MOST_BESIDE
from accountant.budget.state import (
    Settled,
)
from accountant.budget.waiting.asked import Waiting
from accountant.door.messages import Facts, Reply, Telling, problem, replied
from accountant.ledger.events import Entry, Event, rfc3339
from accountant.privacy.units import Currency, amount
from accountant.reporting.statement import lifetime_sums
from accountant.reporting.texts import ERASED
from accountant.runtime.measures import outcome_of
from accountant.runtime.service import Answer, Service

REPLAYED = {"Idempotent-Replay": "true"}
_REPLAYED: Final = (b"idempotent-replay", b"true")
_JSON: Final = [(b"content-type", b"application/json")]


class _Mechanism(msgspec.Struct):
    count: int = 1


class _Request(msgspec.Struct, frozen=True):
    """The fields that answers need of a request that has waited."""

    mechanisms: list[_Mechanism] = []
    ttl_seconds: int = DEFAULT_TTL


class _Asked(msgspec.Struct):
    """The fields of an event's command that answers need."""

    grant: str = ""
    answer: str = ""
    ttl_seconds: int = DEFAULT_TTL
    request: _Request = _Request()


class _Kept(msgspec.Struct):
    """The fields of an event that answers need; the rest is not parsed."""

    time: str
    command: _Asked
    total: dict[str, Any] = {}
    charge: dict[str, Any] = {}
    per: dict[str, dict[str, Any]] = {}
    fired: list[tuple[str, str]] = []
    overrun: bool = False
    positives: int = 0
    negatives: int = 0


_KEPT: Final = msgspec.json.Decoder(_Kept)


class Json(Telling):
    """JSON written by orjson, which writes the events too."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return orjson.dumps(content)


def reply(service: Service, answer: Answer, client: str | None) -> Reply:
    """``respond`` without the framework's response, for the hot path."""
    entry = answer.entries[-1]
    if entry.type in (outcome.REFUSED, outcome.WAITING):
        return replied(respond(service, answer), client)
    fields = [*_JSON, _REPLAYED] if answer.repeated else _JSON
    kept = _KEPT.decode(entry.body)
    document = _ANSWERS[entry.type](entry, kept)
    facts: Facts | None = None
    charge: Any = document.get("charge")
    if charge is not None:  # it was granted, or recorded
        facts = {"outcome": "allow", "epsilon": charge["epsilon"]}
        if kept.fired:
            facts |= {"outcome": "flag", "rule": kept.fired[0][0]}
        if answer.repeated:
            facts["repeated"] = True
    return Reply(_status(entry), client, fields, orjson.dumps(document), None, facts)


def _facts(entry: Entry, kept: _Kept, *, repeated: bool) -> Facts | None:
    """Return what the log says of the decision that an event holds; None if it holds none."""
    fired, total = kept.fired, kept.total
    found = outcome_of(entry.type, fired=bool(fired))
    if found is None:
        return None
    units = None if Currency.EPSILON in total.get("infinite", ()) else int(total["epsilon"])
    facts: Facts = {"outcome": found, "epsilon": amount(units, Currency.EPSILON)}
    if fired:
        facts["rule"] = fired[0][0]
    if repeated:
        facts["repeated"] = True
    return facts


def respond(service: Service, answer: Answer) -> JSONResponse:
    """Return the response to a command; the last event answers it."""
    response, entry = _response(service, answer), answer.entries[-1]
    response.facts = _facts(entry, _KEPT.decode(entry.body), repeated=answer.repeated)
    return response


def _response(service: Service, answer: Answer) -> Telling:
    headers = REPLAYED if answer.repeated else {}
    entry = answer.entries[-1]
    if entry.type == outcome.REFUSED:
        return _refused(service, Event.from_bytes(entry.body), headers)
    if entry.type == outcome.WAITING:
        return _waited(service, Event.from_bytes(entry.body), entry, headers)
    return Json(_document(entry), _status(entry), headers)


def _status(entry: Entry) -> int:
    if entry.type == outcome.PROPOSED:
        return 202
    return 201 if entry.type in _CREATED else 200


_CREATED: Final = frozenset(
    {outcome.RESERVED, outcome.RECORDED, outcome.REPUBLISHED, outcome.ADMITTED}
)


def proposed_by(answer: Answer) -> JSONResponse | None:
    """Return the response to a command that was only proposed; None to any other."""
    if not answer.entries or answer.entries[-1].type != outcome.PROPOSED:
        return None
    entry = answer.entries[-1]
    return Json(_document(entry), _status(entry), REPLAYED if answer.repeated else {})


def respond_to_batch(service: Service, answer: Answer, order: Sequence[int]) -> JSONResponse:
    """Return the answers to the items of a batch as listed; they were decided in ``order``."""
    response = _batch_response(service, answer, order)
    found = [_facts(e, _KEPT.decode(e.body), repeated=answer.repeated) for e in answer.entries]
    decisions = [facts for facts in found if facts is not None]
    if decisions:  # of several, the first on which a rule fired
        response.facts = next((facts for facts in decisions if "rule" in facts), decisions[0])
        response.facts["decisions"] = len(decisions)
    return response


def _batch_response(service: Service, answer: Answer, order: Sequence[int]) -> Telling:
    headers = REPLAYED if answer.repeated else {}
    entries = answer.entries
    if entries[-1].type == batches.REFUSED:
        refused = Event.from_bytes(entries[-1].body)
        place = batches.first_of(refused) + refused.body["item"]
        return _refused(service, refused, headers, order[place])
    *_, header = (i for i, entry in enumerate(entries) if entry.type == batches.OPENED)
    items = map(_document, entries[header + 1 :])
    listed = [item for _, item in sorted(zip(order, items, strict=True), key=lambda pair: pair[0])]
    answered: models.BatchAnswer = {
        "sequence": entries[header].sequence,
        "items": cast(list[models.Reservation | models.Record | models.Settlement], listed),
    }
    return Json(answered, 201, headers)


def _refused(
    service: Service, event: Event, headers: dict[str, str], item: int | None = None
) -> Telling:
    """Return the decision of a refusal and what would fit now, which may differ in a retry."""
    explained = service.explain(event.ledger, event)
    decision = explained.decision
    where: dict[str, Any] = {} if item is None else {"item": item}
    reason, advice = decision.reason, service.would_fit(event)
    detail = "" if item is None else f"item {item}: "
    detail += f"refused by rule {reason.rule}: {reason.text}"
    if reason.action == "approve":
        detail += _ALONE if item is not None else _NO_SESSION
    blocked = [one.rule for one in decision.holding if one.action == reason.action]
    if others := [rule for rule in dict.fromkeys(blocked) if rule != reason.rule]:
        detail += f"; refused, too, by {', '.join(others[:MOST_BESIDE])}"
        detail += f" and {len(others) - MOST_BESIDE} more" if len(others) > MOST_BESIDE else ""
    told = named(event, explained)
    if "exhausted" in told and "address" in (exhausted := told["exhausted"]):
        detail += f"; {exhausted['accounts']} accounts are exhausted, which are listed at "
        detail += exhausted["address"]
    if advice:
        where["would_fit"] = advice
        detail += f"; {in_words(advice)}"
    if any("period" in finding.numbers for finding in decision.findings) and (
        totals := _lifetimes(service, event)
    ):
        where["lifetime"] = totals
        each = (f"epsilon {one['epsilon']} on dataset {one['dataset']}" for one in totals)
        detail += f"; spent or reserved over the lifetime: {', '.join(each)}"
    return problem(
        reason.code,
        403,
        detail,
        headers,
        **where,
        **_page(service, event),
        decision=told,
        charge=amounts(event.body["total"]),
        sequence=event.sequence,
    )


def _page(service: Service, event: Event) -> dict[str, str]:
    """Return the address at which people read a decision, if people can reach the service."""
    if not service.console:
        return {}
    return {"decision_page": f"{service.console}/{event.ledger}/decisions/{event.sequence}"}


_ALONE: Final = (
    "; a person has to approve it, and no item of a batch waits: ask for this grant alone"
)
_NO_SESSION: Final = "; a person has to approve it, and no session waits: ask for less at once"


def _lifetimes(service: Service, event: Event) -> list[deciding.LifetimeTotal]:
    """Return the lifetime totals, as they are now, of the datasets that a request is charged to."""
    if (found := service.around(event)) is None:
        return []
    state, command, _ = found
    names = state.reach(command.dataset).charged
    totals = [(name, lifetime_sums(state, name, None)[0]) for name in names]
    return [{"dataset": name, "epsilon": t.epsilon, "delta": t.delta} for name, t in totals]


def _waited(service: Service, event: Event, entry: Entry, headers: dict[str, str]) -> Telling:
    """Return what has become of a request that waited, for a retry and for a poll alike."""
    grant, now = service.grant(event.ledger, f"g{event.sequence}")
    if isinstance(grant, Waiting):
        asks = service.asks_a_person(event.ledger, grant.id)
        waiting: models.Waiting = {
            "id": grant.id,
            "state": "waiting",
            "until": rfc3339(grant.expires),
            "waits_for": "approval" if asks else "budget",
            "asks": asks,
            "address": f"/v1/populations/{event.ledger}/grants/{grant.id}?wait=30s",
            **_judged(entry, _KEPT.decode(entry.body)),
        }
        if not grant.due(now):
            return Json(waiting, 202, headers)
        with suppress(Conflict):  # the job, or another process, was first
            service.execute(event.ledger, Envelope(SYSTEM, grant.timing_out()))
        grant, now = service.grant(event.ledger, grant.id)
    if isinstance(grant, Settled) and grant.status == "admitted":
        end = service.event(event.ledger, grant.settled)
        return Json(_document(Entry.of(end)), 201, headers)
    if isinstance(grant, Settled) and grant.status == "timed out":
        return _timed_out(service, service.event(event.ledger, grant.settled), headers)
    if isinstance(grant, Settled) and grant.status == "declined":
        return _declined(service, event, grant.settled, headers)
    raise Conflict(
        "wait-cancelled", f"request {grant.id} was cancelled: ask anew, with another key"
    )


def _timed_out(service: Service, event: Event, headers: dict[str, str]) -> Telling:
    """Return the last decision on a request that has waited in vain, as a refusal."""
    explained = service.explain(event.ledger, event)
    decision = explained.decision
    failed = [one.text for one in decision.holding]
    last = f"at last: {failed[0]}" if failed else "it would fit now: ask anew"
    return problem(
        "wait-timed-out",
        403,
        f"request {event.body['command']['grant']} waited in vain; {last}",
        headers,
        **_page(service, event),
        decision=named(event, explained),
        charge=amounts(event.body["total"]),
        sequence=event.sequence,
    )


def _declined(service: Service, event: Event, declined: int, headers: dict[str, str]) -> Telling:
    """Return that a person declined a request, with the reason, as a refusal."""
    explained = service.explain(event.ledger, event)
    texts = service.texts(event.ledger, declined, declined)
    reason = next((one.text for one in texts if one.field == "reason"), ERASED)
    return problem(
        "approval-declined",
        403,
        f"request g{event.sequence} was declined: {reason}",
        headers,
        **_page(service, event),
        reason=reason,
        decision=named(event, explained),
        charge=amounts(event.body["total"]),
        sequence=declined,
    )


def _document(entry: Entry) -> Stamped:
    """Return the answer to the command that led to ``entry``; /decisions/ has the rest."""
    return _ANSWERS[entry.type](entry, _KEPT.decode(entry.body))


def _reserved(entry: Entry, kept: _Kept) -> models.Reservation:
    return _grant(entry, kept, kept.command.ttl_seconds)


def _admitted(entry: Entry, kept: _Kept) -> models.Reservation:
    request = kept.command.request
    found = _grant(entry, kept, request.ttl_seconds)
    found["waited_as"] = kept.command.grant
    if len(request.mechanisms) == 1:
        found["count"] = request.mechanisms[0].count
    return found


def _grant(entry: Entry, kept: _Kept, ttl: int) -> models.Reservation:
    judged = _judged(entry, kept)
    found: models.Reservation = {
        "id": f"g{entry.sequence}",
        "state": "reserved",
        "expires": rfc3339(entry.time + ttl * SECOND),
        "charge": judged["charge"],
        "flags": judged["flags"],
        "decision": judged["decision"],
        "sequence": judged["sequence"],
        "time": judged["time"],
    }
    if "charge_per" in judged:
        found["charge_per"] = judged["charge_per"]
    return found


def _recorded(entry: Entry, kept: _Kept) -> models.Record:
    return {"overrun": kept.overrun, **_judged(entry, kept)}


def _counted(entry: Entry, kept: _Kept) -> models.Counted:
    return {
        "id": kept.command.grant,
        "state": "reserved",
        "positives": kept.positives,
        "negatives": kept.negatives,
        "sequence": entry.sequence,
        "time": kept.time,
    }


def _republished(entry: Entry, kept: _Kept) -> models.Republished:
    return {
        "id": kept.command.grant,
        "answer": kept.command.answer,
        "charged": amounts(kept.charge),
        "sequence": entry.sequence,
        "time": kept.time,
    }


def _noted(entry: Entry, kept: _Kept) -> models.Settlement:
    return {
        "id": kept.command.grant,
        "state": "expired",
        "note": "the grant had expired and is charged in full; this is noted, nothing changed",
        "sequence": entry.sequence,
        "time": kept.time,
    }


def _cancelled(entry: Entry, kept: _Kept) -> models.Settlement:
    return {
        "id": kept.command.grant,
        "state": "cancelled",
        "sequence": entry.sequence,
        "time": kept.time,
    }


def _ended(entry: Entry, kept: _Kept) -> models.Settlement:
    answer: models.Settlement = {
        "id": kept.command.grant,
        "state": "released" if entry.type == outcome.RELEASED else "committed",
        "charged": amounts(kept.charge),
        "sequence": entry.sequence,
        "time": kept.time,
    }
    if kept.fired:
        answer["flags"] = _flags(kept)
    return answer


_ANSWERS: Final[dict[str, Callable[[Entry, _Kept], Stamped]]] = {
    outcome.RESERVED: _reserved,
    outcome.ADMITTED: _admitted,
    outcome.RECORDED: _recorded,
    outcome.ANSWERED: _counted,
    outcome.NOTED: _noted,
    outcome.REPUBLISHED: _republished,
    outcome.RELEASED: _ended,
    outcome.COMMITTED: _ended,
    outcome.CLOSED: _ended,
    outcome.PROPOSED: lambda entry, _: proposal_of(Event.from_bytes(entry.body)),
    outcome.CANCELLED: _cancelled,
}


def _judged(entry: Entry, kept: _Kept) -> models.Judged:
    """Return the charge of a request, its flags, and where its decision can be read."""
    found: models.Judged = {
        "charge": amounts(kept.total),
        "flags": _flags(kept),
        "decision": f"d{entry.sequence}",
        "sequence": entry.sequence,
        "time": kept.time,
    }
    if kept.per:
        found["charge_per"] = {unit: amounts(charge) for unit, charge in kept.per.items()}
    return found


def _flags(kept: _Kept) -> list[Flag]:
    return [{"rule": rule, "code": code} for rule, code in kept.fired]


def previews_view(found: Sequence[Foreseen], sequence: int) -> deciding.Previews:
    """Return the previews of several requests as the API serves them."""
    items: list[deciding.Foreseen] = []
    for one in found:
        kept = _KEPT.decode(one.entry.body)
        items.append({"outcome": one.outcome, "charge": amounts(kept.total), "flags": _flags(kept)})
    return {"items": items, "granted": sum(one.granted for one in found), "sequence": sequence}


def ready(service: Service) -> Health:
    """Return that the service can decide. Raise Unavailable if it cannot."""
    service.ready()
    return {"status": "ready"}
