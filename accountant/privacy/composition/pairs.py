"""Dominating pairs: for each mechanism two distributions P and Q that are hardest to tell apart.

The privacy loss is ln P/Q under P. A pair is described by how much of P and of Q lies above each
loss; whatever composes the pairs then bounds the composition of the mechanisms (Zhu, Dong, Wang,
*Optimal accounting of differential privacy via characteristic function*, AISTATS 2022). Two
neighbours can be told apart either way round, so each pair names its reverse: Q and P. The pairs in
this module are symmetric, their reverse has the same curve; sampled.py has one that is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

Floats = NDArray[np.float64]


class Pair(Protocol):
    """One dominating pair."""

    @property
    def infinite(self) -> float:
        """The mass of P where Q has none."""
        ...

    @property
    def span(self) -> tuple[float, float]:
        """The finite losses of P lie in here, but for a mass below 1e-30 at either end."""
        ...

    @property
    def reverse(self) -> Pair:
        """The pair with P and Q exchanged: its losses are these with the opposite sign."""
        ...

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """The mass of P and of Q with a finite loss above each ``loss``.

        Each is right to a relative error of 2^-48 + 2^-50 ln(1 / mass) and down to 1e-300, at a
        loss that may be wrong by 2^-46 (1 + the largest in the span), the same for P and Q.
        """
        ...


class Symmetric:
    """What looks the same either way round."""

    __slots__ = ()

    @property
    def reverse(self) -> Self:
        """Itself."""
        return self


class Within(Symmetric):
    """What has no loss beyond its epsilon, either way: a pure mechanism's."""

    __slots__ = ()
    epsilon: float

    @property
    def span(self) -> tuple[float, float]:
        """From -epsilon to epsilon."""
        return -self.epsilon, self.epsilon


@dataclass(frozen=True, slots=True)
class Response(Within):
    """Randomised response of ``epsilon`` that reveals all with probability ``delta``: the hardest
    (epsilon, delta) mechanism (Kairouz, Oh, Viswanath 2015).
    """

    epsilon: float
    delta: float = 0.0

    @property
    def infinite(self) -> float:
        """What reveals all."""
        return self.delta

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Two steps."""
        up, down = expit(self.epsilon), expit(-self.epsilon)
        p = up * (loss < self.epsilon) + down * (loss < -self.epsilon)
        q = down * (loss < self.epsilon) + up * (loss < -self.epsilon)
        return p * (1 - self.delta), q * (1 - self.delta)


@dataclass(frozen=True, slots=True)
class Choice(Within):
    """Any mechanism whose losses lie within a range of ``epsilon``: the exponential mechanism.

    Dong, Durfee, Rogers, *Optimal differential privacy composition for exponential mechanisms*,
    2020: the hardest has only the losses t and t - epsilon, for some t, and a delta at l of
    (e^epsilon - e^t) (1 - e^(l - t)) / (e^epsilon - 1). The worst t is (epsilon + l) / 2, so that
    delta(l) = (e^(epsilon/2) - e^(l/2))^2 / (e^epsilon - 1), and P and Q are what has that curve
    (Zhu, Dong, Wang 2022, Proposition 8).
    """

    epsilon: float
    infinite: float = 0.0

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """(1 - e^((l - epsilon)/2)) / (1 - e^-epsilon) of P; of Q, e^(-(l + epsilon)/2) of that."""
        inside = np.clip(loss, -self.epsilon, self.epsilon)
        rest = -np.expm1((inside - self.epsilon) / 2) / -np.expm1(-self.epsilon)
        return rest, np.exp(-(self.epsilon + inside) / 2) * rest


@dataclass(frozen=True, slots=True)
class Laplace(Within):
    """Laplace noise of scale 1 / ``epsilon`` on an answer that moves by 1: the loss is epsilon on
    one side, -epsilon on the other, and linear in between.
    """

    epsilon: float
    infinite: float = 0.0

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """1 - e^(-(epsilon - l)/2)/2 of P, e^(-(epsilon + l)/2)/2 of Q, between the two ends."""
        inside = np.clip(loss, -self.epsilon, self.epsilon)
        p = np.where(loss < self.epsilon, 1 - np.exp((inside - self.epsilon) / 2) / 2, 0.0)
        q = np.where(loss < self.epsilon, np.exp(-(inside + self.epsilon) / 2) / 2, 0.0)
        return np.where(loss < -self.epsilon, 1.0, p), np.where(loss < -self.epsilon, 1.0, q)


@dataclass(frozen=True, slots=True)
class Gaussian(Symmetric):
    """Normal noise: the loss is normal with mean ``mu``^2 / 2 and deviation ``mu``. Any number of
    Gaussian mechanisms is one, with the root of the sum of squares as its mu.
    """

    mu: float
    infinite: float = 0.0

    @property
    def span(self) -> tuple[float, float]:
        """12 deviations to either side."""
        return self.mu * (self.mu / 2 - 12), self.mu * (self.mu / 2 + 12)

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Balle and Wang 2018."""
        return ndtr(self.mu / 2 - loss / self.mu), ndtr(-self.mu / 2 - loss / self.mu)
