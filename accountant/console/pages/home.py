"""Home: what needs somebody, what runs out first, whether all is in order; over all populations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final

from fastapi import Query
from fastapi.responses import HTMLResponse
from msgspec import Struct
from msgspec.structs import replace

from accountant.budget.errors import Problem
from accountant.console.access import pages
from accountant.console.facts.accounts import NO_LIMIT, Row
from accountant.console.facts.home import (
    KINDS,
    MOST,
    MOST_ROWS,
    WEEK,
    HomeFacts,
    Need,
    home,
    proposal_needs,
    read_needs,
)
from accountant.console.framing import NO_POPULATION, OverseenAnywhere, Part, Visit
from accountant.console.pages.week_words import DECIDED
from accountant.ledger.events import microseconds
from accountant.reporting.activity import DAY
from accountant.reporting.custody import LedgerFacts
from accountant.reporting.desk import Behind
from accountant.reporting.numbers import counted, lasted
from accountant.store import StoreError

_SECOND: Final = 1_000_000


class Unread(Struct, frozen=True):
    """A ledger that could not be read, and why."""

    name: str
    reason: str


class Order(Struct, frozen=True):
    """Whether a ledger is in order, in words."""

    name: str
    tone: str
    said: str
    text: str
    witnesses: str
    verified: str
    held: str


router = pages()


@router.get("")
def show_home(
    visit: OverseenAnywhere, exact: Annotated[bool, Query(description="unrounded")] = False
) -> HTMLResponse:
    """Show what needs somebody, over all populations."""
    found, early = [], []
    for name in visit.populations():
        facts, behind = _looked_at(visit, name)
        found.append((name, facts or behind or Behind(0, 0)))
        if facts is not None and behind is not None:
            early.append(Part(name, *behind))
    keys = _keys(visit) if visit.reached is None else ()
    facts_told = told(found, visit.now, keys, whole=not early)
    return visit.page("home.html.j2", "home", fresh=30, exact=exact, early=early, **facts_told)


def _keys(visit: Visit) -> list[Need]:
    """Return the keys and links that wait for a second person."""
    proposals, now = visit.service.credentials.proposals()
    return proposal_needs(proposals, now)


def _looked_at(visit: Visit, name: str) -> tuple[HomeFacts | Unread | None, Behind | None]:
    """Return the facts of one population, and how far it was read, if not to its end. A ledger that
    is damaged does not hide the others.
    """
    try:
        found, behind = visit.look(name, home)
        if found is not None:
            since = visit.now - WEEK * DAY
            reads = read_needs(visit.service.ledgers.ungranted(name, since), visit.now)
            more = found.more | {"finding": found.more.get("finding", 0) + len(reads[MOST:])}
            found = replace(found, needs=(*found.needs, *reads[:MOST]), more=more)
        return found, behind
    except (Problem, StoreError) as error:
        return Unread(name, getattr(error, "detail", str(error))), None


def told(
    found: Sequence[tuple[str, HomeFacts | Behind | Unread]],
    now: int,
    keys: Sequence[Need] = (),
    *,
    whole: bool = True,
) -> dict[str, Any]:
    """Return what the template of Home says of each population's facts, and of what ``keys`` need,
    which are of none.
    """
    facts = [one for _, one in found if isinstance(one, HomeFacts)]
    whole = whole and len(facts) == len(found)
    needs = [(one.name, need) for one in facts for need in one.needs]
    needs += [(NO_POPULATION, need) for need in keys[:MOST]]
    needs.sort(key=lambda pair: KINDS.index(pair[1].kind))
    accounts = sorted((row for one in facts for row in one.accounts), key=lambda row: row.gravity)
    datasets = sum((Counter(one.datasets) for one in facts), Counter[str]())
    counts = Counter[str](need.kind for _, need in needs)
    more = [(one.name, kind, n) for one in facts for kind, n in one.more.items() if n]
    if keys[MOST:]:
        more.append((NO_POPULATION, "proposal", len(keys[MOST:])))
    units = {one.unit for one in facts}
    for _, kind, number in more:
        counts[kind] += number
    return {
        "headline": headline(counts.total(), whole=whole),
        "lede": lede(counts, datasets, whole=whole),
        "needs": needs,
        "more_needs": [(name, _MORE[kind], number) for name, kind, number in more],
        "behind": [Part(n, *one) for n, one in found if isinstance(one, Behind)],
        "unread": [one for _, one in found if isinstance(one, Unread)],
        "accounts": accounts[:MOST_ROWS],
        "more_accounts": max(0, datasets.total() - MOST_ROWS),
        "populations": [one.name for one in facts],
        "several": len(found) > 1,
        "unit": units.pop() if len(units) == 1 else "one person, or what else is protected,",
        "largest": _largest(accounts),
        "week": _week(facts),
        "order": [order(one, now) for one in facts],
    }


def headline(n: int, *, whole: bool) -> str:
    """Return the sentence that could be the whole page. ``whole``: all ledgers were read."""
    if not n:
        return "Nothing needs you" if whole else "Not everything was read yet"
    number = _NUMBERS[n] if n < len(_NUMBERS) else f"{n:,}"
    return f"{number} {'matter needs' if n == 1 else 'matters need'} you"


def lede(counts: Counter[str], datasets: Mapping[str, int], *, whole: bool) -> str:
    """Return the second sentence: what the matters are, or how the accounts are. ``counts``: by
    kind, how many matters there are; ``datasets``: by status, how many accounts.
    """
    parts = [_PARTS[kind](counts[kind]) for kind in KINDS if counts[kind]]
    if parts:
        text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
        return text[0].upper() + text[1:] + "."
    if not whole:
        return "Of what was read nothing needs you."
    near = sum(datasets.get(one, 0) for one in ("near", "used_up", "over_if_reservations_run"))
    bare = datasets.get(NO_LIMIT, 0)
    if not sum(datasets.values()) - bare:
        return "No dataset has a limit yet."
    if near:
        are = "account is" if near == 1 else "accounts are"
        text = f"{near} {are} near or at the limit; nothing is over"
    elif bare:
        text = f"{counted(bare, 'dataset has', 'datasets have')} no limit; nothing is over"
    else:
        text = "All accounts are within their limits"
    return f"{text}, and nobody waits for a decision."


def order(one: HomeFacts, now: int) -> Order:
    """Return whether a ledger is in order."""
    facts = one.ledger
    tone, said = _said(facts)
    held = "none"
    if one.held.oldest is not None:
        age = lasted((now - microseconds(one.held.oldest)) / _SECOND)
        held = f"{counted(one.held.grants, 'grant')}, the oldest for {age}"
    return Order(
        one.name, tone, said, _text(facts), _witnesses(facts), last_verified(facts, now), held
    )


def last_verified(facts: LedgerFacts, now: int) -> str:
    """Return who verified a ledger last, when, how much of it, and with what result."""
    if not facts.verified:
        return "nobody has recorded that they verified it"
    last = facts.verified[0]
    age = lasted((now - microseconds(last.time)) / _SECOND)
    found = f"with {counted(last.findings, 'finding')}" if last.findings else "without a finding"
    newer = facts.events - last.size
    since = f"; {counted(newer, 'event')} since" if newer > 0 else ""
    return f"by {last.by}, {age} ago: {counted(last.size, 'event')}, {found}{since}"


def _said(facts: LedgerFacts) -> tuple[str, str]:
    if facts.broken_at is not None:
        return "over", f"Event {facts.broken_at} was changed"
    if facts.alarm is not None:
        return "over", "A witness contradicts this ledger"
    if any(one.findings for one in facts.verified):
        return "over", "A verification found something wrong"
    if facts.checkpoint is None:
        return "near", "No checkpoint is published yet"
    if not facts.checkpoint.continued:
        return "over", "Not the ledger that was published"
    return "within", "Read again, and nothing was changed"


def _text(facts: LedgerFacts) -> str:
    events = counted(facts.events, "event")
    if facts.checkpoint is None:
        return (
            f"The hash of each of {events} is that of its bytes. Nobody outside can check it yet."
        )
    newer = facts.events - facts.checkpoint.size
    text = (
        f"The first {counted(facts.checkpoint.size, 'event')} are those of the last published "
        "checkpoint, by their hashes."
    )
    if newer > 0:
        waits = "waits" if newer == 1 else "wait"
        text += f" {counted(newer, 'newer event')} {waits} for the next one."
    return text + " Decisions and totals are checked by whoever verifies the auditor’s bundle."


def _witnesses(facts: LedgerFacts) -> str:
    checkpoint = facts.checkpoint
    if checkpoint is None or not checkpoint.witnesses:
        return "none: nobody else keeps a copy of the checkpoints"
    return (
        f"{checkpoint.cosigned} of {checkpoint.witnesses} have confirmed the last checkpoint, "
        f"{checkpoint.required} had to"
    )


def _week(facts: Iterable[HomeFacts]) -> list[tuple[str, bool, int, int]]:
    this, last = Counter[str](), Counter[str]()
    for one in facts:
        this.update(one.week.this)
        last.update(one.week.last)

    def row(name: str, *endings: str, sub: bool = False) -> tuple[str, bool, int, int]:
        return name, sub, sum(this[e] for e in endings), sum(last[e] for e in endings)

    return [
        row("Requests decided", *DECIDED),
        row("Let through", "admitted"),
        row("Recorded after they ran", "recorded"),
        row("of both, flagged", "flagged", sub=True),
        row("Refused", "refused"),
        row("Began to wait", "waiting"),
        row("Grants that expired", "expired"),
    ]


def _largest(accounts: Sequence[Row]) -> str | None:
    limits = [row.limit for row in accounts if row.limit is not None]
    return max(limits, key=Decimal, default=None)


_NUMBERS: Final = (
    *("No", "One", "Two", "Three", "Four", "Five", "Six"),
    *("Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"),
)
_MORE: Final = {
    "alarm": ("more alarms", "evidence"),
    "over": ("more accounts that are over their limits", "accounts"),
    "proposal": ("more proposals", "proposals"),
    "request": ("more requests that a person decides", "requests"),
    "finding": ("more findings of this week", "findings"),
}
"""What is not listed, and where it stands."""
_PARTS: Final = {
    "alarm": lambda n: f"{counted(n, 'alarm')} about the ledger itself",
    "over": lambda n: f"{n} {'account is over its' if n == 1 else 'accounts are over their'} limit",
    "proposal": lambda n: f"{n} {'proposal waits' if n == 1 else 'proposals wait'}",
    "request": lambda n: f"{n} {'request waits' if n == 1 else 'requests wait'} for a decision",
    "finding": lambda n: f"{n} {'finding is' if n == 1 else 'findings are'} new",
}
