"""Noise on whole numbers: the discrete Gaussian and the discrete Laplace (geometric) mechanism.

Each adds independent noise with log-concave masses to a single whole number that moves by at most a
``sensitivity``. Moving by just that much is then hardest: the best test asks whether the answer is
at most K, and a larger move only takes mass of Q away from it. The masses are exact, not those of
the continuous noise: at small scales they differ (Canonne, Kamath, Steinke, *The discrete Gaussian
for differential privacy*, NeurIPS 2020, Theorem 7, gives its curve as the same sum).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from accountant.privacy.composition.pairs import Floats, Symmetric

MOST_TERMS: Final = 2**17
_WHOLE: Final = 2**52
"""Whole numbers up to here, and half of each, are floats."""


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(Symmetric):
    """Whole-number noise with masses proportional to e^(-k^2 / (2 scale^2)).

    Raises ValueError for parameters that are not positive, and for a scale whose masses are more
    than ``MOST_TERMS`` numbers (above 3,300).
    """

    sensitivity: int
    scale: float
    infinite: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.sensitivity < _WHOLE and 1e-6 < self.scale < math.inf):
            raise ValueError(f"no discrete Gaussian of {self.sensitivity} and {self.scale}")
        if self._terms > MOST_TERMS:
            raise ValueError(f"a discrete Gaussian of scale {self.scale} has too many masses")

    @property
    def _terms(self) -> int:
        """As many as are more than 1e-323 of the largest."""
        return math.ceil(39 * self.scale) + 2

    @property
    def span(self) -> tuple[float, float]:
        """The noise is at most as spread as the normal one: 12 scales (the paper, section 2)."""
        mu = self.sensitivity / self.scale
        return mu * (mu / 2 - 12), mu * (mu / 2 + 12)

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """The loss of an outcome k is (D^2 - 2 k D) / (2 scale^2)."""
        most = _last_below(self.sensitivity / 2 - loss * (self.scale**2 / self.sensitivity))
        tails = _tails(self.scale, self._terms)
        return _at_most(tails, most), _at_most(tails, most - self.sensitivity)


@dataclass(frozen=True, slots=True)
class DiscreteLaplace(Symmetric):
    """Whole-number noise with masses proportional to e^(-|k| epsilon_per_step). A sensitivity of 1
    makes it randomised response.

    Raises ValueError for parameters that are not positive.
    """

    epsilon_per_step: float
    sensitivity: int
    infinite: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.sensitivity < _WHOLE and 0 < self.epsilon_per_step < math.inf):
            raise ValueError(
                f"no discrete Laplace of {self.epsilon_per_step} and {self.sensitivity}"
            )

    @property
    def epsilon(self) -> float:
        """The largest loss."""
        return self.epsilon_per_step * self.sensitivity

    @property
    def span(self) -> tuple[float, float]:
        """Largest below 1, smallest from the sensitivity on."""
        return -self.epsilon, self.epsilon

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """The loss of an outcome k between is (D - 2 k) epsilon_per_step."""
        d = float(self.sensitivity)
        most = _last_below((d - loss / self.epsilon_per_step) / 2)
        most = np.where(loss < self.epsilon, np.maximum(most, 0.0), -np.inf)
        most = np.where(loss < -self.epsilon, np.inf, np.minimum(most, d - 1))
        return self._at_most(most), self._at_most(most - d)

    def _at_most(self, k: Floats) -> Floats:
        """The probability of noise up to k: a geometric series from either end."""
        step = self.epsilon_per_step
        tail = np.exp(-step * np.where(k < 0, -k, k + 1)) / (1 + math.exp(-step))
        return np.where(k < 0, tail, 1 - tail)


def _last_below(x: Floats) -> Floats:
    """The last whole number below each x."""
    below: Floats = np.ceil(x) - 1
    return below


@lru_cache(maxsize=32)
def _tails(scale: float, terms: int) -> Floats:
    """The probability of discrete Gaussian noise of at least 0, 1, 2, … ``terms`` - 1.

    Added up in a tree, smallest first, so that each is right to 20 roundings.
    """
    tails: Floats = np.exp(-((np.arange(terms) / scale) ** 2) / 2)
    step = 1
    while step < terms:
        tails[:-step] += tails[step:].copy()
        step *= 2
    tails /= tails[0] + tails[1]
    return tails


def _at_most(tails: Floats, k: Floats) -> Floats:
    """The probability of symmetric noise up to each k."""
    last = float(tails.size - 1)
    below = tails[np.clip(-k, 0, last).astype(np.int64)] * (k >= -last)
    beyond = tails[np.clip(k + 1, 0, last).astype(np.int64)] * (k < last)
    return np.where(k < 0, below, 1 - beyond)
