"""Functions of noisy sums: means, moments, variances.

All follow one pattern, which ``Sums`` holds: some sums of summands with known bounds, each released
by a step of its own at an equal share of the budget, and a function of them. Where the number of
records is public it is not released, and costs nothing.

The summands are measured from the middle of their bounds, which halves what one unit can change
where units come and go. Each summand is a float that is worked out from one record and then cut to
its bounds, and floats are summed without rounding, so no rounding can change a sensitivity.

**The error.** With the stated confidence the noise of all sums together stays in a box, whose sides
are exact quantiles of the noise: the steps are independent, so each side has the confidence to the
power of 1 / (number of steps). After the release the true sums are known to be in the box around
the noisy ones, and the error is the largest distance of the answer to a value of the function
there. Before it, the bound has to hold wherever the box may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from accountant.client.amounts import Amount
from accountant.queries.budgets import Budget
from accountant.queries.exact import Numbers, clipped, exact_sum
from accountant.queries.query import Error, Query
from accountant.queries.records import Records
from accountant.queries.steps import Noise, apart

SIZE = "records"
_BOX = "the values of the formula in the box of what the noise may be"
_BEFORE = "the largest that it may be in such a box, wherever it lies"


class Range(NamedTuple):
    """All numbers from ``low`` to ``high``."""

    low: float
    high: float

    def cut(self, low: float, high: float) -> Range:
        """Return the range with both ends moved into [low, high]."""
        return Range(min(max(self.low, low), high), min(max(self.high, low), high))

    def over(self, size: Range) -> Range:
        """Return the quotients by a ``size`` of at least 1."""
        least, most = max(size.low, 1.0), max(size.high, 1.0)
        return Range(
            min(self.low / least, self.low / most), max(self.high / least, self.high / most)
        )

    def square(self) -> Range:
        """Return the squares."""
        ends = self.low**2, self.high**2
        return Range(0.0 if self.low <= 0 <= self.high else min(ends), max(ends))

    def minus(self, other: Range) -> Range:
        """Return the differences."""
        return Range(self.low - other.high, self.high - other.low)

    def times(self, other: Range) -> Range:
        """Return the products."""
        ends = [one * two for one in self for two in other]
        return Range(min(ends), max(ends))


Box = Mapping[str, Range]
Widths = Mapping[str, float]


class Summand(NamedTuple):
    """One number a record, and its bounds."""

    values: Numbers
    low: Fraction
    high: Fraction


@dataclass(frozen=True, slots=True)
class Formula:
    """What is made of the sums."""

    value: Callable[[Mapping[str, float]], float]
    """The answer from the noisy sums, by name, and from the number of ``records`` among them."""
    within: Callable[[Box], Range]
    """All values of the formula where the sums are in a box."""
    before: Callable[[Widths, int | None], float]
    """A bound on the error, given the widths of the noise and the number of records, if known."""
    unit: str


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of ``summands`` and the number of records, and a formula of both."""

    summands: Mapping[str, Summand]
    formula: Formula
    size: int
    public: bool
    """The number of records is public, and has no step."""
    steps: tuple[Noise, ...]

    @classmethod
    def of(
        cls, data: Records, budget: Budget, summands: Mapping[str, Summand], formula: Formula
    ) -> Sums:
        """Return the sums over the records of ``data``, with a step at an equal share for each."""
        unit, one = data.unit(), Fraction(1)
        size, reach = len(next(iter(summands.values())).values), unit.of_sum(one, one)
        share = budget.share(len(summands) + (1 if reach else 0))
        steps = [share.noise(unit.of_sum(each.low, each.high)) for each in summands.values()]
        if reach:
            steps.append(share.noise(reach, whole=True))
        return cls(summands, formula, size, not reach, tuple(steps))

    @property
    def names(self) -> list[str]:
        """What the steps release."""
        return [*self.summands] if self.public else [*self.summands, SIZE]

    def values(self) -> Sequence[Any]:
        """Return the exact sums."""
        found: list[Any] = [exact_sum(each.values) for each in self.summands.values()]
        return found if self.public else [*found, self.size]

    def known(self, drawn: Sequence[Any]) -> dict[str, float]:
        """Return what is known after the draws: noisy sums, and the number of records."""
        found = dict(zip(self.names, map(float, drawn), strict=True))
        return {**found, SIZE: float(self.size)} if self.public else found

    def finish(self, drawn: Sequence[Any]) -> float:
        """Return the answer."""
        return self.formula.value(self.known(drawn))

    def error(self, confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        """Return the error of the answer, before or after the draws."""
        each = apart(1 - confidence, len(self.steps))
        steps = zip(self.names, self.steps, strict=True)
        widths = {name: step.within(each) for name, step in steps}
        if drawn is None:
            amount = self.formula.before(widths, self.size if self.public else records)
            return Error(amount, confidence, self.formula.unit, _BEFORE)
        noisy = self.known(drawn)
        sides = {name: widths.get(name, 0.0) for name in noisy}
        box = {name: Range(noisy[name] - side, noisy[name] + side) for name, side in sides.items()}
        answer, true = self.finish(drawn), self.formula.within(box)
        amount = max(true.high - answer, answer - true.low)
        return Error(amount, confidence, self.formula.unit, _BOX)


def query(
    data: Records, kind: str, budget: Budget, summands: Mapping[str, Summand], formula: Formula
) -> Query:
    """Return the query for a formula of the sums of ``summands`` and of the number of records."""
    sums = Sums.of(data, budget, summands, formula)
    return Query(kind, data.charged, sums.steps, sums.values, sums.finish, sums.error, data.notes)


class Centred(NamedTuple):
    """A column, measured from the middle of its bounds; ``half`` is the half of their distance."""

    values: Numbers
    middle: Fraction
    half: Fraction

    @classmethod
    def of(cls, values: Numbers, low: Fraction, high: Fraction) -> Centred:
        """Return ``values``, which are within [low, high], as distances from its middle."""
        middle, half = (low + high) / 2, (high - low) / 2
        return cls(clipped(values - float(middle), -half, half), middle, half)

    @property
    def plain(self) -> Summand:
        """The distances themselves."""
        return Summand(self.values, -self.half, self.half)

    @property
    def squared(self) -> Summand:
        """The squares of the distances."""
        return self.by(self, low=Fraction(0))

    def by(self, other: Centred, low: Fraction | None = None) -> Summand:
        """Return the products with the distances of another column."""
        most = self.half * other.half
        least = -most if low is None else low
        return Summand(clipped(self.values * other.values, least, most), least, most)


def mean(data: Records, column: str, epsilon: Amount | None, rho: Amount | None) -> Query:
    """Return the query for the mean of a column within its bounds."""
    budget, pair = Budget.of(data, epsilon, rho), data.bounds(column)
    [values] = data.numbers(column)
    centred = Centred.of(values, *pair)
    return _mean(data, "mean", budget, centred, f"units of {column}")


def second_moment(data: Records, column: str, epsilon: Amount | None, rho: Amount | None) -> Query:
    """Return the query for the mean of the squares of a column within its bounds."""
    budget, (low, high) = Budget.of(data, epsilon, rho), data.bounds(column)
    most = max(low**2, high**2)
    least = Fraction(0) if low <= 0 <= high else min(low**2, high**2)
    [values] = data.numbers(column)
    centred = Centred.of(clipped(values**2, least, most), least, most)
    return _mean(data, "second_moment", budget, centred, f"squares of units of {column}")


def _mean(data: Records, kind: str, budget: Budget, column: Centred, unit: str) -> Query:
    middle, half = float(column.middle), float(column.half)

    def value(sums: Mapping[str, float]) -> float:
        return middle + max(-half, min(half, sums["x"] / max(sums[SIZE], 1.0)))

    def within(box: Box) -> Range:
        inside = box["x"].over(box[SIZE]).cut(-half, half)
        return Range(middle + inside.low, middle + inside.high)

    def before(widths: Widths, records: int | None) -> float:
        return _off(widths, "x", half, records)

    return query(data, kind, budget, {"x": column.plain}, Formula(value, within, before, unit))


def _off(widths: Widths, name: str, most: float, records: int | None) -> float:
    """Return the most by which noise moves a mean of numbers of size ``most``: with noise u on the
    sum and v on the number n, |(S + u)/(n + v) - S/n| = |u - v S/n| / (n + v).
    """
    if records is None:
        raise ValueError(
            "how many records there are is private, and the error depends on it: say for how many, "
            "as in error(0.95, records=1000)"
        )
    size = widths.get(SIZE, 0.0)
    if records - size < 1:
        return 2 * most
    return min(2 * most, (widths[name] + most * size) / (records - size))


def variance(data: Records, column: str, epsilon: Amount | None, rho: Amount | None) -> Query:
    """Return the query for the variance of a column within its bounds: the mean square less the
    square of the mean (divided by n, not n - 1).
    """
    return _spread(data, "variance", column, Budget.of(data, epsilon, rho), root=False)


def standard_deviation(
    data: Records, column: str, epsilon: Amount | None, rho: Amount | None
) -> Query:
    """Return the query for the standard deviation: the root of the variance."""
    return _spread(data, "standard_deviation", column, Budget.of(data, epsilon, rho), root=True)


def _spread(data: Records, kind: str, column: str, budget: Budget, *, root: bool) -> Query:
    pair = data.bounds(column)
    [values] = data.numbers(column)
    centred = Centred.of(values, *pair)
    half = float(centred.half)
    most = half**2

    def made(variance: float) -> float:
        inside = max(0.0, min(most, variance))
        return math.sqrt(inside) if root else inside

    def value(sums: Mapping[str, float]) -> float:
        size = max(sums[SIZE], 1.0)
        mean = max(-half, min(half, sums["x"] / size))
        return made(max(0.0, min(most, sums["xx"] / size)) - mean**2)

    def within(box: Box) -> Range:
        square = box["x"].over(box[SIZE]).cut(-half, half).square()
        found = box["xx"].over(box[SIZE]).cut(0.0, most).minus(square)
        return Range(made(found.low), made(found.high))

    def before(widths: Widths, records: int | None) -> float:
        moved = _off(widths, "x", half, records)
        off = min(most, _off(widths, "xx", most, records) + 2 * half * moved + moved**2)
        return math.sqrt(off) if root else off

    unit = f"units of {column}" if root else f"squares of units of {column}"
    summands = {"x": centred.plain, "xx": centred.squared}
    return query(data, kind, budget, summands, Formula(value, within, before, unit))
