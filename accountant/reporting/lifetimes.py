"""Lifetime totals: path-wise sums of everything ever booked, per dataset and group."""

from __future__ import annotations

from typing import Final

from accountant.budget.state import ALL, State
from accountant.reporting.shape import Lifetime, LifetimeGroup, LifetimeSplit
from accountant.reporting.statement import lifetime_sums
from accountant.reporting.words import meaning, unit_of

MOST_GROUPS: Final = 10_000
"""Groups of a dimension that a report lists, the most charged ones."""

Sums = tuple[str, str]
"""(epsilon, delta), as decimal strings or "infinite"."""


def lifetimes(state: State) -> tuple[Lifetime, ...]:
    """One for each dataset, then the one over all of them."""
    return tuple(_lifetime(state, name) for name in [*sorted(state.datasets), ALL])


def _lifetime(state: State, dataset: str) -> Lifetime:
    [(epsilon, delta)] = lifetime_sums(state, dataset, None)
    return Lifetime(
        dataset=dataset,
        epsilon=epsilon,
        delta=delta,
        meaning=meaning(epsilon, delta, unit_of(state.people())),
        splits=tuple(_split(state, dataset, axis) for axis in range(len(state.people().shape))),
    )


def _split(state: State, dataset: str, axis: int) -> LifetimeSplit:
    dimension, values = state.people().dimensions[axis]
    sums = lifetime_sums(state, dataset, axis)
    groups = [LifetimeGroup(v, *pair) for v, pair in zip(values, sums, strict=True)]
    groups.sort(key=lambda group: -as_number(group.epsilon))
    return LifetimeSplit(
        dimension, len(values), max(0, len(values) - MOST_GROUPS), tuple(groups[:MOST_GROUPS])
    )


def as_number(amount: str) -> float:
    """An amount, for sorting and pictures only."""
    return float("inf") if amount == "infinite" else float(amount)
