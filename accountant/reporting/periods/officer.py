"""The report of an officer: what to do now, and what happened in a period, as facts."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from msgspec import Struct

from accountant.budget.state import ALL, State
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import INFINITE
from accountant.reporting import words
from accountant.reporting.numbers import counted, day, minute, up
from accountant.reporting.periods.collecting import Collected, Stand, promises, stands
from accountant.reporting.periods.head import HeadFacts
from accountant.reporting.periods.walk import Walked
from accountant.reporting.schema import ChangeFacts, RuleFacts, SeenFacts, Status
from accountant.reporting.verdict import in_words, is_over

MOST_NAMED: Final = 20
"""Matters of one sort that are named."""
SORTS: Final = (
    "overrun",
    "against_rule",
    "understated",
    "unverifiable",
    "flagged",
    "expired",
    "given_back",
    "revalued",
    "attested_new",
)
"""The findings, in the order in which they are told."""


class AccountFacts(Struct, frozen=True):
    """A limit in one scope ("*": all datasets). ``opening`` and ``spent``: the epsilon spent by the
    group that has used most, at the start (None: the limit did not count yet) and at the end.
    ``restarted``: its amounts are of another epoch than those at the start.
    """

    dataset: str
    rule: str
    action: str
    window: str | None
    limit: str
    status: Status
    opening: str | None
    spent: str
    change: str | None
    """The difference; None without an opening, or where one of both has no bound."""
    reserved: str
    remaining: str
    restarted: bool


class ClientFacts(Struct, frozen=True):
    """How the requests of a client ended."""

    client: str
    admitted: int
    recorded: int
    refused: int


class DecidedFacts(Struct, frozen=True):
    """A decision of people, or what happened to the ledger itself."""

    sequence: int
    time: str
    what: str
    by: str
    confirmed_by: str | None
    reason: str


class KeyFacts(Struct, frozen=True):
    """A key, or a one-time link, that was made, or that ended, in the period."""

    time: str
    what: str
    name: str
    role: str
    by: str


class OfficerFacts(Struct, frozen=True):
    """The report of an officer. ``seen``: findings and refusals of the period, by sort."""

    head: HeadFacts
    todo: tuple[str, ...]
    accounts: tuple[AccountFacts, ...]
    requests: dict[str, int]
    clients: tuple[ClientFacts, ...]
    refused_by: dict[str, int]
    seen: tuple[SeenFacts, ...]
    decided: tuple[DecidedFacts, ...]
    decided_total: int
    policy_before: str | None
    policy: str | None
    rules: tuple[RuleFacts, ...]
    changes: tuple[ChangeFacts, ...]
    keys: tuple[KeyFacts, ...]
    keys_total: int


def officer_facts(
    head: HeadFacts, walked: Walked, found: Collected, keys: tuple[tuple[KeyFacts, ...], int]
) -> OfficerFacts:
    """Return the report. ``keys``: those that are listed, and how many there are."""
    state = walked.state
    accounts = accounts_of(state, found)
    seen = found.history.seen()
    adopted, people = state.adopted, state.population
    clients = [
        ClientFacts(name, one["admitted"], one["recorded"], one["refused"])
        for name, one in sorted(found.clients.items())
    ]
    rules = adopted.policy.rules if adopted else ()
    return OfficerFacts(
        head=head,
        todo=tuple(todo(walked, found, accounts, seen)),
        accounts=accounts,
        requests=dict(sorted(found.endings.items())),
        clients=tuple(clients),
        refused_by=dict(sorted(found.rules.items(), key=lambda one: (-one[1], one[0]))),
        seen=seen,
        decided=tuple(DecidedFacts(*one) for one in found.changes),
        decided_total=found.changed,
        policy_before=found.policy,
        policy=adopted.policy.policy if adopted else None,
        rules=tuple(RuleFacts(one.id, words.rule_in_words(one, people)) for one in rules),
        changes=tuple(found.history.policies),
        keys=keys[0],
        keys_total=keys[1],
    )


def accounts_of(state: State, found: Collected) -> tuple[AccountFacts, ...]:
    """Return each limit that promises something, the worst first."""
    if state.population is None:
        return ()
    limits, rows = promises(state), []
    for key, stand in stands(state).items():
        counted_, before = limits[key], found.before.get(key)
        rows.append(
            AccountFacts(
                dataset=key[1],
                rule=key[0],
                action=counted_.rule.action,
                window=counted_.epoch.window.words if counted_.epoch.window else None,
                limit=f"{counted_.rule.limit.epsilon:f}",
                status=stand.balance.status,
                opening=before.balance.spent if before else None,
                spent=stand.balance.spent,
                change=_change(before, stand),
                reserved=stand.balance.reserved,
                remaining=stand.balance.remaining,
                restarted=before is not None and before.epoch != stand.epoch,
            )
        )
    return tuple(sorted(rows, key=_gravity))


def _change(before: Stand | None, now: Stand) -> str | None:
    if before is None or INFINITE in (before.balance.spent, now.balance.spent):
        return None
    return format(Decimal(now.balance.spent) - Decimal(before.balance.spent), "f")


def _gravity(row: AccountFacts) -> tuple[int, Decimal, str, str]:
    left = Decimal(row.remaining) / max(Decimal(row.limit), Decimal("1e-30"))
    return -_STATUSES.index(row.status), left, row.dataset, row.rule


_STATUSES: Final = ("within", "near", "used_up", "over_if_reservations_run", "over")


def todo(
    walked: Walked,
    found: Collected,
    accounts: tuple[AccountFacts, ...],
    seen: tuple[SeenFacts, ...],
) -> list[str]:
    """Return what a person has to do, the gravest first, each in a sentence or two."""
    state = walked.state
    return [
        *_doubts(walked),
        *_verified(found.verified.values()),
        *_named([_over(row) for row in accounts if row.status == "over"], "account", "over"),
        *_policy_wanted(state),
        *_decisions(state, walked.closed),
        *_named(
            [_near(row) for row in accounts if row.status not in ("over", "within")],
            "account",
            "near its limit",
        ),
        *_findings(seen),
    ]


def _doubts(walked: Walked) -> list[str]:
    custody, found = walked.state.custody, []
    if walked.broken is not None:
        found.append(
            f"Event {walked.broken} was changed: it does not match the hash that was stored with "
            "it. Do not rely on the numbers below; find the cause."
        )
    if custody.stopped is not None:
        found.append(
            f"A witness contradicts this ledger (event {custody.stopped}); nothing is published "
            "since. Find the cause, then let publication go on."
        )
    return found


def _verified(events: Iterable[Event]) -> list[str]:
    return [
        f"{one.by} verified the first {counted(one.body['command']['size'], 'event')} and recorded "
        f"{counted(one.body['command']['findings'], 'finding')} (event {one.sequence}). Find the "
        "cause; it stands until they record a verification without findings."
        for one in events
        if one.body["command"]["findings"]
    ]


def _over(row: AccountFacts) -> str:
    return (
        f"{is_over(row.dataset, row.spent or INFINITE, row.limit)} by rule {row.rule}, "
        "whose promise no longer holds. Read what ran, and tell whoever was promised it."
    )


def _near(row: AccountFacts) -> str:
    if row.status == "over_if_reservations_run":
        return f"{in_words(row.dataset)} will be over its limit if what is reserved runs."
    if row.status == "used_up":
        return f"{in_words(row.dataset)} is used up: rule {row.rule} lets nothing more through."
    held = f" and {up(row.reserved, 3)} reserved" if row.reserved != "0" else ""
    return (
        f"{in_words(row.dataset)} is near its limit: {up(row.spent, 3)} of {row.limit} is spent"
        f"{held} (rule {row.rule}). Say who may have the rest."
    )


def _named(found: list[str], one: str, how: str) -> list[str]:
    more = len(found) - MOST_NAMED
    return found[:MOST_NAMED] + ([f"{counted(more, f'more {one}')}: {how}."] if more > 0 else [])


def _policy_wanted(state: State) -> list[str]:
    if state.population is None:
        return ["No population is registered: register it."]
    if state.adopted is None and state.datasets:
        return ["No policy is adopted, so every request is refused: adopt one."]
    covered = {key[1] for key in promises(state)}
    bare = (
        [] if ALL in covered else [name for name in sorted(state.datasets) if name not in covered]
    )
    if state.adopted is None or not bare:
        return []
    named = ", ".join(bare[:5]) + (f" and {len(bare) - 5} more" if len(bare) > 5 else "")
    return [f"No limit covers {named}: adopt a policy with one."]


def _decisions(state: State, now: int) -> list[str]:
    proposals = [one for one in state.proposals.values() if one.is_open(now)]
    found = [
        f"Decide the proposal of event {one.sequence} "
        f"({one.command['type'].replace('_', ' ')}, from {one.by}): it lapses on "
        f"{minute(rfc3339(one.expires))}."
        for one in sorted(proposals, key=lambda one: one.expires)[:MOST_NAMED]
    ]
    if waiting := len(state.waiting.requests):
        found.append(
            f"{counted(waiting, 'request waits', 'requests wait')}: look whether "
            f"{'it asks' if waiting == 1 else 'any of them asks'} a person."
        )
    return found


def _findings(seen: tuple[SeenFacts, ...]) -> list[str]:
    totals = {one.sort: one for one in seen}
    found = []
    for sort, (one, several) in _LOOK.items():
        if (events := totals[sort]).total:
            clients = sorted({event.client for event in events.latest})
            who = ", ".join(clients[:5]) + (" and others" if len(clients) > 5 else "")
            text = one if events.total == 1 else several.format(events.total)
            found.append(f"{text}, by {who}: ask why.")
    return found


_LOOK: Final = {
    "overrun": ("One request ran over a limit", "{:,} requests ran over a limit"),
    "against_rule": ("One request ran against a rule", "{:,} requests ran against a rule"),
    "understated": ("One request claimed too little", "{:,} requests claimed too little"),
    "unverifiable": (
        "One request made a claim that nothing verifies",
        "{:,} requests made claims that nothing verifies",
    ),
    "expired": (
        "One grant expired without a report and was charged in full",
        "{:,} grants expired without a report and were charged in full",
    ),
}


def period_in_words(head: HeadFacts) -> str:
    """Return the period: "1 Oct 2026 to 31 Oct 2026"."""
    return day(head.first) if head.first == head.last else f"{day(head.first)} to {day(head.last)}"
