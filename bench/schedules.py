"""Tight totals of fixed schedules, beside dp-accounting's in the same run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld

from accountant.privacy.composition.closed_forms import optimal_epsilon
from accountant.privacy.composition.exact import epsilon_of
from accountant.privacy.composition.pairs import Gaussian, Laplace, Pair, SampledGaussian
from accountant.privacy.composition.pld import total

DELTA = 1e-6
SCALES = [float(s) for s in np.geomspace(30, 150, 500)]


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def _ours() -> float:
    mu = math.sqrt(sum(s**-2 for s in SCALES))
    schedule: dict[Pair, int] = {Laplace(1 / s): 1 for s in SCALES}
    return total(schedule | {Gaussian(mu): 1}, DELTA).upper


def _theirs() -> float:
    composed = pld.identity(value_discretization_interval=1e-4)
    for scale in SCALES:
        for make in (pld.from_laplace_mechanism, pld.from_gaussian_mechanism):
            composed = composed.compose(make(scale, value_discretization_interval=1e-4))
    return float(composed.get_epsilon_for_delta(DELTA))


def unequal(_: Path) -> list[dict[str, Any]]:
    """The total of 500 Laplace and 500 Gaussian mechanisms of different scales."""
    _ours()  # both import what they need before the clock starts
    ours, epsilon = min(_timed(_ours) for _ in range(3))
    theirs, peer = min(_timed(_theirs) for _ in range(3))
    return [
        {"what": "PLD total of 1,000", "value": ours * 1e3, "unit": "ms"},
        {"what": "its epsilon", "value": epsilon, "unit": "epsilon", "beside": "optimum 2.625"},
        {"what": "dp-accounting's", "value": theirs * 1e3, "unit": "ms"},
        {"what": "its epsilon", "value": peer, "unit": "epsilon"},
        {"what": "PLD speed", "value": theirs / ours, "unit": "ratio", "beside": "dp-accounting"},
    ]


def plans(_: Path) -> list[dict[str, Any]]:
    """Plans of training, verified in whole numbers; each is new."""
    rows = []
    for steps in (1_000, 10_000):
        taken = []
        for n in range(5):
            noise: dict[Pair, int] = {SampledGaussian(1 / (1.1 + n / 1000), 0.01): steps}
            taken.append(_timed(partial(epsilon_of, noise, Fraction(1, 10**6)))[0])
        rows.append({"what": f"a plan of {steps:,}", "value": min(taken) * 1e3, "unit": "ms"})
    mixed: dict[Pair, int] = {Laplace(1 / s): 1 for s in SCALES}
    seconds, epsilon = _timed(lambda: epsilon_of(mixed, Fraction(1, 10**6)))
    near = total(mixed, DELTA).upper
    above = {"what": "above floats", "value": float(epsilon or 0) / near, "unit": "ratio"}
    return [*rows, {"what": "a plan of 500 kinds", "value": seconds * 1e3, "unit": "ms"}, above]


def equal(_: Path) -> list[dict[str, Any]]:
    """The optimal total of 10,000 mechanisms of epsilon 0.01."""
    optimal_epsilon(0.01, 0, 10_000, DELTA)
    seconds, epsilon = _timed(lambda: optimal_epsilon(0.01, 0, 10_000, DELTA))
    return [
        {"what": "optimal total of 10,000", "value": seconds * 1e3, "unit": "ms"},
        {
            "what": "above 4.885515601 by",
            "value": epsilon - 4.885515601,
            "unit": "epsilon",
        },
    ]
