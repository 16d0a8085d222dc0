"""Medians and quantiles: the exponential mechanism over all points between the bounds.

The score of a point is minus the number of records that would have to move for it to be the
quantile: how far the rank of the quantile, share * n, is from the ranks of the point, which reach
from the number of records below it to the number of those not above it. All points between two
neighbouring records have the same score, so the choice is among at most 2n + 1 runs of points
(Smith 2011), however many points there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accountant.client.amounts import Amount
from accountant.queries.budgets import Budget
from accountant.queries.choices import Line, OnLine
from accountant.queries.exact import number
from accountant.queries.points import Points
from accountant.queries.query import Error, Query
from accountant.queries.records import Records

MOST_PARTS: Final = 10**6


def quantile(
    data: Records, column: str, share: Amount, epsilon: Amount | None, step: Amount | None
) -> Query:
    """Return the query for the value below which a ``share`` of the records lies, chosen among the
    points low, low + ``step``, ... between the bounds of the column.
    """
    budget, (low, high) = Budget.of(data, epsilon), data.bounds(column)
    part = number("the share", share)
    if not 0 < part < 1:
        raise ValueError(f"the share of a quantile is between 0 and 1, not {share}")
    if part.denominator > MOST_PARTS:
        raise ValueError(f"the share {share} has more than 6 decimal places")
    [values] = data.numbers(column)
    whole = data.whole(column) and low.denominator == 1
    points = Points.of(low, high, step, whole=whole)
    sensitivity = data.unit().of_rank(part)
    scale = OnLine.scale_costing(budget.amount, sensitivity, monotonic=False)
    choice = OnLine(sensitivity, scale, budget.stated, outcomes=points.count)

    def finish(drawn: Sequence[Any]) -> float | int:
        found = points.at(drawn[0])
        return int(found) if whole and found.denominator == 1 else float(found)

    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        how = "scale ln(N / beta) for N points: records between the answer and the quantile"
        return Error(choice.within(1 - confidence), confidence, "ranks", how)

    return Query(
        "quantile", data.charged, (choice,),
        lambda: [line(points.nearest(values), points.count, part)],
        finish, bounds, data.notes,
    )  # fmt: skip


def line(places: NDArray[np.int64], points: int, share: Fraction) -> Line:
    """Return the line of ``points`` with the scores for records at these places."""
    taken, counts = np.unique(places, return_counts=True)
    gaps = np.diff(np.r_[-1, taken, points]) - 1
    lengths = np.ones(2 * len(taken) + 1, dtype=np.int64)
    lengths[::2] = gaps  # a gap, a place with records, a gap, ...
    through = np.r_[0, np.cumsum(counts)]
    below = np.repeat(through, 2)[:-1]
    upto = np.repeat(through, 2)[1:]
    rank, parts = int(share.numerator) * len(places), share.denominator
    short = np.maximum(np.maximum(parts * below - rank, rank - parts * upto), 0)
    there = lengths > 0
    return Line(lengths[there], short[there].astype(np.int64), parts)
