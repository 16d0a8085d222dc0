"""Dominating pairs: for each mechanism two distributions P and Q that are hardest to tell apart.

The privacy loss is ln P/Q under P. A pair states the masses of P and of Q above each loss; a
composition of pairs bounds the composition of the mechanisms (Zhu, Dong, Wang, *Optimal accounting
of differential privacy via characteristic function*, AISTATS 2022). The reverse of a pair is Q and
P, for the other neighbour; those of what runs on samples have another curve.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from accountant.privacy.balls import ball

Floats = NDArray[np.float64]
Span = tuple[float, float]  # The smallest and the largest of a range of losses
Tails = list[tuple[arb, arb]]  # The mass of P and of Q above each loss

MOST_TERMS: Final = 2**17  # Masses of a discrete Gaussian that are added up
_WHOLE: Final = 2**52  # Integers up to here, and half of each, are floats
_STEP: Final = 256  # Bits of masses that are kept, for all precisions up to a multiple of this
_SMALL: Final = 700.0  # Exponentials of losses up to here are floats
_LEAST: Final = 1e-12  # Smallest mu and smallest rate of a sampled Gaussian


class Pair(ABC):
    """One dominating pair."""

    __slots__ = ()

    infinite: float = 0.0  # The mass of P where Q has none

    @property
    @abstractmethod
    def span(self) -> Span:
        """The range of the finite losses of P, but for a mass below 1e-30 at either end."""

    @property
    def reverse(self) -> Pair:
        """The pair with P and Q exchanged: its losses have the opposite sign."""
        return self

    def cost(self, losses: int) -> int:
        """Return how long ``tails`` take above so many losses, in pairs of normal tails."""
        return losses

    @abstractmethod
    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return the mass of P and of Q with a finite loss above each ``loss``.

        Each has a relative error of at most 2^-48 + 2^-50 ln(1 / mass), down to 1e-300, at a loss
        that is wrong by at most 2^-46 (1 + the largest in the span), the same for P and Q.
        """

    @abstractmethod
    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same as balls, at the precision in force: the mass of P and of Q above each of
        ``losses``, or above one that is smaller by at most ``slack``.
        """


class Within(Pair):
    """The pair of a pure mechanism: no loss is beyond epsilon, either way."""

    __slots__ = ()
    epsilon: float

    @property
    def span(self) -> Span:
        """From -epsilon to epsilon."""
        return -self.epsilon, self.epsilon


@dataclass(frozen=True, slots=True)
class Response(Within):
    """Randomised response of ``epsilon`` that reveals all with probability delta (``infinite``):
    the hardest (epsilon, delta) mechanism (Kairouz, Oh, Viswanath 2015).
    """

    epsilon: float
    infinite: float = 0.0

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return two steps."""
        up, down = expit(self.epsilon), expit(-self.epsilon)
        p = up * (loss < self.epsilon) + down * (loss < -self.epsilon)
        q = down * (loss < self.epsilon) + up * (loss < -self.epsilon)
        return p * (1 - self.infinite), q * (1 - self.infinite)

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return two steps."""
        epsilon, rest = arb(self.epsilon), 1 - arb(self.infinite)
        up, down = rest / (1 + (-epsilon).exp()), rest / (1 + epsilon.exp())
        none = arb(0), arb(0)
        return [
            (rest, rest) if loss < -epsilon else (up, down) if loss < epsilon else none
            for loss in losses
        ]


@dataclass(frozen=True, slots=True)
class Choice(Within):
    """Any mechanism whose losses lie within a range of ``epsilon``: the exponential mechanism.

    Dong, Durfee, Rogers, *Optimal differential privacy composition for exponential mechanisms*,
    2020: the hardest has only the losses t and t - epsilon, for some t, and a delta at l of
    (e^epsilon - e^t) (1 - e^(l - t)) / (e^epsilon - 1). The worst t is (epsilon + l) / 2, so
    delta(l) = (e^(epsilon/2) - e^(l/2))^2 / (e^epsilon - 1), and P and Q have that curve (Zhu,
    Dong, Wang 2022, Proposition 8).
    """

    epsilon: float

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return (1 - e^((l - epsilon)/2)) / (1 - e^-epsilon), and e^(-(l + epsilon)/2) of that."""
        inside = np.clip(loss, -self.epsilon, self.epsilon)
        rest = -np.expm1((inside - self.epsilon) / 2) / -np.expm1(-self.epsilon)
        return rest, np.exp(-(self.epsilon + inside) / 2) * rest

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same."""
        epsilon = arb(self.epsilon)
        found, whole = [], -(-epsilon).expm1()
        for loss in losses:
            inside = loss.max(-epsilon).min(epsilon)
            rest = -((inside - epsilon) / 2).expm1() / whole
            found.append((rest, (-(epsilon + inside) / 2).exp() * rest))
        return found


@dataclass(frozen=True, slots=True)
class Laplace(Within):
    """Laplace noise of scale 1 / ``epsilon`` on an answer that moves by 1: the loss is epsilon on
    one side, -epsilon on the other, and linear in between.
    """

    epsilon: float

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return 1 - e^(-(epsilon - l)/2)/2 and e^(-(epsilon + l)/2)/2 between the two ends."""
        inside = np.minimum(np.maximum(loss, -self.epsilon), self.epsilon)
        if self.epsilon < _SMALL:
            root, half = np.exp(inside / 2), math.exp(-self.epsilon / 2) / 2
            p, q = 1 - half * root, half / root
        else:
            p = 1 - np.exp((inside - self.epsilon) / 2) / 2
            q = np.exp(-(inside + self.epsilon) / 2) / 2
        p[loss >= self.epsilon] = q[loss >= self.epsilon] = 0.0
        p[loss < -self.epsilon] = q[loss < -self.epsilon] = 1.0
        return p, q

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same."""
        epsilon = arb(self.epsilon)
        half, found = (-epsilon / 2).exp() / 2, []
        for loss in losses:
            if loss < -epsilon:
                found.append((arb(1), arb(1)))
            elif loss < epsilon:
                root = (loss / 2).exp()
                found.append((1 - half * root, half / root))
            else:
                found.append((arb(0), arb(0)))
        return found


@dataclass(frozen=True, slots=True)
class Gaussian(Pair):
    """Normal noise (Balle and Wang 2018): the loss is normal with mean ``mu``^2 / 2 and deviation
    ``mu``. Any number of Gaussian mechanisms is one, with the root of the sum of squares as its mu.
    """

    mu: float

    @property
    def span(self) -> Span:
        """12 deviations to either side."""
        return self.mu * (self.mu / 2 - 12), self.mu * (self.mu / 2 + 12)

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return two normal tails."""
        return ndtr(self.mu / 2 - loss / self.mu), ndtr(-self.mu / 2 - loss / self.mu)

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return two normal tails."""
        mu = arb(self.mu)
        places = [loss / mu for loss in losses]
        return [(normal(mu / 2 - x), normal(-mu / 2 - x)) for x in places]


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(Pair):
    """Integer noise with masses proportional to e^(-k^2 / (2 scale^2)) on one integer that moves by
    at most ``sensitivity``.

    The masses are log-concave, so moving by the whole sensitivity is hardest: the best test asks
    whether the answer is at most K, and a larger move only takes mass of Q away from it. Canonne,
    Kamath, Steinke, *The discrete Gaussian for differential privacy*, NeurIPS 2020, Theorem 7,
    gives the curve as the same sum. At small scales the continuous noise has other masses.

    Raises ValueError for parameters that are not positive, and for a scale with more than
    ``MOST_TERMS`` masses (above 3,300).
    """

    sensitivity: int
    scale: Fraction | float

    def __post_init__(self) -> None:
        if not (0 < self.sensitivity < _WHOLE and 1e-6 < self.scale < math.inf):
            raise ValueError(f"no discrete Gaussian of {self.sensitivity} and {self.scale}")
        if _terms(float(self.scale)) > MOST_TERMS:
            raise ValueError(f"a discrete Gaussian of scale {self.scale} has too many masses")

    @property
    def span(self) -> Span:
        """That of normal noise, which is at least as spread (the paper, section 2)."""
        return Gaussian(self.sensitivity / float(self.scale)).span

    def cost(self, losses: int) -> int:
        """Return that of adding up all masses, once."""
        return losses + int(self.scale)

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return masses up to an outcome: the loss of k is (D^2 - 2 k D) / (2 scale^2)."""
        d = self.sensitivity
        scale = float(self.scale)
        most = np.ceil(d / 2 - loss * (scale**2 / d)) - 1
        tails = _tails(scale)
        return _at_most(tails, most), _at_most(tails, most - d)

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same: an outcome that is as near to an edge as a ball is wide may be on either
        side of it.
        """
        d, scale = self.sensitivity, Fraction(self.scale)
        chances = _chances(scale, -(-ctx.prec // _STEP) * _STEP)
        stretch = ball(scale * scale / d)
        counts = [_whole(arb(d) / 2 - loss * stretch) - 1 for loss in losses]
        return [(_up_to(chances, k), _up_to(chances, k - d)) for k in counts]


@dataclass(frozen=True, slots=True)
class DiscreteLaplace(Within):
    """Integer noise with masses proportional to e^(-|k| epsilon_per_step) on one integer that moves
    by at most ``sensitivity``; for the move see ``DiscreteGaussian``. A sensitivity of 1 makes it
    randomised response. Raises ValueError for parameters that are not positive.
    """

    epsilon_per_step: float
    sensitivity: int

    def __post_init__(self) -> None:
        step, d = self.epsilon_per_step, self.sensitivity
        if not (0 < d < _WHOLE and 0 < step < math.inf):
            raise ValueError(f"no discrete Laplace of {step} and {d}")

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        """The largest loss, below 1; the smallest, from the sensitivity on, is its negative."""
        return self.epsilon_per_step * self.sensitivity

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return masses up to an outcome: the loss of k between is (D - 2 k) epsilon_per_step."""
        d = float(self.sensitivity)
        most = np.ceil((d - loss / self.epsilon_per_step) / 2) - 1
        most = np.where(loss < self.epsilon, np.maximum(most, 0.0), -np.inf)
        most = np.where(loss < -self.epsilon, np.inf, np.minimum(most, d - 1))
        return self._at_most(most), self._at_most(most - d)

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same."""
        step, d = arb(self.epsilon_per_step), self.sensitivity
        found: Tails = []
        for loss in losses:
            if loss < -step * d:
                found.append((arb(1), arb(1)))
                continue
            k = min(_whole((d - loss / step) / 2) - 1, d - 1)
            found.append((self._up_to(k), self._up_to(k - d)) if k >= 0 else (arb(0), arb(0)))
        return found

    def _at_most(self, k: Floats) -> Floats:
        """Return the probability of noise up to k: a geometric series from either end."""
        step = self.epsilon_per_step
        tail = np.exp(-step * np.where(k < 0, -k, k + 1)) / (1 + math.exp(-step))
        return np.where(k < 0, tail, 1 - tail)

    def _up_to(self, k: int) -> arb:
        step = arb(self.epsilon_per_step)
        tail = (-step * (-k if k < 0 else k + 1)).exp() / (1 + (-step).exp())
        return tail if k < 0 else 1 - tail


@dataclass(frozen=True, slots=True)
class SampledGaussian(Pair):
    """Normal noise of deviation 1 on a Poisson sample, as in DP-SGD: the answer moves by ``mu`` if
    the record is sampled, with probability ``rate`` q.

    Zhu, Dong, Wang 2022, Theorem 11. With a record more, P = (1 - q) N(0, 1) + q N(mu, 1) against
    Q = N(0, 1); with one fewer (``adding``) the same exchanged. Neither curve lies above the other
    everywhere, so both are composed. Preconditions: neighbours differ by one record more or fewer;
    each invocation draws a fresh, secret sample, with each record in it independently.

    Raises ValueError for a mu outside [1e-12, 1e6] or a rate outside [1e-12, 1). A rate of 1 is no
    sampling; smaller parameters cost no more than 1e-12 does.
    """

    mu: float
    rate: float
    adding: bool = False

    def __post_init__(self) -> None:
        if not (_LEAST <= self.mu <= 1e6 and _LEAST <= self.rate < 1):
            raise ValueError(f"no sampled Gaussian of mu {self.mu} and rate {self.rate}")

    @property
    def span(self) -> Span:
        """From ln(1 - q), the smallest loss, to 12 deviations on the other side."""
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
        """Return tails of normal distributions beyond the outcome that has this loss."""
        x = outcome_of_sample(-loss if self.adding else loss, self.rate) / self.mu + self.mu / 2
        if self.adding:
            return ndtr(x), (1 - self.rate) * ndtr(x) + self.rate * ndtr(x - self.mu)
        return (1 - self.rate) * ndtr(-x) + self.rate * ndtr(self.mu - x), ndtr(-x)

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same; all, or none, beyond the smallest loss there is with a record more."""
        mu, rate, found = arb(self.mu), arb(self.rate), []
        for loss in losses:
            ratio = ratio_before_sample(-loss if self.adding else loss, rate)
            if ratio is None:
                everything = arb(int(not self.adding))
                found.append((everything, everything))
                continue
            x = ratio.log() / mu + mu / 2
            still, moved = (
                (normal(x), normal(x - mu)) if self.adding else (normal(-x), normal(mu - x))
            )
            mixed = (1 - rate) * still + rate * moved
            found.append((still, mixed) if self.adding else (mixed, still))
        return found


def ratio_before_sample(loss: arb, rate: arb) -> arb | None:
    """Solve 1 - q + q r = e^loss for a likelihood ratio r > 0; None if there is none."""
    ratio = 1 + loss.expm1() / rate
    return ratio if ratio > 0 else None


def outcome_of_sample(loss: Floats, rate: float) -> Floats:
    """Solve ln(1 - q + q e^x) = ``loss`` for x, the loss without sampling; -inf if there is none.

    Near 0 the first form is exact and the second cancels; far from it, the other way round.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near = np.log1p(np.expm1(loss) / rate)
        far = loss + np.log1p(-(1 - rate) * np.exp(-loss)) - np.log(rate)
        found = np.where(np.abs(loss) <= 0.5, near, far)
    return np.where(np.isnan(found), -np.inf, found)


def _terms(scale: float) -> int:
    """Return the number of masses that are more than 1e-323 of the largest."""
    return math.ceil(39 * scale) + 2


@lru_cache(maxsize=32)
def _tails(scale: float) -> Floats:
    """Return the chances of discrete Gaussian noise of at least 0, 1, …, right to 20 roundings."""
    terms = _terms(scale)
    tails: Floats = np.exp(-((np.arange(terms) / scale) ** 2) / 2)
    step = 1
    while step < terms:
        tails[:-step] += tails[step:].copy()
        step *= 2
    tails /= tails[0] + tails[1]
    return tails


def _at_most(tails: Floats, k: Floats) -> Floats:
    """Return the probability of symmetric noise up to each k."""
    last = float(tails.size - 1)
    below = tails[np.clip(-k, 0, last).astype(np.int64)] * (k >= -last)
    beyond = tails[np.clip(k + 1, 0, last).astype(np.int64)] * (k < last)
    return np.where(k < 0, below, 1 - beyond)


def normal(x: arb) -> arb:
    """Return the probability that normal noise is below x."""
    return (-x / arb(2).sqrt()).erfc() / 2


def _whole(x: arb) -> int:
    """Return the least integer that is not below the middle of a ball."""
    whole = x.mid().ceil().unique_fmpz()
    if whole is None:
        raise ArithmeticError("an outcome is too extreme to be enclosed")
    return int(whole)


@lru_cache(maxsize=8)
def _chances(scale: Fraction, bits: int) -> list[arb]:
    """Return the chances of discrete Gaussian noise of at least 0, 1, and so on, as balls."""
    with ctx.workprec(bits):
        return _summed_chances(scale, bits)


def _summed_chances(scale: Fraction, bits: int) -> list[arb]:
    square = ball(2 * scale * scale)
    terms = math.ceil(float(scale) * math.sqrt(2 * math.log(2) * (bits + 16))) + 2
    mass, ratio, fade = arb(1), (-1 / square).exp(), (-2 / square).exp()
    masses = []
    for _ in range(terms):
        masses.append(mass)
        mass, ratio = mass * ratio, ratio * fade
    # What is left out fades at least as fast as a geometric series of the last ratio.
    rest = mass / (1 - ratio)
    found, beyond = [arb(0, rest.upper())], arb(0, rest.upper())
    for mass in reversed(masses):
        beyond = beyond + mass
        found.append(beyond)
    found.reverse()
    whole = found[0] + found[1]
    return [chance / whole for chance in found]


def _up_to(chances: list[arb], k: int) -> arb:
    """Return the probability of symmetric noise up to k."""
    beyond = chances[min(-k if k < 0 else k + 1, len(chances) - 1)]
    return beyond if k < 0 else 1 - beyond
