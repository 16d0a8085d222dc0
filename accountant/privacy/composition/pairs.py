"""Dominating pairs: for each mechanism two distributions P and Q that are hardest to tell apart.

The privacy loss is ln P/Q under P. A pair states the masses of P and of Q above each loss; a
composition of pairs bounds the composition of the mechanisms (Zhu, Dong, Wang, *Optimal accounting
of differential privacy via characteristic function*, AISTATS 2022). The reverse of a pair is Q and
P, for the other neighbour; those of what runs on samples have another curve.

Masses of many pairs are asked for at once (``above_each``): numpy takes as long for one loss as for
a thousand. A kind whose masses are one formula of a few numbers is a ``Family``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Self

import numpy as np
from flint import arb
from scipy.special import expit, ndtr

from accountant.privacy.composition.grids import Floats, Integers, spread

Span = tuple[float, float]  # The smallest and the largest of a range of losses
Tails = list[tuple[arb, arb]]  # The mass of P and of Q above each loss

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

    @classmethod
    def above_each(
        cls, pairs: Sequence[Self], losses: Floats, sizes: Integers
    ) -> tuple[Floats, Floats]:
        """Return the same of many pairs of this kind: see the function of this name."""
        parts = np.split(losses, np.cumsum(sizes)[:-1])
        found = [pair.above(part) for pair, part in zip(pairs, parts, strict=True)]
        p, q = zip(*found, strict=True)
        return np.concatenate(p), np.concatenate(q)

    @abstractmethod
    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same as balls, at the precision in force: the mass of P and of Q above each of
        ``losses``, or above one that is smaller by at most ``slack``.
        """


def above_each(pairs: Sequence[Pair], losses: Floats, sizes: Integers) -> tuple[Floats, Floats]:
    """Return what ``Pair.above`` does: of the first pair above ``sizes[0]`` of the ``losses``,
    of the next above those that follow, and so on. Neighbours of one kind are taken together.
    """
    p, q, ends = np.empty(losses.size), np.empty(losses.size), np.cumsum(sizes)
    first = start = 0
    for _, alike in groupby(pairs, key=type):
        some = list(alike)
        last = first + len(some)
        there = slice(start, int(ends[last - 1]))
        p[there], q[there] = some[0].above_each(some, losses[there], sizes[first:last])
        first, start = last, there.stop
    return p, q


class Family(Pair):
    """A kind of pairs whose masses are one formula of the loss and a few numbers."""

    __slots__ = ()

    @property
    @abstractmethod
    def numbers(self) -> tuple[float, ...]:
        """What the formula reads of a pair."""

    @staticmethod
    @abstractmethod
    def masses(loss: Floats, *numbers: Floats) -> tuple[Floats, Floats]:
        """Return what ``above`` does: each of the numbers belongs to the loss at its place, or to
        all losses if it stands alone.
        """

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return the masses of one pair."""
        return self.masses(loss, *np.array(self.numbers))

    @classmethod
    def above_each(
        cls, pairs: Sequence[Self], losses: Floats, sizes: Integers
    ) -> tuple[Floats, Floats]:
        """Return the masses of many pairs."""
        numbers = np.array([pair.numbers for pair in pairs]).T
        return cls.masses(losses, *(spread(each, sizes) for each in numbers))


class Within(Family):
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

    @property
    def numbers(self) -> tuple[float, ...]:
        """Epsilon, two masses, and what is finite."""
        return self.epsilon, expit(self.epsilon), expit(-self.epsilon), 1 - self.infinite

    @staticmethod
    def masses(loss: Floats, *numbers: Floats) -> tuple[Floats, Floats]:
        """Return two steps."""
        epsilon, up, down, rest = numbers
        p = up * (loss < epsilon) + down * (loss < -epsilon)
        q = down * (loss < epsilon) + up * (loss < -epsilon)
        return p * rest, q * rest

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

    @property
    def numbers(self) -> tuple[float, ...]:
        """Epsilon and 1 - e^-epsilon."""
        return self.epsilon, -np.expm1(-self.epsilon)

    @staticmethod
    def masses(loss: Floats, *numbers: Floats) -> tuple[Floats, Floats]:
        """Return (1 - e^((l - epsilon)/2)) / (1 - e^-epsilon), and e^(-(l + epsilon)/2) of that."""
        epsilon, whole = numbers
        inside = np.clip(loss, -epsilon, epsilon)
        rest = -np.expm1((inside - epsilon) / 2) / whole
        return rest, np.exp(-(epsilon + inside) / 2) * rest

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

    @property
    def numbers(self) -> tuple[float, ...]:
        """Epsilon and the mass of Q above 0."""
        return self.epsilon, math.exp(-self.epsilon / 2) / 2

    @staticmethod
    def masses(loss: Floats, *numbers: Floats) -> tuple[Floats, Floats]:
        """Return 1 - e^(-(epsilon - l)/2)/2 and e^(-(epsilon + l)/2)/2 between the two ends."""
        epsilon, half = numbers
        inside = np.minimum(np.maximum(loss, -epsilon), epsilon)
        if (epsilon < _SMALL).all():  # one exponential is enough
            root = np.exp(inside / 2)
            p, q = 1 - half * root, half / root
        else:
            p = 1 - np.exp((inside - epsilon) / 2) / 2
            q = np.exp(-(inside + epsilon) / 2) / 2
        none, all_of_it = loss >= epsilon, loss < -epsilon
        p[none] = q[none] = 0.0
        p[all_of_it] = q[all_of_it] = 1.0
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
class Gaussian(Family):
    """Normal noise (Balle and Wang 2018): the loss is normal with mean ``mu``^2 / 2 and deviation
    ``mu``. Any number of Gaussian mechanisms is one, with the root of the sum of squares as its mu.
    """

    mu: float

    @property
    def span(self) -> Span:
        """The losses up to 12 deviations on either side of the mean."""
        return self.mu * (self.mu / 2 - 12), self.mu * (self.mu / 2 + 12)

    @property
    def numbers(self) -> tuple[float, ...]:
        """What ``masses`` needs of the pair: its mu."""
        return (self.mu,)

    @staticmethod
    def masses(loss: Floats, *numbers: Floats) -> tuple[Floats, Floats]:
        """Return two normal tails."""
        (mu,) = numbers
        return ndtr(mu / 2 - loss / mu), ndtr(-mu / 2 - loss / mu)

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return two normal tails."""
        mu = arb(self.mu)
        places = [loss / mu for loss in losses]
        return [(normal(mu / 2 - x), normal(-mu / 2 - x)) for x in places]


@dataclass(frozen=True, slots=True)
class SampledGaussian(Family):
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

    @property
    def numbers(self) -> tuple[float, ...]:
        """The mu, the rate, and the sign of the losses of outcomes above the middle."""
        return self.mu, self.rate, -1.0 if self.adding else 1.0

    @staticmethod
    def masses(loss: Floats, *numbers: Floats) -> tuple[Floats, Floats]:
        """Return tails of normal distributions beyond the outcome that has this loss."""
        mu, rate, way = numbers
        x = outcome_of_sample(way * loss, rate) / mu + mu / 2
        return of_sample(ndtr(-way * x), ndtr(way * (mu - x)), rate, way)

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


def of_sample(still: Floats, moved: Floats, rate: Floats, way: Floats) -> tuple[Floats, Floats]:
    """Return the masses of P and Q if a record gets into a sample at a ``rate``: ``moved`` once it
    is there, else ``still``. A ``way`` of -1 exchanges P, which may have it, and Q.
    """
    mixed = (1 - rate) * still + rate * moved
    return np.where(way < 0, still, mixed), np.where(way < 0, mixed, still)


def ratio_before_sample(loss: arb, rate: arb) -> arb | None:
    """Solve 1 - q + q r = e^loss for a likelihood ratio r > 0; None if there is none."""
    ratio = 1 + loss.expm1() / rate
    return ratio if ratio > 0 else None


def outcome_of_sample(loss: Floats, rate: float | Floats) -> Floats:
    """Solve ln(1 - q + q e^x) = ``loss`` for x, the loss without sampling; -inf if there is none.

    Near 0 the first form is exact and the second cancels; far from it, the other way round.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near = np.log1p(np.expm1(loss) / rate)
        far = loss + np.log1p(-(1 - rate) * np.exp(-loss)) - np.log(rate)
        found = np.where(np.abs(loss) <= 0.5, near, far)
    return np.where(np.isnan(found), -np.inf, found)


def normal(x: arb) -> arb:
    """Return the probability that normal noise is below x."""
    return (-x / arb(2).sqrt()).erfc() / 2
