"""Decisions as they are served: what the rules said, and what each mechanism cost."""

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
    """A charge in decimal strings, "infinite" where it is."""
    if not isinstance(charge, units.Charge):
        charge = units.Charge.from_json(charge)
    return (charge if charge.axis else NOTHING.on(FIXED)).amounts()


def decided(decision: explain.Decision) -> Decision:
    """What the rules said."""
    findings = [cast(RuleFinding, finding.to_json()) for finding in decision.findings]
    return {"outcome": decision.outcome, "rules": findings}


def in_full(event: Event, explained: explain.Explained, request: dict[str, Any]) -> DecisionInFull:
    """The decision of a judged event; ``request`` is its command, opened and in names."""
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
