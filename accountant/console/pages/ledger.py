"""The ledger: events as sentences, each with its bytes, its proof and its receipt."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import HTMLResponse, Response

from accountant.budget.errors import NotFound
from accountant.budget.policy import Policy
from accountant.console.access import pages
from accountant.console.facts.browsing import KINDS, browse, seen
from accountant.console.facts.proposal import MOST, changed
from accountant.console.framing import EventNumber, Overseen, Population, Visit
from accountant.ledger.checkpoints import Receipt
from accountant.ledger.events import Event
from accountant.reporting.history import ADOPTED
from accountant.reporting.policy_diff import Changed
from accountant.reporting.texts import Texts
from accountant.runtime.service import Service
from accountant.store.ledgers import Signed

router = pages()
_Kind = Literal["all", "decisions", "trouble", "changes"]


@router.get("/{population}/ledger")
def show_ledger(
    population: Population,
    visit: Overseen,
    before: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    show: _Kind = "all",
    client: Annotated[str, Query(max_length=100)] = "",
) -> HTMLResponse:
    """Show events, the latest first."""
    visit.service.known(population)
    found = browse(visit.service.ledgers, population, before, show, client.strip())
    kinds = [(key, name) for key, (name, _) in KINDS.items()]
    return visit.page("ledger.html.j2", "ledger", population, found=found, kinds=kinds)


@router.get("/{population}/ledger/{event}")
def show_event(population: Population, event: EventNumber, visit: Overseen) -> HTMLResponse:
    """Show one event with its proof, if a published checkpoint covers it."""
    service = visit.service
    service.known(population)
    rows = service.ledgers.read(population, event, 1)
    if not rows or rows[0].sequence != event:
        raise NotFound("unknown-event", f"the ledger of {population} has no event {event}")
    signed, receipt = _proved(visit, population, event)
    root, size = (signed.head.root, signed.size) if signed else (b"", 0)
    texts = Texts(partial(service.texts, population), page=1)
    one, ends = seen(rows[0], texts, receipt, root, size), service.head(population).size
    before, rules = _rules(service, Event.from_bytes(rows[0].body))
    return visit.page(
        "event.html.j2",
        "ledger",
        population,
        one=one,
        ends=ends,
        had=before is not None,
        rules=rules[:MOST],
        more=max(0, len(rules) - MOST),
    )


def _rules(service: Service, event: Event) -> tuple[Policy | None, tuple[Changed, ...]]:
    """Return the policy before an event that adopted one, and the rules that it changed; nothing of
    another event, or where one of the two has a kind of rule that this program does not know.
    """
    if event.type != ADOPTED:
        return None, ()
    earlier = service.policies(event.ledger, event.sequence)
    stored = [one.body["command"]["policy"] for one in (*earlier[-1:], event)]
    try:
        *before, policy = map(Policy.stored, stored)
    except ValueError:
        return None, ()
    people = service.state(event.ledger).population
    old = before[0] if before else None
    return old, changed(policy, old, people)


@router.get("/{population}/ledger/{event}/receipt")
def show_receipt(population: Population, event: EventNumber, visit: Overseen) -> Response:
    """Return the receipt of an event as a file."""
    visit.service.known(population)
    _, receipt = _proved(visit, population, event)
    if receipt is None:
        raise NotFound("unknown-event", f"no checkpoint covers event {event} yet")
    name = f'attachment; filename="{population}-{event}.receipt"'
    headers = {"Content-Disposition": name}
    return Response(receipt.to_bytes(), media_type="text/plain; charset=utf-8", headers=headers)


def _proved(visit: Visit, population: str, event: int) -> tuple[Signed | None, Receipt | None]:
    """Return the published checkpoint that covers an event, with the proof; nothing is signed."""
    signed = visit.publisher.last_published(population)
    if signed is None or event >= signed.size:
        return None, None
    return signed, visit.publisher.log(population).receipt(event, signed)
