"""Tight totals of fixed schedules, beside dp-accounting's in the same run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial, reduce
from itertools import starmap
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


def _mixes() -> dict[str, tuple[dict[Pair, int], Callable[[], Any]]]:
    """Return schedules of unequal mechanisms, and how dp-accounting composes each."""
    laplace = [float(s) for s in np.geomspace(30, 150, 1000)]
    rates, noise = np.linspace(0.001, 0.02, 100), np.geomspace(0.8, 4, 100)
    sampled = [(float(q), float(s)) for q, s in zip(rates, noise, strict=True)]
    counts = [1 + i % 9 for i in range(100)]
    grid = {"value_discretization_interval": 1e-4}

    def of_laplace(scale: float) -> Any:
        return pld.from_laplace_mechanism(scale, **grid)

    def of_sampled(rate: float, scale: float) -> Any:
        return pld.from_gaussian_mechanism(scale, sampling_prob=rate, **grid)

    def often() -> Iterator[Any]:
        for (q, s), scale, n in zip(sampled, laplace[::10], counts, strict=True):
            yield of_sampled(q, s).self_compose(n)
            yield of_laplace(scale).self_compose(n)

    noisy: dict[Pair, int] = {SampledGaussian(1 / s, q): 1 for q, s in sampled}
    mixed: dict[Pair, int] = {}
    for pair, scale, n in zip(noisy, laplace[::10], counts, strict=True):
        mixed |= {pair: n, Laplace(1 / scale): n}
    return {
        "1,000 laplace": ({Laplace(1 / s): 1 for s in laplace}, lambda: map(of_laplace, laplace)),
        "100 on samples": (noisy, lambda: starmap(of_sampled, sampled)),
        "200 kinds, 1 to 9 times": (mixed, often),
    }


def mixes(_: Path) -> list[dict[str, Any]]:
    """Totals of other unequal mechanisms; dp-accounting's are taken once, for they are slow."""
    rows = []
    for name, (schedule, theirs) in _mixes().items():
        ours = min(_timed(partial(total, schedule, DELTA))[0] for _ in range(3))

        def composed(theirs: Callable[[], Iterator[Any]] = theirs) -> float:
            start = pld.identity(value_discretization_interval=1e-4)
            whole = reduce(lambda one, other: one.compose(other), theirs(), start)
            return float(whole.get_epsilon_for_delta(DELTA))

        beside = _timed(composed)[0] / ours
        rows.append({"what": f"total of {name}", "value": ours * 1e3, "unit": "ms"})
        rows.append({"what": "speed", "value": beside, "unit": "ratio", "beside": "dp-accounting"})
    return rows


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
