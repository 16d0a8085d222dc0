"""What charges refer to, as rows: groups as ranges, cells, dimensions, datasets, rules in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Final

import numpy as np

from accountant.budget.population.population import Population
from accountant.budget.population.selection import EVERYONE, Selection
from accountant.budget.state import State
from accountant.privacy.units import Currency
from accountant.publishing.fleet.tables import Table, Tables

_CELLS: Final = 1 << 17
"""Cells that are named at a time."""


def describe(tables: Tables, state: State, selections: Mapping[Selection, int]) -> None:
    """Everything that the charges of a ledger name, as it is at the end of ``state``."""
    people = state.people()
    tables.add_all("selection", _ranges(people, selections))
    for dimension, values in people.dimensions:
        tables.add_all("dimension", ((dimension, i, value) for i, value in enumerate(values)))
    _name_cells(tables["cell"], people)
    for dataset in state.datasets.values():
        tables["dataset"].add(dataset.id, dataset.namespace, dataset.name, dataset.owner)
    tables.add_all("rule", _rules(state))


def _ranges(people: Population, selections: Mapping[Selection, int]) -> Iterator[tuple[Any, ...]]:
    """A row for each range of values that a box is restricted to. A cell is in a selection if in
    one of its boxes as many ranges hold the cell's values as the box has ``sides``.
    """
    for selection, number in selections.items():
        for at, box in enumerate(() if selection == EVERYONE else selection.boxes):
            pairs = zip(people.dimensions, box, strict=True)
            sides = [(name, side) for (name, values), side in pairs if len(side) < len(values)]
            sides = sides or [(people.dimensions[0][0], box[0])]  # one that holds whatever the cell
            for name, side in sides:
                for low, high in _runs(sorted(side)):
                    yield number, at, len(sides), name, low, high


def _runs(places: list[int]) -> Iterator[tuple[int, int]]:
    """The first and last of every run without a gap."""
    low = places[0]
    for place, after in zip(places, [*places[1:], None], strict=True):
        if after is None or after != place + 1:
            yield low, place
            low = place if after is None else after


def _name_cells(table: Table, people: Population) -> None:
    """A row for each dimension of each cell; cells are numbered with the last dimension fastest."""
    for start in range(0, people.cells, _CELLS):
        cells = np.arange(start, min(start + _CELLS, people.cells))
        for axis, (name, values) in enumerate(people.dimensions):
            positions = (cells // prod(people.shape[axis + 1 :]) % len(values)).tolist()
            named = [values[i] for i in positions]
            table.add_many(cells.tolist(), [name] * len(named), positions, named)


def _rules(state: State) -> Iterator[tuple[Any, ...]]:
    """The limit rules in force, with what each may hold in each currency that it compares."""
    if (adopted := state.adopted) is None:
        return
    for rule in adopted.policy.limits:
        epoch = adopted.epochs[rule.id]
        most = epoch.capacity
        compared = [(Currency.EPSILON, most.epsilon), (Currency.DELTA, most.own_delta)]
        if most.second_currency is not None and most.second is not None:
            compared.append((most.second_currency, most.second))
        about = (rule.id, epoch.number, epoch.since, rule.datasets, rule.across, rule.per)
        for currency, units in compared:
            yield *about, rule.action, rule.filter.name, str(currency), units
