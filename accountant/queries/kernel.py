"""A kernel density estimate with the noise of a Gaussian process (Hall, Rinaldo, Wasserman 2013).

The estimate f(t) = sum over records of K(t, x), with the Gaussian kernel K(t, x) = e^(-(t - x)^2 /
(2 h^2)), lies in the space H of functions whose kernel is K, where a record that comes moves it by
root(K(x, x)) = 1. Adding a Gaussian process of covariance sigma^2 K to it therefore costs what
normal noise of deviation sigma costs at sensitivity 1, at however many points it is looked at.

The textbook's proof looks at the values v at finitely many points and whitens them by the root of
their matrix K, which has eigenvalues far below the rounding of floats. Here nothing is ever
inverted, because the noise is drawn *before* the values are made:

* The points are the middles of equal cells, and a record counts at the middle of its own. Then all
  that the records say is how many are in each cell, c.
* The matrix K of the points is factored, K = F F', by its eigenvectors without those of negligible
  eigenvalues. The rows of F, in units of 2^-24, are rounded to whole numbers. Both depend on public
  numbers alone, and whatever error they have is an error of the estimate, not of the privacy.
* What runs is whole-number normal noise z on the whole numbers a = F'c, which are worked out
  without rounding. A record that comes changes a by its cell's row of F, and one that is exchanged
  by the difference of two rows; the largest length of these is worked out in whole numbers and
  rounded up. (It is at most that in H, root(K(x, x)) = 1 or root(2 - 2 K(x, y)) < root(2), but for
  the rounding.) That is what is charged.
* The answer is F(a + z) = K c + F z: the estimate, and noise of covariance sigma^2 F F', which is
  sigma^2 K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accountant.client.amounts import Amount
from accountant.queries.arguments import whole_number
from accountant.queries.budgets import Budget
from accountant.queries.densities import public_size, stated_size
from accountant.queries.density import Density, cells, middles
from accountant.queries.exact import Numbers, positive, root_above
from accountant.queries.query import Error, Query
from accountant.queries.records import Records
from accountant.queries.steps import DiscreteGaussian
from accountant.queries.unit import Unit

ONE: Final = 2**24
"""The whole number that stands for 1 in the rows of F: rows have a length of about 2^24, and the
sums over 2^38 records fit into 64 bits."""
MOST_POINTS: Final = 2048
_NEGLIGIBLE: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Curve:
    """A noisy kernel density estimate at ``points``."""

    points: Numbers = field(repr=False)
    heights: Numbers = field(repr=False)
    """The estimate itself; noise makes some of it negative."""
    low: float
    high: float

    @property
    def density(self) -> Density:
        """The nearest density on the cells around the points."""
        width = (self.high - self.low) / len(self.points)
        return Density.nearest(self.low, self.high, self.heights * width)


@dataclass(frozen=True, slots=True)
class Factor:
    """The rows of F in whole numbers, one a point."""

    rows: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, points: Numbers, bandwidth: float, *, counted: bool) -> Factor:
        """Return the factor of the kernel's matrix; ``counted`` adds a column of ones, which counts
        the records.
        """
        distances = (points[:, None] - points[None, :]) / bandwidth
        powers, vectors = np.linalg.eigh(np.exp(-(distances**2) / 2))
        kept = powers > _NEGLIGIBLE * powers[-1]
        rows = np.rint(vectors[:, kept] * np.sqrt(powers[kept]) * ONE).astype(np.int64)
        ones = np.full((len(points), int(counted)), ONE, dtype=np.int64)
        return cls(np.hstack([rows, ones]))

    def reach(self, unit: Unit) -> Fraction:
        """Return the most by which a unit changes F'c in length, in whole numbers and rounded up:
        by the longest row for each record, or by the longest difference of two rows. Where a record
        may be exchanged for none, the longer of both.
        """
        products = self.rows @ self.rows.T  # below 2^50 each: exact
        squares = np.diagonal(products)
        alone = int(squares.max())
        if unit.present:
            return unit.records * root_above(Fraction(alone))
        pairs = int((squares[:, None] + squares[None, :] - 2 * products).max())
        # Where the numbers differ, pair the records off; those that are left count alone.
        longest = pairs if unit.fixed else max(pairs, alone)
        return unit.records * root_above(Fraction(longest))


def kernel_density(
    data: Records,
    column: str,
    bandwidth: Amount,
    rho: Amount,
    points: int = 256,
) -> Query:
    """Return the query for a kernel density estimate of a column at the middles of ``points`` equal
    cells between its bounds. ``bandwidth``: the kernel's h, in units of the column, chosen without
    the data, and at least as wide as a cell.

    Its answer is an ``Curve``. Raise ValueError for numbers that do not fit.
    """
    points = whole_number("points", points, 2, MOST_POINTS)
    budget, (low, high), unit = Budget.of(data, None, rho), data.bounds(column), data.unit()
    h, ends = positive("the bandwidth", bandwidth), (float(low), float(high))
    if h * points < high - low:
        raise ValueError(
            f"the bandwidth {bandwidth} is below the width of a cell, "
            f"{float((high - low) / points):.4g}: take more points, or a larger bandwidth"
        )
    [values] = data.numbers(column)
    public, at = public_size(data, len(values)), middles(*ends, points)
    factor = Factor.of(at, float(h), counted=public is None)
    rows = factor.rows
    step = DiscreteGaussian.costing(
        budget.amount, factor.reach(unit), budget.stated, rows.shape[1], whole=True
    )
    counts = np.bincount(cells(values, *ends, points), minlength=points)
    terms = rows.shape[1] - (public is None)
    features, peak = rows[:, :terms] / ONE, 1 / (float(h) * math.sqrt(2 * math.pi))

    def sums() -> list[Any]:
        return [(counts @ rows).tolist()]

    def size_of(drawn: Sequence[Any]) -> float:
        return max(drawn[0][-1] / ONE, 1.0) if public is None else float(public)

    def finish(drawn: Sequence[Any]) -> Curve:
        noisy = features @ (np.array(drawn[0][:terms], dtype=np.float64) / ONE)
        return Curve(at, noisy * (peak / size_of(drawn)), *ends)

    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        entries = points + (public is None)
        deviation = step.drawn / ONE * math.sqrt(2 * math.log(2 * entries / (1 - confidence)))
        off = deviation * float(np.linalg.norm(features, axis=1).max())
        moved = deviation if public is None else 0.0
        size, height = (
            float(stated_size(public, records)) if drawn is None else size_of(drawn),
            peak,
        )
        if drawn is not None:
            height = float(np.abs(finish(drawn).heights).max())
        amount = math.inf if size - moved < 1 else (off * peak + height * moved) / (size - moved)
        how = "normal tails of the process (Canonne, Kamath, Steinke 2020), at all points at once"
        return Error(amount, confidence, f"density per unit of {column}", how)

    return Query("kernel_density", data.charged, (step,), sums, finish, bounds, data.notes)
