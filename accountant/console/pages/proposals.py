"""Proposals: changes, and keys, that wait for a second person; who decides, and what became of
them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from json import dumps
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from accountant.api.views import in_names
from accountant.auth.keys import LEDGER as KEYS
from accountant.budget.accounts.epochs import adopted_by
from accountant.budget.commands import (
    AdoptPolicy,
    Command,
    ConfirmChange,
    DeclineChange,
    Envelope,
    KeyMade,
)
from accountant.budget.decide.proposing import check_open, check_other
from accountant.budget.errors import Problem
from accountant.budget.policy import Policy
from accountant.budget.proposals import Proposal
from accountant.budget.state import State
from accountant.console.access import Visitor, pages
from accountant.console.facts.people import Check, people
from accountant.console.facts.proposal import (
    Closing,
    ProposalFacts,
    Proposed,
    proposal,
    proposed,
)
from accountant.console.framing import NO_POPULATION, EventNumber, Overseen, Population, Visit
from accountant.console.pages.deciding import Choice, Decided, Sent, answered, choice, holders
from accountant.console.pages.what_if_words import ANSWERS, moved
from accountant.ledger.events import Event, rfc3339
from accountant.reporting.activity import DAY
from accountant.reporting.texts import Texts
from accountant.reporting.trying import Asked, Failed, Looked, Trials, Working
from accountant.runtime.service import Service

MOST: Final = 60
"""Proposals that one page lists."""
DAYS: Final = 28
"""Days whose requests are decided again under a policy that is proposed."""
router = pages()


def _trials(request: Request) -> Trials:
    found: Trials = request.app.state.trials
    return found


TheTrials = Annotated[Trials, Depends(_trials)]
Skip = Annotated[int, Query(ge=0, le=10**6)]


@router.get("/-/proposals")
def list_key_proposals(visit: Overseen, skip: Skip = 0) -> HTMLResponse:
    """List the keys and links that were proposed."""
    found, now = visit.service.credentials.proposals()
    shown = found[skip : skip + MOST]
    told = [proposed(one, now, _closing(visit.service, KEYS, one)) for one in shown]
    return _list(visit, None, told, len(found), skip)


@router.get("/-/proposals/{number}")
def show_key_proposal(number: EventNumber, visit: Overseen) -> HTMLResponse:
    """Show a key, or link, that was proposed."""
    return _show_key(visit, number, Sent())


@router.post("/-/proposals/{number}")
def decide_key_proposal(number: EventNumber, sent: Decided) -> Response:
    """Confirm or decline a key, or link, that another person proposed."""
    who, service = sent.visit.visitor, sent.visit.service

    def confirm(reason: str | None) -> Event:
        command = ConfirmChange(proposal=number, digest=sent.digest, reason=reason)
        return service.confirm_key(number, command.digest, who.name, who.key, reason)

    def refuse(reason: str) -> Event:
        DeclineChange(proposal=number, reason=reason)  # a text that is too long, say
        return service.decline_key(number, who.name, reason)

    wrong = answered(sent, confirm, refuse, always=False)
    if wrong is None or _is_done(service.credentials.proposal(number)[0], who, wrong):
        return RedirectResponse(f"/console/-/proposals/{number}", 303)
    return _show_key(sent.visit, number, wrong)


@router.get("/{population}/proposals")
def list_proposals(population: Population, visit: Overseen, skip: Skip = 0) -> HTMLResponse:
    """List proposals: those that can be confirmed, then those that are closed, the latest first."""
    service = visit.service
    found, now = service.proposals(population)
    told = [
        proposed(_whole(service, population, one), now, _closing(service, population, one))
        for one in found[skip : skip + MOST]
    ]
    return _list(visit, population, told, len(found), skip)


@router.get("/{population}/proposals/{number}")
def show_proposal(
    population: Population, number: EventNumber, visit: Overseen, trials: TheTrials
) -> HTMLResponse:
    """Show a proposal: what would change, what that would do, and who could confirm it."""
    return _show(visit, trials, population, number, Sent())


@router.post("/{population}/proposals/{number}")
def decide_proposal(
    population: Population, number: EventNumber, sent: Decided, trials: TheTrials
) -> Response:
    """Confirm another person's proposal by the digest of what was read, or decline it."""
    who, service = sent.visit.visitor, sent.visit.service

    def confirm(reason: str | None) -> Any:
        command = ConfirmChange(proposal=number, digest=sent.digest, reason=reason)
        return service.confirm(population, Envelope(who.name, command), who.key)

    def refuse(reason: str) -> Any:
        command = DeclineChange(proposal=number, reason=reason)
        return service.execute(population, Envelope(who.name, command))

    wrong = answered(sent, confirm, refuse, always=False)
    if wrong is None or _is_done(service.proposal(population, number)[0], who, wrong):
        return RedirectResponse(f"/console/{population}/proposals/{number}", 303)
    return _show(sent.visit, trials, population, number, wrong)


def _is_done(one: Proposal, who: Visitor, sent: Sent) -> bool:
    """Return whether the visitor has decided just so before: the form was sent twice."""
    did = {"confirm": "confirmed", "refuse": "declined"}.get(sent.decision)
    return one.closed_by == who.name and one.status == did


def _list(
    visit: Visit, population: str | None, told: list[Proposed], total: int, skip: int
) -> HTMLResponse:
    return visit.page(
        "proposals.html.j2",
        "proposals" if population else "keys",
        population,
        keys=population is None,
        place=_place(population),
        open=[one for one in told if one.stage == "open"],
        closed=[one for one in told if one.stage != "open"],
        skip=skip,
        more=skip + MOST if skip + MOST < total else None,
        most=MOST,
    )


def _place(population: str | None) -> str:
    return f"/console/{population or NO_POPULATION}/proposals"


def _whole(service: Service, population: str, one: Proposal) -> Proposal:
    """Return a proposal with its command: a state keeps that only while it can be confirmed."""
    if one.command:
        return one
    body = service.event(population, one.sequence).body
    return replace(one, command=body["command"], effect=body["effect"])


def _closing(service: Service, ledger: str, one: Proposal) -> Closing | None:
    if one.closed is None:
        return None
    event = service.event(ledger, one.closed)
    said = event.body if ledger == KEYS else event.body["command"]
    texts = Texts(partial(service.texts, ledger), page=1)
    reason = texts.opened(replace(event, body={"command": said})).body["command"]
    if one.status == "confirmed":
        reason = reason["confirms"]
    return Closing(
        one.closed_by or event.by, rfc3339(event.time), event.sequence, reason.get("reason")
    )


def _show(visit: Visit, trials: Trials, population: str, number: int, sent: Sent) -> HTMLResponse:
    service = visit.service
    found, now = service.proposal(population, number)
    one, state = _whole(service, population, found), service.state(population)
    texts = Texts(partial(service.texts, population), page=1)
    command = in_names(service, population, texts.open(number, dict(one.command)))
    is_open, before, tried = one.is_open(now), _in_force(service, one, state, now), None
    if is_open and before and command["type"] == AdoptPolicy.command:
        since = (now // DAY - DAYS + 1) * DAY
        tried = trials.ask(Asked(population, dumps(command["policy"]), since))
    facts = proposal(
        one,
        command,
        now,
        _closing(service, population, one),
        state.population,
        state if is_open else None,
        before,
        service.owed(population) if "owed" in one.effect and is_open else None,
    )
    can = _choice(service, visit.visitor, population, one) if is_open else None
    check = partial(_check, service, one, now)
    return _page(visit, population, facts, can, check, sent, tried)


def _in_force(service: Service, one: Proposal, state: State, now: int) -> Policy | None:
    """Return the policy that is in force, or was when a closed proposal was made."""
    if one.is_open(now):
        return None if state.adopted is None else state.adopted.policy
    before = service.policies(state.ledger, one.sequence)
    return adopted_by(before[-1]).policy if before else None


def _choice(service: Service, who: Visitor, population: str, one: Proposal) -> Choice:
    def ask(command: Command) -> Problem | None:
        return service.foresee_confirming(population, Envelope(who.name, command), who.key)

    confirming = ConfirmChange(proposal=one.sequence, digest=one.digest)
    declining = DeclineChange(proposal=one.sequence, reason="-")
    return choice(who, "proposal", partial(ask, confirming), partial(ask, declining))


def _check(service: Service, one: Proposal, now: int, by: str, key: KeyMade | None) -> None:
    """Raise Problem unless ``by`` is another person than the proposer."""
    last = service.credentials.last_named(one.by, one.time)
    check_other(one, by, key, now, last.facts() if last else None)


def _show_key(visit: Visit, number: int, sent: Sent) -> HTMLResponse:
    service, who = visit.service, visit.visitor
    one, now = service.credentials.proposal(number)
    facts = proposal(one, one.command, now, _closing(service, KEYS, one))
    check = partial(_check, service, one, now)

    def confirming() -> Problem | None:
        try:
            check_open(one, now)
            check(who.name, who.key.facts())
        except Problem as problem:
            return problem
        return None

    can = choice(who, "proposal", confirming, lambda: None) if one.is_open(now) else None
    return _page(visit, None, facts, can, check, sent)


def _page(
    visit: Visit,
    population: str | None,
    facts: ProposalFacts,
    can: Choice | None,
    check: Check,
    sent: Sent,
    tried: Looked | Working | Failed | None = None,
) -> HTMLResponse:
    asked = holders(visit.service, population) if can is not None else ()
    return visit.page(
        "proposal.html.j2",
        "proposals" if population else "keys",
        population,
        status=sent.status,
        place=_place(population),
        facts=facts,
        told=facts.proposed,
        can=can,
        people=people(asked, facts.proposed.by, check, visit.now),
        sent=sent,
        looked=tried if isinstance(tried, Looked) else None,
        moved=moved(tried) if isinstance(tried, Looked) else (),
        answers=ANSWERS,
        working=isinstance(tried, Working),
        failed=tried.why if isinstance(tried, Failed) else "",
        days=DAYS,
    )
