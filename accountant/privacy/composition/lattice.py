"""A pair on a grid of losses: a pair above it in every comparison, and one below.

Above, by *connecting the dots* (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, *Connect the dots*,
PETS 2022): the mass between two neighbouring losses of the grid goes to both, in the proportion
that keeps its P and its Q, which can only make the pair easier to tell apart. Every mass and every
upper share is rounded up; a curve is a sum of masses times non-negative factors, so the curve of
any composition is rounded up too.

Below, by post-processing: an observer who sees only the loss of the grid to which an outcome was
sent, by the same shares, knows less than one who sees the outcome. The P of what is seen is the
lattice's; its loss is ln P/Q of all that was sent there, which falls short of the lattice's by a
``drop``: about grid^2 where a pair is smooth, and up to one step of the grid at its atoms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from scipy.special import xlogy

from accountant.privacy.composition.pairs import Floats, Pair

UNIT: Final = 2.0**-53
_EDGE: Final = 2.0**-45
"""Error of a loss, relative to 1 + the largest: see Pair.above, and one multiplication."""
_REST: Final = 2.0**-46
"""Error of one minus two tails."""
_TINY: Final = 1e-290
"""Masses below this may have been rounded to zero."""


class Lattice(NamedTuple):
    """P's mass at ``(first + i) * grid``, rounded up; ``lost`` of it is at infinity. Each loss may
    be ``wrong`` by as much. The mechanism itself dominates a pair with at least a share
    1 - ``doubt`` of each mass, at a loss that is smaller by at most ``drop``.
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


def narrowed(pair: Pair, spare: float) -> tuple[float, float]:
    """Return two losses beyond which P has at most ``spare``, nearly as narrow as can be."""
    low, high = pair.span
    lowest = -_last(lambda loss: pair.reverse.above(loss)[1], -high, -low, spare)
    return lowest, max(lowest, _last(lambda loss: pair.above(loss)[0], low, high, spare))


def _last(above: Callable[[Floats], Floats], low: float, high: float, spare: float) -> float:
    """Return nearly the smallest loss in the range above which there is at most ``spare``."""
    for _ in range(4):
        losses = np.linspace(low, high, 257)
        i = int(np.searchsorted(-above(losses), -spare))
        if i >= losses.size - 1:
            break
        low, high = float(losses[max(i - 1, 0)]), float(losses[i])
    return high


def on_grid(pair: Pair, span: tuple[float, float], grid: float) -> Lattice:
    """Return a pair's lattice: mass above ``span`` is lost, mass below is raised to its end."""
    low, high = span
    first, last = math.floor(low / grid) - 1, math.ceil(high / grid) + 1
    edges = np.asarray(np.arange(first, last + 1) * grid, dtype=np.float64)
    middle = min(max(-first, 0), last - first)
    p_above, q_above = pair.above(edges[middle:])
    q_below, p_below = pair.reverse.above(-edges[: middle + 1])
    buckets = _between(edges, (p_below, p_above), (q_below, q_above))
    # P and Q of a bucket are kept if its upper end takes (p - e^low q) / (1 - e^-grid) of P. It
    # takes a little more, as losses may be wrong: lowered by as much, none is above its bucket, and
    # those below are raised to it.
    wrong = _EDGE * (1 + max(map(abs, pair.span)))
    up = (buckets.p - buckets.q_low + 2 * wrong * buckets.p) / -math.expm1(-grid)
    up = np.clip(up, 0.0, buckets.p)
    mass = np.zeros(edges.size)
    mass[1:] = up
    mass[:-1] += buckets.p - up
    # The mass at the middle edge, which is 0 unless all losses are on one side of it; if negative,
    # the mass that was counted on both sides.
    rest_p = 1 - pair.infinite - float(p_above[0]) - float(p_below[-1])
    rest_q = 1 - pair.reverse.infinite - float(q_above[0]) - float(q_below[-1])
    beside = min(middle, edges.size - 2)
    buckets.p_low[beside] = max(0.0, buckets.p_low[beside] - max(0.0, _REST - rest_p))
    certain, other = _seen(buckets, up, grid)
    mass[middle] += max(rest_p, 0.0) + _REST
    if edges[middle] == 0 and rest_p > 2 * _REST:
        certain[middle] += rest_p - _REST
        other[middle] += max(rest_q, 0.0) + _REST
    mass[0] += p_below[0] * (1 + _REST)  # the mass below all edges, rounded up
    lost = pair.infinite + float(p_above[-1]) * (1 + _REST) + _TINY
    mass *= 1 + 4 * UNIT
    doubt, drop = _below(mass, certain, other, grid)
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
        error = UNIT * (80 * larger - 16 * xlogy(larger, np.minimum(larger, 1.0)))
        bounds += [np.maximum(found - error, 0.0), np.maximum(found, 0.0) + error]
    p_low, p_high, q_low, q_high = bounds
    loss = edges[:-1]
    factor, error = np.exp(np.minimum(loss, 700.0)), 4 * UNIT * (1 + np.abs(loss))
    # Q times e^loss is never more than P: all losses of the bucket are larger.
    unknown = (loss > 700.0) | (q_high < _TINY)
    above_q = np.where(unknown, p_high, np.minimum(q_high * factor * (1 + error), p_high))
    return _Masses(p_low, p_high, q_low * factor * (1 - error), above_q)


def _seen(buckets: _Masses, up: Floats, grid: float) -> tuple[Floats, Floats]:
    """Return P at least, and Q times e^loss at most, of the mass sent to each loss."""
    sure = (buckets.p_low > buckets.p / 2) & (buckets.p > _TINY)
    share = np.divide(up, buckets.p, out=np.zeros_like(up), where=sure)
    p, q = np.where(sure, buckets.p_low, 0.0), np.where(sure, buckets.q, 0.0)
    certain, other = np.zeros(p.size + 1), np.zeros(p.size + 1)
    certain[1:], other[1:] = share * p, share * q * math.exp(grid)
    certain[:-1] += (1 - share) * p
    other[:-1] += (1 - share) * q
    return certain, other


def _below(mass: Floats, certain: Floats, other: Floats, grid: float) -> tuple[Floats, Floats]:
    """Return doubt and drop. Mass that would drop by more than two steps is left out."""
    two_steps = math.exp(min(2 * grid, 700.0))
    there = (certain > np.maximum(mass / 2, _TINY)) & (other < certain * two_steps)
    doubt, drop = np.ones(mass.size), np.zeros(mass.size)
    np.divide(mass - certain, mass, out=doubt, where=there)
    change = np.maximum((other - certain) / np.where(there, certain, 1.0), -0.999)
    np.log1p(change, out=drop, where=there)
    return np.clip(doubt + 16 * UNIT, 0.0, 1.0), drop + 16 * UNIT
