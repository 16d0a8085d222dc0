"""What alerts are made of: the facts of the pages, as they are when nobody looks at them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import nlargest
from time import monotonic
from typing import Final

from accountant.auth.keys import LEDGER as KEYS
from accountant.budget.decide.approving import asking, looked_at
from accountant.budget.errors import Problem
from accountant.budget.grants import Grant
from accountant.config.alerts import AlertSettings, Terms
from accountant.config.logs import logger
from accountant.console.facts.accounts import forecast_of
from accountant.console.facts.alerts import (
    AskedRequest,
    Facts,
    LimitUse,
    OldGrants,
    OpenProposal,
    alerts,
    clock_alert,
    proposal_alert,
    read_alerts,
    unusable,
)
from accountant.console.facts.home import custody
from accountant.console.facts.proposed import question
from accountant.console.facts.standing import balance_of
from accountant.notifying.alerting import Alert, Alerting, Rest, Way
from accountant.privacy.units import Currency
from accountant.publishing.publisher import Publisher
from accountant.reporting.activity import DAY
from accountant.reporting.desk import Behind, Desk, Page
from accountant.reporting.statement import scopes
from accountant.runtime.service import Service
from accountant.store import Damaged, StoreError
from accountant.store.projection import Diverged

MOST_REQUESTS: Final = 200
"""Requests that wait and are looked at: each has to be judged anew."""
_READING: Final = 20.0
"""Seconds that a look takes to read ledgers; a page that asks as often reads as fast."""
_REST: Final = 0.2
"""Seconds between two pieces, for those who ask for grants."""
_log = logger()


def alerting(
    service: Service,
    publisher: Publisher,
    desk: Desk,
    settings: AlertSettings,
    ways: Sequence[Way],
    origin: str,
) -> Alerting:
    """Return what a job runs: it asks the desk, as pages do."""
    asked = partial(look, service, publisher, desk, settings.alerts)
    return Alerting(service, asked, ways, service.console, origin)


def look(
    service: Service, publisher: Publisher, desk: Desk, terms: Terms, rest: Rest
) -> Iterator[tuple[str, list[Alert]]]:
    """Give what is worth an alert now, by population. Ledgers are read piece by piece, with rests
    in between; one that is not read to its end then is left for the next time, and so is one whose
    database or vault cannot be read now. While the clock is in doubt, nothing follows from what it
    shows. Raise StoreError.
    """
    doubt, end = service.clock_doubt(), monotonic() + _READING
    if doubt is not None:
        yield doubt.ledger, [clock_alert(doubt)]
    else:
        try:
            keys = _keys(service)
        except (OSError, Problem, StoreError) as error:
            _log.warning("a ledger was not looked at", ledger=KEYS, reason=str(error))
        else:
            yield KEYS, keys
    for population in service.populations():
        now = 0 if doubt else service.time()
        try:
            published = publisher.last_published(population)
            ask = partial(desk.ask, population, partial(alerts_of, terms=terms), now, published)
            while isinstance(found := ask(), Behind) and monotonic() < end and not rest(_REST):
                pass
            reads = _reads(service, population, now)
        except (OSError, Problem, StoreError) as error:
            if isinstance(error, Damaged) or isinstance(error.__cause__, Damaged | Diverged):
                yield population, [unusable(population, service.time())]
            _log.warning("a ledger was not looked at", ledger=population, reason=str(error))
        else:
            if not isinstance(found, Behind):
                yield population, [*found, *reads]


def _keys(service: Service) -> list[Alert]:
    """Return the alerts of keys and links that wait for a second person."""
    found, now = service.credentials.proposals()
    return [
        proposal_alert("keys", OpenProposal(one.sequence, question(one.command), one.expires))
        for one in found
        if one.is_open(now)
    ]


def _reads(service: Service, population: str, now: int) -> list[Alert]:
    """Return the alerts of what was read today, a day of UTC, without a grant."""
    today = now // DAY * DAY
    return read_alerts(population, service.ledgers.ungranted(population, today), now) if now else []


def alerts_of(page: Page, terms: Terms) -> list[Alert]:
    """Return what is worth an alert of one ledger."""
    return alerts(page.followed.state.ledger, alerted(page, terms.orphaned), terms)


def alerted(page: Page, orphaned: float) -> Facts:
    """Return what is known of a ledger. ``orphaned``: the share of its life after which an open
    grant counts as old.
    """
    state, ledger, today = page.followed.state, custody(page), page.now // DAY
    checkpoint, alarm = ledger.checkpoint, ledger.alarm
    return Facts(
        now=page.now,
        limits=_limits(page),
        proposals=tuple(
            OpenProposal(one.sequence, question(one.command), one.expires)
            for one in state.proposals.values()
            if one.is_open(page.now)
        ),
        requests=tuple(_requests(page)),
        old=_old(page, orphaned),
        refused=page.followed.activity.within(today, today)["refused"],
        broken_at=ledger.broken_at,
        diverged=checkpoint.size if checkpoint and not checkpoint.continued else None,
        alarm=(alarm.sequence, alarm.witness) if alarm else None,
        found=tuple(
            (one.sequence, one.by, one.size, one.findings)
            for one in ledger.verified
            if one.findings
        ),
    )


def _limits(page: Page) -> tuple[LimitUse, ...]:
    """Return the limits that the accounts of the pages have: on datasets, and on all together."""
    state, found = page.followed.state, []
    for counted in scopes(state) if state.population else ():
        if counted.rule.divides or counted.rule.subjects is not None:
            continue
        total = balance_of(page, counted)
        forecast = forecast_of(page, counted, total)
        paces = [(one.runs_out, one.days) for one in forecast.paces if one.runs_out is not None]
        runs_out, days = min(paces, default=(None, 0))
        periodic = counted.epoch.window.period(page.now) if counted.epoch.window else None
        found.append(
            LimitUse(
                dataset=counted.key.dataset,
                rule=counted.rule.id,
                epoch=counted.key.epoch,
                began=str(periodic[0]) if periodic else "",
                limit=f"{counted.rule.limit.epsilon:f}",
                spent=total.spent,
                held=total.together,
                over=total.void,
                runs_out=runs_out,
                pace_days=days,
            )
        )
    return tuple(found)


def _requests(page: Page) -> Iterator[AskedRequest]:
    """Give, of the latest requests that wait, those that a person has to decide."""
    state = page.followed.state
    if state.adopted is None or all(r.action != "approve" for r in state.adopted.policy.rules):
        return
    waiting = state.waiting.requests.values()
    for one in nlargest(MOST_REQUESTS, waiting, key=lambda one: one.sequence):
        try:
            request, judged = looked_at(state, one, page.now)
        except Problem:  # its terms have changed: it can only time out
            continue
        if (rules := asking(judged)) and not one.due(page.now):
            epsilon = request.total.amount(Currency.EPSILON)
            named = tuple(one.on.named)
            yield AskedRequest(one.id, one.by, epsilon, named, tuple(rules), one.expires)


def _old(page: Page, share: float) -> tuple[OldGrants, ...]:
    """Return the open grants that are past a share of their lives, by client."""
    found: defaultdict[str, list[Grant]] = defaultdict(list)
    for one in page.followed.state.open.values():
        if page.now - one.opened >= share * (one.expires - one.opened):
            found[one.by].append(one)
    return tuple(
        OldGrants(client, len(held), first.id, first.expires)
        for client, held in sorted(found.items())
        for first in [min(held, key=lambda one: one.expires)]
    )
