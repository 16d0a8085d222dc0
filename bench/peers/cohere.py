"""Cohere: weekly rounds on the users of the last twelve weeks.

Kuechler, Opel, Lycklama, Viand, Hithnawi, "Cohere: Managing Differential Privacy in Large Scale
Systems", IEEE S&P 2024. Parameters from github.com/pps-lab/cohere, revision ec5f162:
workload-simulator/workload_simulator (``main.py`` and request_generator/) and
doe-suite-config/designs; the published numbers are means of the five repetitions in
doe-suite-results-super/sp_workloads/sim/sim.csv, where every request counts the same
(``equal-ncd``), samples are amplified (``poisson``), groups are segments (``block-composition-pa``)
and the slack of unlocking is 0.4.

A block is the users of one week; requests on part of an attribute's 204,800 values are on an
interval that may wrap around. Here the attribute has ``SLOTS`` values. The ends of an interval are
rounded to them, which changes the numbers by one in a hundred.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Final, NamedTuple

from accountant.privacy.conversions import most_mu_squared
from bench.peers.workload import SECOND, Ask, Body, Box, Published, Workload

SOURCE: Final = "Cohere (S&P 2024)"
SLOTS: Final = 256
WINDOW: Final = 12
"""Weeks for which a block takes part, and over which its budget is unlocked."""
SLACK: Final = 0.4
"""How much more is unlocked half-way, of the published numbers."""
WEEK: Final = 7 * 24 * 3600 * SECOND
GAP: Final = 20 * 60 * SECOND
"""The mean time between two requests."""
ROUNDS: Final = 40
SAMPLES: Final = ("0.25", "1")
EPSILONS: Final = (0.05, 0.2, 0.75)
CHEAP: Final = (0.01, 0.1, 0.25)
DELTA: Final = Fraction(1, 10**9)
"""Noise is calibrated to one of three epsilons at this delta; mice, hares and elephants alike."""
RULE: Final = "limit: {epsilon: 3, delta: 1e-7, own_delta: 0}, gate: renyi, orders: [10]"

SGD_RATE, SGD_STEPS = "0.005", 1_000
SGD_SIGMAS: Final = {0.05: "16.557", 0.2: "4.4471", 0.75: "1.6962"}
"""Noise of so many steps at each epsilon (tests/peers/test_workloads.py)."""
POSITIVES: Final = 5

NARROW, BROAD, HALF = (1, 10), (1, 0.5), (2, 2)
"""Parameters of beta distributions: the share of the attribute's values that a request is on."""


class Kind(NamedTuple):
    """A kind of request: the distribution of its share of values, its mechanism, its epsilons."""

    share: tuple[float, float]
    mechanism: str
    epsilons: tuple[float, ...]


GM, LM = Kind(NARROW, "gaussian", EPSILONS), Kind(NARROW, "laplace", CHEAP)
SVT, RR = Kind(BROAD, "sparse_vector", CHEAP), Kind(BROAD, "response", CHEAP)
SGD, PATE = Kind(HALF, "sgd", EPSILONS), Kind(HALF, "gaussian", EPSILONS)
KINDS: Final[dict[str, tuple[Kind, ...]]] = {
    "W1": (GM,),
    "W2": (GM, LM, SVT, RR),
    "W3": (SGD, PATE),
    "W4": (GM, LM, SVT, RR, SGD, PATE),
}
PUBLISHED: Final = {
    "W1": (12_389.0, 16_162.2, 15_629.6, 16_271.0),
    "W2": (7_104.2, 9_939.4, 11_191.6, 11_534.6),
    "W3": (4_094.4, 11_245.4, 11_612.4, 11_580.4),
    "W4": (6_106.4, 8_273.4, 11_267.2, 11_577.0),
}
_ORDERS: Final = ("arrival", "dominant share", "efficiency", "ILP by round")


def workload(name: str, seed: int = 1, rounds: int = ROUNDS) -> Workload:
    """Requests of so many weeks, each on the users of the twelve weeks before; ``at`` is counted
    from the first week on which there are twelve.
    """
    draw, kinds, asks = random.Random(seed), KINDS[name], []  # noqa: S311 no secret
    at = 0
    while (at := at + round(draw.expovariate(1 / GAP))) < rounds * WEEK:
        kind = draw.choice(kinds)
        mechanism = made(kind.mechanism, draw.choice(kind.epsilons), draw.choice(SAMPLES))
        slots = interval(draw.randrange(SLOTS), draw.betavariate(*kind.share))
        week = at // WEEK
        asks.append(Ask(at, mechanism, boxes(range(week, week + WINDOW), slots)))
    published = tuple(map(Published, _ORDERS, PUBLISHED[name])) if rounds == ROUNDS else ()
    dimensions = {"block": WINDOW + rounds - 1, "slot": SLOTS}
    called = f"{name}, {rounds} weeks"
    return Workload(called, SOURCE, dimensions, RULE, tuple(asks), published, WINDOW, WEEK)


def boxes(weeks: range, slots: Sequence[range]) -> tuple[Box, ...]:
    """The cells of all users of some weeks whose value is in one of the intervals."""
    return tuple((weeks, side) for side in slots)


def interval(centre: int, share: float) -> list[range]:
    """The values around a centre, which wrap around at the ends: one range, or two."""
    reach = round(share * SLOTS / 2)
    first, end = centre - reach, centre + reach + 1
    if end - first >= SLOTS:
        return [range(SLOTS)]
    if first < 0:
        return [range(end), range(SLOTS + first, SLOTS)]
    if end > SLOTS:
        return [range(end - SLOTS), range(first, SLOTS)]
    return [range(first, end)]


@cache
def made(name: str, epsilon: float, rate: str) -> Body:
    """A mechanism of that epsilon, on a Poisson sample of the users.

    Randomised response is charged as ``discrete_laplace``, whose pair is the same: its own kind is
    refused where a report by itself reveals a user. Training on a sample draws one for each step,
    from all users, so that a step is on a sample of a sample; Cohere keeps one for all steps. Both
    divide the loss by some 16.
    """
    if name == "sgd":
        step = f"{float(SGD_RATE) * float(rate):g}"
        run = {"kind": "gaussian", "sensitivity": "1", "scale": SGD_SIGMAS[epsilon]}
        return run | {"sampling": {"poisson": step}, "count": SGD_STEPS}
    body = _noise(name, epsilon)
    return body if rate == "1" else body | {"sampling": {"poisson": rate}}


def _noise(name: str, epsilon: float) -> Body:
    if name == "gaussian":
        mu_squared = most_mu_squared(Fraction(str(epsilon)), DELTA)
        scale = f"{math.ceil(1e6 / math.sqrt(mu_squared)) / 1e6:.6f}"
        return {"kind": "gaussian", "sensitivity": "1", "scale": scale}
    if name == "sparse_vector":  # half for the threshold, half for the comparisons
        threshold, comparison = 2 / epsilon, 4 * POSITIVES / epsilon
        scales = {"threshold_scale": f"{threshold:.6g}", "comparison_scale": f"{comparison:.6g}"}
        return {"kind": name, "sensitivity": "1", "max_positives": POSITIVES} | scales
    kind = {"laplace": "laplace", "response": "discrete_laplace"}[name]
    return {"kind": kind, "sensitivity": "1", "scale": f"{1 / epsilon:g}"}
