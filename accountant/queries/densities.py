"""Density estimates from noisy sums: a histogram, and a series of cosines.

Both end in a ``Density``, from which synthetic records are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from accountant.client.amounts import Amount
from accountant.queries.arguments import whole_number
from accountant.queries.budgets import Budget
from accountant.queries.density import Density, cells, middles
from accountant.queries.exact import Numbers, clipped, exact_sum, root_above
from accountant.queries.query import Error, Query
from accountant.queries.records import Records
from accountant.queries.steps import DiscreteGaussian, Noise

MOST_CELLS: Final = 2**20
_TRIED: Final = 200
_ROOT: Final = root_above(Fraction(2))


def histogram_density(
    data: Records,
    column: str,
    bins: int,
    epsilon: Amount | None = None,
    rho: Amount | None = None,
) -> Query:
    """Return the query for the density of a column from the counts of ``bins`` equal bins between
    its bounds, with whole-number noise on each (Wasserman and Zhou 2010, "perturbed histogram").

    The bins come from the bounds alone. A record is in exactly one, so one that comes changes one
    count by 1, and one that is exchanged two.
    """
    bins = whole_number("bins", bins, 1, MOST_CELLS)
    budget, (low, high), unit = Budget.of(data, epsilon, rho), data.bounds(column), data.unit()
    ends = float(low), float(high)
    reach = Fraction(unit.of_cells()), unit.of_cells_in_length()
    step = budget.noise_on_list(bins, *reach, whole=True)
    [values] = data.numbers(column)
    counts = np.bincount(cells(values, *ends, bins), minlength=bins).tolist()
    public = public_size(data, len(values))

    def finish(drawn: Sequence[Any]) -> Density:
        noisy = np.array(drawn[0], dtype=np.float64)
        size = max(float(noisy.sum()), 1.0) if public is None else public
        return Density.nearest(*ends, noisy / size)

    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        beta = 1 - confidence if public is not None else (1 - confidence) / 2
        off = step.within(beta)
        slack = 0.0 if public is not None else sum_within(step, beta)
        if drawn is not None and public is None:
            size = float(sum(drawn[0]))
        else:
            size = float(stated_size(public, records))
        left = size - slack
        # |(c + e)/(n + s) - c/n| <= (|e| + |s|)/(n + s); the projection moves all bins by as much.
        amount = 1.0 if left < 1 else min(1.0, 2 * (off + slack) / left)
        if drawn is not None:
            amount = min(amount, _farthest(finish(drawn), drawn[0], off, (left, size + slack)))
        how = "the quantile of the noise of all bins at once"
        return Error(amount, confidence, "probability of a bin", how)

    return Query(
        "histogram_density", data.charged, (step,), lambda: [counts], finish, bounds, data.notes
    )


def _farthest(
    found: Density, noisy: Sequence[int], off: float, sizes: tuple[float, float]
) -> float:
    """Return how far the probability of a bin can be from its share of the records, where each
    count is within ``off`` of the noisy one and their sum between two ``sizes``.
    """
    counts, (least, most) = np.array(noisy, dtype=np.float64), sizes
    low = np.clip((counts - off) / max(most, 1.0), 0, 1)
    high = np.clip((counts + off) / max(least, 1.0), 0, 1)
    return float(np.maximum(found.shares - low, high - found.shares).max())


def sum_within(step: Noise, beta: float) -> float:
    """Return how far the noise on whole numbers moves their sum, except with probability ``beta``:
    Chernoff's bound, by the moments E e^(tX) of one entry, which are (1 - q)^2 / ((1 - q e^t) (1 -
    q e^-t)) for Laplace noise, q = e^(-1/scale), and at most e^(scale^2 t^2 / 2) for normal noise
    (Canonne, Kamath, Steinke 2020).
    """
    log, size, scale = math.log(2 / beta), step.entries, step.drawn
    if isinstance(step, DiscreteGaussian):
        return scale * math.sqrt(2 * size * log)

    def chernoff(share: float) -> float:
        moment = 2 * math.log(-math.expm1(-1 / scale))
        for sign in (1, -1):
            moment -= math.log(-math.expm1(-(1 - sign * share) / scale))
        return (size * moment + log) * scale / share

    return min(chernoff(i / _TRIED) for i in range(1, _TRIED))


def series_density(
    data: Records,
    column: str,
    terms: int,
    epsilon: Amount | None = None,
    rho: Amount | None = None,
    points: int = 256,
) -> Query:
    """Return the query for the density of a column as a series of cosines: on u in [0, 1] between
    the bounds, f(u) = 1 + sum of a_j phi_j(u) with phi_j(u) = root(2) cos(pi j u), j = 1 ..
    ``terms``, where a_j is the mean of phi_j over the records (Čencov 1962; with Laplace noise:
    Wasserman and Zhou 2010; Duchi, Jordan, Wainwright 2013).

    **Sensitivity.** What runs is one list of sums over the records: of phi_1, phi_2, ... and, where
    their number is private, of phi_0 = 1, which counts them. Each |phi_j| is at most root(2), and
    at u = 0 all are root(2) at once. So a record that comes changes the list by root(2) * terms + 1
    in all (L1) and by root(2 terms + 1) in length (L2), and no less will do. One that is exchanged
    changes it by at most twice as much, without the count where that is fixed.

    The answer is a ``Density`` on as many cells as there are ``points``. At the middles of more
    than ``terms`` cells the cosines are orthonormal, so that distances in L2 are those of the
    coefficients, and turning the noisy series into a density makes none of them larger.
    """
    terms = whole_number("terms", terms, 1, MOST_CELLS)
    points = whole_number("points", points, terms + 1, MOST_CELLS)
    budget, (low, high), unit = Budget.of(data, epsilon, rho), data.bounds(column), data.unit()
    [values] = data.numbers(column)
    public = public_size(data, len(values))
    counted, times = int(public is None), unit.records * (1 if unit.present else 2)
    step = budget.noise_on_list(
        terms + counted,
        times * (terms * _ROOT + counted),
        times * root_above(Fraction(2 * terms + counted)),
    )
    ends = float(low), float(high)
    scaled = (values - ends[0]) / (ends[1] - ends[0])

    def sums() -> list[Any]:
        each = [exact_sum(clipped(basis(scaled, j), -_ROOT, _ROOT)) for j in range(1, terms + 1)]
        return [[*each, len(values)] if counted else each]

    def coefficients(drawn: Sequence[Any]) -> tuple[Numbers, float]:
        size = max(drawn[0][-1], 1.0) if public is None else float(public)
        return np.clip(np.array(drawn[0][:terms]) / size, -math.sqrt(2), math.sqrt(2)), size

    def finish(drawn: Sequence[Any]) -> Density:
        found, _ = coefficients(drawn)
        at = middles(0, 1, points)
        heights = 1 + sum(a * basis(at, j) for j, a in enumerate(found, 1))
        return Density.nearest(*ends, heights / points)

    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        off, most = step.within(1 - confidence), math.sqrt(2)
        if drawn is not None:
            means, size = coefficients(drawn)
        else:
            means, size = np.full(terms, most), float(stated_size(public, records))
        moved = off * counted  # the number of records, if that is noisy
        amount = math.sqrt(terms) * 2 * most
        if size - moved >= 1:
            # |S'/n' - S/n| = |(S' - S) - (S'/n') (n' - n)| / n, and the same with S/n.
            each = np.minimum((off + np.abs(means) * moved) / (size - moved), 2 * most)
            amount = float(np.sqrt((each**2).sum()))
        how = "the quantile of the noise of all coefficients at once, by Parseval's equation"
        return Error(amount, confidence, "L2 distance of densities on [0, 1]", how)

    return Query("series_density", data.charged, (step,), sums, finish, bounds, data.notes)


def basis(points: Numbers, order: int) -> Numbers:
    """Return phi_order at points in [0, 1]."""
    return np.asarray(math.sqrt(2) * np.cos(math.pi * order * points))


def public_size(data: Records, size: int) -> int | None:
    """Return the number of records if it is public, else None."""
    return size if data.unit().fixed else None


def stated_size(public: int | None, records: int | None) -> int:
    """Return the public number of records, or that for which the caller wants the error."""
    size = records if public is None else public
    if size is None:
        raise ValueError(
            "how many records there are is private, and the error depends on it: say for how many, "
            "as in error(0.95, records=1000)"
        )
    return size
