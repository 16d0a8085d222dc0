"""Render decisions as text, from the event, the policy that was in force, and the population.

An event holds only the rules that fired and the integers that each limit compared; all else follows
from these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from accountant.budget.accounts.epochs import Adopted
from accountant.budget.batches import as_single
from accountant.budget.bill import per_in
from accountant.budget.commands import command_from_json
from accountant.budget.evaluate import Judgement, order_of
from accountant.budget.exhausted import Exhausted
from accountant.budget.exhausted import told as told_exhausted
from accountant.budget.facts import lets_emptied
from accountant.budget.outcome import ADMITTED, RECORDED, REFUSED, RESERVED, TIMED_OUT, WAITING
from accountant.budget.population.population import Dataset, Population
from accountant.budget.reach import reach_in
from accountant.budget.request import (
    Judged,
    Request,
    Terms,
    price_all,
    request_on,
    terms_of,
)
from accountant.budget.rules import built_in
from accountant.budget.rules.base import HOLDING, Compared, Finding, Rule, Ruling, Told
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.privacy.units import Charge

JUDGED = frozenset({RESERVED, REFUSED, RECORDED, WAITING, ADMITTED, TIMED_OUT, "batch.refused.v1"})
"""The types of events that rules have judged."""


class Decision(NamedTuple):
    """An outcome with all findings, in the order of ``order_of``: the reason for it first."""

    outcome: Ruling
    findings: tuple[Finding, ...]

    @property
    def reason(self) -> Finding:
        """The first rule that blocks, or else that asks for a person's approval."""
        return self.holding[0]

    @property
    def holding(self) -> list[Finding]:
        """The findings that keep the request from being granted at once, the reason first."""
        return [one for one in self.findings if one.fired and one.action in HOLDING]


class Explained(NamedTuple):
    """A decision with its request, which holds the cost of each mechanism, and all accounts that a
    refusal found exhausted.
    """

    decision: Decision
    request: Request
    exhausted: tuple[Exhausted, ...] = ()


def explain(
    event: Event,
    adopted: Adopted | None,
    people: Population,
    engine: int,
    datasets: Mapping[str, Dataset],
) -> Explained:
    """Return the decision of ``event`` as text, by the policy and the bounds that decided it, and
    by what the ``datasets`` were then.
    """
    event = as_single(event)
    command: Judged = command_from_json(event.body["command"])  # type: ignore[assignment]
    orders = Charge.from_json(event.body["total"]).orders
    terms = Terms(people.relation, orders, engine, people.units)
    emptied = lets_emptied(event.body, event.body["command"])
    asks = event.by, command, event.time, reach_in(event.body)
    request = request_on(people, terms, *asks, emptied=emptied)
    data = tuple(datasets[name].as_of(event.sequence) for name in request.datasets)
    findings = list(built_in.findings(request, adopted, event.ledger, data))
    exhausted: tuple[Exhausted, ...] = ()
    if adopted is not None:
        exhausted = tuple(told_exhausted(event.body, adopted.policy, people, data))
        told = _told(event, adopted, people, request, terms, data)
        for rule in adopted.policy.rules:
            if (compared := _compared(rule, told)) is not None:
                findings += _worded(rule, compared, told)
    through = event.type in (RECORDED, RESERVED)  # the latter with a person's approval, if any
    return Explained(decision_of(findings, through=through), request, exhausted)


def decision_of(findings: Sequence[Finding], *, through: bool = False) -> Decision:
    """Return the decision that ``findings`` lead to. What was recorded, or approved, went
    ``through``: it is flagged at most.
    """
    ordered = tuple(sorted(findings, key=lambda one: order_of(Compared(*one[:4]))))
    outcome: Ruling = ordered[0].action if ordered and ordered[0].fired else "allow"
    return Decision("flag" if through and outcome in HOLDING else outcome, ordered)


def in_words(
    state: State, request: Request, judgement: Judgement, command: dict[str, Any]
) -> Decision:
    """Return the decision of a preview, which is not recorded, as text."""
    data = tuple(state.datasets[name] for name in request.datasets)
    findings = list(built_in.findings(request, state.adopted, state.ledger, data))
    if state.adopted is not None:
        body = {"command": command, "total": request.total.to_json()}
        body |= request.costs.bill.written()
        event = Event(state.ledger, state.sequence, RESERVED, request.now, request.by, body)
        told = _told(event, state.adopted, state.people(), request, terms_of(state), data)
        rules = {rule.id: rule for rule in state.adopted.policy.rules}
        for one in judgement.compared:
            if one.rule in rules:
                findings += _worded(rules[one.rule], one, told)
    return decision_of(findings)


def _worded(rule: Rule, compared: Compared, told: Told) -> list[Finding]:
    """Return the finding of ``rule``. A rule that fired has one even if its text cannot be made: a
    decision that is recorded is always answered. One that kept nothing and did not fire may not
    have applied.
    """
    try:
        return [rule.words(compared, told)]
    except Exception as error:  # noqa: BLE001 a kind of another program may fail in any way
        if not compared.fired and compared.seen is None:
            return []
        return [rule.finding(compared, f"rule {rule.id} has no text for this ({error!r})")]


def _told(
    event: Event,
    adopted: Adopted,
    people: Population,
    request: Request,
    terms: Terms,
    datasets: tuple[Dataset, ...],
) -> Told:
    total = Charge.from_json(event.body["total"])
    closed: dict[str, frozenset[str]] = {}
    for mechanism in request.mechanisms if any(total.infinite) else ():
        once = mechanism.model_copy(update={"count": 1})  # many may only be too many to count
        [priced] = price_all([once], *terms)
        infinite = {str(c) for c in priced.charge.axis if priced.charge.is_infinite(c)}
        closed[mechanism.kind] = closed.get(mechanism.kind, frozenset()) | infinite
    places = request.costs.places
    command = event.body["command"]
    per = per_in(event.body)
    return Told(event, command, adopted, people, datasets, total, per, places, closed)


def _compared(rule: Rule, told: Told) -> Compared | None:
    """Return the comparison of ``rule`` from its event; None if it did not apply."""
    body = told.event.body
    codes: dict[str, str] = dict(body.get("fired", ()))
    seen: Mapping[str, Any] = body.get("rules", {})
    if rule.id in seen or rule.applies(told):
        compared = rule.compared(rule.id in codes, seen.get(rule.id))
        return replace(compared, code=codes.get(rule.id, compared.code))
    return None
