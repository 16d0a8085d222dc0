"""Requests that wait: who asks what for what, what it would do, and a person's decision."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import Path, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from accountant.api.views import ENDED_WAITS, in_names
from accountant.budget.commands import ApproveGrant, Command, DeclineGrant, Envelope, KeyMade
from accountant.budget.decide.approving import asking, first_of, looked_at
from accountant.budget.decide.proposing import check_person
from accountant.budget.errors import Problem
from accountant.budget.explain import in_words
from accountant.budget.facts import request_in
from accountant.budget.outcome import ADMITTED, WAITING
from accountant.budget.rules.base import Finding
from accountant.budget.state import Settled, State
from accountant.budget.waiting.asked import Waiting
from accountant.console.access import Visitor, pages
from accountant.console.facts.people import Person, people
from accountant.console.facts.proposal import Closing
from accountant.console.facts.waiting import MOST, RequestFacts, effects, request, waiting
from accountant.console.framing import Overseen, Population, Visit
from accountant.console.pages.deciding import Choice, Decided, Sent, answered, choice, holders
from accountant.ledger.events import Event, rfc3339
from accountant.reporting.texts import Texts
from accountant.runtime.service import Service

router = pages()
GrantId = Annotated[str, Path(pattern=r"^g\d{1,18}$")]
Skip = Annotated[int, Query(ge=0, le=10**6)]


@router.get("/{population}/requests")
def list_requests(population: Population, visit: Overseen, skip: Skip = 0) -> HTMLResponse:
    """List the requests that wait: for a person first, then for budget."""
    service = visit.service
    state = service.state(population)
    now = service.now(state)
    found = waiting(state, _texts(service, population), now, skip)
    return visit.page(
        "requests.html.j2",
        "requests",
        population,
        person=[one for one in found.listed if one.person],
        budget=[one for one in found.listed if not one.person],
        found=found,
        order=state.adopted.policy.order if state.adopted else "arrival",
        skip=skip,
        more=skip + MOST if skip + MOST < found.total else None,
        most=MOST,
    )


@router.get("/{population}/requests/{grant}")
def show_request(population: Population, grant: GrantId, visit: Overseen) -> Response:
    """Show a request that waits, or has waited."""
    return _show(visit, population, grant, Sent())


@router.post("/{population}/requests/{grant}")
def decide_request(population: Population, grant: GrantId, sent: Decided) -> Response:
    """Approve another person's request by the digest of what was read, or decline it."""
    visit, digest = sent.visit, sent.digest
    who, service = visit.visitor, visit.service

    def do(command: Command) -> Any:
        return service.confirm(population, Envelope(who.name, command), who.key)

    wrong = answered(
        sent,
        lambda reason: do(ApproveGrant(grant=grant, digest=digest, reason=reason)),
        lambda reason: do(DeclineGrant(grant=grant, digest=digest, reason=reason)),
        always=True,
    )
    if wrong is None or _is_done(service, population, grant, who, wrong):
        return RedirectResponse(f"/console/{population}/requests/{grant}", 303)
    return _show(visit, population, grant, wrong)


def _is_done(service: Service, population: str, grant: str, who: Visitor, sent: Sent) -> bool:
    """Return whether the visitor has decided just so before: the form was sent twice."""
    found, _ = service.grant(population, grant)
    did = {"confirm": "admitted", "refuse": "declined"}.get(sent.decision)
    if not isinstance(found, Settled) or found.status != did:
        return False
    return service.event(population, found.settled).by == who.name


def _show(visit: Visit, population: str, grant: str, sent: Sent) -> Response:
    service = visit.service
    state = service.state(population)
    found, now = service.grant(population, grant)
    event = service.event(population, found.sequence)
    if event.type == ADMITTED:
        waited = event.body["command"]["grant"]
        return RedirectResponse(f"/console/{population}/requests/{waited}", 303)
    if event.type != WAITING:
        return RedirectResponse(f"/console/{population}/decisions/{event.sequence}", 303)
    command = _command(service, event)
    if isinstance(found, Settled):
        return _ended(visit, event, command, found, sent)
    if not isinstance(found, Waiting):  # a grant's event is no wait's
        raise TypeError(f"{grant} is {found.status}")
    can, facts = None, _waiting(state, found, event, command, now)
    if facts.stage == "person":
        can = _choice(service, visit.visitor, population, found)
    return _page(visit, facts, population, sent, can, found)


def _command(service: Service, event: Event) -> dict[str, Any]:
    opened = _texts(service, event.ledger).opened(event).body["command"]
    return in_names(service, event.ledger, dict(request_in({"command": opened})))


def _texts(service: Service, population: str) -> Texts:
    return Texts(partial(service.texts, population))


def _waiting(
    state: State, one: Waiting, event: Event, command: dict[str, Any], now: int
) -> RequestFacts:
    """Return a request that waits, as it would be decided now. ``state`` is a copy."""
    holding, until = list[Finding](), rfc3339(one.expires)
    if one.due(now):
        return request(event, command, "lapsed", until)
    try:
        asked, judged = looked_at(state, one, now)
    except Problem as problem:  # the terms have changed
        return request(event, command, "stuck", until, why=problem.detail)
    holding = in_words(state, asked, judged, one.asks().to_json()).holding
    stage = "person" if asking(judged) else "budget"
    return request(event, command, stage, until, holding, effects(state, one, now))


def _choice(service: Service, who: Visitor, population: str, one: Waiting) -> Choice:
    def ask(command: Command) -> Problem | None:
        return service.foresee_confirming(population, Envelope(who.name, command), who.key)

    approving = ApproveGrant(grant=one.id, digest=one.digest)
    declining = DeclineGrant(grant=one.id, digest=one.digest, reason="-")
    return choice(who, "request", partial(ask, approving), partial(ask, declining))


def _ended(
    visit: Visit, event: Event, command: dict[str, Any], found: Settled, sent: Sent
) -> Response:
    stage: str = found.status if found.status in ENDED_WAITS else "admitted"
    service = visit.service
    end = service.event(event.ledger, found.settled)
    said = end.body.get("command", {})
    reason, grant = None, None
    if isinstance(said.get("reason"), dict):
        texts = Texts(partial(service.texts, event.ledger), page=1)
        reason = texts.open(end.sequence, {"reason": said["reason"]})["reason"]
    if end.type == ADMITTED:
        grant = f"g{end.sequence}"
        stage = "approved" if "approval" in said else "admitted"
    closing = Closing(end.by, rfc3339(end.time), end.sequence, reason)
    facts = request(event, command, stage, closing=closing, grant=grant)
    return _page(visit, facts, event.ledger, sent)


def _page(
    visit: Visit,
    facts: RequestFacts,
    population: str,
    sent: Sent,
    can: Choice | None = None,
    one: Waiting | None = None,
) -> HTMLResponse:
    found: tuple[Person, ...] = ()
    if can is not None and one is not None:
        credentials, now = visit.service.credentials, visit.now
        last = credentials.last_named(one.by)
        first = first_of(one, last.facts() if last else None)

        def check(by: str, key: KeyMade | None) -> None:
            check_person(first, by, key, now)

        found = people(holders(visit.service, population), one.by, check, now)
    return visit.page(
        "request.html.j2",
        "requests",
        population,
        status=sent.status,
        facts=facts,
        can=can,
        people=found,
        sent=sent,
    )
