"""Decide requests for budget, and records of what ran without asking."""

from __future__ import annotations

from typing import Any, Final

from orjson import Fragment

from accountant.budget.changes import NOTHING, Record, Reserve
from accountant.budget.commands import AskGrant, Envelope, OpenSparseVector, RecordInvocations
from accountant.budget.errors import Invalid
from accountant.budget.evaluate import Judgement, evaluate
from accountant.budget.grants import Grant
from accountant.budget.outcome import RECORDED, REFUSED, RESERVED, Outcome, outcome
from accountant.budget.request import Request, prepare
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import State

_SECOND: Final = 1_000_000
_LAST: Final = 253_402_300_799_999_999
"""The last stamp that can be written: the end of the year 9999."""


def ask_grant(
    state: State, asked: Envelope, command: AskGrant | OpenSparseVector, now: int
) -> list[Outcome]:
    """Reserve what is asked for, or refuse it; either is an event."""
    session = isinstance(command, OpenSparseVector)
    if isinstance(command, OpenSparseVector) and command.mechanism.count != 1:
        raise Invalid("one-session", "a sparse vector session has count 1; open one for each")
    request = prepare(state, asked.by, command, now)
    judgement = evaluate(state, request)
    body = _judged(state, request, judgement)
    if judgement.outcome == "block":
        return [outcome(state, asked, REFUSED, now, body, NOTHING)]
    expires = now + command.ttl_seconds * _SECOND
    if expires > _LAST:
        raise Invalid("no-expiry", "the grant would expire after the year 9999, which has no date")
    grant = Grant(
        id=f"g{state.sequence}",
        by=asked.by,
        dataset=command.dataset,
        selection=request.selection,
        command=asked.canonical,
        total=request.total,
        opened=now,
        expires=expires,
        sequence=state.sequence,
        bookings=(),
        session=session,
    )
    return [outcome(state, asked, RESERVED, now, body, Reserve(grant))]


def record(state: State, asked: Envelope, command: RecordInvocations, now: int) -> list[Outcome]:
    """Book what has already run, over budget or not, with the comparisons that a request would have
    met.
    """
    request = prepare(state, asked.by, command, now)
    judgement = evaluate(state, request)
    body = _judged(state, request, judgement)
    if any(one.code == LimitRule.code and one.action == "block" for one in judgement.fired):
        body["overrun"] = True
    if request.unplaced:
        body["charged_to"] = "everyone"
    change = Record(request.dataset, request.by, request.selection, request.total)
    return [outcome(state, asked, RECORDED, now, body, change)]


def _judged(state: State, request: Request, judgement: Judgement) -> dict[str, Any]:
    """Return the body of a judged event: the cost, the rules that fired, and the integers that each
    compared. Text is rendered when somebody reads (explain.py).
    """
    costs = request.costs
    body: dict[str, Any] = {"total": Fragment(costs.written)}
    if len(costs.priced) > 1:
        body["charges"] = Fragment(costs.each_written)
    if state.adopted is not None:
        body["policy"] = state.adopted.sequence
    if judgement.fired:
        body["fired"] = [[one.rule, one.code] for one in judgement.fired]
    if seen := {one.rule: one.seen for one in judgement.compared if one.seen is not None}:
        body["rules"] = seen
    return body
