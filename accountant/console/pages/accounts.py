"""The pages of a population's accounts, and of each one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

from fastapi import Path, Query
from fastapi.responses import HTMLResponse

from accountant.console.access import Refused, pages
from accountant.console.amounts import up
from accountant.console.facts.account import AccountFacts, account
from accountant.console.facts.listing import EACH, Listing, listing
from accountant.console.framing import Overseen, Population
from accountant.console.pages import account_words as words
from accountant.console.pages.group_words import heat
from accountant.console.pages.picture_words import picture
from accountant.console.pages.week_words import week_headline, week_rows
from accountant.privacy.units import INFINITE
from accountant.reporting.numbers import counted, day
from accountant.reporting.verdict import in_words

router = pages()
Told = dict[str, Any]
Text = Annotated[str, Query(max_length=200)]
_EVENT: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


@router.get("/{population}/accounts")
def show_accounts(
    population: Population,
    visit: Overseen,
    name: Text = "",
    page: Annotated[int, Query(ge=1, le=10**6)] = 1,
    exact: bool = False,
) -> HTMLResponse:
    """Show all accounts of a population, worst first."""
    found, early = visit.so_far(population, partial(listing, name=name, number=page))
    if found is None:
        raise Refused(404, f"Population {population} has no accounts.")
    shown = told_list(found, name, exact=exact)
    return visit.page("accounts.html.j2", "accounts", population, early=early, **shown)


@router.get("/{population}/accounts/{dataset}")
def show_account(
    population: Population,
    dataset: Annotated[str, Path(max_length=64)],
    visit: Overseen,
    rule: Text = "",
    rows: Text = "",
    columns: Text = "",
    at: Text = "",
    exact: bool = False,
) -> HTMLResponse:
    """Show one account: a dataset, or "*" for all together."""
    at = at if _is_moment(at) else ""
    by = tuple(one for one in (rows, columns) if one)
    question = partial(account, dataset=dataset, rule=rule, by=by, at=at)
    found, early = visit.so_far(population, question)
    if found is None:
        what = f"limit called {rule} on {in_words(dataset)}" if rule else f"dataset {dataset}"
        raise Refused(404, f"Population {population} has no {what}.")
    asked = {"rule": rule, "rows": rows, "columns": columns, "at": at}
    shown = told(found, asked, exact=exact)
    return visit.page("account.html.j2", "accounts", population, early=early, **shown)


def _is_moment(text: str) -> bool:
    """Return whether a text names an event or a day."""
    if _DAY.fullmatch(text):
        with suppress(ValueError):
            return bool(date.fromisoformat(text))
    return bool(_EVENT.fullmatch(text))


def told_list(facts: Listing, name: str, *, exact: bool) -> Told:
    """Return what the template says of the accounts of a population."""
    asked = {"name": name, "exact": exact, "page": 1}
    here = f"/console/{quote(facts.population, safe='')}/accounts"
    return {
        "of": facts.population,
        "headline": _list_headline(facts),
        "lede": _list_lede(facts),
        "accounts": facts.accounts,
        "name": name,
        "exact": exact,
        "total": facts.total,
        "found": facts.found,
        "first": (facts.number - 1) * EACH + 1,
        "number": facts.number,
        "pages": facts.pages,
        "divided": facts.parts,
        "more": facts.more,
        "place": _places(here, asked),
    }


def _list_headline(facts: Listing) -> str:
    if not facts.total:
        return "No account yet"
    if facts.troubled:
        one = facts.troubled == 1
        if facts.total == 1:
            return "The one account is near, at or over its limit"
        return f"{facts.troubled:,} of {facts.total:,} accounts " + (
            "is near, at or over its limit" if one else "are near, at or over their limits"
        )
    all_within = f"All {facts.total:,} accounts are within their limits"
    return all_within if facts.total > 1 else "One account, within its limit"


def _list_lede(facts: Listing) -> str:
    if facts.unlimited:
        have = "dataset has" if facts.unlimited == 1 else "datasets have"
        return f"{facts.unlimited:,} {have} no limit: what is asked of them is not bounded."
    return "Every dataset has a limit." if facts.total else "Nothing can be spent before there is."


def told(facts: AccountFacts, asked: Mapping[str, str], *, exact: bool) -> Told:
    """Return what the template says of an account; ``asked``: rule, rows, columns, at."""
    limit, burn, found = facts.limit, facts.burn, facts.groups
    here = f"/console/{quote(facts.population, safe='')}/accounts/{quote(facts.dataset, safe='')}"
    kept = {**asked, "exact": exact}
    usual = facts.usual.epsilon if facts.usual else None
    gates = ("", True) if limit is None else words.gates_said(limit)
    return {
        "facts": facts,
        "exact": exact,
        "about": _about(facts),
        "headline": words.headline(facts),
        "lede": words.lede(facts),
        "last_refusal": burn.refused[-1] if burn and burn.refused else None,
        "figures": () if limit is None else words.figures(facts, limit),
        "chances": "" if limit is None else words.chances(limit),
        "picture": picture(facts.dataset, usual, limit, burn) if limit and burn else None,
        "heat": heat(limit, usual, found) if limit and found else None,
        "week_headline": week_headline(facts.week),
        "week": week_rows(facts.week),
        "reserved_headline": _reserved(facts),
        "past": _past(facts),
        "day_asked": asked.get("at", "") if "-" in asked.get("at", "") else "",
        "gates_said": gates[0],
        "gates_agree": gates[1],
        "address": here,
        "kept": _shown({**kept, "rows": "", "columns": ""}),
        "place": _places(here, kept),
    }


def _about(facts: AccountFacts) -> str:
    if facts.dataset == "*":
        text = "What anyone can learn from all datasets together."
    else:
        text = f"{facts.source}."
        if facts.owner:
            text += f" Owner: {facts.owner}."
        if facts.labels:
            text += " " + ", ".join(f"{k}: {v}" for k, v in facts.labels.items()) + "."
        if facts.parents:
            text += f" Derived from {' and '.join(facts.parents)}."
    limit = facts.limit
    text += f" Protected: {limit.unit if limit else facts.unit}."
    if limit:
        text += f" Shown: rule {limit.rule}" + (f", about {limit.about}." if limit.about else ".")
    return text


def _reserved(facts: AccountFacts) -> str:
    held = facts.reservations
    if not held.open:
        return "Nothing is reserved"
    some, epsilon = counted(held.open, "open grant"), held.epsilon
    if epsilon == INFINITE:
        if facts.limit is None:  # which could bound what has no epsilon of its own
            return some
        epsilon = facts.limit.total.reserved
    return f"{some}: {up(epsilon, 3)} reserved"


def _past(facts: AccountFacts) -> Told | None:
    if facts.past is None:
        return None
    asked = facts.past.asked
    when = f"event {asked}" if asked.isdecimal() else day(asked)
    return {"headline": f"As it was at {when}", "point": facts.past.point}


def _shown(asked: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parameters of an address that say something."""
    return [
        (key, "1" if value is True else str(value))
        for key, value in asked.items()
        if value and not (key == "page" and value == 1)
    ]


def _places(here: str, asked: Mapping[str, Any]) -> Callable[..., str]:
    """Return a function that gives the address of this page with other parameters."""

    def place(**changed: Any) -> str:
        query = urlencode(_shown({**asked, **changed}))
        return f"{here}?{query}" if query else here

    return place
