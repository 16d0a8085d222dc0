"""A schedule on a grid: the lattices of its pairs, tilted.

Masses times e^(tilt * loss) are composed instead of masses. The tilted total is centred where the
curve reaches delta, so rounding is relative to the masses that matter, at any delta.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from accountant.privacy.composition.grids import Floats, Grid, Integers, cuts, runs
from accountant.privacy.composition.lattice import on_grid
from accountant.privacy.composition.pairs import Pair, Span
from accountant.privacy.composition.spectrum import UNIT

_CHUNK: Final = 2**15  # Losses that are tilted at once


class _Chunk(NamedTuple):
    """Some lattices of a stack, so few that a processor's cache holds what is made of them."""

    losses: Floats
    logs: Floats
    starts: Integers
    sizes: Integers

    def tilted(self, tilt: float) -> tuple[Floats, Floats, Floats]:
        """Return masses times e^(tilt * loss - peak) and their sums, with the peak of each."""
        weights = tilt * self.losses
        weights += self.logs
        peaks = np.maximum.reduceat(weights, self.starts)
        weights -= np.repeat(peaks, self.sizes)
        np.exp(weights, out=weights)
        return weights, np.add.reduceat(weights, self.starts), peaks

    def moments(self, tilt: float) -> tuple[Floats, Floats, Floats]:
        """Return the logs of the sums, and the mean and the variance of each."""
        weights, sums, peaks = self.tilted(tilt)
        weights *= self.losses
        means = np.add.reduceat(weights, self.starts) / sums
        weights *= self.losses
        squares = np.add.reduceat(weights, self.starts) / sums
        return peaks + np.log(sums), means, np.maximum(squares - means**2, 0.0)


class Stack:
    """A schedule's lattices, each in its span, one after another: numpy works on all at once."""

    def __init__(self, schedule: Mapping[Pair, int], spans: Floats, grid: Grid) -> None:
        self.places, self.grid = grid, grid.step
        self.lattices = on_grid(list(schedule), spans, grid)
        self.counts = np.array(list(schedule.values()), dtype=np.float64)
        self.sizes = self.lattices.sizes
        self.starts = np.cumsum(self.sizes) - self.sizes
        slots = runs(self.lattices.firsts, self.sizes)
        self.losses: Floats = grid.places(slots) * np.float64(grid.step)
        with np.errstate(divide="ignore"):
            self.logs = np.log(self.lattices.mass)
        self._chunks = [self._chunk(some) for some in cuts(self.sizes, _CHUNK)]

    def _chunk(self, some: slice) -> _Chunk:
        starts, sizes = self.starts[some], self.sizes[some]
        points = slice(int(starts[0]), int(starts[-1] + sizes[-1]))
        return _Chunk(self.losses[points], self.logs[points], starts - starts[0], sizes)

    @property
    def wrong(self) -> float:
        """The largest error of a total loss."""
        return float(self.counts @ self.lattices.wrong)

    def each(self, values: Floats) -> Floats:
        """Return the sums over each lattice."""
        sums: Floats = np.add.reduceat(values, self.starts)
        return sums

    def tilted(self, tilt: float) -> tuple[Floats, Floats]:
        """Return masses times e^(tilt * loss), normalised in each lattice, and logs of the sums."""
        found = [chunk.tilted(tilt) for chunk in self._chunks]
        weights, sums, peaks = (np.concatenate(each) for each in zip(*found, strict=True))
        weights /= np.repeat(sums, self.sizes)
        return weights, peaks + np.log(sums)

    def exponent(self, tilt: float) -> float:
        """Return ln E e^(tilt * total loss), of all mechanisms together."""
        found = [chunk.tilted(tilt)[1:] for chunk in self._chunks]
        sums, peaks = (np.concatenate(each) for each in zip(*found, strict=True))
        return float(self.counts @ (peaks + np.log(sums)))

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """Return ``exponent``, and the mean and variance of the tilted total: its derivatives."""
        found = [chunk.moments(tilt) for chunk in self._chunks]
        logs, means, variances = (np.concatenate(each) for each in zip(*found, strict=True))
        counts = self.counts
        return float(counts @ logs), float(counts @ means), float(counts @ variances)

    def square(self, tilt: float) -> float:
        """Return the sum of the mean squares of all tilted losses."""
        weights, _ = self.tilted(tilt)
        return float(self.counts @ self.each(weights * self.losses**2))

    @property
    def extremes(self) -> Span:
        """The smallest and the largest total loss."""
        lowest, highest = self.starts, self.starts + self.sizes - 1
        return float(self.counts @ self.losses[lowest]), float(self.counts @ self.losses[highest])

    def rounding(self, tilt: float) -> float:
        """Return the relative error of tilted masses of the total, of ``exponent``, and of sums."""
        highest = np.abs(self.losses[self.starts + self.sizes - 1])
        reach = np.maximum(np.abs(self.losses[self.starts]), highest)
        return float(self.counts @ (UNIT * (1600 + self.sizes + 8 * abs(tilt) * reach)))


def best_tilt(stack: Stack, delta: float) -> float:
    """Return nearly the t at which e^(K(t) - t epsilon) t^t / (1 + t)^(1 + t), which bounds the
    curve, is lowest: t K'(t) - K(t) + ln(1 + t) = ln(1 / delta), by Newton's steps.
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


def window(stack: Stack, tilt: float, outside: float) -> Span:
    """Return losses with at most ``outside`` of the tilted total beyond either, by Chernoff."""
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
