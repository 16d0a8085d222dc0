"""Pearson's correlation, in two ways: from noisy sums, and by how many units would have to change.

The first is a formula of six sums (five, where the number of records is public). The second chooses
among values from -1 to 1 by the exponential mechanism. The score of a value is the number of
units that would have to change for the correlation to be that value, counted as ``Moves`` does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from accountant.client.amounts import Amount
from accountant.queries.arguments import whole_number
from accountant.queries.budgets import Budget
from accountant.queries.choices import Exponential
from accountant.queries.exact import exact_sum
from accountant.queries.moments import SIZE, Box, Centred, Formula, Range, Widths
from accountant.queries.moments import query as query_of_sums
from accountant.queries.query import Error, Query
from accountant.queries.records import Records

MOST_PARTS: Final = 2**20
_ALL: Final = Range(-1.0, 1.0)
_ZERO: Final = Fraction(0)


def pearson(
    data: Records, one: str, other: str, epsilon: Amount | None, rho: Amount | None
) -> Query:
    """Return the query for the correlation of two columns within their bounds, from noisy sums: of
    both, their squares and their product, and the number of records. Where noise leaves one of the
    variances at 0 or below, the answer is 0 and its error says that nothing is known.
    """
    budget = Budget.of(data, epsilon, rho)
    x, y = _pair(data, one, other)
    summands = {"x": x.plain, "y": y.plain, "xx": x.squared, "yy": y.squared, "xy": x.by(y)}
    largest = {"x": float(x.half), "y": float(y.half)}
    most = {**largest, **{a + b: largest[a] * largest[b] for a, b in ("xx", "yy", "xy")}}

    def value(sums: Mapping[str, float]) -> float:
        size = max(sums[SIZE], 1.0)
        return _correlation(
            *(sums[a + b] / size - sums[a] * sums[b] / size**2 for a, b in ("xy", "xx", "yy"))
        )

    def within(box: Box) -> Range:
        means = {name: box[name].over(box[SIZE]).cut(-most[name], most[name]) for name in most}
        together = means["xy"].minus(means["x"].times(means["y"]))
        spread = [
            means[a + a].cut(0.0, most[a + a]).minus(means[a].square()).cut(0.0, most[a + a])
            for a in ("x", "y")
        ]
        return _quotient(together, spread[0].times(spread[1]))

    def before(widths: Widths, records: int | None) -> float:
        return 2.0  # where a variance is small, any noise on it may turn the correlation around

    return query_of_sums(
        data, "pearson", budget, summands, Formula(value, within, before, "correlation")
    )


def _pair(data: Records, one: str, other: str) -> tuple[Centred, Centred]:
    if one == other:
        raise ValueError(f"the correlation of {one!r} with itself is 1: name two columns")
    bounds = data.bounds(one), data.bounds(other)
    values = data.numbers(one, other)
    x, y = (Centred.of(each, *pair) for each, pair in zip(values, bounds, strict=True))
    return x, y


def _correlation(covariance: float, of_x: float, of_y: float) -> float:
    if of_x <= 0 or of_y <= 0:
        return 0.0
    return max(-1.0, min(1.0, covariance / math.sqrt(of_x * of_y)))


def _quotient(covariance: Range, squared: Range) -> Range:
    """Return all covariance / root of ``squared``; -1 to 1 where that may be 0."""
    if squared.low <= 0:
        return _ALL
    roots = [math.sqrt(squared.low), math.sqrt(squared.high)]
    ends = [end / root for end in covariance for root in roots]
    return Range(min(ends), max(ends)).cut(-1.0, 1.0)


def nearest(data: Records, one: str, other: str, epsilon: Amount | None, parts: int = 200) -> Query:
    """Return the query for the correlation of two columns within their bounds, chosen among -1, -1
    + 2/``parts``, ..., 1 by how few records would have to change for it to be that, to within 1 /
    ``parts``.
    """
    budget = Budget.of(data, epsilon)
    parts = whole_number("parts", parts, 2, MOST_PARTS)
    x, y = _pair(data, one, other)
    unit, least = data.unit(), Fraction(1)
    summands = {"x": x.plain, "y": y.plain, "xx": x.squared, "yy": y.squared, "xy": x.by(y)}
    reach = {name: unit.of_sum(each.low, each.high) for name, each in summands.items()}
    reach[SIZE] = unit.of_sum(least, least)
    scale = Exponential.scale_costing(budget.amount, least, monotonic=False)
    step = Exponential(least, scale, budget.stated, outcomes=parts + 1)
    middles = [Fraction(2 * i, parts) - 1 for i in range(parts + 1)]

    def values() -> Sequence[Any]:
        sums = {name: exact_sum(each.values) for name, each in summands.items()}
        moves = Moves(sums | {SIZE: Fraction(len(x.values))}, reach)
        away = Fraction(1, parts)
        return [[-moves.needed(middle - away, middle + away) for middle in middles]]

    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        amount = step.within(1 - confidence)
        return Error(amount, confidence, "units that would have to change", "scale ln(N / beta)")

    return Query(
        "correlation", data.charged, (step,), values,
        lambda drawn: float(middles[drawn[0]]), bounds, data.notes,
    )  # fmt: skip


Ends = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Moves:
    """How far the correlation can be moved by changing k units, from exact sums.

    One unit changes each sum by its ``reach`` at most, so k units leave them in the box of k times
    the reaches. ``needed`` is the least k in whose box *interval arithmetic* cannot exclude a
    correlation. The box of k + 1 units around neighbouring data contains the box of k units around
    these, and larger boxes give larger intervals, so that one unit changes ``needed`` by 1 at most:
    the sensitivity is 1, exactly, as all arithmetic is on fractions. The true number of units that
    would have to change is at least ``needed`` (Asi and Duchi 2020 use that number itself).
    """

    sums: Mapping[str, Fraction]
    reach: Mapping[str, Fraction]
    _known: dict[int, tuple[Ends, Ends]] = field(default_factory=dict)

    def needed(self, low: Fraction, high: Fraction) -> int:
        """Return the least number of units after whose change a correlation from ``low`` to
        ``high`` cannot be excluded.
        """
        if self.possible(0, low, high):
            return 0
        most = 1
        while not self.possible(most, low, high):
            most *= 2
        least = most // 2  # not possible
        while most - least > 1:
            between = (least + most) // 2
            if self.possible(between, low, high):
                most = between
            else:
                least = between
        return most

    def possible(self, units: int, low: Fraction, high: Fraction) -> bool:
        """Return whether a covariance c and a product of variances v may be with low * root v <= c
        <= high * root v.
        """
        (least, most), (narrow, wide) = self._ranges(units)
        return _at_least(most, low, narrow if low >= 0 else wide) and _at_least(
            -least, -high, narrow if high <= 0 else wide
        )

    def _ranges(self, units: int) -> tuple[Ends, Ends]:
        """Return the ranges of n^2 times the covariance, and n^4 times the product of variances."""
        if units not in self._known:
            box = {
                name: (total - units * self.reach[name], total + units * self.reach[name])
                for name, total in self.sums.items()
            }
            box[SIZE] = (max(box[SIZE][0], Fraction(1)), max(box[SIZE][1], Fraction(1)))
            spread = []
            for a in ("x", "y"):
                whole, root = _times(box[SIZE], box[a + a]), _square(box[a])
                spread.append((max(whole[0] - root[1], _ZERO), max(whole[1] - root[0], _ZERO)))
            whole, parts = _times(box[SIZE], box["xy"]), _times(box["x"], box["y"])
            products = spread[0][0] * spread[1][0], spread[0][1] * spread[1][1]
            self._known[units] = (whole[0] - parts[1], whole[1] - parts[0]), products
        return self._known[units]


def _at_least(value: Fraction, factor: Fraction, squared: Fraction) -> bool:
    """Return whether value >= factor * root of ``squared``."""
    bound = factor * abs(factor) * squared
    return value * abs(value) >= bound


def _times(one: Ends, other: Ends) -> Ends:
    ends = [a * b for a in one for b in other]
    return min(ends), max(ends)


def _square(one: Ends) -> Ends:
    low, high = one[0] ** 2, one[1] ** 2
    return (_ZERO if one[0] <= 0 <= one[1] else min(low, high)), max(low, high)
