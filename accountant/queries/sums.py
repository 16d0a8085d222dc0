"""Counts, sums, lists of sums, histograms: one step each."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from accountant.client.amounts import Amount
from accountant.queries import frame
from accountant.queries.budgets import Budget
from accountant.queries.exact import exact_sum, root_above
from accountant.queries.query import Bounds, Error, Query
from accountant.queries.records import Records
from accountant.queries.steps import Noise


def count(data: Records, epsilon: Amount | None, rho: Amount | None) -> Query:
    """Return the query for the number of records, with whole-number noise. Raise ValueError where
    that number is public.
    """
    one = Fraction(1)
    sensitivity = data.unit(always=True).of_sum(one, one)
    budget = Budget.of(data, epsilon, rho)
    if not sensitivity:
        raise ValueError(
            "how many records there are is public here: every unit has exactly one, and is only "
            "ever replaced. Count your rows; it costs nothing"
        )
    step, size = budget.noise(sensitivity, whole=True), data.rows()
    return _of_one(data, "count", step, size, "records")


def total(data: Records, column: str, epsilon: Amount | None, rho: Amount | None) -> Query:
    """Return the query for the sum of a column within its bounds."""
    step = Budget.of(data, epsilon, rho).noise(data.unit().of_sum(*data.bounds(column)))
    [values] = data.numbers(column)
    return _of_one(data, "sum", step, exact_sum(values), f"units of {column}")


def totals(
    data: Records, columns: Sequence[str], epsilon: Amount | None, rho: Amount | None
) -> Query:
    """Return the query for the sums of several columns, with noise of one scale on each: a unit
    changes them by the sum of what it changes each (L1). Its answer maps columns to sums.
    """
    names = frame.listed(columns)
    if not names or len(set(names)) != len(names):
        raise ValueError("columns are at least one, and all different")
    reach = [data.unit().of_sum(*data.bounds(name)) for name in names]
    length = root_above(sum((each**2 for each in reach), Fraction(0)))
    budget = Budget.of(data, epsilon, rho)
    step = budget.noise_on_list(len(names), sum(reach, Fraction(0)), length)
    values = [exact_sum(column) for column in data.numbers(*names)]
    return _of_many(data, "sums", step, names, values, "units of each column")


def histogram(
    data: Records,
    column: str,
    categories: Sequence[Any] | None,
    epsilon: Amount | None,
    rho: Amount | None,
) -> Query:
    """Return the query for how many records each category has. They are disjoint, so that a record
    that comes changes one count by 1, and one that is exchanged two. A record of no listed category
    is counted nowhere. Its answer maps categories to counts.
    """
    names, unit = data.categories(column, categories), data.unit()
    budget = Budget.of(data, epsilon, rho)
    reach = Fraction(unit.of_cells()), unit.of_cells_in_length()
    step = budget.noise_on_list(len(names), *reach, whole=True)
    [values] = data.raw(column)
    if column in data.people.dimensions:
        values = frame.as_text(values)
    places = frame.categorised(values, names)
    counts = np.bincount(places[places >= 0], minlength=len(names)).tolist()
    return _of_many(data, "histogram", step, names, counts, "records")


def _of_one(data: Records, kind: str, step: Noise, value: Any, unit: str) -> Query:
    return Query(
        kind, data.charged, (step,), lambda: [value], lambda drawn: drawn[0],
        _quantile(step, unit, "the quantile of the noise"), data.notes,
    )  # fmt: skip


def _of_many(
    data: Records, kind: str, step: Noise, names: Sequence[Any], values: Sequence[Any], unit: str
) -> Query:
    return Query(
        kind, data.charged, (step,), lambda: [values],
        lambda drawn: dict(zip(names, drawn[0], strict=True)),
        _quantile(step, unit, "the quantile of the noise, for all entries at once"), data.notes,
    )  # fmt: skip


def _quantile(step: Noise, unit: str, how: str) -> Bounds:
    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        return Error(step.within(1 - confidence), confidence, unit, how)

    return bounds
