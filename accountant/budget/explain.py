"""Decisions in words, made when somebody reads: from the event, the policy that was in force, and
the population.

An event holds what cannot be told from these: which rules fired, and the integers that each limit
was compared at. Everything else follows, so it is not in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from accountant.budget.accounts.epochs import Adopted
from accountant.budget.batches import as_single
from accountant.budget.commands import OpenSparseVector, command_from_json
from accountant.budget.evaluate import Judgement, order_of
from accountant.budget.outcome import RECORDED, REFUSED, RESERVED
from accountant.budget.population.population import Population
from accountant.budget.population.selection import EVERYONE, select
from accountant.budget.request import Costs, Judged, Request, price_all, unplaced
from accountant.budget.rules import built_in
from accountant.budget.rules.base import STRICTNESS, Compared, Finding, Outcome, Rule, Told
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.privacy.units import Charge

JUDGED = frozenset({RESERVED, REFUSED, RECORDED, "batch.refused.v1"})
"""The types of events that rules have judged."""


class Decision(NamedTuple):
    """All findings: fired rules first, among them the strictest, and what is wrong with the request
    itself before what is used up.
    """

    outcome: Outcome
    findings: tuple[Finding, ...]

    @property
    def reason(self) -> Finding:
        """The rule that a refusal is told by first."""
        return next(one for one in self.findings if one.fired and one.action == "block")


class Explained(NamedTuple):
    """A decision, the request that it is about, and what each mechanism cost."""

    decision: Decision
    request: Request


def explain(event: Event, adopted: Adopted | None, people: Population, engine: int) -> Explained:
    """The decision of ``event``, which rules have judged, in words. ``adopted`` is the policy that
    was in force, ``engine`` the version of the bounds that decided.
    """
    event = as_single(event)
    document = event.body["command"]
    request = _request(event, people, engine)
    findings = list(built_in.findings(request, adopted, event.ledger))
    if adopted is not None:
        told = _told(event, document, adopted, people, request)
        compared = ((rule, _compared(rule, told)) for rule in adopted.policy.rules)
        findings += [rule.words(found, told) for rule, found in compared if found is not None]
    return Explained(decision_of(findings, recorded=event.type == RECORDED), request)


def decision_of(findings: Sequence[Finding], *, recorded: bool = False) -> Decision:
    """The decision that ``findings`` come to. What has already run is never blocked."""
    fired: list[Outcome] = [one.action for one in findings if one.fired]
    outcome: Outcome = max(fired, key=STRICTNESS.__getitem__, default="allow")
    if recorded and outcome == "block":
        outcome = "flag"
    ordered = sorted(findings, key=lambda one: order_of(Compared(*one[:4])))
    return Decision(outcome, tuple(ordered))


def in_words(
    state: State, request: Request, judgement: Judgement, command: dict[str, Any]
) -> Decision:
    """The decision on a request that was not recorded, in words: of a preview."""
    findings = list(built_in.findings(request, state.adopted, state.ledger))
    if state.adopted is not None:
        body = {"command": command, "total": request.total.to_json()}
        event = Event(state.ledger, state.sequence, RESERVED, request.now, request.by, body)
        told = _told(event, command, state.adopted, state.people(), request)
        rules = {rule.id: rule for rule in state.adopted.policy.rules}
        findings += [rules[c.rule].words(c, told) for c in judgement.compared if c.rule in rules]
    return decision_of(findings)


def _request(event: Event, people: Population, engine: int) -> Request:
    """The request as it was judged."""
    command: Judged = command_from_json(event.body["command"])  # type: ignore[assignment]
    mechanisms = (
        [command.mechanism] if isinstance(command, OpenSparseVector) else command.mechanisms
    )
    orders = Charge.from_json(event.body["total"]).orders
    costs = Costs(mechanisms, price_all(mechanisms, people.relation, orders, engine))
    selection = select(people, command.subjects)
    misplaced = unplaced(people, selection, mechanisms)
    if misplaced:
        selection, costs = EVERYONE, costs.unbounded
    return Request(event.by, command, selection, costs, misplaced, event.time)


def _told(
    event: Event,
    document: dict[str, Any],
    adopted: Adopted,
    people: Population,
    request: Request,
) -> Told:
    closed: dict[str, frozenset[str]] = {}
    for mechanism, priced in zip(request.mechanisms, request.priced, strict=True):
        axis = priced.charge.axis
        infinite = frozenset(str(c) for c in axis if priced.charge.is_infinite(c))
        closed[mechanism.kind] = closed.get(mechanism.kind, frozenset()) | infinite
    total = Charge.from_json(event.body["total"])
    kinds = tuple(mechanism.kind for mechanism in request.mechanisms)
    return Told(event, document, adopted, people, total, kinds, closed)


def _compared(rule: Rule, told: Told) -> Compared | None:
    """What the event says that ``rule`` has found; None if it did not apply."""
    body = told.event.body
    fired = any(name == rule.id for name, _ in body.get("fired", ()))
    seen: Mapping[str, Any] = body.get("rules", {})
    if rule.id in seen:
        return rule.compared(fired, seen[rule.id])
    if not rule.applies(told.command["dataset"]):
        return None
    return rule.compared(fired)
