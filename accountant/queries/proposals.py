"""Propose, test, release: noise for the change that is likely, after a test that it is the most.

Dwork and Lei, *Differential privacy and robust statistics*, STOC 2009; Dwork and Roth 2014, Sec.
7.2. A bound is proposed on how far one unit moves a median, or an interquartile range. The data's
distance from such on which a unit can move it further is worked out exactly (``order``), and gets
noise. If it seems far enough, the statistic is released with noise for the proposed bound; else
nothing is. A unit changes the distance by 1. On data that break the bound it is 0, and a release
has probability e^(-threshold / scale) / 2 at most: that is delta.

The distance and its noise are whole numbers, and the noise is above a whole threshold T with
probability q^(T + 1) / (1 + q) <= q^T / 2, q = e^(-1 / scale). The scale is a whole number of
2^-20, so that the stated one is the drawn one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np

from accountant.client.amounts import Amount
from accountant.client.mechanisms import Mechanism, mechanism
from accountant.queries import order
from accountant.queries.budgets import Budget
from accountant.queries.compounds import part
from accountant.queries.exact import number, positive
from accountant.queries.order import Places
from accountant.queries.points import Points
from accountant.queries.query import Error, Query
from accountant.queries.records import Records
from accountant.queries.steps import DiscreteLaplace, Draw, Laplace, Step

_HALF: Final = Fraction(1, 2)
_GRID: Final = 2**20
_DOWN: Final = 1 - 1e-9
"""Over the error of logarithms and powers in floats."""


def median(
    data: Records,
    column: str,
    *,
    bound: Amount,
    epsilon: Amount,
    delta: Amount,
    step: Amount | None = None,
) -> Query:
    """Describe the median of a column, with noise for a ``bound`` on how far one unit moves it,
    if the data are far from breaking that. The value is None if they do not seem to be.

    Values are rounded to points ``step`` apart within the column's bounds, by default 1 for whole
    numbers of which none may be missing, else 2^-20 of the distance of the bounds. Half of
    ``epsilon`` pays for the test.
    Raise ValueError for what makes no sense, or where a unit has several records.
    """
    return _query(data, "median", (_HALF,), column, bound, epsilon, delta, step)


def interquartile_range(
    data: Records,
    column: str,
    *,
    bound: Amount,
    epsilon: Amount,
    delta: Amount,
    step: Amount | None = None,
) -> Query:
    """Describe the distance of the third quartile of a column from the first in the same way. The
    test is that no unit moves either by more than half of ``bound``.
    """
    quartiles = (Fraction(1, 4), Fraction(3, 4))
    return _query(data, "interquartile_range", quartiles, column, bound, epsilon, delta, step)


@dataclass(frozen=True, kw_only=True)
class Proposal(Step):
    """The test and the release. ``sensitivity`` and ``scale`` are those of the release."""

    kind: ClassVar[str] = "propose_test_release"

    shares: tuple[Fraction, ...]
    """The quantile, or the two whose distance is released."""
    points: Points
    reach: int
    """The proposed bound on how far a unit moves each quantile, in points."""
    replaced: bool
    """Units are exchanged, their number being public; else they come and go."""
    test: DiscreteLaplace
    threshold: int
    noise: Laplace

    @property
    def mechanism(self) -> Mechanism:
        """What is sent to the service."""
        return mechanism(
            self.kind,
            distance_scale=self.test.scale,
            threshold=self.threshold,
            release=part(self.noise.mechanism),
            neighbouring=self.neighbouring,
        )

    def far(self, places: Places) -> int:
        """Return the distance of sorted places from such on which a unit can move a quantile by
        more than ``reach``.
        """
        how = order.to_replace if self.replaced else order.to_add_or_remove
        return min(how(places, share, self.reach, self.points.count - 1) for share in self.shares)

    def statistic(self, places: Places) -> Fraction:
        """Return the exact quantile, or the distance of two."""
        found = [order.quantile(places, share) for share in self.shares]
        if len(found) == 1:
            return self.points.at(found[0])
        return (found[1] - found[0]) * self.points.distance

    def ready(self, value: Places) -> Draw:
        """Return the draw for sorted places: the noisy statistic, or None."""
        test = self.test.ready(self.far(value))
        release = self.noise.ready(self.statistic(value))
        return lambda: release() if test() > self.threshold else None

    def within(self, beta: float) -> float:
        """Return how far off a statistic that is released is."""
        return self.noise.within(beta) + float(self.points.distance) * len(self.shares) / 2

    def passes(self, beta: float) -> float:
        """Return the distance from which the test passes, except with probability ``beta``."""
        return self.threshold + self.test.within(min(2 * beta, 0.5)) + 1


def _query(
    data: Records,
    kind: str,
    shares: tuple[Fraction, ...],
    column: str,
    bound: Amount,
    epsilon: Amount,
    delta: Amount,
    step: Amount | None,
) -> Query:
    budget, (low, high), unit = Budget.of(data, epsilon), data.bounds(column), data.unit()
    if unit.records != 1:
        raise ValueError(
            "how far data are from breaking the bound is known for units of one record each, not "
            f"of {unit.records}: give a table with one row a {data.people.unit}"
        )
    if not (unit.present or unit.fixed):
        raise ValueError(
            "which records count is private here, so that a replaced unit may also come or go: ask "
            "about all records, or about those of a registered dimension"
        )
    [values] = data.numbers(column)
    whole = data.whole(column) and low.denominator == 1
    points = Points.of(low, high, step, whole=whole)
    reach = math.floor(positive("the bound", bound) / (len(shares) * points.distance))
    if not 1 <= reach < points.count - 1:
        why = "less than a step" if reach < 1 else "no less than the column's bounds allow anyway"
        raise ValueError(f"the proposed bound {bound} is {why}")
    proposal = _proposal(budget, delta, data, shares, points, reach)
    places = np.sort(points.nearest(values))

    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        if drawn is not None and drawn[0] is None:
            return Error(math.inf, confidence, f"units of {column}", "nothing was released")
        condition = "the test passes" if drawn is None else None
        return Error(
            proposal.within(1 - confidence), confidence, f"units of {column}",
            "the quantile of the noise", condition,
        )  # fmt: skip

    return Query(
        kind, data.charged, (proposal,), lambda: [places], lambda drawn: drawn[0], bounds,
        data.notes,
    )  # fmt: skip


def _proposal(
    budget: Budget,
    delta: Amount,
    data: Records,
    shares: tuple[Fraction, ...],
    points: Points,
    reach: int,
) -> Proposal:
    allowed = number("delta", delta)
    if not 0 < allowed < _HALF:
        raise ValueError(f"delta is more than 0 and less than 1/2, not {delta}")
    if data.doubled:  # (1 + e^epsilon) delta is booked for one unit that leaves and one that comes
        allowed *= Fraction(_DOWN / (1 + math.exp(budget.amount)))
    each = budget.amount / 2
    scale = Fraction(math.ceil(_GRID / each), _GRID)
    threshold = math.ceil(float(scale) * -math.log(2 * float(allowed)) / _DOWN)
    noise = Laplace.costing(each, len(shares) * reach * points.distance)
    return Proposal(
        sensitivity=noise.sensitivity,
        scale=noise.scale,
        neighbouring=budget.stated,
        shares=shares,
        points=points,
        reach=reach,
        replaced=not data.unit().present,
        test=DiscreteLaplace(Fraction(1), scale),
        threshold=threshold,
        noise=noise,
    )
