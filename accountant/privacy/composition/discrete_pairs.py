"""Dominating pairs of noise on whole numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from flint import arb, ctx

from accountant.privacy.balls import ball
from accountant.privacy.composition.grids import Floats
from accountant.privacy.composition.pairs import Gaussian, Pair, Span, Tails, Within

MOST_TERMS: Final = 2**17  # Masses of a discrete Gaussian that are added up
_WHOLE: Final = 2**52  # Integers up to here, and half of each, are floats
_STEP: Final = 256  # Bits of masses that are kept, for all precisions up to a multiple of this


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

    @property
    def numbers(self) -> tuple[float, ...]:
        """Step, sensitivity, their product, and what the masses of no side but one add up to."""
        step = self.epsilon_per_step
        return step, float(self.sensitivity), self.epsilon, 1 + math.exp(-step)

    @staticmethod
    def masses(loss: Floats, *numbers: Floats) -> tuple[Floats, Floats]:
        """Return masses up to an outcome: the loss of k between is (D - 2 k) epsilon_per_step."""
        step, d, epsilon, whole = numbers
        most = np.ceil((d - loss / step) / 2) - 1
        most = np.where(loss < epsilon, np.maximum(most, 0.0), -np.inf)
        most = np.where(loss < -epsilon, np.inf, np.minimum(most, d - 1))
        return _series(step, whole, most), _series(step, whole, most - d)

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

    def _up_to(self, k: int) -> arb:
        step = arb(self.epsilon_per_step)
        tail = (-step * (-k if k < 0 else k + 1)).exp() / (1 + (-step).exp())
        return tail if k < 0 else 1 - tail


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


def _whole(x: arb) -> int:
    """Return the least integer that is not below the middle of a ball."""
    whole = x.mid().ceil().unique_fmpz()
    if whole is None:
        raise ArithmeticError("an outcome is too extreme to be enclosed")
    return int(whole)


def _series(step: Floats, whole: Floats, k: Floats) -> Floats:
    """Return the probability of geometric noise up to k: a series from either end."""
    tail = np.exp(-step * np.where(k < 0, -k, k + 1)) / whole
    return np.where(k < 0, tail, 1 - tail)


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
