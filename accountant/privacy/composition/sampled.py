"""The Gaussian mechanism on a Poisson sample, as in DP-SGD.

Zhu, Dong, Wang, *Optimal accounting of differential privacy via characteristic function*, AISTATS
2022, Theorem 11. With a record more, P = (1 - q) N(0, 1) + q N(mu, 1) against Q = N(0, 1); with one
fewer the same exchanged. Neither curve lies above the other everywhere, so both are composed.

Preconditions: neighbours differ by one record more or fewer; each invocation draws a fresh and
secret sample, with each record in it independently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import ndtr

from accountant.privacy.composition.pairs import Floats

LEAST: Final = 1e-12
"""Of mu and of the rate."""


@dataclass(frozen=True, slots=True)
class SampledGaussian:
    """Normal noise of deviation 1 on an answer that moves by ``mu`` if the record is sampled, which
    happens with probability ``rate``. ``adding``: the pair with P = N(0, 1).

    Raises ValueError for a mu outside [1e-12, 1e6] or a rate outside [1e-12, 1). A rate of 1 is no
    sampling; what is smaller costs no more than 1e-12 does.
    """

    mu: float
    rate: float
    adding: bool = False
    infinite: float = 0.0

    def __post_init__(self) -> None:
        if not (LEAST <= self.mu <= 1e6 and LEAST <= self.rate < 1):
            raise ValueError(f"no sampled Gaussian of mu {self.mu} and rate {self.rate}")

    @property
    def span(self) -> tuple[float, float]:
        """The loss is nowhere below ln(1 - q); 12 deviations to the other side."""
        stay, rate = np.log1p(-self.rate), np.log(self.rate)
        furthest = 12.0 if self.adding else 12.0 + self.mu
        exponent = self.mu * (furthest - self.mu / 2)
        most = float(np.logaddexp(stay, rate + exponent))
        return (-most, -float(stay)) if self.adding else (float(stay), most)

    @property
    def reverse(self) -> SampledGaussian:
        """The other direction."""
        return replace(self, adding=not self.adding)

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Tails of normal distributions beyond the outcome that has this loss."""
        if self.adding:
            x = self._outcome(-loss)
            return ndtr(x), (1 - self.rate) * ndtr(x) + self.rate * ndtr(x - self.mu)
        x = self._outcome(loss)
        return (1 - self.rate) * ndtr(-x) + self.rate * ndtr(self.mu - x), ndtr(-x)

    def _outcome(self, loss: Floats) -> Floats:
        """Where ln(1 - q + q e^(mu x - mu^2 / 2)) is ``loss``; minus infinity where it never is."""
        q = self.rate
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # Near 0 the first is exact and the second cancels; far from it, the other way round.
            near = np.log1p(np.expm1(loss) / q)
            far = loss + np.log1p(-(1 - q) * np.exp(-loss)) - np.log(q)
            exponent = np.where(np.abs(loss) <= 0.5, near, far)
        return np.where(np.isnan(exponent), -np.inf, exponent) / self.mu + self.mu / 2
