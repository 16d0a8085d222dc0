"""What needs somebody, what runs out first, and whether all is in order: of one population."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import islice
from typing import Final, Literal

from msgspec import Struct

from accountant.budget.decide.approving import asking, looked_at
from accountant.budget.decide.proposing import why
from accountant.budget.errors import Problem
from accountant.budget.facts import SECOND
from accountant.budget.proposals import Proposal
from accountant.budget.state import ALL
from accountant.console.amounts import grouped, up
from accountant.console.facts.accounts import NO_LIMIT, Row, ranked, row_of
from accountant.console.facts.proposed import question
from accountant.ledger.events import microseconds, rfc3339
from accountant.privacy.units import INFINITE, Currency
from accountant.reporting.activity import DAY, Ending
from accountant.reporting.custody import LedgerFacts
from accountant.reporting.desk import Page
from accountant.reporting.history import LATEST
from accountant.reporting.numbers import NO_BOUND, lasted, minute
from accountant.reporting.schema import NotableFacts
from accountant.reporting.verdict import doubts, is_over
from accountant.reporting.words import shortened
from accountant.store.ledgers import DataRead

WEEK: Final = 7
"""Days, of UTC, today included."""
MOST_ROWS: Final = 100
"""Accounts that are shown, the worst; the page of the population has all."""
MOST: Final = 20
"""Needs of one sort that are listed singly; the others are counted."""
JUDGED: Final = 200
"""Requests of which it is looked whether they need a person: each is judged for that."""
Kind = Literal["alarm", "over", "proposal", "request", "finding"]
KINDS: Final[tuple[Kind, ...]] = ("alarm", "over", "proposal", "request", "finding")
"""In the order in which they are listed."""


class Need(Struct, frozen=True):
    """Something that a person has to look at: a sentence, what follows from it, and where to go,
    an address below the population's.
    """

    kind: Kind
    what: str
    meta: str
    place: str
    action: str


class Week(Struct, frozen=True):
    """How many requests ended how in the last seven days, and in the seven before."""

    this: dict[Ending, int]
    last: dict[Ending, int]


class Held(Struct, frozen=True):
    """Open grants, and since when the oldest is."""

    grants: int
    oldest: str | None


class HomeFacts(Struct, frozen=True):
    """One population. ``accounts`` are the worst; ``datasets``: by status, how many there are."""

    name: str
    unit: str
    needs: tuple[Need, ...]
    more: dict[Kind, int]
    """How many more needs of a sort there are."""
    accounts: tuple[Row, ...]
    datasets: dict[str, int]
    week: Week
    held: Held
    ledger: LedgerFacts


def home(page: Page) -> HomeFacts:
    """Return what the first page shows of a population."""
    state, places = page.followed.state, ranked(page)
    found = tuple(row_of(page, one) for one in places[:MOST_ROWS])
    facts = custody(page)
    today = page.now // DAY
    activity, oldest = page.followed.activity, page.followed.history.held.oldest()
    found_needs = needs(page, found, facts)
    over = sum(one.total is not None and one.total.status == "over" for one in places)
    return HomeFacts(
        name=state.ledger,
        unit=state.people().called() if state.population else "one person",
        needs=tuple(one for of_sort in found_needs.values() for one in of_sort[:MOST]),
        more={
            kind: more
            for kind, of_sort in found_needs.items()
            if (more := max(over if kind == "over" else 0, len(of_sort)) - MOST) > 0
        },
        accounts=found,
        datasets=Counter(one.total.status if one.total else NO_LIMIT for one in places),
        week=Week(
            dict(activity.within(today - WEEK + 1, today)),
            dict(activity.within(today - 2 * WEEK + 1, today - WEEK)),
        ),
        held=Held(len(state.open), rfc3339(oldest.opened) if oldest else None),
        ledger=facts,
    )


def custody(page: Page) -> LedgerFacts:
    """Return what happened to the ledger itself."""
    return page.followed.custody.facts(page.followed.state)


def needs(page: Page, accounts: tuple[Row, ...], ledger: LedgerFacts) -> dict[Kind, list[Need]]:
    """Return what a person has to look at, by sort, the gravest first."""
    alarms = [
        Need("alarm", headline, text, "evidence", "See why")
        for headline, text in doubts(ledger).items()
    ]
    return {
        "alarm": alarms,
        "over": _over(page, accounts),
        "proposal": proposal_needs(page.followed.state.proposals.values(), page.now),
        "request": _requests(page),
        "finding": _findings(page),
    }


def _over(page: Page, accounts: tuple[Row, ...]) -> list[Need]:
    """Return the accounts that are over their limits, each with the last request that ran over."""
    ran = page.followed.history.latest("overrun", 0, MOST * 5)
    found = []
    for row in accounts:
        if row.status != "over" or row.total is None or row.forecast is None:
            continue
        since, holds = row.forecast.over_since, up(row.total.sum_of_epsilons, 3)
        promise = "nothing is promised" if holds == NO_BOUND else f"that of {holds} does"
        text = f"The promise of rule {row.rule} no longer holds; {promise}."
        if since:
            text = f"Over since {minute(since)}. {text}"
        if last := next((one for one in ran if row.dataset in (ALL, one.dataset)), None):
            lost = "a loss without bound" if last.epsilon == INFINITE else up(last.epsilon, 3)
            text = f"{last.client} ran {lost}, which went over it (event {last.sequence}). {text}"
        what = f"{is_over(row.dataset, row.total.spent, row.limit or '0', grouped)}."
        found.append(Need("over", what, text, f"accounts/{row.dataset}", "See what ran"))
    return found


def proposal_needs(proposals: Iterable[Proposal], now: int) -> list[Need]:
    """Return the proposals that can be confirmed, those that lapse first before others."""
    found = []
    for one in sorted(proposals, key=lambda one: one.expires):
        if one.is_open(now):
            since, until = minute(rfc3339(one.time)), minute(rfc3339(one.expires))
            said = f"From {one.by}, {since}. It takes a second person: {why(one.effect)}."
            text = f"{shortened(said, 400)} Lapses on {until}."
            what = question(one.command)
            found.append(Need("proposal", what, text, f"proposals/{one.sequence}", "Decide"))
    return found


def _requests(page: Page) -> list[Need]:
    found: list[Need] = []
    state = page.followed.state
    rules = state.adopted.policy.rules if state.adopted else ()
    if all(rule.action != "approve" for rule in rules):
        return found
    for one in islice(state.waiting.in_order(), JUDGED):
        try:
            request, judged = looked_at(state, one, page.now)
        except Problem:  # its terms have changed: it can only time out
            continue
        if one.due(page.now) or not (leave := asking(judged)):
            continue
        asks = page.texts.open(one.sequence, one.document)
        epsilon = up(request.total.amount(Currency.EPSILON), 3)
        named = ", ".join(one.on.named)
        purpose = f", for {shortened(asks['purpose'], 80)}" if asks.get("purpose") else ""
        what = f"{one.by} asks for {epsilon} on {named}{purpose}."
        text = f"Rule {' and '.join(leave)} leaves it to a person."
        text += f" Lapses on {minute(rfc3339(one.expires))}."
        found.append(Need("request", what, text, f"requests/{one.id}", "Decide"))
    return found


def _findings(page: Page) -> list[Need]:
    """Return what the last seven days brought, by client: each as one finding."""
    since, history = page.now - WEEK * DAY, page.followed.history
    found = []
    for sort, (one, several, meaning) in _SORTS.items():
        by_client: defaultdict[str, list[NotableFacts]] = defaultdict(list)
        latest = history.latest(sort, since, LATEST)
        least = "at least " if len(latest) == LATEST else ""  # earlier ones are forgotten
        for event in latest:
            by_client[event.client].append(event)
        for client, events in by_client.items():
            number = f"{least}{len(events):,}"
            last, times = events[0], one if len(events) == 1 else several.format(number)
            what = f"{client} {times}, last on {last.dataset or 'no dataset'}."
            age = lasted((page.now - microseconds(last.time)) / SECOND)
            lost = "no bound" if last.epsilon == INFINITE else f"{up(last.epsilon, 3)} epsilon"
            text = f"Event {last.sequence}, {age} ago: {lost}. {meaning}"
            found.append(Need("finding", what, text, f"ledger/{last.sequence}", "Read"))
    return found


def read_needs(reads: Iterable[DataRead], now: int) -> list[Need]:
    """Return the jobs that read data without a grant lately: each dataset of each as one finding,
    the latest first.
    """
    by_job: dict[tuple[str, str], list[DataRead]] = {}
    for one in reads:
        by_job.setdefault((one.job, one.dataset), []).append(one)
    found = []
    for (job, dataset), runs in by_job.items():
        age = lasted((now - max(one.last for one in runs)) / SECOND)
        several = f" in {len(runs):,} runs" if len(runs) > 1 else ""
        what = f"{shortened(job, 80)} read {dataset} without a grant{several}."
        text = f"Last {age} ago, by what {runs[0].by} told. Nothing was charged for it."
        found.append(Need("finding", what, text, "findings", "Read"))
    return found


_SORTS: Final = {
    "understated": (
        "claimed too little in a request",
        "claimed too little in {} requests",
        "The claim was below what its mechanism costs.",
    ),
    "unverifiable": (
        "made a claim that nothing verifies",
        "made {} claims that nothing verifies",
        "What it costs rests on the client's word.",
    ),
    "expired": (
        "never reported on a grant",
        "never reported on {} grants",
        "What expires is charged in full.",
    ),
}
