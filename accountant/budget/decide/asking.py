"""Asking for budget, and recording what ran without asking: both are judged."""

from __future__ import annotations

from typing import Any

from accountant.budget.commands import Asked, AskGrant, OpenSparseVector, RecordInvocations
from accountant.budget.decision import Decision
from accountant.budget.errors import Invalid
from accountant.budget.judge import judge
from accountant.budget.request import Request, prepare
from accountant.budget.state import State
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import FIXED


def ask_grant(
    state: State, asked: Asked, command: AskGrant | OpenSparseVector, now: int
) -> list[Event]:
    """Reserves what is asked for, or refuses: both are events."""
    if isinstance(command, OpenSparseVector) and command.mechanism.count != 1:
        raise Invalid("one-session", "a sparse vector session has count 1; open one for each")
    request = prepare(state, asked.by, command, now)
    return [answered(state, asked, command, request, judge(state, request), now)]


def record(state: State, asked: Asked, command: RecordInvocations, now: int) -> list[Event]:
    """Books what has already run, over budget or not, and says what a request would have met."""
    request = prepare(state, asked.by, command, now)
    return [answered(state, asked, command, request, judge(state, request), now)]


def answered(
    state: State,
    asked: Asked,
    command: AskGrant | OpenSparseVector | RecordInvocations,
    request: Request,
    decision: Decision,
    now: int,
) -> Event:
    """The event that ``decision`` on ``request`` comes to."""
    body = _judged(state, request, decision)
    if isinstance(command, RecordInvocations):
        body["overrun"] = any(
            f.fired and f.action == "block" and f.code == "budget-exceeded"
            for f in decision.findings
        )
        if request.unplaced:
            body["charged_to"] = "everyone"
        body["decision"]["outcome"] = "allow" if decision.outcome == "allow" else "flag"
        return state.next_event(asked, "invocation.recorded.v1", now, body)
    if decision.outcome == "block":
        return state.next_event(asked, "grant.refused.v1", now, body)
    expires = now + command.ttl_seconds * 1_000_000
    body |= {"grant": f"g{state.sequence}", "expires": rfc3339(expires)}
    return state.next_event(asked, "grant.reserved.v1", now, body)


def _judged(state: State, request: Request, decision: Decision) -> dict[str, Any]:
    """What both kinds of event hold. Renyi orders stand in the total only: an event has 65,535
    bytes, and two hundred mechanisms at several orders would fill it.
    """
    return {
        "decision": {"id": f"d{state.sequence}"} | decision.to_json(),
        "cells": request.selection.cells(state.people()),
        "charges": [
            {
                "kind": mechanism.kind,
                "count": mechanism.count,
                "verdict": priced.verdict.value,
                "charge": priced.charge.on(FIXED).to_json(),
            }
            for mechanism, priced in zip(request.mechanisms, request.priced, strict=True)
        ],
        "total": request.total.to_json(),
    }
