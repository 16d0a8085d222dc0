"""What-if: another limit, or a whole policy, tried on what has already happened."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from accountant.api.access import OVERSEE
from accountant.budget import outcome
from accountant.budget.commands import AdoptPolicy, Envelope
from accountant.budget.policy_file import parse_policy
from accountant.console.access import Form, Refused, form, pages
from accountant.console.facts.changing import KEEP, Change, changed
from accountant.console.facts.what_if import Mistake, Tried, WhatIf, what_if
from accountant.console.framing import Overseen, Population, Visit, visit_of
from accountant.console.pages import what_if_words as words
from accountant.reporting.activity import DAY
from accountant.reporting.trying import Asked, Trials

router = pages()
DAYS: Final = 28
"""Days whose requests are decided again, unless others are asked for."""
MOST_DAYS: Final = 366
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
    change = Change(rule, epsilon.strip(), delta.strip(), window.strip() or KEEP)
    tries = bool(rule) and change != Change(rule)
    question = partial(what_if, change=change if tries else None, account=account)
    found = visit.ask(population, question)
    asked = {**change._asdict(), "account": account, "days": str(days)}
    return _page(request, visit, population, found, asked, days)


@router.post("/{population}/what-if")
def try_policy(
    request: Request,
    population: Population,
    sent: Annotated[Form, Depends(form("text", optional=("days",), roles=OVERSEE))],
) -> HTMLResponse:
    """Show what a whole policy would change. Nothing is recorded."""
    visit = visit_of(request, sent.visitor)
    text = _plain(sent.fields["text"])
    days = _days(sent.fields.get("days", ""))
    found = visit.ask(population, partial(what_if, text=text or " "))
    asked = {**Change("")._asdict(), "account": "", "text": text, "days": str(days)}
    return _page(request, visit, population, found, asked, days)


@router.post("/{population}/what-if/propose")
def propose(
    request: Request,
    population: Population,
    sent: Annotated[
        Form,
        Depends(
            form(
                "digest", "base", optional=("text", *_FIELDS, "closes", "agreed"), roles=("admin",)
            )
        ),
    ],
) -> Response:
    """Send the policy that was tried, as it was shown: one that loosens is only proposed."""
    visit, fields = visit_of(request, sent.visitor), sent.fields
    state = visit.service.state(population)
    adopted = state.adopted
    if adopted is None or str(adopted.sequence) != fields["base"]:
        raise Refused(409, "Another policy was adopted since this page was made: try it again.")
    text = _plain(fields.get("text", ""))
    if not text:
        values = {name: fields.get(name, "") for name in _FIELDS}
        text = changed(adopted.policy, Change(**values))
    policy, digest = parse_policy(text)
    if digest != fields["digest"]:
        raise Refused(409, "This is not the policy that the page has shown: try it again.")
    closes = [rule.id for rule in policy.limits] if fields.get("closes") == "yes" else []
    command = AdoptPolicy(policy=policy.to_json(), source_digest=digest, closes=closes)
    answer = visit.service.execute(population, Envelope(sent.visitor.name, command))
    here = f"/console/{quote(population, safe='')}"
    if not answer.entries:
        return RedirectResponse(f"{here}/accounts", 303)
    last = answer.entries[-1]
    proposed = last.type == outcome.PROPOSED
    place = "proposals" if proposed else "ledger"
    return RedirectResponse(f"{here}/{place}/{last.sequence}", 303)


def _page(
    request: Request,
    visit: Visit,
    population: str,
    found: WhatIf,
    asked: Mapping[str, str],
    days: int,
) -> HTMLResponse:
    """Return the page; a mistake comes back with what was typed."""
    tried, looked = found.found, None
    if isinstance(tried, Tried) and not tried.same:
        trials: Trials = request.app.state.trials
        since = (visit.now // DAY - days + 1) * DAY
        looked = trials.ask(Asked(population, tried.text, since))
    status = 422 if isinstance(tried, Mistake) else 200
    return visit.page(
        "what_if.html.j2",
        "what-if",
        population,
        status=status,
        **words.told(found, looked, asked, days),
    )


def _plain(text: str) -> str:
    """Return a text as browsers send it, with the line ends that it was written with."""
    return text.replace("\r\n", "\n")


def _days(text: str) -> int:
    return min(MOST_DAYS, max(1, int(text))) if text.isdecimal() and len(text) < 6 else DAYS
