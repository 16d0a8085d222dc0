"""Lattices under an exponential tilt: which tilt suits a delta, where the tilted total lies, and
its masses.

Masses times e^(tilt * loss) are composed instead of masses. The tilted total is centred where the
curve reaches delta, so rounding is relative to the masses that matter, at any delta.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from accountant.privacy.composition.lattice import UNIT, Lattice, on_grid
from accountant.privacy.composition.pairs import Floats, Pair

_DIRECT: Final = 4_000_000
"""Most entries of the table of exponentials with which few frequencies are summed directly."""

Complex = NDArray[np.complex128]


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
        """Stack a schedule's lattices, each in its span."""
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
    def wrong(self) -> float:
        """The largest error of a total loss."""
        return float(self.counts @ [part.wrong for part in self.lattices])

    def each(self, values: Floats) -> Floats:
        """Return the sums over each lattice."""
        sums: Floats = np.add.reduceat(values, self.starts)
        return sums

    def tilted(self, tilt: float) -> tuple[Floats, Floats]:
        """Return masses times e^(tilt * loss), normalised in each lattice, and logs of the sums."""
        exponents = self.logs + tilt * self.losses
        peaks = np.maximum.reduceat(exponents, self.starts)
        weights = np.exp(exponents - np.repeat(peaks, self.sizes))
        sums = self.each(weights)
        return weights / np.repeat(sums, self.sizes), peaks + np.log(sums)

    def exponent(self, tilt: float) -> float:
        """Return ln E e^(tilt * total loss), of all mechanisms together."""
        return float(self.counts @ self.tilted(tilt)[1])

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """Return ``exponent``, and the mean and variance of the tilted total: its derivatives."""
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


def window(stack: Stack, tilt: float, outside: float) -> tuple[float, float]:
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


@dataclass(frozen=True, slots=True)
class Part:
    """Masses at first, first + 1, …, which add up to 1, and how often they occur."""

    first: int
    mass: Floats
    count: int


def composed(parts: list[Part], size: int, first: int, allowed: float) -> tuple[Floats, float]:
    """Return the mass of the total at first, first + 1, …, modulo ``size``, and a bound on the
    error of each.

    The characteristic functions are multiplied (Koskela, Jalko, Honkela, *Computing tight
    differential privacy guarantees using FFT*, AISTATS 2020). A frequency of a distribution is a
    tree of sums, so wrong by at most 8 roundings for each of its log2(size) levels. High
    frequencies of a product fade quickly: once those from ``live`` on add up to less than a
    fraction of ``allowed`` they are left out, and the rest is summed directly.
    """
    if sum(part.count for part in parts) == 1:
        [only] = parts
        whole = _folded(only.mass, size)
        return np.roll(whole, only.first - first), UNIT * only.mass.size / size
    live, left_out = size // 2 + 1, 0.0
    product = np.ones(live, dtype=np.complex128)
    error, most = np.zeros(live), np.ones(live)
    table: Complex = np.empty((0, 0), dtype=np.complex128)
    widest = max(part.mass.size for part in parts)
    for part in sorted(parts, key=lambda p: -p.count * p.mass.size):
        each = UNIT * (8 * math.log2(size) + part.mass.size / size)
        if live * widest <= _DIRECT:
            if table.shape[0] < live:
                table = _roots(size)[np.outer(np.arange(live), np.arange(widest)) % size]
            values = table[:live, : part.mass.size] @ part.mass
            each = UNIT * (32 + part.mass.size)
        else:
            values = np.fft.rfft(_folded(part.mass, size))[:live]
        bounds = np.minimum(np.abs(values), 1 + UNIT * part.mass.size) + each
        most = most * bounds**part.count
        product = product * _power(values, part.count)
        error = error + part.count * (each + 64 * UNIT) / bounds
        rest = 2 / size * np.cumsum(most[::-1])[::-1]
        cut = int(np.searchsorted(-rest, -allowed / 64))
        if cut < 0.9 * live:
            left_out += float(rest[cut]) if cut < live else 0.0
            live = max(cut, 1)
            product, error, most = product[:live], error[:live], most[:live]
    shift = (sum(part.first * part.count for part in parts) - first) % size
    values = np.zeros(size // 2 + 1, dtype=np.complex128)
    values[:live] = product * _roots(size)[np.arange(live) * shift % size]
    wrong = most * (np.expm1(np.minimum(error, 50.0)) + 8 * UNIT * (math.log2(size) + 4))
    return np.fft.irfft(values, size), 2 / size * float(wrong.sum()) * (1 + 1e-9) + left_out


def _roots(size: int) -> Complex:
    """Return e^(-2 pi i k / size) for all k; a product of integers modulo size has no error."""
    roots: Complex = np.exp(-2j * np.pi / size * np.arange(size))
    return roots


def _folded(mass: Floats, size: int) -> Floats:
    folded: Floats = np.pad(mass, (0, -mass.size % size)).reshape(-1, size).sum(axis=0)
    return folded


def _power(values: Complex, count: int) -> Complex:
    if count == 1:
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values == 0, 0.0, np.exp(count * np.log(values)))
