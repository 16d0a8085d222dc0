"""Decisions as the API serves them: findings of the rules, and the price of each mechanism."""

from __future__ import annotations

from typing import Any, cast

from accountant.api.models.decisions import Decision, DecisionInFull, PricedMechanism, RuleFinding
from accountant.api.models.values import Charge
from accountant.budget import explain
from accountant.budget.request import Request
from accountant.ledger.events import Event, rfc3339
from accountant.privacy import units
from accountant.privacy.units import FIXED, NOTHING


def amounts(charge: units.Charge | dict[str, Any]) -> Charge:
    """Return a charge in decimal strings; an infinite amount is "infinite"."""
    if not isinstance(charge, units.Charge):
        charge = units.Charge.from_json(charge)
    return (charge if charge.axis else NOTHING.on(FIXED)).amounts()


def decided(decision: explain.Decision) -> Decision:
    """Return the outcome and the finding of every rule."""
    findings = [cast(RuleFinding, finding.to_json()) for finding in decision.findings]
    return {"outcome": decision.outcome, "rules": findings}


def in_full(event: Event, explained: explain.Explained, request: dict[str, Any]) -> DecisionInFull:
    """Return the decision of a judged event. ``request`` is its command, with texts and names."""
    decision = decided(explained.decision)
    return {
        "id": f"d{event.sequence}",
        "type": event.type,
        "sequence": event.sequence,
        "time": rfc3339(event.time),
        "client": event.by,
        "request": request,
        "charge": amounts(event.body["total"]),
        "mechanisms": _priced(explained.request),
        "outcome": decision["outcome"],
        "rules": decision["rules"],
    }


def _priced(request: Request) -> list[PricedMechanism]:
    return [
        {
            "kind": mechanism.kind,
            "count": mechanism.count,
            "verdict": price.verdict.value,
            "charge": amounts(price.charge.on(FIXED)),
        }
        for mechanism, price in zip(request.mechanisms, request.priced, strict=True)
    ]
