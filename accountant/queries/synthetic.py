"""The exponential mechanism over data sets and distributions, by Kolmogorov and Smirnov's distance.

Wasserman and Zhou 2010. The score of a candidate with distribution function G, for n records of
which N(x) are at most x, is

    - n * the largest distance of the distribution functions = - max over x of |N(x) - n G(x)|

**Sensitivity.** At any x, a record that comes changes N(x) by 0 or 1 and n G(x) by G(x), so their
difference by a number in [-1, 1]. One that is exchanged for another leaves n G(x) as it is, and
changes N(x) by at most 1. In both cases the largest of the absolute differences changes by at most
1, if it is over the same x for all data; a unit of k records changes it by at most k.

The x are therefore the candidate's own. Between two neighbouring values of a candidate data set G
is constant and N only rises, so that the largest distance is at one of these values, or just to the
left of one; for a distribution they are points that are given. Scores are rounded to 2^-20, which
keeps whole differences what they are, so that no rounding adds to the sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accountant.client.amounts import Amount
from accountant.queries import frame
from accountant.queries.budgets import Budget
from accountant.queries.choices import Exponential
from accountant.queries.exact import Numbers
from accountant.queries.query import Error, Query
from accountant.queries.records import Records

PARTS: Final = 2**20
"""The parts of a record to which a score is rounded."""
MOST_CANDIDATES: Final = 2**20
_POINTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Steps:
    """A candidate's distribution function G as it is compared: at each ``at`` N counts the records
    that are not above it, or with ``strict`` those that are below it, and G is ``parts`` / ``of``.
    """

    at: Numbers
    strict: NDArray[np.bool_]
    parts: NDArray[np.int64]
    of: int

    def score(self, ordered: Numbers) -> float:
        """Return the score for records in order, rounded to 2^-20, half up."""
        upto = np.searchsorted(ordered, self.at, side="right")
        under = np.searchsorted(ordered, self.at, side="left")
        counts = np.where(self.strict, under, upto).tolist()
        size, of = len(ordered), self.of
        most = max(
            abs(count * of - size * part)
            for count, part in zip(counts, self.parts.tolist(), strict=True)
        )
        return -math.floor(Fraction(most * PARTS, of) + Fraction(1, 2)) / PARTS


def nearest(
    data: Records,
    column: str,
    candidates: Sequence[Any] | Mapping[str, Any],
    epsilon: Amount | None,
    points: Sequence[float] | None = None,
) -> Query:
    """Return the query for the candidate that is near the records of a column: each is chosen with
    probability in proportion to e^(score / scale).

    A candidate is a data set (a list of numbers, of any length), or a distribution: an object with
    a method ``cdf``, such as SciPy's. They come from public knowledge; a mapping gives them names,
    and then the answer is a name. ``points``: where distributions are compared, by default 1000
    equal steps between the bounds of the column. Raise ValueError for what is no candidate.
    """
    budget, unit = Budget.of(data, epsilon), data.unit()
    named = isinstance(candidates, Mapping)
    among = list(candidates.values() if isinstance(candidates, Mapping) else candidates)
    names = list(candidates) if named else among
    if not 2 <= len(among) <= MOST_CANDIDATES:
        raise ValueError(f"a choice is among 2 to 2^20 candidates, not {len(among)}")
    steps = [_steps(data, column, each, points) for each in among]
    [raw] = data.raw(column)
    ordered = np.sort(frame.numbers(column, raw))
    reach = Fraction(unit.records)
    scale = Exponential.scale_costing(budget.amount, reach, monotonic=False)
    step = Exponential(reach, scale, budget.stated, outcomes=len(among))

    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        how = "scale ln(N / beta) for N candidates: by how many records more than the nearest one"
        return Error(step.within(1 - confidence), confidence, "records", how)

    return Query(
        "nearest", data.charged, (step,), lambda: [[each.score(ordered) for each in steps]],
        lambda drawn: names[drawn[0]], bounds, data.notes,
    )  # fmt: skip


def data_sets(values: Sequence[float], size: int) -> Iterator[tuple[float, ...]]:
    """Return all data sets of a ``size`` with these values, in any order, as candidates. There are
    C(values + size - 1, size); raise ValueError if they are too many.
    """
    if len(set(values)) != len(values) or size < 1:
        raise ValueError("values are all different, and a data set has at least one")
    if (count := math.comb(len(values) + size - 1, size)) > MOST_CANDIDATES:
        raise ValueError(f"there are {count} such data sets, more than 2^20: take fewer values")
    return combinations_with_replacement(values, size)


def _steps(data: Records, column: str, candidate: Any, points: Sequence[float] | None) -> Steps:
    if hasattr(candidate, "cdf"):
        return _of_distribution(data, column, candidate, points)
    try:
        found = np.sort(np.asarray(candidate, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        found = np.array(math.nan)
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all():
        raise ValueError(
            "a candidate is a list of finite numbers, or a distribution with a method cdf"
        )
    at, counts = np.unique(found, return_counts=True)
    upto = np.cumsum(counts)
    return Steps(
        np.r_[at, at],
        np.repeat([False, True], len(at)),
        np.r_[upto, upto - counts].astype(np.int64),
        len(found),
    )


def _of_distribution(
    data: Records, column: str, candidate: Any, points: Sequence[float] | None
) -> Steps:
    if points is None:
        low, high = data.bounds(column)
        at = np.linspace(float(low), float(high), _POINTS + 1)
    else:
        at = np.array(points, dtype=np.float64)
    if at.ndim != 1 or not len(at) or not np.isfinite(at).all():
        raise ValueError("points are a list of finite numbers")
    shares = np.asarray(candidate.cdf(at), dtype=np.float64)
    if shares.shape != at.shape or not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("a distribution function is from 0 to 1 at every point")
    parts = np.rint(shares * 2**40).astype(np.int64)
    return Steps(at, np.zeros(len(at), dtype=np.bool_), parts, 2**40)
