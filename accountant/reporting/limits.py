"""The status of every limit and the lifetime totals, with what the numbers mean."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from typing import Any, Final

from accountant.budget.accounts.window import Window
from accountant.budget.state import ALL, Counted, State
from accountant.privacy.units import INFINITE
from accountant.reporting.schema import (
    Account,
    Amounts,
    Lifetime,
    LifetimeGroup,
    Meaning,
    Place,
    RungFacts,
    Split,
    Standing,
    Status,
    as_number,
)
from accountant.reporting.statement import Balance, Sums, balances, lifetime_sums, line, scopes
from accountant.reporting.words import formula, meaning, unit_of

NEAR: Final = 0.8
"""The share of a limit from which on a report calls it near."""
MOST_GROUPS: Final = 10_000
"""Groups of a dimension that a report lists, the most used ones."""


def standings(state: State) -> tuple[Standing, ...]:
    """Return every limit rule in force in every scope, split by each dimension. A client's limit
    is not split: it guarantees nothing about groups.
    """
    return tuple(_standing(state, counted) for counted in scopes(state))


def _standing(state: State, counted: Counted) -> Standing:
    row = line(state, counted)
    total = _place(row.total, (row.lifetime["epsilon"], row.lifetime["delta"]))
    axes = () if counted.rule.per else range(len(state.people().shape))
    return Standing(
        **_of(Account, row),
        formula=formula(row.gate)[0],
        window=Window.read(row.window).words if row.window else "",
        status=total.status,
        total=total,
        meaning=_meaning(row, total, unit_of(state.people())),
        splits=tuple(_split(state, counted, axis) for axis in axes),
        ladder=tuple(RungFacts(r.gate, r.used, formula(r.gate)[0]) for r in row.ladder),
    )


def _of(kind: type, row: Any) -> dict[str, Any]:
    """Return the fields of ``row`` that the dataclass ``kind`` has."""
    return {field.name: getattr(row, field.name) for field in fields(kind)}


def _split(state: State, counted: Counted, axis: int) -> Split[Place]:
    dimension, values = state.people().dimensions[axis]
    ever = lifetime_sums(state, counted.key.dataset, axis)
    rows = sorted(
        zip(balances(state, counted, axis), ever, strict=True),
        key=lambda row: -(as_number(row[0].spent) + as_number(row[0].reserved)),
    )
    places = tuple(_place(balance, sums) for balance, sums in rows[:MOST_GROUPS])
    return Split(dimension, len(values), len(values) - len(places), places)


def _place(balance: Balance, ever: Sums) -> Place:
    return Place(
        **_of(Amounts, balance),
        status=_status(balance),
        lifetime_epsilon=ever[0],
        lifetime_delta=ever[1],
    )


def _status(balance: Balance) -> Status:
    if balance.void:
        return "over"
    if balance.over:
        return "over_if_reservations_run"
    if balance.remaining == "0":
        return "used_up"
    return "near" if balance.share is None or balance.share >= NEAR else "within"


def _meaning(row: Account, total: Place, unit: str) -> Meaning:
    promised = meaning(row.limit.epsilon, row.limit.delta, unit)
    if total.status == "over":  # only the plain sum is left
        return Meaning(promised, meaning(total.sum_of_epsilons, total.own_delta, unit), "")
    spent = meaning(total.spent, total.spent_delta, unit)
    if total.reserved == "0" and total.held_delta == total.spent_delta:
        return Meaning(promised, spent, "")
    held = together(total)
    return Meaning(promised, spent, meaning(held, total.held_delta, unit))


def together(place: Amounts) -> str:
    """Return spent and reserved as one amount."""
    if INFINITE in (place.spent, place.reserved):
        return INFINITE
    return format(Decimal(place.spent) + Decimal(place.reserved), "f")


def lifetimes(state: State) -> tuple[Lifetime, ...]:
    """Return the lifetime total of each dataset, then of all datasets together."""
    return tuple(_lifetime(state, name) for name in [*sorted(state.datasets), ALL])


def _lifetime(state: State, dataset: str) -> Lifetime:
    [(epsilon, delta)] = lifetime_sums(state, dataset, None)
    said = meaning(epsilon, delta, unit_of(state.people()))
    axes = range(len(state.people().shape))
    splits = tuple(_lifetime_split(state, dataset, axis) for axis in axes)
    return Lifetime(dataset, epsilon, delta, said, splits)


def _lifetime_split(state: State, dataset: str, axis: int) -> Split[LifetimeGroup]:
    dimension, values = state.people().dimensions[axis]
    sums = lifetime_sums(state, dataset, axis)
    groups = [LifetimeGroup(v, *pair) for v, pair in zip(values, sums, strict=True)]
    groups.sort(key=lambda group: -as_number(group.epsilon))
    return Split(
        dimension, len(values), max(0, len(values) - MOST_GROUPS), tuple(groups[:MOST_GROUPS])
    )
