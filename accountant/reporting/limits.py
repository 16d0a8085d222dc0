"""The status of every limit and the lifetime totals, with the meaning of the numbers."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from accountant.budget.state import ALL, Counted, State
from accountant.reporting import schema, words
from accountant.reporting.statement import Balance, Total, balances, lifetime_sums, line, scopes

MOST_GROUPS: Final = 10_000
"""Groups of a dimension that a report lists, the most used ones."""


def standings(state: State) -> tuple[schema.Standing, ...]:
    """Return every limit rule in force in every scope, split by each dimension. A client's limit
    is not split: it guarantees nothing about groups.
    """
    return tuple(_standing(state, counted) for counted in scopes(state))


def _standing(state: State, counted: Counted) -> schema.Standing:
    row, window = line(state, counted), counted.epoch.window
    total = _place(row.total, Total(**row.lifetime))
    axes = () if counted.rule.per else range(len(state.people().shape))
    return schema.Standing(
        **_of(schema.Account, row),
        formula=words.formula(row.gate)[0],
        window=window.words if window else "",
        status=total.status,
        total=total,
        meaning=_meaning(row, total, words.unit_of(state.people())),
        splits=tuple(_split(state, counted, axis) for axis in axes),
        ladder=tuple(
            schema.RungFacts(**rung, name=words.formula(rung["gate"])[0]) for rung in row.ladder
        ),
    )


def _of(kind: type[Struct], row: Any) -> dict[str, Any]:
    """Return the fields of ``row`` that ``kind`` has."""
    return {name: getattr(row, name) for name in kind.__struct_fields__}


def _split(state: State, counted: Counted, axis: int) -> schema.Split[schema.Place]:
    dimension, values = state.people().dimensions[axis]
    ever = lifetime_sums(state, counted.key.dataset, axis)
    rows = sorted(
        zip(balances(state, counted, axis), ever, strict=True),
        key=lambda row: -(schema.as_number(row[0].spent) + schema.as_number(row[0].reserved)),
    )
    places = tuple(_place(balance, total) for balance, total in rows[:MOST_GROUPS])
    return schema.Split(dimension, len(values), len(values) - len(places), places)


def _place(balance: Balance, ever: Total) -> schema.Place:
    return schema.Place(
        **_of(schema.Amounts, balance),
        status=balance.status,
        lifetime_epsilon=ever.epsilon,
        lifetime_delta=ever.delta,
    )


def _meaning(row: schema.Account, total: schema.Place, unit: str) -> schema.Meaning:
    promised = words.meaning(row.limit.epsilon, row.limit.delta, unit)
    if total.status == "over":  # only the plain sum is left
        return schema.Meaning(
            promised, words.meaning(total.sum_of_epsilons, total.own_delta, unit), ""
        )
    spent = words.meaning(total.spent, total.spent_delta, unit)
    if total.reserved == "0" and total.held_delta == total.spent_delta:
        return schema.Meaning(promised, spent, "")
    return schema.Meaning(promised, spent, words.meaning(total.together, total.held_delta, unit))


def lifetimes(state: State) -> tuple[schema.Lifetime, ...]:
    """Return the lifetime total of each dataset, then of all datasets together."""
    found = []
    for dataset in [*sorted(state.datasets), ALL]:
        [total] = lifetime_sums(state, dataset, None)
        said = words.meaning(*total, words.unit_of(state.people()))
        splits = []
        for axis, (dimension, values) in enumerate(state.people().dimensions):
            sums = lifetime_sums(state, dataset, axis)
            groups = [schema.LifetimeGroup(v, *one) for v, one in zip(values, sums, strict=True)]
            groups.sort(key=lambda group: -schema.as_number(group.epsilon))
            listed = tuple(groups[:MOST_GROUPS])
            splits.append(schema.Split(dimension, len(values), len(values) - len(listed), listed))
        found.append(schema.Lifetime(dataset, *total, said, tuple(splits)))
    return tuple(found)
