"""What is worth an alert: from facts of a ledger to sentences that an officer understands.

Each alert has a name, which is the same for as long as it is the same thing: a threshold of a limit
in one epoch, a proposal, the refusals of one day. By its name it is told once. An alert has no free
texts, and no names but those of datasets, rules, policies and clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import partial
from typing import Final

from msgspec import Struct

from accountant.budget.facts import SECOND
from accountant.budget.state import ALL
from accountant.config.alerts import KINDS, Terms
from accountant.ledger.events import microseconds, rfc3339
from accountant.notifying.alerting import Alert
from accountant.privacy.units import INFINITE
from accountant.reporting.numbers import counted, day, minute, percent_of, places, up
from accountant.reporting.verdict import in_words, is_over
from accountant.runtime.clock import Doubt
from accountant.store.ledgers import DataRead

DAY: Final = 86_400 * SECOND


class LimitUse(Struct, frozen=True):
    """A limit on a dataset, or on all together ("*"), in its present epoch, and in its present
    period of the calendar if it has any, which ``began`` names. ``held`` is spent and reserved
    together; ``over``: more is spent than the limit allows; ``runs_out``: the soonest day on which
    nothing is left at the pace of the last so many days.
    """

    dataset: str
    rule: str
    epoch: int
    began: str
    limit: str
    spent: str
    held: str
    over: bool
    runs_out: str | None = None
    pace_days: int = 0

    @property
    def name(self) -> str:
        """What alerts about it are named by."""
        return "/".join((self.dataset, self.rule, str(self.epoch), *filter(None, [self.began])))


class OpenProposal(Struct, frozen=True):
    """A proposal that can be confirmed: what is asked, and when it lapses."""

    sequence: int
    question: str
    expires: int


class AskedRequest(Struct, frozen=True):
    """A request that waits for a person: whose, for how much on what, by which rules, and when it
    lapses.
    """

    id: str
    client: str
    epsilon: str
    datasets: tuple[str, ...]
    rules: tuple[str, ...]
    expires: int


class OldGrants(Struct, frozen=True):
    """The grants of a client that are open for most of their lives, and which expires first."""

    client: str
    grants: int
    first: str
    expires: int


class Facts(Struct, frozen=True):
    """What is known of a ledger at a stamp. ``refused``: how many requests were today, a day of
    UTC; ``broken_at``: the first event that was changed; ``diverged``: the size of the published
    ledger that this one does not continue; ``alarm``: the event of a witness's contradiction, and
    the witness; ``found``: verifications with findings, which the same person has not taken back:
    event, person, events and findings.
    """

    now: int
    limits: tuple[LimitUse, ...] = ()
    proposals: tuple[OpenProposal, ...] = ()
    requests: tuple[AskedRequest, ...] = ()
    old: tuple[OldGrants, ...] = ()
    refused: int = 0
    broken_at: int | None = None
    diverged: int | None = None
    alarm: tuple[int, str] | None = None
    found: tuple[tuple[int, str, int, int], ...] = ()


def alerts(population: str, facts: Facts, terms: Terms) -> list[Alert]:
    """Return all that is worth an alert now, the gravest first."""
    found = [*_custody(population, facts)]
    found += [proposal_alert(population, one) for one in facts.proposals]
    found += [_request(population, one) for one in facts.requests]
    for one in facts.limits:
        found += _limit(population, one, facts.now, terms)
    today = rfc3339(facts.now)[:10]
    for old in facts.old:
        found.append(_orphaned(population, old, today))
    if facts.refused:
        what = counted(facts.refused, "request was", "requests were")
        text = f"{population}: {what} refused today, {day(today)}."
        found.append(Alert("refusal", f"refusal/{today}", text, "ledger"))
    return sorted(found, key=lambda one: KINDS.index(one.kind))


def read_alerts(population: str, reads: Iterable[DataRead], now: int) -> list[Alert]:
    """Return the alerts of runs that read data without a grant: one a day for each dataset."""
    by_dataset: dict[str, list[DataRead]] = {}
    for one in reads:
        by_dataset.setdefault(one.dataset, []).append(one)
    today, found = rfc3339(now)[:10], []
    for dataset, runs in sorted(by_dataset.items()):
        what = counted(len(runs), "run")
        text = f"{population}: {what} told by {runs[0].by} read {dataset} without a grant."
        found.append(Alert("read", f"read/{dataset}/{today}", text, "findings", dataset))
    return found


def clock_alert(doubt: Doubt) -> Alert:
    """Return the alert of a clock in doubt: one for as long as the ledger's time stands still."""
    shown, expected = minute(rfc3339(doubt.clock)), minute(rfc3339(doubt.expected))
    text = (
        f"The clock of the service is in doubt: it shows {shown}, and by ledger {doubt.ledger} it "
        f"is {expected} UTC. Nothing new is granted, and nothing expires, until the clock is right "
        "or two people accept it."
    )
    return Alert("clock", f"clock/{doubt.last}", text, "evidence")


def unusable(population: str, now: int) -> Alert:
    """Return the alert of a ledger that cannot be read, or is not what was signed: one a day."""
    text = (
        f"{population}: the ledger cannot be used: it is damaged, or not the one that was signed."
    )
    return Alert("verification", f"verification/unusable/{rfc3339(now)[:10]}", text, "evidence")


def _custody(population: str, facts: Facts) -> Iterator[Alert]:
    if (event := facts.broken_at) is not None:
        text = f"{population}: event {event} of the ledger was changed."
        yield Alert("verification", f"verification/event/{event}", text, "evidence")
    if (size := facts.diverged) is not None:
        text = (
            f"{population}: the ledger is not the one that was published: its first {size:,} "
            "events are not those that were signed."
        )
        yield Alert("verification", f"verification/published/{size}", text, "evidence")
    for event, person, size, findings in facts.found:
        text = (
            f"{population}: {person} verified the first {counted(size, 'event')} and recorded "
            f"{counted(findings, 'finding')} (event {event})."
        )
        yield Alert("verification", f"verification/stated/{event}", text, "evidence")
    if facts.alarm is not None:
        event, witness = facts.alarm
        text = (
            f"{population}: the witness {witness} contradicts this ledger; nothing has been "
            f"published since event {event}."
        )
        yield Alert("witness", f"witness/{event}", text, "evidence")


def proposal_alert(population: str, one: OpenProposal) -> Alert:
    """Return the alert of a proposal that waits."""
    until = minute(rfc3339(one.expires))
    text = f"{population}: a proposal waits for a second person until {until} UTC: {one.question}"
    return Alert("proposal", f"proposal/{one.sequence}", text, f"proposals/{one.sequence}")


def _request(population: str, one: AskedRequest) -> Alert:
    until, rules = minute(rfc3339(one.expires)), " and ".join(one.rules)
    text = (
        f"{population}: {one.client} asks for {up(one.epsilon, 3)} on {', '.join(one.datasets)}, "
        f"which a person decides until {until} UTC (rule {rules})."
    )
    return Alert("request", f"request/{one.id}", text, f"requests/{one.id}")


def _limit(population: str, one: LimitUse, now: int, terms: Terms) -> Iterator[Alert]:
    """Return what is to be told of a limit: that it is over, or the highest threshold that it has
    reached; and that it runs out soon. What is graver covers the thresholds below.
    """
    digits, where = places(one.limit), f"accounts/{one.dataset}"
    called = f"{population}: {in_words(one.dataset)}"
    names = {share: f"threshold/{one.name}/{share}" for share in sorted(terms.thresholds)}
    about = partial(Alert, place=where, dataset=one.dataset, rule=one.rule)
    if one.over:
        over = is_over(one.dataset, one.spent, one.limit)
        text = f"{population}: {over} (rule {one.rule})."
        covers = tuple(names.values())
        yield about("overrun", f"overrun/{one.name}", text, covers=covers)
        return
    reached = [share for share in names if _reaches(one, share)]
    if reached:
        share, held = percent_of(one.held, one.limit), up(one.held, digits)
        have = "have used {} of their" if one.dataset == ALL else "has used {} of its"
        allowed = f"{one.limit} allowed (rule {one.rule})"
        text = f"{called} {have.format(share)} limit: {held} spent or reserved, {allowed}."
        if one.held == INFINITE:
            text = f"{called}: what is reserved has no bound, {allowed}."
        covers = tuple(names[share] for share in reached[:-1])
        yield about("threshold", names[reached[-1]], text, covers=covers)
    soon = now + int(terms.forecast_days * DAY)
    if one.runs_out is not None and microseconds(one.runs_out) <= soon:
        text = (
            f"{called} runs out on {day(one.runs_out)} at the pace of the last "
            f"{counted(one.pace_days, 'day')} (rule {one.rule})."
        )
        yield about("forecast", f"forecast/{one.name}", text)


def _reaches(one: LimitUse, share: int) -> bool:
    """Return whether a limit is spent or reserved to so many per cent. Of a limit of zero there are
    no parts.
    """
    if one.held == INFINITE:
        return True
    return bool(Decimal(one.limit)) and Decimal(one.held) * 100 >= Decimal(one.limit) * share


def _orphaned(population: str, old: OldGrants, today: str) -> Alert:
    until = minute(rfc3339(old.expires))
    grants = counted(old.grants, "grant")
    text = (
        f"{population}: {old.client} has not reported on {grants} for most of their time; "
        f"{old.first} expires on {until} UTC, and is then charged in full."
    )
    return Alert("orphaned", f"orphaned/{old.client}/{today}", text, "grants")
