"""Decisions, each at an address that stays: what was asked, what failed, what would fit, proof."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from fastapi.responses import RedirectResponse, Response

from accountant.api.views import in_names
from accountant.budget.explain import JUDGED, Decision
from accountant.budget.facts import grant_of, request_in
from accountant.budget.outcome import DECLINED, NOT_APPROVED, PROPOSED
from accountant.budget.proposals import digest_of
from accountant.console.access import Refused, pages
from accountant.console.facts.decision import REFUSING, UsedUp, decision
from accountant.console.facts.decision import used_up as told_of
from accountant.console.facts.exhausted import exhausted
from accountant.console.facts.sentences import WARNS
from accountant.console.framing import EventNumber, Overseen, Population, Visit
from accountant.ledger.events import Event
from accountant.reporting.making import used_up
from accountant.reporting.texts import Texts
from accountant.runtime.service import Service

READ: Final = 5_000
"""Events before a decision up to which whoever used a limit up is looked for at once."""
MOST: Final = 100_000
"""Events up to which that is looked for by a page at all: whoever asks waits for the reading."""
router = pages()
Whole = Annotated[Literal["all"] | None, Query()]


@router.get("/{population}/decisions/{event}")
def show_decision(
    population: Population, event: EventNumber, visit: Overseen, used: Whole = None
) -> Response:
    """Show a decision."""
    service = visit.service
    service.known(population)
    judged = service.event(population, event)
    if judged.type not in JUDGED:
        return _elsewhere(judged)
    explained = service.explain(population, judged)
    found = explained.decision
    fired = judged.type in REFUSING and any(one.fired and one.numbers for one in found.findings)
    short = event <= READ or (used == "all" and event <= MOST)
    advice, status = service.would_fit(judged), _status(service, judged)
    [row] = service.events(population, event, 1)
    signed = visit.publisher.last_published(population)
    return visit.page(
        "decision.html.j2",
        "ledger",
        population,
        facts=decision(judged, found, _command(service, judged), advice, status),
        exhausted=exhausted(explained.exhausted),
        used=_used(visit, judged, found) if fired and short else (),
        more_used=fired and not short,
        many=event > MOST,
        digest=digest_of(row.body),
        leaf=row.leaf.hex(),
        signed=signed.size if signed and signed.size > event else None,
        beyond=explained.request.datasets if explained.request.on.beyond else (),
    )


def _elsewhere(event: Event) -> Response:
    """Lead to the page of what an event is about. Raise Refused if it has none here."""
    grant = grant_of(event.body, event.sequence, event.type)
    if grant is not None and grant[1:].isdigit() and int(grant[1:]) < event.sequence:
        kind = "requests" if event.type == NOT_APPROVED else "decisions"
        which = grant if kind == "requests" else grant[1:]
        return RedirectResponse(f"/console/{event.ledger}/{kind}/{which}", 303)
    if event.type in (PROPOSED, DECLINED):
        number = event.body["command"]["proposal"] if event.type == DECLINED else event.sequence
        return RedirectResponse(f"/console/{event.ledger}/proposals/{number}", 303)
    raise Refused(404, f"Event {event.sequence} ({event.type}) holds no decision.")


def _command(service: Service, event: Event) -> dict[str, Any]:
    texts = Texts(partial(service.texts, event.ledger), page=1)
    opened = texts.opened(event).body
    return in_names(service, event.ledger, dict(request_in(opened)))


def _status(service: Service, event: Event) -> str | None:
    """Return what has become of the grant, or of the wait, that an event opened."""
    name = grant_of(event.body, event.sequence, event.type)
    if event.type in REFUSING or name != f"g{event.sequence}":
        return None
    return service.grant(event.ledger, name)[0].status


def _used(visit: Visit, event: Event, found: Decision) -> tuple[UsedUp, ...]:
    """Return the charges that used up the limits that fired."""
    grave = [one for one in found.findings if not (one.fired and one.code == WARNS)]
    rules = [one.to_json() for one in grave]
    return told_of(used_up(visit.desk, visit.service, event, rules))
