"""Datasets, notable events and the policy: what the history amounts to, in the report's shape."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from accountant.budget.state import ALL, State, matches
from accountant.ledger.events import rfc3339
from accountant.privacy.units import NOTHING, SURE, Currency, show
from accountant.reporting.counts import HEADINGS, Tally
from accountant.reporting.history import SORTS, History
from accountant.reporting.shape import (
    STATUSES,
    DatasetFacts,
    PolicyFacts,
    Reservation,
    Reservations,
    RuleFacts,
    SeenFacts,
    Standing,
    Usage,
)
from accountant.reporting.words import rule_in_words, unit_of

MOST_RESERVATIONS: Final = 200


def datasets(
    state: State, history: History, limits: tuple[Standing, ...]
) -> tuple[DatasetFacts, ...]:
    """Every registered dataset, in order of its id."""
    return tuple(_dataset(state, history, limits, name) for name in sorted(state.datasets))


def _dataset(
    state: State, history: History, limits: tuple[Standing, ...], name: str
) -> DatasetFacts:
    facts = state.datasets[name]
    tightest = _tightest(state, limits, name)
    tables = [_usages(history.tallies.rows.get((name, heading), {})) for heading in HEADINGS]
    return DatasetFacts(
        id=name,
        namespace=facts.namespace,
        name=facts.name,
        owner=facts.owner,
        parents=facts.parents,
        status=tightest.status if tightest else "no_limit",
        rule=tightest.rule if tightest else "",
        rule_scope=tightest.dataset if tightest else "",
        booked=_usage("", history.tallies.totals.get(name, Tally())),
        by_client=tables[0],
        by_kind=tables[1],
        by_purpose=tables[2],
        reservations=_reservations(state, history, name),
        counts={sort: history.seen[sort].by_dataset.get(name, 0) for sort in SORTS},
    )


def _tightest(state: State, limits: tuple[Standing, ...], dataset: str) -> Standing | None:
    """The gravest, then most used, of the dataset's own limits, a window after a lifetime; else of
    a person's totals that cover it; None if only clients are limited.
    """
    own = [s for s in limits if s.dataset == dataset and not s.client]
    shared = [
        s for s in limits if s.dataset == ALL and not s.client and _covers(state, s.rule, dataset)
    ]
    return max(own or shared, key=_gravity, default=None)


def _covers(state: State, rule: str, dataset: str) -> bool:
    policy = state.adopted.policy if state.adopted else None
    limits = policy.limits if policy else ()
    return any(r.id == rule and matches(r.datasets, dataset) for r in limits)


def _gravity(standing: Standing) -> tuple[int, bool, bool, Decimal]:
    left = Decimal(standing.total.remaining) / Decimal(standing.limit.epsilon)
    lifetime, blocks = not standing.window, standing.action == "block"
    return STATUSES.index(standing.status), lifetime, blocks, -left


def _usages(rows: dict[str | None, Tally]) -> tuple[Usage, ...]:
    ordered = sorted(
        rows.items(),
        key=lambda item: (
            item[0] is None,
            -item[1].net.on(SURE).infinite[0],
            -item[1].net[Currency.EPSILON],
            item[0] or "",
        ),
    )
    return tuple(_usage(name, tally) for name, tally in ordered)


def _usage(name: str | None, tally: Tally) -> Usage:
    return Usage(
        name=name or "",
        other=name is None,
        requests=tally.requests,
        refused=tally.refused,
        epsilon=show(tally.net[Currency.EPSILON], Currency.EPSILON),
        delta=show(tally.net[Currency.DELTA], Currency.DELTA),
        unbounded=tally.net.on(SURE).infinite[0],
        given_back=tally.given_back.amount(Currency.EPSILON),
    )


def _reservations(state: State, history: History, dataset: str) -> Reservations:
    grants = [grant for grant in state.open.values() if grant.dataset == dataset]
    grants.sort(key=lambda grant: (grant.expires, grant.sequence))
    total = sum((grant.total for grant in grants), start=NOTHING)
    return Reservations(
        open=len(grants),
        epsilon=total.amount(Currency.EPSILON),
        first_expiry=rfc3339(grants[0].expires) if grants else None,
        listed=tuple(
            Reservation(
                grant.id,
                grant.by,
                history.held[grant.id].subjects,
                history.held[grant.id].at.purpose,
                grant.total.amount(Currency.EPSILON),
                rfc3339(grant.opened),
                rfc3339(grant.expires),
            )
            for grant in grants[:MOST_RESERVATIONS]
        ),
    )


def notable(history: History) -> tuple[SeenFacts, ...]:
    """All sorts, the gravest first; of each, the last event first."""
    return tuple(
        SeenFacts(
            sort,
            seen.total,
            dict(sorted(seen.by_dataset.items())),
            tuple(reversed(seen.latest)),
        )
        for sort, seen in history.seen.items()
    )


def policy(state: State, history: History) -> PolicyFacts | None:
    """The policy in force; None if none was ever adopted."""
    if state.adopted is None:
        return None
    unit = unit_of(state.people())
    return PolicyFacts(
        name=state.adopted.policy.policy,
        digest=state.adopted.digest,
        sequence=state.adopted.sequence,
        rules=tuple(
            RuleFacts(rule.id, rule_in_words(rule, unit)) for rule in state.adopted.policy.rules
        ),
        changes=history.policies_total,
        latest_changes=tuple(reversed(history.policies)),
    )
