"""The closed form for unequal (epsilon, delta) mechanisms.

Kairouz, Oh, Viswanath, ICML 2015, Theorem 3.5: for every d in [0, 1] the composition of mechanisms
(e_i, d_i) is (epsilon, 1 - (1 - d) prod(1 - d_i))-DP with epsilon the smallest of

    sum e_i
    sum e_i tanh(e_i / 2) + sqrt(2 S ln(1 / d))
    sum e_i tanh(e_i / 2) + sqrt(2 S ln(e + sqrt(S) / d)),    S = sum e_i^2

Precondition: the mechanisms and their parameters were fixed in advance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

_SLACK: Final = 1e-12
"""Relative error allowed for sums of many floats and a handful of functions."""


def closed_form(losses: Mapping[tuple[float, float], int], delta: float) -> float:
    """The epsilon at a total ``delta`` of (epsilon, delta) losses with their counts, rounded up;
    infinity if the deltas alone are more.
    """
    hidden = math.fsum(n * math.log1p(-d) for (_, d), n in losses.items())
    spare = -math.expm1(math.log1p(-delta) - hidden) * (1 - _SLACK)
    basic = math.fsum(n * e for (e, _), n in losses.items())
    if spare < 0:
        return math.inf
    drift = math.fsum(n * e * math.tanh(e / 2) for (e, _), n in losses.items())
    squares = math.fsum(n * e * e for (e, _), n in losses.items())
    bounds = [basic]
    if spare > 0:
        logs = math.log(1 / spare), math.log(math.e + math.sqrt(squares) / spare)
        bounds.append(drift + math.sqrt(2 * squares * min(logs)))
    return min(bounds) * (1 + _SLACK)
