"""Pairs on a grid of losses: a pair above in every comparison, and one below.

Above, by *connecting the dots* (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, *Connect the dots*,
PETS 2022): the mass between two losses of the grid goes to both, in the proportion that keeps its
P and its Q, which can only make the pair easier to tell apart. Every mass and every upper share is
rounded up; a curve is a sum of masses times non-negative factors, so it is rounded up too.

Below, by post-processing: an observer who sees only the loss of the grid to which an outcome was
sent, by the same shares, knows less than one who sees the outcome. The P of what is seen is the
lattice's; its loss is ln P/Q of all that was sent there, which falls short of the lattice's by a
``drop``: about grid^2 where a pair is smooth, and up to one step of the grid at its atoms.

Masses times e^(tilt * loss) are composed instead of masses. The tilted total is centred where the
curve reaches delta, so rounding is relative to the masses that matter, at any delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from accountant.privacy.composition.grids import Grid, Integers
from accountant.privacy.composition.pairs import Floats, Pair, Span
from accountant.privacy.composition.spectrum import UNIT

_EDGE: Final = 2.0**-45  # Error of a loss, relative to 1 + the largest: Pair.above and a product
_REST: Final = 2.0**-46  # Error of one minus two tails
_PARTS: Final = np.arange(257) / 256
_CHUNK: Final = 2**15  # Losses of a stack that are tilted at once
_TINY: Final = 1e-290  # Masses below this may have been rounded to zero


class Lattice(NamedTuple):
    """P's mass at the slots of a grid from ``first`` on, rounded up; ``lost`` of it is at infinity.
    Each loss may be ``wrong`` by as much. The mechanism itself dominates a pair with at least a
    share 1 - ``doubt`` of each mass, at a loss that is smaller by at most ``drop``.
    """

    first: int
    mass: Floats
    lost: float
    wrong: float
    doubt: Floats
    drop: Floats


class _Masses(NamedTuple):
    """Masses of P, from below and above, and of Q times e^loss at the lower edge, likewise."""

    p_low: Floats
    p: Floats
    q_low: Floats
    q: Floats


def narrowed(pair: Pair, spare: float) -> Span:
    """Return two losses beyond which P has at most ``spare``, nearly as narrow as can be."""
    low, high = pair.span
    lowest = -_last(lambda loss: pair.reverse.above(loss)[1], -high, -low, spare)
    return lowest, max(lowest, _last(lambda loss: pair.above(loss)[0], low, high, spare))


def _last(above: Callable[[Floats], Floats], low: float, high: float, spare: float) -> float:
    """Return nearly the smallest loss in the range above which there is at most ``spare``."""
    if float(above(low + (high - low) * _PARTS[-2:-1])[0]) > spare:
        return high  # as for what has an atom there
    for _ in range(4):
        losses = low + (high - low) * _PARTS
        i = int(np.searchsorted(-above(losses), -spare))
        if i >= losses.size - 1:
            break
        low, high = float(losses[max(i - 1, 0)]), float(losses[i])
    return high


def on_grid(pair: Pair, span: Span, grid: Grid) -> Lattice:
    """Return a pair's lattice: mass above ``span`` is lost, mass below is raised to its end."""
    first, last = grid.around(*span)
    places = grid.places(np.arange(first, last + 1))
    edges: Floats = places * np.float64(grid.step)
    widths: Floats = (places[1:] - places[:-1]) * np.float64(grid.step)
    middle = min(max(-first, 0), last - first)
    p_above, q_above = pair.above(edges[middle:])
    q_below, p_below = pair.reverse.above(-edges[: middle + 1])
    buckets = _between(edges, (p_below, p_above), (q_below, q_above))
    # P and Q of a bucket are kept if its upper end takes (p - e^low q) / (1 - e^-width) of P. It
    # takes a little more, as losses may be wrong: lowered by as much, none is above its bucket, and
    # those below are raised to it.
    wrong = _EDGE * (1 + max(map(abs, pair.span)))
    up = (buckets.p - buckets.q_low + 2 * wrong * buckets.p) / -np.expm1(-widths)
    up = np.minimum(np.maximum(up, 0.0), buckets.p)
    mass = np.zeros(edges.size)
    mass[1:] = up
    mass[:-1] += buckets.p - up
    # The mass at the middle edge, which is 0 unless all losses are on one side of it; if negative,
    # the mass that was counted on both sides.
    rest_p = 1 - pair.infinite - float(p_above[0]) - float(p_below[-1])
    rest_q = 1 - pair.reverse.infinite - float(q_above[0]) - float(q_below[-1])
    beside = min(middle, edges.size - 2)
    buckets.p_low[beside] = max(0.0, buckets.p_low[beside] - max(0.0, _REST - rest_p))
    certain, other = _seen(buckets, up, widths)
    mass[middle] += max(rest_p, 0.0) + _REST
    if edges[middle] == 0 and rest_p > 2 * _REST:
        certain[middle] += rest_p - _REST
        other[middle] += max(rest_q, 0.0) + _REST
    mass[0] += p_below[0] * (1 + _REST)  # the mass below all edges, rounded up
    lost = pair.infinite + float(p_above[-1]) * (1 + _REST) + _TINY
    mass *= 1 + 4 * UNIT
    doubt, drop = _below(mass, certain, other, widths)
    there = np.flatnonzero(mass)
    some = slice(int(there[0]), int(there[-1]) + 1)
    return Lattice(first + some.start, mass[some], lost, wrong, doubt[some], drop[some])


def _between(edges: Floats, p: tuple[Floats, Floats], q: tuple[Floats, Floats]) -> _Masses:
    """Return the masses between neighbouring edges, from those below and above them."""
    bounds = []
    for below, above in (p, q):
        found = np.concatenate([below[1:] - below[:-1], above[:-1] - above[1:]])
        larger = np.concatenate([below[1:], above[:-1]])
        # The error of a difference of two tails: see Pair.above.
        fewest = np.log(np.minimum(np.maximum(larger, 1e-300), 1.0))
        error = UNIT * larger * (80 - 16 * fewest)
        bounds += [np.maximum(found - error, 0.0), np.maximum(found, 0.0) + error]
    p_low, p_high, q_low, q_high = bounds
    loss = edges[:-1]
    factor, error = np.exp(np.minimum(loss, 700.0)), 4 * UNIT * (1 + np.abs(loss))
    # Q times e^loss is never more than P: all losses of the bucket are larger.
    unknown = (loss > 700.0) | (q_high < _TINY)
    above_q = np.where(unknown, p_high, np.minimum(q_high * factor * (1 + error), p_high))
    return _Masses(p_low, p_high, q_low * factor * (1 - error), above_q)


def _seen(buckets: _Masses, up: Floats, widths: Floats) -> tuple[Floats, Floats]:
    """Return P at least, and Q times e^loss at most, of the mass sent to each loss."""
    sure = (buckets.p_low > buckets.p / 2) & (buckets.p > _TINY)
    share = np.divide(up, buckets.p, out=np.zeros_like(up), where=sure)
    p, q = np.where(sure, buckets.p_low, 0.0), np.where(sure, buckets.q, 0.0)
    certain, other = np.zeros(p.size + 1), np.zeros(p.size + 1)
    certain[1:], other[1:] = share * p, share * q * np.exp(np.minimum(widths, 700.0))
    certain[:-1] += (1 - share) * p
    other[:-1] += (1 - share) * q
    return certain, other


def _below(mass: Floats, certain: Floats, other: Floats, widths: Floats) -> tuple[Floats, Floats]:
    """Return doubt and drop. Mass that would drop by more than two steps is left out."""
    beside = np.empty(mass.size)
    beside[0], beside[1:] = widths[0], widths
    np.maximum(beside[:-1], widths, out=beside[:-1])
    two_steps = np.exp(np.minimum(2 * beside, 700.0))
    there = (certain > np.maximum(mass / 2, _TINY)) & (other < certain * two_steps)
    doubt, drop = np.ones(mass.size), np.zeros(mass.size)
    np.divide(mass - certain, mass, out=doubt, where=there)
    change = np.maximum((other - certain) / np.where(there, certain, 1.0), -0.999)
    np.log1p(change, out=drop, where=there)
    return np.minimum(np.maximum(doubt + 16 * UNIT, 0.0), 1.0), drop + 16 * UNIT


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

    def __init__(self, schedule: Mapping[Pair, int], spans: Iterable[Span], grid: Grid) -> None:
        pairs = zip(schedule, spans, strict=True)
        self.places, self.grid = grid, grid.step
        self.lattices = [on_grid(pair, span, grid) for pair, span in pairs]
        self.counts = np.array(list(schedule.values()), dtype=np.float64)
        self.sizes = np.array([part.mass.size for part in self.lattices])
        self.starts = np.cumsum(self.sizes) - self.sizes
        slots = [np.arange(p.first, p.first + p.mass.size) for p in self.lattices]
        self.losses: Floats = grid.places(np.concatenate(slots)) * np.float64(grid.step)
        with np.errstate(divide="ignore"):
            self.logs = np.log(np.concatenate([part.mass for part in self.lattices]))
        cuts = np.flatnonzero(np.diff(self.starts // _CHUNK)) + 1
        each = np.split(np.arange(self.sizes.size), cuts)
        self._chunks = [self._chunk(int(some[0]), int(some[-1])) for some in each]

    def _chunk(self, one: int, last: int) -> _Chunk:
        start, sizes = int(self.starts[one]), self.sizes[one : last + 1]
        points = slice(start, int(self.starts[last] + self.sizes[last]))
        starts = self.starts[one : last + 1] - start
        return _Chunk(self.losses[points], self.logs[points], starts, sizes)

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
