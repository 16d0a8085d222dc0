"""DPack: as many requests as possible.

Tholoniat, Kostopoulou, Chowdhury, Cidon, Geambasu, Lecuyer, Yang, "DPack: Efficiency-Oriented
Privacy Budget Scheduling", EuroSys 2025. Parameters from github.com/columbia/dpack, revision
706b990: the workload that privacypacking/config/default.yaml names (``mixed_curves``) as
privacypacking/utils/generate_curves.py makes it, on ten blocks of (10, 1e-7), and 2,000 requests.

Its other workload, Alibaba-DP, maps the memory, time and reads of a trace of some 10^6 cluster jobs
to demands, and is not made here: without the trace nothing says how those are distributed.
"""

from __future__ import annotations

import math
import random
from typing import Final

from bench.peers.workload import SECOND, Ask, Body, Workload

SOURCE: Final = "DPack (EuroSys 2025)"
TASKS: Final = 2_000
BLOCKS: Final = 10
NARROW, WIDE = 1, 10
"""Blocks, picked at random, that a request demands."""
EPSILONS: Final = (0.5, 1.0)
DELTA: Final = 1e-7
SGD_SIGMAS: Final = {0.5: "2.3367", 1.0: "1.5298"}
"""Noise of 50 epochs in batches of 50 from 50,000, at each epsilon and ``DELTA`` by Renyi orders
between 2 and 64 (tests/peers/test_workloads.py)."""
SGD_RATE, SGD_STEPS = "0.001", 50_000


def mixed(seed: int = 1, tasks: int = TASKS) -> Workload:
    """Laplace noise, normal noise and private SGD, at two epsilons, on one block or ten, all with
    the same chance; ``tasks`` of them, one a second.
    """
    draw, kinds = random.Random(seed), mechanisms()  # noqa: S311 no secret
    asks = []
    for at in range(tasks):
        mechanism = draw.choice(kinds)
        blocks = sorted(draw.sample(range(BLOCKS), draw.choice((NARROW, WIDE))))
        asks.append(Ask(at * SECOND, mechanism, ((tuple(blocks),),)))
    rule = "limit: {epsilon: 10, delta: 1e-7, own_delta: 0}, gate: renyi, orders: [5]"
    return Workload(f"mixed, {tasks} requests", SOURCE, {"block": BLOCKS}, rule, tuple(asks))


def mechanisms() -> list[Body]:
    """The six kinds of request."""
    found: list[Body] = []
    for epsilon in EPSILONS:
        sigma = math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon
        sampled = {"sampling": {"poisson": SGD_RATE}, "count": SGD_STEPS}
        found += [
            {"kind": "laplace", "sensitivity": f"{epsilon}", "scale": "1"},
            {"kind": "gaussian", "sensitivity": "1", "scale": f"{sigma:.6f}"},
            {"kind": "gaussian", "sensitivity": "1", "scale": SGD_SIGMAS[epsilon]} | sampled,
        ]
    return found
