"""The exact privacy curve of Gaussian noise: all normal noise of a list is one, and a discrete
Gaussian by itself is a sum over whole numbers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np

from accountant.privacy.composition.discrete import DiscreteGaussian
from accountant.privacy.gaussian_curve import gaussian_epsilon

_SLACK: Final = 1e-9
"""Far more than the relative errors of a tail, and of the loss that it is taken at (Pair.above)."""
_STEPS: Final = 80


def normal_epsilon(mu_squared: Fraction, delta: Fraction) -> float:
    """Of normal noise whose mu^2 add up to ``mu_squared`` (Balle and Wang 2018, Thm 8; Dong, Roth,
    Su 2022, Cor. 3.3), rounded up to a billionth.
    """
    return math.nextafter(float(gaussian_epsilon(mu_squared, delta)), math.inf)


def discrete_epsilon(pair: DiscreteGaussian, delta: float) -> float:
    """Of one discrete Gaussian (Canonne, Kamath, Steinke 2020, Thm 7), rounded up: the least
    epsilon >= 0 with P(loss > epsilon) - e^epsilon Q(loss > epsilon) <= ``delta``, by bisection.
    """

    def enough(epsilon: float) -> bool:
        (p,), (q,) = pair.above(np.array([epsilon]))
        return float(p * (1 + _SLACK) - math.exp(epsilon) * q * (1 - _SLACK)) <= delta

    if enough(0.0):
        return 0.0
    low, high = 0.0, pair.span[1]
    if high > 600 or not enough(high):
        return math.inf
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high * (1 + _SLACK)
