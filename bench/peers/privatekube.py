"""PrivateKube: dominant private block fairness (DPF).

Luo, Pan, Tholoniat, Cidon, Geambasu, Lecuyer, "Privacy Budget Scheduling", OSDI 2021. Parameters
from github.com/columbia/PrivateKube: the fairness example in
system/dpfscheduler/pkg/scheduler/test/fairness_test.go (revision 2982ef1, N = 100), and mice and
elephants on one block in simulator/examples/microbench_single_block.py (revision 7a15f6e).
"""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Final

from bench.peers.workload import SECOND, Ask, Body, Workload

SOURCE: Final = "PrivateKube (OSDI 2021)"
N: Final = 100
"""Requests on a block after which all of its budget is unlocked."""
CLAIMS: Final = (("0.005", "0.015"), ("0.01", "0.01"), ("0.016", "0.01"))
"""The epsilons that the three claims of the fairness example demand of its two blocks."""
MOUSE, ELEPHANT = "0.01", "0.1"
ARRIVALS: Final = 236
"""One a second for 100 x 2.25 x 1.05 seconds, the contended duration of the simulator."""
_ONE_BLOCK: Final = ((range(1),),)


def fairness() -> Workload:
    """Three claims on two blocks of epsilon 1.01 each, one a second.

    The example demands unlike amounts of its blocks; a request here demands the same of each. Each
    claim demands its larger amount of both, so that dominant shares, and by them the order, are
    those of the example.
    """
    asks = [
        Ask(at * SECOND, _laplace(max(claim, key=Decimal)), ((range(2),),))
        for at, claim in enumerate(CLAIMS)
    ]
    rule = "limit: {epsilon: 1.01}, gate: basic"
    return Workload("fairness example", SOURCE, {"block": 2}, rule, tuple(asks))


def mice_and_elephants(seed: int = 1, mice: float = 0.75) -> Workload:
    """Arrivals on one block of epsilon 1, a share of which demand 0.01 and the others 0.1."""
    draw = random.Random(seed)  # noqa: S311 no secret
    asks = [
        Ask(at * SECOND, _laplace(MOUSE if draw.random() < mice else ELEPHANT), _ONE_BLOCK)
        for at in range(ARRIVALS)
    ]
    rule = "limit: {epsilon: 1}, gate: basic"
    return Workload(f"{mice:.0%} mice", SOURCE, {"block": 1}, rule, tuple(asks))


def _laplace(epsilon: str) -> Body:
    return {"kind": "laplace", "sensitivity": epsilon, "scale": "1"}
