"""The optimal total of k equal (epsilon, delta) mechanisms.

Kairouz, Oh, Viswanath, *The composition theorem for differential privacy*, ICML 2015, Theorem 3.3:
no k-fold composition of (epsilon, delta)-DP mechanisms loses more than k-fold randomised response,
whose curve is exact. The theorem states it at the multiples of epsilon; in between the curve is
linear in e^epsilon, so it is inverted there too.

Precondition: the k mechanisms and their parameters were fixed in advance.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.special import gammaln

MOST: Final = 10**6
"""More terms than that are not added up."""


def optimal_epsilon(epsilon: float, delta: float, count: int, total_delta: float) -> float | None:
    """The smallest epsilon for ``count`` (epsilon, delta) mechanisms at ``total_delta``, rounded up
    by the error of the sum; infinity if the deltas alone are more. None beyond ``MOST`` terms.

    Raises ValueError for an epsilon that is not positive and finite, a delta outside [0, 1), or a
    count below 1.
    """
    if not (0 < epsilon < math.inf and 0 <= delta < 1 and 0 <= total_delta < 1 and count >= 1):
        raise ValueError(f"no composition of {count} times ({epsilon}, {delta}) at {total_delta}")
    if count > MOST:
        return None
    # 1 - (1 - delta)^k (1 - d) <= total: what randomised response itself may fail with.
    spare = -math.expm1(math.log1p(-total_delta) - count * math.log1p(-delta))
    if spare < 0:
        return math.inf
    # ln P of each loss (k - 2i) epsilon, i = 0 … k, and the losses, largest first.
    i = np.arange(count + 1)
    losses = (count - 2.0 * i) * epsilon
    up = -np.logaddexp(0.0, -epsilon)
    ways = gammaln(count + 1) - gammaln(i + 1) - gammaln(count - i + 1)
    log_p = ways + (count - i) * up + i * (up - epsilon)
    slack = 1e-15 * (10 + count * math.log(count + 1))  # relative error of a term and of the sums
    above = np.logaddexp.accumulate(log_p) + slack
    below = np.logaddexp.accumulate(log_p - losses) - slack
    # On [losses[j + 1], losses[j]] the curve is e^above[j] - e^(x + below[j]).
    with np.errstate(divide="ignore", over="ignore"):
        at_next = np.exp(above[:-1]) * -np.expm1(losses[1:] + below[:-1] - above[:-1])
    passed = np.flatnonzero(at_next > spare)
    if passed.size == 0:
        return 0.0
    j = int(passed[0])
    if spare == 0:
        return float(losses[0]) * (1 + 1e-15)
    room = math.log(spare) - above[j]
    if room >= 0:
        return max(0.0, float(losses[j + 1]))
    found = float(above[j] + np.log(-np.expm1(room)) - below[j])
    return max(0.0, min(found, float(losses[0])) * (1 + 1e-15))
