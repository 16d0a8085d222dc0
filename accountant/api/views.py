"""Charges, decisions and grants as the API serves them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import accumulate
from typing import Any, Final, cast

import orjson

from accountant.api.models import approving, deciding, fields, keys, proposing
from accountant.api.models import spending as models
from accountant.budget import explain
from accountant.budget.decide.proposing import why
from accountant.budget.depletion import told_of
from accountant.budget.exhausted import Exhausted
from accountant.budget.facts import final_of
from accountant.budget.policy import Policy
from accountant.budget.population import packing
from accountant.budget.proposals import Proposal, after
from accountant.budget.rules.base import Finding
from accountant.budget.state import Grant, Settled
from accountant.budget.waiting.asked import Waiting
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import FIXED, NOTHING, Charge, amounts_in
from accountant.reporting.texts import PAGE, Texts
from accountant.runtime.reader import Approvable, Preview
from accountant.runtime.service import Service

ENDED_WAITS: Final = ("admitted", "timed out", "cancelled", "declined")
RECOVERED: Final = "ledger.recovered.v1"


def proposal_of(event: Event) -> proposing.Proposal:
    """Return what an event proposes, as it stood then."""
    opened = after({}, event)[event.sequence]
    return proposal_now(opened, f"/v1/populations/{event.ledger}/proposals", event.time)


def proposal_now(one: Proposal, place: str, now: int) -> proposing.Proposal:
    """Return a proposal, whose calls are below ``place``, as it is now."""
    found: proposing.Proposal = {
        "proposal": one.sequence,
        "digest": one.digest,
        "state": "proposed",
        "by": one.by,
        "change": dict(one.command),
        "effect": dict(one.effect),
        "why": why(one.effect),
        "expires": rfc3339(one.expires),
        "sequence": one.sequence,
        "time": rfc3339(one.time),
    }
    if one.command.get("type") == "adopt_policy":
        told = told_of(Policy.stored(one.command["policy"]))
        found |= cast(proposing.Proposal, told)
    if one.is_open(now):
        found["next"] = (
            "another admin or officer reads this, and confirms it with its digest: POST "
            f"{place}/{one.sequence}/confirm; decline withdraws it"
        )
    else:
        found["state"] = "expired" if one.status == "open" else one.status
    if one.closed is not None:
        found |= {"closed": one.closed, "closed_by": one.closed_by or ""}
    return found


def approval_view(service: Service, population: str, found: Approvable) -> approving.Approval:
    """Return a request that waits for a person, with what it would do."""
    from accountant.reporting.effect import effect_of  # noqa: PLC0415 as all that informs

    waiting, decision = found.waiting, found.decision
    event = service.event(population, waiting.sequence)
    asked = Texts(partial(service.texts, population), page=1).opened(event)
    held = decision.holding
    view: approving.Approval = {
        "id": waiting.id,
        "digest": waiting.digest,
        "client": waiting.by,
        "request": in_names(service, population, asked.body["command"]),
        "charge": amounts(event.body["total"]),
        "asks": [_said(one) for one in held if one.action == "approve"],
        "blocked_by": [_said(one) for one in held if one.action == "block"],
        "effect": [
            cast(approving.Effect, line)
            for line in effect_of(found.state, waiting.by, waiting.asks(), found.now)
        ],
        "until": rfc3339(waiting.expires),
        "next": "an admin or officer other than the client reads this, and names its digest: POST "
        f"/v1/populations/{population}/approvals/{waiting.id}/approve, or …/decline with a reason",
        "sequence": event.sequence,
        "time": rfc3339(event.time),
    }
    if new := new_keys(service, waiting.by):
        view["new_keys"] = new
    return view


def new_keys(service: Service, by: str) -> list[keys.NewKey]:
    """Return the new keys that whoever proposed or asked had a part in making."""
    return [
        {"name": key.name, "role": key.role, "by": list(key.makers), "made": rfc3339(key.made)}
        for key in service.new_keys(by)
    ]


def _said(one: Finding) -> approving.Said:
    return {"rule": one.rule, "code": one.code, "text": one.text}


def amounts(charge: Charge | dict[str, Any]) -> fields.Charge:
    """Return a charge in decimal strings; an infinite amount is "infinite"."""
    if isinstance(charge, dict):
        if charge:
            return amounts_in(charge)
        charge = NOTHING
    return (charge if charge.axis else NOTHING.on(FIXED)).amounts()


def decided(decision: explain.Decision) -> deciding.Decision:
    """Return the outcome and the finding of every rule."""
    findings = [cast(deciding.RuleFinding, finding.to_json()) for finding in decision.findings]
    return {"outcome": decision.outcome, "rules": findings}


MOST_LISTED: Final = 10
"""Entries of the list of exhausted accounts that a decision shows itself."""
_FEW: Final = 100
"""Values that these name of the cells."""


def named(event: Event, explained: explain.Explained) -> deciding.NamedDecision:
    """Return the decision of an event under its id, with the exhausted accounts, or the first of
    many and where all are.
    """
    decision = decided(explained.decision)
    found: deciding.NamedDecision = {
        "id": f"d{event.sequence}",
        "outcome": decision["outcome"],
        "rules": decision["rules"],
    }
    if every := explained.exhausted:
        sizes = accumulate(one.size for one in every[:MOST_LISTED])
        few = every[: sum(size <= _FEW for size in sizes)]
        accounts = sum(len(one.datasets) for one in every)
        found["exhausted"] = {"accounts": accounts, "listed": listed_as(few)}
        if len(few) < len(every):
            place = f"/v1/populations/{event.ledger}/decisions/{found['id']}/exhausted"
            found["exhausted"]["address"] = place
    return found


def listed_as(some: Iterable[Exhausted]) -> list[deciding.ExhaustedAccounts]:
    """Return entries of the list of exhausted accounts."""
    return [cast(deciding.ExhaustedAccounts, one.to_json()) for one in some]


def in_full(
    event: Event, explained: explain.Explained, command: dict[str, Any]
) -> deciding.DecisionInFull:
    """Return the decision of a judged event. ``command`` is its command, with texts and names."""
    decision, request = named(event, explained), explained.request
    found: deciding.DecisionInFull = {
        "id": decision["id"],
        "type": event.type,
        "sequence": event.sequence,
        "time": rfc3339(event.time),
        "client": event.by,
        "request": command,
        "charge": amounts(event.body["total"]),
        "mechanisms": [
            {
                "kind": mechanism.kind,
                "count": mechanism.count,
                "verdict": price.verdict.value,
                "charge": amounts(price.charge.on(FIXED)),
            }
            for mechanism, price in zip(request.mechanisms, request.priced, strict=True)
        ],
        "outcome": decision["outcome"],
        "rules": decision["rules"],
    }
    if "exhausted" in decision:
        found["exhausted"] = decision["exhausted"]
    if "policy" in event.body:
        found["policy"] = event.body["policy"]
    if request.on.beyond:
        found["charged_to"] = list(request.datasets)
    return found


def grant_view(
    service: Service, ledger: str, grant: Grant | Settled | Waiting, now: int
) -> models.Grant:
    """Return the grant at stamp ``now``, with its texts, by the events that began and ended it. A
    request that has waited is shown as the grant that it was admitted as.
    """
    if isinstance(grant, Settled) and grant.status == "admitted":
        return grant_view(service, ledger, *service.grant(ledger, f"g{grant.settled}"))
    event = service.event(ledger, grant.sequence)
    asked = Texts(partial(service.texts, ledger), page=1).opened(event)
    reserved = Charge.from_json(event.body["total"])
    waits = isinstance(grant, Waiting) or grant.status in ENDED_WAITS
    charged = reserved if grant.due(now) and not waits else None
    view = _view(grant, now, event.time, reserved)
    if waits:
        view["reserved"] = amounts(NOTHING)
    if isinstance(grant, Settled) and not waits:
        end = service.event(ledger, grant.settled)
        charged = reserved if end.type == RECOVERED else final_of(end.body, reserved)
        if grant.session:
            view["positives"], view["negatives"] = _counted(service, grant, end)
    command = event.body["command"]
    if "request" in command:
        view["waited_as"] = command["grant"]
        if "approval" in command:
            view["approved_by"] = event.by
    if isinstance(grant, Waiting):
        view["waits_for"] = "approval" if service.asks_a_person(ledger, grant.id) else "budget"
    return {
        **view,
        "request": in_names(service, ledger, command.get("request", asked.body["command"])),
        "charged": None if charged is None else amounts(charged),
    }


def listed(grant: Grant | Waiting, now: int) -> models.OpenGrant:
    """Return an open grant, or what waits, at stamp ``now``, without reading its event."""
    held = NOTHING if isinstance(grant, Waiting) else grant.total
    return _view(grant, now, grant.opened, held)


def _view(
    grant: Grant | Settled | Waiting, now: int, opened: int, reserved: Charge
) -> models.OpenGrant:
    view: models.OpenGrant = {
        "id": grant.id,
        "state": _state(grant, now),
        "client": grant.by,
        "dataset": grant.on.spelled,
        "opened": rfc3339(opened),
        "expires": rfc3339(grant.expires),
        "reserved": amounts(reserved),
        "sequence": grant.sequence,
    }
    if grant.on.beyond:
        view["charged_to"] = list(grant.on.charged)
    if isinstance(grant, Grant) and grant.session:
        view["positives"], view["negatives"] = grant.positives, grant.negatives
    return view


def _state(grant: Grant | Settled | Waiting, now: int) -> str:
    if grant.due(now):
        return "timed_out" if isinstance(grant, Waiting) else "expired"
    return grant.status.replace(" ", "_")


def in_names(service: Service, ledger: str, command: dict[str, Any]) -> dict[str, Any]:
    """Return a command with names where its event holds positions."""
    if "subjects" not in command:
        return command
    return packing.in_names(service.state(ledger).people(), command)


def _counted(service: Service, grant: Settled, end: Event) -> tuple[int, int]:
    """Return the positives and negatives of a session that has ended, by its last count."""
    found, stop = end.body, grant.settled
    while "positives" not in found and stop > grant.sequence:
        first = max(grant.sequence, stop - PAGE)
        counts = (
            orjson.loads(row.body)
            for row in reversed(service.events(end.ledger, first, stop - first))
            if b'"type":"sparse_vector.answered.v1"' in row.body
        )
        found = next((body for body in counts if body["command"]["grant"] == grant.id), found)
        stop = first
    return found.get("positives", 0), found.get("negatives", 0)


def preview_view(preview: Preview) -> deciding.Preview:
    """Return a preview as the API serves it."""
    found: deciding.Preview = {
        "decision": decided(preview.decision),
        "charge": amounts(preview.request.total),
        "fits": preview.fits,
        "sequence": preview.sequence,
    }
    if found["decision"]["outcome"] == "approve":
        asks = ", ".join(one.rule for one in preview.decision.holding)
        found["note"] = f"it would wait for a person, whose approval {asks} asks for"
    if per := preview.request.costs.bill.per:
        found["charge_per"] = {unit: amounts(charge) for unit, charge in per}
    if preview.request.on.beyond:
        found["charged_to"] = list(preview.request.datasets)
    return found
