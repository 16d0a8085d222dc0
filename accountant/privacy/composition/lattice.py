"""Pairs on a grid of losses: a pair above in every comparison, and one below.

Above, by *connecting the dots* (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, *Connect the dots*,
PETS 2022): the mass between two losses of the grid goes to both, in the proportion that keeps its
P and its Q, which can only make the pair easier to tell apart. Every mass and every upper share is
rounded up; a curve is a sum of masses times non-negative factors, so it is rounded up too.

Below, by post-processing: an observer who sees only the loss of the grid to which an outcome was
sent, by the same shares, knows less than one who sees the outcome. The P of what is seen is the
lattice's; its loss is ln P/Q of all that was sent there, which falls short of the lattice's by a
``drop``: about grid^2 where a pair is smooth, and up to one step of the grid at its atoms.

The losses of many pairs lie in one array, pair after pair. Nothing here adds up masses of more than
two neighbours, so that a pair's lattice is the same, whatever stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from accountant.privacy.composition.grids import (
    Booleans,
    Floats,
    Grid,
    Integers,
    cuts,
    runs,
    spread,
)
from accountant.privacy.composition.pairs import Pair, above_each
from accountant.privacy.composition.spectrum import UNIT

_EDGE: Final = 2.0**-45  # Error of a loss, relative to 1 + the largest: Pair.above and a product
_REST: Final = 2.0**-46  # Error of one minus two tails
_PARTS: Final = np.arange(257) / 256
_TOGETHER: Final = 2**14  # Losses that are worked on at once: a processor's cache holds as many
_TINY: Final = 1e-290  # Masses below this may have been rounded to zero


class Lattices(NamedTuple):
    """P's mass of each pair at ``sizes`` slots of a grid from ``firsts`` on, rounded up; ``lost``
    of it is at infinity. Each loss may be ``wrong`` by as much. The mechanism itself dominates a
    pair with at least a share 1 - ``doubt`` of each mass, at a loss that is smaller by at most
    ``drop``. The masses of all pairs stand one after another, and so do doubts and drops.
    """

    firsts: Integers
    sizes: Integers
    lost: Floats
    wrong: Floats
    mass: Floats
    doubt: Floats
    drop: Floats


class _Masses(NamedTuple):
    """Masses of P, from below and above, and of Q times e^loss at the lower edge, likewise."""

    p_low: Floats
    p: Floats
    q_low: Floats
    q: Floats


def spans_of(pairs: list[Pair]) -> Floats:
    """Return the smallest losses of pairs, in one row, and the largest, in another."""
    return np.array([pair.span for pair in pairs]).T


def narrowed(pairs: list[Pair], spare: float) -> Floats:
    """Return two losses for each pair beyond which P has at most ``spare``, nearly as narrow as can
    be: rows as of ``spans_of``.
    """
    found = []
    for some in cuts(np.full(len(pairs), _PARTS.size), _TOGETHER):
        mine = pairs[some]
        low, high = spans_of(mine)
        lowest = -_last([pair.reverse for pair in mine], 1, -high, -low, spare)
        highest = _last(mine, 0, low, high, spare)
        found.append(np.stack([lowest, np.maximum(lowest, highest)]))
    return np.concatenate(found, axis=1)


def _last(pairs: list[Pair], of: int, low: Floats, high: Floats, spare: float) -> Floats:
    """Return nearly the smallest losses in the ranges above which there is at most ``spare``: of P,
    or of Q for an ``of`` of 1.
    """
    found = high.copy()
    masses = above_each(pairs, low + (high - low) * _PARTS[-2], np.ones(len(pairs), np.int64))[of]
    left = np.flatnonzero(masses <= spare)  # the others have an atom at the end
    some, low, high = [pairs[i] for i in left], low[left], high[left]
    sizes = np.full(left.size, _PARTS.size)
    for _ in range(4 if some else 0):
        losses = low[:, np.newaxis] + np.multiply.outer(high - low, _PARTS)
        masses = above_each(some, losses.ravel(), sizes)[of]
        more = np.sum(masses.reshape(losses.shape) > spare, axis=1)
        known = np.flatnonzero(more < _PARTS.size - 1)
        low[known] = losses[known, np.maximum(more[known] - 1, 0)]
        high[known] = losses[known, more[known]]
    found[left] = high
    return found


def on_grid(pairs: list[Pair], spans: Floats, grid: Grid) -> Lattices:
    """Return the lattices of pairs: mass above each one's span is lost, mass below is raised to its
    end.
    """
    firsts, lasts = grid.around(*spans)
    sizes = lasts - firsts + 1
    found = [
        _lattices(pairs[some], firsts[some], sizes[some], grid) for some in cuts(sizes, _TOGETHER)
    ]
    return Lattices(*map(np.concatenate, zip(*found, strict=True)))


def _lattices(pairs: list[Pair], firsts: Integers, sizes: Integers, grid: Grid) -> Lattices:
    edges = _Edges.of(firsts, sizes, grid)
    p, q = _tails(pairs, edges)
    buckets = _between(p, q, edges)
    # P and Q of a bucket are kept if its upper end takes (p - e^low q) / (1 - e^-width) of P. It
    # takes a little more, as losses may be wrong: lowered by as much, none is above its bucket, and
    # those below are raised to it.
    wrong = _EDGE * (1 + np.abs(spans_of(pairs)).max(axis=0))
    up = buckets.p - buckets.q_low + spread(2 * wrong, sizes) * buckets.p
    up /= -np.expm1(-edges.widths)
    up = np.minimum(np.maximum(up, 0.0), buckets.p)
    mass = _sent(up, buckets.p - up)
    # The mass at the middle edge, which is 0 unless all losses are on one side of it; if negative,
    # the mass that was counted on both sides.
    rest_p = p.rest(edges, [pair.infinite for pair in pairs])
    rest_q = q.rest(edges, [pair.reverse.infinite for pair in pairs])
    beside = np.minimum(edges.middles, edges.ends - 1)
    twice = np.maximum(0.0, _REST - rest_p)
    buckets.p_low[beside] = np.maximum(0.0, buckets.p_low[beside] - twice)
    certain, other = _seen(buckets, up, edges.widths)
    mass[edges.middles] += np.maximum(rest_p, 0.0) + _REST
    atoms = (edges.losses[edges.middles] == 0) & (rest_p > 2 * _REST)
    at = edges.middles[atoms]
    certain[at] += rest_p[atoms] - _REST
    other[at] += np.maximum(rest_q[atoms], 0.0) + _REST
    mass[edges.begins] += p.below_all(edges) * (1 + _REST)  # rounded up
    lost = [pair.infinite for pair in pairs] + p.beyond[edges.ends] * (1 + _REST) + _TINY
    mass *= 1 + 4 * UNIT
    doubt, drop = _below(mass, certain, other, edges.widths)
    # Nothing is left of a pair before its first mass, and after its last.
    there = np.flatnonzero(mass > 0)
    one = there[np.searchsorted(there, edges.begins)]
    last = there[np.searchsorted(there, edges.ends, side="right") - 1]
    kept = runs(one, last - one + 1)
    firsts, sizes = firsts + (one - edges.begins), last - one + 1
    return Lattices(firsts, sizes, lost, wrong, mass[kept], doubt[kept], drop[kept])


class _Edges(NamedTuple):
    """The losses between which the masses of some pairs are. Each begins a bucket as wide as its
    ``widths``, but those at ``ends``, the last of each pair. What is ``left`` of the edges at
    ``middles`` is counted from below, the rest from above: so small masses keep their digits.
    """

    begins: Integers
    middles: Integers
    ends: Integers
    losses: Floats
    widths: Floats
    halves: Integers  # how many edges of each pair are left of its middle, and how many are not
    left: Booleans

    @classmethod
    def of(cls, firsts: Integers, sizes: Integers, grid: Grid) -> _Edges:
        """Return the edges at so many slots from the first of each pair on."""
        begins = np.cumsum(sizes) - sizes
        ends = begins + sizes - 1
        before = np.minimum(np.maximum(-firsts, 0), sizes - 1)
        places = grid.places(runs(firsts, sizes))
        widths = np.append(places[1:] - places[:-1], 1)
        widths[ends] = 1  # the least there is
        halves = np.column_stack([before, sizes - before]).ravel()
        left = np.repeat(np.tile([True, False], sizes.size), halves)
        step = np.float64(grid.step)
        return cls(begins, begins + before, ends, places * step, widths * step, halves, left)


class _Tails(NamedTuple):
    """The mass beyond each edge, below those that are left and above the others; and the mass below
    the middle edge of each pair.
    """

    beyond: Floats
    below: Floats

    def below_all(self, edges: _Edges) -> Floats:
        """Return the mass below the first edge of each pair."""
        return np.where(edges.left[edges.begins], self.beyond[edges.begins], self.below)

    def rest(self, edges: _Edges, infinite: Sequence[float]) -> Floats:
        """Return the mass at the middle edge of each pair."""
        return 1 - np.array(infinite) - self.beyond[edges.middles] - self.below

    def between(self, edges: _Edges) -> tuple[Floats, Floats]:
        """Return the mass of each bucket, from below and from above."""
        upper = np.append(self.beyond[1:], 0.0)
        split = edges.middles > edges.begins
        upper[edges.middles[split] - 1] = self.below[split]
        found = np.where(edges.left, upper - self.beyond, self.beyond - upper)
        larger = np.where(edges.left, upper, self.beyond)
        # The error of a difference of two tails: see Pair.above.
        fewest = np.log(np.minimum(np.maximum(larger, 1e-300), 1.0))
        error = UNIT * larger * (80 - 16 * fewest)
        found[edges.ends] = error[edges.ends] = 0.0
        return np.maximum(found - error, 0.0), np.maximum(found, 0.0) + error


def _tails(pairs: list[Pair], edges: _Edges) -> tuple[_Tails, _Tails]:
    """Return the tails of P and of Q."""
    reverse = [pair.reverse for pair in pairs]
    both = list(chain.from_iterable(zip(reverse, pairs, strict=True)))
    losses = np.where(edges.left, -edges.losses, edges.losses)
    one, other = above_each(both, losses, edges.halves)
    p, q = np.where(edges.left, other, one), np.where(edges.left, one, other)
    middles = -edges.losses[edges.middles]
    q_below, p_below = above_each(reverse, middles, np.ones(len(pairs), np.int64))
    return _Tails(p, p_below), _Tails(q, q_below)


def _between(p: _Tails, q: _Tails, edges: _Edges) -> _Masses:
    """Return the masses of P and of Q in each bucket."""
    (p_low, p_high), (q_low, q_high), loss = p.between(edges), q.between(edges), edges.losses
    factor, error = np.exp(np.minimum(loss, 700.0)), 4 * UNIT * (1 + np.abs(loss))
    # Q times e^loss is never more than P: all losses of the bucket are larger.
    unknown = (loss > 700.0) | (q_high < _TINY)
    above_q = np.where(unknown, p_high, np.minimum(q_high * factor * (1 + error), p_high))
    return _Masses(p_low, p_high, q_low * factor * (1 - error), above_q)


def _sent(up: Floats, down: Floats) -> Floats:
    """Return what each edge gets: from the bucket that ends there, and from the one that begins."""
    found = np.append(0.0, up[:-1])
    found += down
    return found


def _seen(buckets: _Masses, up: Floats, widths: Floats) -> tuple[Floats, Floats]:
    """Return P at least, and Q times e^loss at most, of the mass sent to each loss."""
    sure = (buckets.p_low > buckets.p / 2) & (buckets.p > _TINY)
    share = np.divide(up, buckets.p, out=np.zeros_like(up), where=sure)
    p, q = np.where(sure, buckets.p_low, 0.0), np.where(sure, buckets.q, 0.0)
    other = share * q * np.exp(np.minimum(widths, 700.0))
    return _sent(share * p, (1 - share) * p), _sent(other, (1 - share) * q)


def _below(mass: Floats, certain: Floats, other: Floats, widths: Floats) -> tuple[Floats, Floats]:
    """Return doubt and drop. Mass that would drop by more than two steps is left out."""
    beside = widths.copy()
    np.maximum(widths[:-1], widths[1:], out=beside[1:])
    two_steps = np.exp(np.minimum(2 * beside, 700.0))
    there = (certain > np.maximum(mass / 2, _TINY)) & (other < certain * two_steps)
    doubt, drop = np.ones(mass.size), np.zeros(mass.size)
    np.divide(mass - certain, mass, out=doubt, where=there)
    change = np.maximum((other - certain) / np.where(there, certain, 1.0), -0.999)
    np.log1p(change, out=drop, where=there)
    return np.minimum(np.maximum(doubt + 16 * UNIT, 0.0), 1.0), drop + 16 * UNIT
