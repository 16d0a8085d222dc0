"""Judge a request by all rules, and make the grant that it opens."""

from __future__ import annotations

from typing import Final

from orjson import Fragment

from accountant.budget.commands import Envelope, OpenSparseVector
from accountant.budget.errors import Invalid
from accountant.budget.evaluate import Judgement, evaluate
from accountant.budget.exhausted import exhausted
from accountant.budget.facts import SECOND
from accountant.budget.grants import Grant
from accountant.budget.outcome import Body
from accountant.budget.request import Judged, Request, prepare
from accountant.budget.state import State
from accountant.ledger.events import kept, written

_LAST: Final = 253_402_300_799_999_999
"""The last stamp that can be written: the end of the year 9999."""


def judged(
    state: State,
    by: str,
    command: Judged,
    now: int,
    *,
    arrives: int = 1,
    everyone: bool = False,
    emptied: bool = False,
) -> tuple[Request, Judgement, Body]:
    """Evaluate a command. Its event holds costs and compared integers; ``explain`` renders text.
    One that has waited ``arrives`` no more; one may be charged to ``everyone``, or its group be
    ``emptied``.
    """
    placed = prepare(state, by, command, now, everyone=everyone, emptied=emptied)
    request = placed.among(arrives)
    judgement = evaluate(state, request)
    return request, judgement, judgement_body(state, request, judgement)


def judgement_body(state: State, request: Request, judgement: Judgement) -> Body:
    """Return what the event of a judged request holds beside its command."""
    costs = request.costs
    body: Body = {"total": Fragment(costs.written)} | costs.per_written()
    if len(costs.priced) > 1:
        body["charges"] = Fragment(costs.each_written)
    if request.on.beyond:
        body["charged"] = list(request.datasets)
    if state.adopted is not None:
        body["policy"] = state.adopted.sequence
    if judgement.fired:
        body["fired"] = [[one.rule, one.code] for one in judgement.fired]
    if seen := {one.rule: one.seen for one in judgement.compared if one.seen is not None}:
        ours = state.adopted is not None and state.adopted.policy.ours
        body["rules"] = Fragment(written(seen) if ours else kept(seen, "what the rules compared"))
    return body


def listed(
    state: State, request: Request, judgement: Judgement, body: Body, asked: Envelope
) -> Body:
    """Return what the ``body`` of a refusal holds beside: all accounts that are exhausted."""
    return exhausted(state, request, judgement, len(asked.canonical) + len(written(body)))


def grant_for(state: State, asked: Envelope, request: Request, ttl: int, now: int) -> Grant:
    """Return the grant that the next event opens for ``asked``. Raises Invalid beyond all dates."""
    expires = now + ttl * SECOND
    if expires > _LAST:
        raise Invalid("no-expiry", "the grant would expire after the year 9999, which has no date")
    return Grant(
        id=f"g{state.sequence}",
        by=asked.by,
        on=request.on,
        selection=request.selection,
        command=asked.canonical,
        total=request.total,
        opened=now,
        expires=expires,
        sequence=state.sequence,
        session=isinstance(asked.command, OpenSparseVector),
        per=request.costs.bill.per,
    )
