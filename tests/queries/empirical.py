"""An empirical lower bound on epsilon, once for all queries.

A mechanism that costs epsilon gives any event at most e^epsilon times the probability on
neighbouring data. So draws on two neighbouring inputs refute an epsilon: the event is chosen on one
half of them, and its probabilities are bounded on the other half by Clopper and Pearson (1934). The
bound is below the true epsilon but for one case in ``1 / ERROR``.

The events are thresholds of the privacy loss that the step states, log P(draw | one) / P(draw |
other): by Neyman and Pearson nothing tells the inputs apart better, if the step is what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import beta

from accountant.queries.choices import Exponential, Line, OnLine
from accountant.queries.query import Query
from accountant.queries.steps import DiscreteGaussian, Noise, Step

ERROR = 1e-6
"""How often a bound may be wrong."""
EVENTS = 200
Statistic = NDArray[np.float64]


def lower_bound(one: Statistic, other: Statistic, delta: float = 0.0) -> float:
    """The epsilon that two samples of a statistic refute, at ``delta``; 0 if none."""
    best, chosen = -np.inf, (one, other, 0.0, True)
    halves = [(each[::2], each[1::2]) for each in (one, other)]
    (choose_one, judge_one), (choose_other, judge_other) = halves
    for first, second, judges in (
        (choose_one, choose_other, (judge_one, judge_other)),
        (choose_other, choose_one, (judge_other, judge_one)),
    ):
        for cut in np.unique(np.quantile(np.r_[first, second], np.linspace(0, 1, EVENTS))):
            for above in (True, False):
                found = _refuted(first, second, cut, above, delta)
                if found > best:
                    best, chosen = found, (*judges, cut, above)
    return max(0.0, _refuted(*chosen, delta))


def _refuted(first: Statistic, second: Statistic, cut: float, above: bool, delta: float) -> float:
    """The epsilon that one event refutes: the logarithm of (least p - delta) / largest q."""
    hits = [int(np.sum(each >= cut if above else each <= cut)) for each in (first, second)]
    least = beta.ppf(ERROR / 2, hits[0], len(first) - hits[0] + 1) if hits[0] else 0.0
    largest = (
        beta.ppf(1 - ERROR / 2, hits[1] + 1, len(second) - hits[1])
        if hits[1] < len(second)
        else 1.0
    )
    return float(np.log((least - delta) / largest)) if least > delta else -np.inf


def refuted(
    steps: Sequence[Step], one: Query, other: Query, times: int, delta: float = 0.0
) -> float:
    """The epsilon that so many draws of ``steps`` refute on the values of two queries, whose own
    steps say what the draws should cost.
    """
    values = list(one.values()), list(other.values())
    found = []
    for drawn_on in values:
        total = np.zeros(times)
        for step, stated, value, *pair in zip(steps, one.steps, drawn_on, *values, strict=True):
            total += losses(stated, step.many(value, times), *pair)
        found.append(total)
    return lower_bound(*found, delta)


def losses(step: Step, drawn: Sequence[Any], one: Any, other: Any) -> Statistic:
    """The privacy loss of each draw that the step states, for two exact values."""
    if isinstance(step, Noise):
        draws = np.asarray(drawn, dtype=float).reshape(len(drawn), -1)
        ends = [np.asarray(each, dtype=float).reshape(1, -1) for each in (other, one)]
        if isinstance(step, DiscreteGaussian):
            scale = float(step.scale * (step.lattice or 1))
            far = [(draws - end) ** 2 / (2 * scale**2) for end in ends]
        else:
            far = [np.abs(draws - end) / float(step.scale) for end in ends]
        return np.asarray((far[0] - far[1]).sum(axis=1))
    places = np.asarray(drawn)
    return np.asarray(logarithms(step, one, places) - logarithms(step, other, places))


def logarithms(step: Step, value: Any, places: NDArray[np.int64]) -> Statistic:
    """The logarithm of the probability of each place that is drawn."""
    if isinstance(step, Exponential):
        weights = np.asarray(value, dtype=float) / float(step.scale)
        return np.asarray(weights[places] - logsumexp(weights))
    assert isinstance(step, OnLine)
    assert isinstance(value, Line)
    weights = -value.short / float(value.parts * step.scale)
    runs = np.searchsorted(np.cumsum(value.lengths), places, side="right")
    return np.asarray(weights[runs] - logsumexp(weights + np.log(value.lengths)))
