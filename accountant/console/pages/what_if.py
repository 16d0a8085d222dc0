"""What-if: another limit, or a whole policy, tried on what has already happened."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from accountant.api.access import OVERSEE
from accountant.budget import outcome
from accountant.budget.commands import AdoptPolicy, Envelope
from accountant.budget.errors import Conflict, Problem
from accountant.budget.policy_file import parse_policy
from accountant.console.access import Form, form, pages
from accountant.console.facts.changing import KEEP, Change, changed
from accountant.console.facts.what_if import Mistake, Tried, WhatIf, what_if
from accountant.console.framing import Overseen, Population, Visit, visit_of
from accountant.console.pages import what_if_words as words
from accountant.ledger.events import Entry
from accountant.reporting.activity import DAY
from accountant.reporting.trying import Asked, Looked, Trials

router = pages()
DAYS: Final = 28
"""Days whose requests are decided again, unless others are asked for."""
MOST_DAYS: Final = 366
QUICK: Final = 1.0
"""Seconds that a trial may take for the limits beside it to be tried on requests as well."""
LEAST: Final = 0.05
"""Seconds that the page waits for the trial at least."""
LONGEST: Final = 0.2
"""Seconds after which it waits for nothing more."""
SHORTLY: Final = 0.05
"""Seconds that the page waits for each of the limits beside."""
Text = Annotated[str, Query(max_length=200)]
_FIELDS: Final = ("rule", "epsilon", "delta", "window")


@router.get("/{population}/what-if")
def show_what_if(
    request: Request,
    population: Population,
    visit: Overseen,
    *,
    rule: Text = "",
    epsilon: Text = "",
    delta: Text = "",
    window: Text = KEEP,
    account: Text = "",
    days: Annotated[int, Query(ge=1, le=MOST_DAYS)] = DAYS,
) -> HTMLResponse:
    """Show what another limit would change. All that is tried stands in the address."""
    until = monotonic() + LONGEST
    change = Change(rule, epsilon.strip(), delta.strip(), window.strip() or KEEP)
    tries = bool(rule) and change != Change(rule)
    question = partial(what_if, change=change if tries else None, account=account)
    found = visit.ask(population, question)
    asked = {**change._asdict(), "account": account, "days": str(days)}
    return _page(request, visit, population, found, asked, days, until=until)


@router.post("/{population}/what-if")
def try_policy(
    request: Request,
    population: Population,
    sent: Annotated[Form, Depends(form("text", optional=("days",), roles=OVERSEE))],
) -> HTMLResponse:
    """Show what a whole policy would change. Nothing is recorded."""
    until = monotonic() + LONGEST
    visit = visit_of(request, sent.visitor)
    text = _plain(sent.fields["text"])
    days = _days(sent.fields.get("days", ""))
    found = visit.ask(population, partial(what_if, text=text or " "))
    asked = {**Change("")._asdict(), "account": "", "text": text, "days": str(days)}
    return _page(request, visit, population, found, asked, days, until=until)


@router.post("/{population}/what-if/propose")
def propose(
    request: Request,
    population: Population,
    sent: Annotated[
        Form,
        Depends(
            form("digest", "base", optional=("text", *_FIELDS, "closes", "days"), roles=("admin",))
        ),
    ],
) -> Response:
    """Send the policy that was tried, as it was shown: one that loosens is only proposed. What
    keeps it from that is told on the page of the trial, as it is now.
    """
    visit, sent_with = visit_of(request, sent.visitor), sent.fields
    text = _plain(sent_with.get("text", ""))
    change = Change(**{name: sent_with.get(name, "") for name in _FIELDS})
    try:
        last = _proposed(visit, population, text, change, sent_with)
    except Problem as problem:
        days = _days(sent_with.get("days", ""))
        asked = {**change._asdict(), "account": "", "days": str(days)}
        asked |= {"text": text} if text else {}
        question = partial(what_if, change=None if text else change, text=text)
        found = visit.ask(population, question)
        return _page(request, visit, population, found, asked, days, f"{problem.detail}.")
    here = f"/console/{quote(population, safe='')}"
    if last is None:  # it is the policy in force
        return RedirectResponse(f"{here}/accounts", 303)
    place = "proposals" if last.type == outcome.PROPOSED else "ledger"
    return RedirectResponse(f"{here}/{place}/{last.sequence}", 303)


def _proposed(
    visit: Visit, population: str, text: str, change: Change, sent: Mapping[str, str]
) -> Entry | None:
    """Return the event of a policy that was sent; None if it is in force. Raise Problem."""
    adopted, _ = visit.service.in_force(population)
    if adopted is None or str(adopted.sequence) != sent["base"]:
        told = "another policy was adopted since the page was made: this is what yours would change"
        raise Conflict("stale-page", told)
    text = text or changed(adopted.policy, change)
    policy, digest = parse_policy(text)
    if digest != sent["digest"]:
        raise Conflict("stale-page", "this is not the policy that the page had shown: look again")
    closes = [rule.id for rule in policy.limits] if sent.get("closes") == "yes" else []
    command = AdoptPolicy(policy=policy.to_json(), source_digest=digest, closes=closes)
    answer = visit.service.execute(population, Envelope(visit.visitor.name, command))
    return answer.entries[-1] if answer.entries else None


def _page(
    request: Request,
    visit: Visit,
    population: str,
    found: WhatIf,
    asked: Mapping[str, str],
    days: int,
    problem: str = "",
    *,
    until: float = 0.0,
) -> HTMLResponse:
    """Return the page; a mistake, or a problem, comes back with what was typed. It waits for trials
    no longer than ``until``.
    """
    tried, looked = found.found, None
    refused: dict[str, Looked] = {}
    if isinstance(tried, Tried) and not tried.same:
        trials: Trials = request.app.state.trials
        since = (visit.now // DAY - days + 1) * DAY
        looked = trials.ask(Asked(population, tried.text, since), max(LEAST, until - monotonic()))
        if isinstance(looked, Looked) and looked.seconds < QUICK:
            others = {one.limit: one.text for one in tried.rungs if one.text != tried.text}
            for limit, text in others.items():
                patience = min(SHORTLY, max(0.0, until - monotonic()))
                beside = trials.ask(Asked(population, text, since), patience)
                if isinstance(beside, Looked):
                    refused[limit] = beside
    status = 409 if problem else 422 if isinstance(tried, Mistake) else 200
    return visit.page(
        "what_if.html.j2",
        "what-if",
        population,
        status=status,
        **words.told(found, looked, asked, days, problem, refused),
    )


def _plain(text: str) -> str:
    """Return a text as browsers send it, with the line ends that it was written with."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _days(text: str) -> int:
    return min(MOST_DAYS, max(1, int(text))) if text.isdecimal() and len(text) < 6 else DAYS
