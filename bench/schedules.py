"""Tight totals of fixed schedules, beside dp-accounting's in the same run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld

from accountant.privacy.composition.closed_forms import optimal_epsilon
from accountant.privacy.composition.pairs import Gaussian, Laplace, Pair
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
