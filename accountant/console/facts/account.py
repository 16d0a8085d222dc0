"""One account: how much is left, how fast it goes, who spent it, who lost it, by which rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct

from accountant.budget.accounts.sums import Sums
from accountant.budget.state import ALL, Counted, State
from accountant.console.facts.accounts import UsualFacts, forecast_of, tightest, usual
from accountant.console.facts.groups import Groups, groups
from accountant.console.facts.pace import Forecast
from accountant.console.facts.rules_then import (
    LimitThen,
    PolicyThen,
    limits_then,
    policy_then,
)
from accountant.console.facts.spending import Spending, spending
from accountant.console.facts.standing import balance_of
from accountant.ledger.events import microseconds, rfc3339
from accountant.privacy.units import INFINITE
from accountant.reporting.activity import DAY, Ending
from accountant.reporting.counting import Basis
from accountant.reporting.desk import Page
from accountant.reporting.model import basis_under, reservations
from accountant.reporting.schema import PeriodFacts, PointFacts, Reservations, Status
from accountant.reporting.statement import (
    Balance,
    ladder,
    period,
    scopes,
    unlocked_part,
    worst_group,
)
from accountant.reporting.words import formula, rule_in_words

WEEK: Final = 7
MOST_PARTS: Final = 100
"""Parts of clients and purposes, or further limits, that are listed; the others are counted."""
MOST_MARKS: Final = 60
"""Refusals that are marked, the latest."""


class Gate(Struct, frozen=True):
    """What one way of adding up comes to; ``used_here``: the limit compares it."""

    name: str
    used: str
    used_here: bool


class Limit(Struct, frozen=True, kw_only=True):
    """The limit that the page is about, and where it stands."""

    rule: str
    scope: str
    shared: bool
    """It is on all datasets together, and the page is about one of them."""
    sentence: str
    unit: str
    action: str
    epsilon: str
    delta: str
    largest: str
    """The largest epsilon that requests in some context may bring it to; "" if that is as usual."""
    window: str
    ends: str | None
    """When its period of the calendar ends, and it begins anew."""
    unlocked: str | None
    status: Status
    total: Balance
    since: str
    carried: bool
    worst: dict[str, str]
    gates: tuple[Gate, ...]
    forecast: Forecast
    unit_name: str = ""
    """The further unit that it protects."""
    about: str = ""
    """The cells that it is about; "" if all."""


class Other(Struct, frozen=True):
    """Another limit on the account, or a part of one that divides it."""

    rule: str
    dataset: str
    scope: str
    limit: str
    status: Status
    total: Balance
    divides: bool


class Burn(Struct, frozen=True):
    """How a limit was used: after events, in order; the last is now. ``refused``: the latest
    refusals on the account, by event and time.
    """

    points: tuple[PointFacts, ...]
    refused: tuple[tuple[int, str], ...]
    every: int


class WeekFacts(Struct, frozen=True):
    """How requests ended in the last seven days and in the seven before, and by how much what is
    spent rose; None where that is not known.
    """

    this: dict[Ending, int]
    last: dict[Ending, int]
    spent: str | None
    spent_before: str | None


class Past(Struct, frozen=True):
    """The account as it was: after the last event that is kept, at or before the moment."""

    asked: str
    point: PointFacts | None


class AccountFacts(Struct, frozen=True, kw_only=True):
    """A dataset of a population, or all together ("*")."""

    population: str
    dataset: str
    unit: str
    source: str
    owner: str | None
    labels: dict[str, str]
    parents: tuple[str, ...]
    dimensions: tuple[str, ...]
    adopted: bool
    limit: Limit | None
    usual: UsualFacts | None
    burn: Burn | None
    spending: Spending
    groups: Groups | None
    week: WeekFacts
    reservations: Reservations
    others: tuple[Other, ...]
    parts: tuple[Other, ...]
    more: int
    refusals: int
    policy: PolicyThen | None
    limits: tuple[LimitThen, ...]
    past: Past | None
    first: str
    """When the ledger began."""


def account(
    page: Page, dataset: str, rule: str = "", by: Sequence[str] = (), at: str = ""
) -> AccountFacts | None:
    """Return what the page of an account shows; None without such a dataset, or such a limit on it.
    ``rule``: another limit than the tightest; ``by``: two dimensions; ``at``: an event or a day.
    """
    followed = page.followed
    state = followed.state
    if state.population is None or (dataset != ALL and dataset not in state.datasets):
        return None
    covering = [one for one in scopes(state) if _covers(state, one, dataset)]
    whole = [one for one in covering if not one.rule.divides]
    counted = _chosen(page, whole, dataset, rule)
    if counted is None and rule:
        return None
    there = state.datasets.get(dataset)
    sums = None if counted is None else state.seen(counted.key).used
    before, past = _moment(page, counted, at)
    used = usual(state, followed.activity, dataset, page.now)
    others = [other(page, one) for one in whole if counted is None or one.key != counted.key]
    parts = [other(page, one) for one in covering if one.rule.divides]
    adoptions = tuple(followed.adoptions)
    totals = followed.history.policies_total
    basis = Basis() if counted is None else basis_under(state, followed.history, counted)
    return AccountFacts(
        population=state.ledger,
        dataset=dataset,
        unit=state.people().called(),
        source=f"{there.namespace}/{there.name}" if there else "",
        owner=there.owner if there else None,
        labels=dict(there.labels) if there else {},
        parents=tuple(there.parents) if there else (),
        dimensions=tuple(name for name, _ in state.people().dimensions),
        adopted=state.adopted is not None,
        limit=None if counted is None or sums is None else _limit(page, counted, dataset, sums),
        usual=used,
        burn=None if counted is None else _burn(page, counted, dataset),
        spending=spending(state, followed.history, dataset, counted),
        groups=None if counted is None else groups(state, counted, by, sums),
        week=_week(page, counted, dataset),
        reservations=reservations(followed.history, dataset, basis),
        others=tuple(others[:MOST_PARTS]),
        parts=tuple(sorted(parts, key=share_of, reverse=True)[:MOST_PARTS]),
        more=max(0, len(others) - MOST_PARTS) + max(0, len(parts) - MOST_PARTS),
        refusals=followed.history.total("blocked", dataset),
        policy=policy_then(adoptions, totals, before, there, state.population),
        limits=limits_then(adoptions, counted.rule.id) if counted is not None else (),
        past=past,
        first=rfc3339(adoptions[0].time) if adoptions else rfc3339(state.time),
    )


def _covers(state: State, counted: Counted, dataset: str) -> bool:
    """Return whether charges on a dataset count in an account."""
    if counted.key.dataset == dataset:
        return True
    there = state.datasets.get(dataset)
    return counted.key.dataset == ALL and there is not None and counted.rule.scope.holds(there)


def _chosen(page: Page, whole: Sequence[Counted], dataset: str, rule: str) -> Counted | None:
    """Return the limit that was asked for, or the tightest; the own one of a dataset, if any."""
    if not rule:
        found = tightest(page, whole).get(dataset)
        return None if found is None else found[0]
    named = [one for one in whole if one.rule.id == rule]
    return max(named, key=lambda one: one.key.dataset == dataset, default=None)


def _limit(page: Page, counted: Counted, dataset: str, used: Sums) -> Limit:
    state, (rule, epoch, key) = page.followed.state, counted
    total = balance_of(page, counted)
    part, found = unlocked_part(state, counted), period(state, epoch)
    return Limit(
        rule=rule.id,
        scope=rule.place_in_words((key.dataset, key.client, key.purpose), state.people()),
        shared=key.dataset != dataset,
        sentence=rule_in_words(rule, state.population),
        unit=state.people().called(rule.unit),
        unit_name=rule.unit or "",
        about=rule.group_in_words,
        action=rule.action,
        epsilon=f"{rule.limit.epsilon:f}",
        delta=f"{rule.limit.delta:f}",
        largest=f"{rule.most.epsilon:f}" if rule.relaxed else "",
        window=epoch.window.words if epoch.window else "",
        ends=found.end if isinstance(found, PeriodFacts) else None,
        unlocked=part if isinstance(part, str) else None,
        status=total.status,
        total=total,
        since=rfc3339(epoch.since),
        carried=epoch.carried,
        worst={} if used.flat else worst_group(state, counted, used),
        gates=tuple(_gate(one, rule.filter.name) for one in ladder(state, counted, used)),
        forecast=forecast_of(page, counted, total),
    )


def _gate(rung: dict[str, str], gate: str) -> Gate:
    return Gate(formula(rung["gate"])[0], rung["used"], rung["gate"] == gate)


def other(page: Page, counted: Counted) -> Other:
    """Return a limit that a page lists beside others."""
    rule, epoch, key = counted
    state, total = page.followed.state, balance_of(page, counted)
    return Other(
        rule=rule.id,
        dataset=key.dataset,
        scope=rule.place_in_words((key.dataset, key.client, key.purpose), state.people())
        + (f", {epoch.window.words}" if epoch.window else ""),
        limit=f"{rule.limit.epsilon:f}",
        status=total.status,
        total=total,
        divides=rule.divides,
    )


def share_of(one: Other) -> float:
    """Return the share of a limit that is used, for sorting."""
    return float("inf") if one.total.share is None else one.total.share


def _burn(page: Page, counted: Counted, dataset: str) -> Burn:
    state, key = page.followed.state, counted.key
    series = page.followed.burndowns
    found = list(series.points(key.rule, key.dataset))
    if found or not counted.rule.subjects:
        found.append(_now(page, counted))
    marks = page.followed.history.stamps("blocked", dataset)[-MOST_MARKS:]
    return Burn(
        points=tuple(found),
        refused=tuple((sequence, rfc3339(stamp)) for sequence, stamp in marks),
        every=series.every(key.rule, key.dataset) if state.sequence else 1,
    )


def _now(page: Page, counted: Counted) -> PointFacts:
    """Return the point of the present moment."""
    state = page.followed.state
    total = balance_of(page, counted)
    limit = f"{counted.rule.limit.epsilon:f}"
    return PointFacts(
        sequence=max(0, state.last),
        time=rfc3339(page.now),
        limit=limit,
        spent=total.spent,
        spent_and_reserved=total.together,
        epoch=counted.key.epoch,
    )


def _week(page: Page, counted: Counted | None, dataset: str) -> WeekFacts:
    activity, today = page.followed.activity, page.now // DAY
    rose: list[str | None] = [None, None]
    if counted is not None and counted.rule.span is None and not counted.rule.subjects:
        points = page.followed.burndowns.points(counted.key.rule, counted.key.dataset)
        stamps = [(today + 1 - days) * DAY for days in (0, WEEK, 2 * WEEK)]
        total = balance_of(page, counted)
        then = [total.spent, *(_spent_at(points, counted.key.epoch, one) for one in stamps[1:])]
        rose = [_rise(late, early) for late, early in pairwise(then)]
    return WeekFacts(
        dict(activity.within(today - WEEK + 1, today, dataset)),
        dict(activity.within(today - 2 * WEEK + 1, today - WEEK, dataset)),
        *rose,
    )


def _spent_at(points: Iterable[PointFacts], epoch: int, stamp: int) -> str | None:
    """Return what was spent at a stamp; None in an epoch before, as numbers may differ there."""
    last: PointFacts | None = None
    for one in points:
        if microseconds(one.time) >= stamp:
            break
        last = one
    if last is None:
        return "0"
    return last.spent if last.epoch == epoch else None


def _rise(late: str | None, early: str | None) -> str | None:
    if late is None or early is None or INFINITE in (late, early):
        return None
    return format(max(Decimal(0), Decimal(late) - Decimal(early)).normalize(), "f")


def _moment(page: Page, counted: Counted | None, at: str) -> tuple[int, Past | None]:
    """Return the event that is the last one of the moment that ``at`` names, as far as it is known,
    and the account then. A day is known to the next event that is kept of the account.
    """
    state = page.followed.state
    if not at:
        return state.last, None
    points: Sequence[PointFacts] = ()
    if counted is not None:
        points = page.followed.burndowns.points(counted.key.rule, counted.key.dataset)
    known: list[Any]
    if at.isdecimal():
        sequence = int(at)
        known = [one for one in points if one.sequence <= sequence]
        return sequence, Past(at, known[-1] if known else None)
    known = [one for one in points if one.time[:10] <= at]
    adopted = [e.sequence for e in page.followed.adoptions if rfc3339(e.time)[:10] <= at]
    last = max([*adopted, *(one.sequence for one in known[-1:])], default=-1)
    return last, Past(at, known[-1] if known else None)
