"""Lattices under an exponential tilt: which tilt suits a delta, and where the tilted total lies.

Masses times e^(tilt * loss) are composed instead of masses. The tilted total is centred where the
curve reaches delta, so rounding is relative to the masses that matter, at any delta.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from accountant.privacy.composition.lattice import UNIT, Lattice, on_grid
from accountant.privacy.composition.pairs import Floats, Pair


@dataclass(frozen=True, slots=True)
class Stack:
    """The lattices of a schedule one after another, so that numpy works on all of them at once."""

    grid: float
    lattices: list[Lattice]
    counts: Floats
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    losses: Floats
    logs: Floats

    @classmethod
    def of(
        cls, schedule: Mapping[Pair, int], spans: Iterable[tuple[float, float]], grid: float
    ) -> Self:
        """A schedule's lattices, each in its span."""
        pairs = zip(schedule, spans, strict=True)
        lattices = [on_grid(pair, span, grid) for pair, span in pairs]
        sizes = np.array([part.mass.size for part in lattices])
        with np.errstate(divide="ignore"):
            logs = np.log(np.concatenate([part.mass for part in lattices]))
        return cls(
            grid,
            lattices,
            np.array(list(schedule.values()), dtype=np.float64),
            np.cumsum(sizes) - sizes,
            sizes,
            np.concatenate([np.arange(p.first, p.first + p.mass.size) * grid for p in lattices]),
            logs,
        )

    @property
    def steps(self) -> float:
        """How many mechanisms there are."""
        return float(self.counts.sum())

    @property
    def wrong(self) -> float:
        """How wrong a total loss may be."""
        return float(self.counts @ [part.wrong for part in self.lattices])

    def each(self, values: Floats) -> Floats:
        """Sums over each lattice."""
        sums: Floats = np.add.reduceat(values, self.starts)
        return sums

    def tilted(self, tilt: float) -> tuple[Floats, Floats]:
        """Masses times e^(tilt * loss), which add up to 1 in each lattice; and the logarithms of
        what they added up to.
        """
        exponents = self.logs + tilt * self.losses
        peaks = np.maximum.reduceat(exponents, self.starts)
        weights = np.exp(exponents - np.repeat(peaks, self.sizes))
        sums = self.each(weights)
        return weights / np.repeat(sums, self.sizes), peaks + np.log(sums)

    def exponent(self, tilt: float) -> float:
        """ln E e^(tilt * total loss), of all the mechanisms together."""
        return float(self.counts @ self.tilted(tilt)[1])

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """``exponent`` and its first two derivatives, mean and variance of the tilted total."""
        weights, logs = self.tilted(tilt)
        means = self.each(weights * self.losses)
        variances = np.maximum(self.each(weights * self.losses**2) - means**2, 0.0)
        counts = self.counts
        return float(counts @ logs), float(counts @ means), float(counts @ variances)

    @property
    def extremes(self) -> tuple[float, float]:
        """The smallest and the largest total loss."""
        lowest, highest = self.starts, self.starts + self.sizes - 1
        return float(self.counts @ self.losses[lowest]), float(self.counts @ self.losses[highest])

    def rounding(self, tilt: float) -> float:
        """The relative error of the tilted masses of the total, of ``exponent``, and of sums."""
        highest = np.abs(self.losses[self.starts + self.sizes - 1])
        reach = np.maximum(np.abs(self.losses[self.starts]), highest)
        return float(self.counts @ (UNIT * (1600 + self.sizes + 8 * abs(tilt) * reach)))


def best_tilt(stack: Stack, delta: float) -> float:
    """Nearly the t at which e^(K(t) - t epsilon) t^t / (1 + t)^(1 + t), a bound on the curve, shows
    the smallest epsilon at ``delta``: t K'(t) - K(t) + ln(1 + t) = ln(1 / delta). Newton's steps.
    """
    goal, least, most = -math.log(delta), 0.0, 1 / stack.grid
    _, _, variance = stack.moments(0.0)
    tilt = min(math.sqrt(2 * goal / max(variance, stack.grid**2)), most)
    for _ in range(60):
        exponent, mean, variance = stack.moments(tilt)
        gap = tilt * mean - exponent + math.log1p(tilt) - goal
        if abs(gap) <= 0.05 * goal or (gap < 0 and tilt >= 0.99 * most):
            break
        least, most = (tilt, most) if gap < 0 else (least, tilt)
        if most < 1.05 * least:
            break
        low, high = max(least, tilt / 16), min(most, 16 * tilt)
        step = tilt - gap / (tilt * variance + 1 / (1 + tilt))
        # Where the exponent bends sharply Newton's steps go astray.
        tilt = step if low < step < high else math.sqrt(low * high)
    return tilt


def window(stack: Stack, tilt: float, outside: float) -> tuple[float, float]:
    """Losses between which lies all but ``outside`` of the tilted total at either end, by
    Chernoff's bound, whatever the exponent.
    """
    here, _, variance = stack.moments(tilt)
    here -= stack.rounding(tilt)
    found = []
    for sign, extreme in zip((-1, 1), stack.extremes, strict=True):
        best, s = math.inf, 2 * math.sqrt(-2 * math.log(outside) / max(variance, stack.grid**2))
        for _ in range(60):
            there = stack.exponent(tilt + sign * s) + stack.rounding(tilt + sign * s)
            bound = (there - here - math.log(outside)) / s
            if bound >= best:
                break
            best, s = bound, s / 2
        found.append(sign * min(best, sign * extreme))
    return found[0], found[1]
