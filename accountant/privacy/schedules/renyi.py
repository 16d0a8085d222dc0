"""Renyi divergences added up order by order, and the best order taken afterwards.

Mironov, *Renyi differential privacy*, CSF 2017 (Propositions 6 and 7 for Laplace and Gaussian
noise); Canonne, Kamath, Steinke, *The discrete Gaussian for differential privacy*, 2020,
Proposition 12, for the conversion. Taking the best order after the fact is sound for a schedule
that was fixed in advance, and for nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from accountant.privacy.schedules.pairs import Floats, Gaussian, Laplace, Pair, Response

ORDERS: Final[Floats] = 1 + np.geomspace(1e-3, 1e4, 2000)
_SLACK: Final = 1e-9


def renyi_epsilon(schedule: Mapping[Pair, int], delta: float) -> float:
    """The smallest epsilon over all orders at ``delta`` in (0, 1), rounded up. What a pair has at
    infinity is taken from delta first.
    """
    lost = -math.expm1(math.fsum(n * math.log1p(-p.infinite) for p, n in schedule.items()))
    if lost >= delta:
        return math.inf
    total = np.zeros_like(ORDERS)
    for pair, count in schedule.items():
        total += count * divergence(pair, ORDERS)
    spare = delta - lost
    converted = total + np.log1p(-1 / ORDERS) - np.log(ORDERS * spare) / (ORDERS - 1)
    return max(0.0, float(converted.min())) * (1 + _SLACK)


def divergence(pair: Pair, a: Floats) -> Floats:
    """The Renyi divergence of a pair at the orders ``a`` > 1, given that nothing infinite happens,
    rounded up.
    """
    match pair:
        case Gaussian():
            return np.asarray(a * pair.mu**2 / 2 * (1 + _SLACK))
        case Laplace():
            ahead = np.log(a / (2 * a - 1)) + (a - 1) * pair.epsilon
            behind = np.log((a - 1) / (2 * a - 1)) - a * pair.epsilon
        case Response():
            # ln(p^a q^(1-a) + q^a p^(1-a)) with p = e^epsilon q
            likely = -np.logaddexp(0.0, -pair.epsilon)
            ahead = likely + (a - 1) * pair.epsilon
            behind = likely - a * pair.epsilon
        case _:
            raise TypeError(f"no divergence is known for {type(pair).__name__}")
    error = 1e-15 * (1 + a * pair.epsilon)  # of the functions; near order 1 it is what is left
    return np.asarray((np.maximum(np.logaddexp(ahead, behind), 0.0) + error) / (a - 1))
