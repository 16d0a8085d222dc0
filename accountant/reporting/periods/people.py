"""The report of a population: how much each group has lost, before and after a period, as facts."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from msgspec import Struct

from accountant.budget.state import State
from accountant.privacy.units import INFINITE
from accountant.reporting.periods.collecting import Collected, of_groups, promises, split
from accountant.reporting.periods.head import HeadFacts
from accountant.reporting.periods.officer import AccountFacts, accounts_of
from accountant.reporting.periods.walk import Walked
from accountant.reporting.schema import Status

MOST_GROUPS: Final = 1_000
"""Groups of a dimension that are listed, those that have used most."""
MOST_LIMITS: Final = 20
"""Limits that are told by group, those nearest to their ends."""


class GroupFacts(Struct, frozen=True):
    """What was booked on a group at the start (None: it did not exist) and at the end."""

    group: str
    opening: str | None
    closing: str
    remaining: str | None = None
    status: Status | None = None


class DimensionFacts(Struct, frozen=True):
    """The groups of a dimension, most used first; ``left_out`` more have used no more."""

    dimension: str
    values: int
    left_out: int
    groups: tuple[GroupFacts, ...]


class LimitFacts(Struct, frozen=True):
    """A limit in one scope by group: what is spent and reserved under it."""

    dataset: str
    rule: str
    limit: str
    dimensions: tuple[DimensionFacts, ...]


class PeopleFacts(Struct, frozen=True):
    """The report of a population. ``lifetime``: all that was ever booked, over all datasets, as
    plain sums of epsilon; ``limits`` by group, of ``limits_total`` the first.
    """

    head: HeadFacts
    neighbouring: str
    membership: str
    cells: int
    datasets: int
    lifetime: tuple[DimensionFacts, ...]
    accounts: tuple[AccountFacts, ...]
    limits: tuple[LimitFacts, ...]
    limits_total: int


def people_facts(head: HeadFacts, walked: Walked, found: Collected) -> PeopleFacts:
    """Return the report."""
    state = walked.state
    accounts = accounts_of(state, found)
    people = state.population
    named = people.dimensions if people else ()
    limits = promises(state) if people else {}
    return PeopleFacts(
        head=head,
        neighbouring=str(people.relation.value) if people else "",
        membership=str(people.membership.value) if people and named else "",
        cells=people.cells if people else 0,
        datasets=len(state.datasets),
        lifetime=tuple(_lifetime(state, found, axis) for axis in range(len(named))),
        accounts=accounts,
        limits=tuple(_limit(state, found, one) for one in accounts[:MOST_LIMITS] if named),
        limits_total=len(limits),
    )


def _lifetime(state: State, found: Collected, axis: int) -> DimensionFacts:
    before = found.groups[axis] if found.groups else {}
    rows = [
        GroupFacts(group, before.get(group), now) for group, now in of_groups(state, axis).items()
    ]
    return _listed(state, axis, rows)


def _limit(state: State, found: Collected, account: AccountFacts) -> LimitFacts:
    key = account.rule, account.dataset
    dimensions = []
    for axis, now in enumerate(split(state, promises(state)[key])):
        earlier = found.splits.get(key)
        before = earlier[axis] if earlier else {}
        rows = [
            GroupFacts(
                group,
                _used(before[group].spent, before[group].reserved) if group in before else None,
                _used(one.spent, one.reserved),
                one.remaining,
                one.status,
            )
            for group, one in now.items()
        ]
        dimensions.append(_listed(state, axis, rows))
    return LimitFacts(account.dataset, account.rule, account.limit, tuple(dimensions))


def _used(spent: str, reserved: str) -> str:
    if INFINITE in (spent, reserved):
        return INFINITE
    return format(Decimal(spent) + Decimal(reserved), "f")


def _listed(state: State, axis: int, rows: list[GroupFacts]) -> DimensionFacts:
    name = state.people().dimensions[axis][0]
    rows.sort(key=lambda one: -_number(one.closing))
    listed = tuple(rows[:MOST_GROUPS])
    return DimensionFacts(name, len(rows), len(rows) - len(listed), listed)


def _number(text: str) -> Decimal:
    return Decimal("Infinity") if text == INFINITE else Decimal(text)
