"""Privacy loss distributions: the total of any fixed schedule, as an interval.

The pairs are put on a grid (lattice.py), tilted (stack.py), multiplied (spectrum.py) and read off;
once for each direction if some pair is not symmetric. The order of the mechanisms does not matter.

The upper end: every mass is raised by the bound on its error, and delta is reduced by the mass
above the window. The mass below the window wraps around, and matters only for a smaller epsilon.

The lower end: the total loss of the pairs below is the lattices' minus the sum of the drops, which
is more than a ``fall`` only with a probability bounded by Chernoff, jointly with a total loss above
epsilon. That probability, mass that wraps around, and doubtful masses are taken off the curve.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
from scipy.linalg.blas import dtbsv

from accountant.privacy.composition import spectrum
from accountant.privacy.composition.grids import Floats, Grid, fine_enough
from accountant.privacy.composition.lattice import narrowed
from accountant.privacy.composition.pairs import Pair, Span
from accountant.privacy.composition.spectrum import UNIT
from accountant.privacy.composition.stack import Stack, best_tilt, window

GRID: Final = 1e-4
MOST_POINTS: Final = 2**22
_MOST_WORK: Final = 2**28  # Points of all windows together: many mechanisms share a coarser grid
_LARGEST: Final = 1e8  # Larger losses are only added up: there is no noise to speak of
_FEWEST_EACH: Final = 32  # Points of the grid in a deviation of the average mechanism: fewer show
_MOST_EACH: Final = 4096  # The most of them: more are slow
_FEWEST_IN_ALL: Final = 512  # Points of the grid in a deviation of the total
_SPARE: Final = 1e-9  # Share of delta that may lie above all losses of the grid
_OUTSIDE: Final = 1e-13  # Mass of the tilted total that may lie beyond either end of the window
_MOST_STEPS: Final = 30
_CAP: Final = 600.0  # Exponents are cut here: such a mass is more than any delta


class Interval(NamedTuple):
    """The epsilon of a schedule at a delta lies in here."""

    lower: float
    upper: float


def total(schedule: Mapping[Pair, int], delta: float, grid: float = GRID) -> Interval:
    """Return the epsilon at ``delta`` of pairs with their counts, whichever of the two neighbours
    was used. The grid is about ``grid``, finer or coarser if the pairs need it. Raises ValueError
    for an empty schedule, a count below 1 or a delta outside (0, 1).
    """
    if not schedule or min(schedule.values()) < 1 or not 0 < delta < 1:
        raise ValueError("a schedule has mechanisms, each at least once, and a delta in (0, 1)")
    turned: Counter[Pair] = Counter()
    for pair, count in schedule.items():
        turned[pair.reverse] += count
    ways = [schedule] if turned == schedule else [schedule, turned]
    # Sorted, so that the order given changes not one bit.
    found = [_one_way(dict(sorted(way.items(), key=repr)), delta, grid) for way in ways]
    return Interval(max(each.lower for each in found), max(each.upper for each in found))


def _one_way(schedule: dict[Pair, int], delta: float, grid: float) -> Interval:
    """Return the interval with the P of every pair used, and Q being the neighbour."""
    counts = list(schedule.values())
    surely = _at_least_once((pair.infinite, count) for pair, count in schedule.items())
    if surely > delta * (1 + 1e-12):
        return Interval(math.inf, math.inf)
    if max(max(-low, high) for low, high in (pair.span for pair in schedule)) > _LARGEST:
        # All the largest losses, but for a mass of 1e-30 of each.
        largest = sum(count * pair.span[1] for pair, count in schedule.items()) * (1 + 1e-12)
        return Interval(0.0, largest if surely + 1e-30 * sum(counts) < delta else math.inf)
    spans = narrowed(list(schedule), delta * _SPARE / sum(counts))
    most = min(MOST_POINTS, max(_MOST_WORK // len(schedule), 2**14))
    stack = _fine(schedule, spans, delta, grid, most)
    lost = _at_least_once(zip(stack.lattices.lost.tolist(), counts, strict=True))
    spare = delta - lost * (1 + 1e-12)
    if spare <= 0:
        return Interval(0.0, math.inf)
    while True:
        tilt = best_tilt(stack, spare)
        ends = window(stack, tilt, _OUTSIDE)
        points = (ends[1] - ends[0]) / stack.grid + 2
        if points <= most:
            break
        coarser = stack.grid * max(1.5, 1.01 * points / most)
        if coarser > 100:
            return Interval(0.0, _simple_bound(stack, tilt, spare))
        stack = Stack(schedule, spans, Grid(coarser, stack.places.fine))
    whole = _Composition(stack, tilt, ends)
    return Interval(_lower_end(whole, delta, surely), _upper_end(whole, spare, ends))


def _fine(
    schedule: dict[Pair, int], spans: Floats, delta: float, grid: float, points: int
) -> Stack:
    """Stack a schedule on a grid as fine as the average mechanism needs, and ``points`` allow for
    each of them and for the window of the total.
    """
    steps = sum(schedule.values())
    fewest = max(_FEWEST_EACH, _FEWEST_IN_ALL / math.sqrt(steps))
    widths = spans[1] - spans[0]
    widest, furthest = float(widths.max()), float(np.abs(spans).max())
    each = min(points, _MOST_WORK // 2 // len(schedule))
    least = max(1e-12, widest * 4 / max(each, 2**14), furthest * 2.0**-40)
    cells = float(widths.sum()) / grid
    coarse = max(grid, widest / _MOST_EACH, least if cells > MOST_POINTS else 0.0)
    stack = Stack(schedule, spans, Grid(coarse if cells > MOST_POINTS / 4 else grid))
    for _ in range(30):
        deviation = math.sqrt(stack.moments(0.0)[2] / steps)
        needed = max(min(grid, deviation / fewest), deviation / _MOST_EACH, least)
        if needed > 0.7 * stack.grid:
            break
        tilt = best_tilt(stack, delta)
        low, high = window(stack, tilt, _OUTSIDE)
        needed = max(needed, 1.01 * (high - low) / points)
        if needed > 0.95 * stack.grid:
            break
        stack = Stack(schedule, spans, Grid(needed, _even_to(stack.square(tilt), tilt, needed)))
    return stack


def _even_to(square: float, tilt: float, step: float) -> int:
    """Return up to which place a grid has all losses. A mass in a cell of c raises ln E e^(tilt *
    loss) by tilt (1 + tilt) c^2 / 12, so that losses of this mean ``square``, in cells of
    |loss| / fine at most, raise epsilon by less than an eighth of a step.
    """
    return fine_enough(math.sqrt((1 + tilt) * square / step))


def _at_least_once(chances: Iterable[tuple[float, int]]) -> float:
    """Return the probability that one of some independent events happens, each tried so often."""
    return -math.expm1(sum(n * math.log1p(-p) if p < 1 else -math.inf for p, n in chances))


class _Composition:
    """Masses times e^(tilt * loss - exponent), wrong by ``error`` and a relative ``rounding``.
    Beyond either of the ``ends`` lies at most ``_OUTSIDE``.
    """

    def __init__(self, stack: Stack, tilt: float, ends: Span) -> None:
        self.stack, self.tilt, (low, high) = stack, tilt, ends
        first = math.floor(low / stack.grid)
        size = 1 << math.ceil(math.log2(high / stack.grid - first + 2))
        weights, logs = stack.tilted(tilt)
        deviation = math.sqrt(stack.moments(tilt)[2])
        allowed = 1e-7 * min(1.0, stack.grid / max(deviation, stack.grid))
        lattices, fine = stack.lattices, stack.places.fine
        parts = spectrum.Parts(
            weights, stack.starts, stack.sizes, lattices.firsts, stack.counts, fine
        )
        self.mass, self.error = spectrum.composed(parts, size, first, allowed)
        self.losses = np.asarray((first + np.arange(size)) * stack.grid, dtype=np.float64)
        self.exponent = float(stack.counts @ logs)
        reach = abs(self.exponent) + tilt * float(np.abs(self.losses[[0, -1]]).max())
        self.rounding = stack.rounding(tilt) + UNIT * (8 * reach + 8 * size)

    def curve(self, sign: int) -> tuple[Floats, Floats, Floats]:
        """Return the positive losses; the curve at each, from above or below by the sign; its slope
        to the left: at x between l - grid and l it is that of l plus slope * (1 - e^(x - l)). It is
        added up from its slopes, so nothing is a difference of larger numbers.
        """
        first = int(np.searchsorted(self.losses, 0.0, side="right"))
        losses = self.losses[first:]
        mass = np.maximum(self.mass[first:] + sign * self.error, 0.0)
        exponents = self.exponent + sign * self.rounding - self.tilt * losses
        mass *= np.exp(np.minimum(exponents, _CAP))
        slope = _beyond(mass, math.exp(-self.stack.grid))  # of Q beyond, times e^loss
        steps = -math.expm1(-self.stack.grid) * slope
        return losses, np.append(np.cumsum(steps[:0:-1])[::-1], 0.0), slope


def _beyond(mass: Floats, fade: float) -> Floats:
    """Return the sums s_i = mass_i + fade s_(i+1): a banded triangular system, solved backwards."""
    band = np.ones((2, mass.size))
    band[0] = -fade
    found: Floats = dtbsv(1, band, mass) if mass.size else mass
    return found


def _upper_end(total: _Composition, delta: float, ends: Span) -> float:
    """Return the least epsilon >= 0 in the window at which the curve is at most ``delta``."""
    stack, (low, high) = total.stack, ends
    chernoff = total.exponent + total.rounding
    if high < stack.extremes[1]:
        delta -= _OUTSIDE * math.exp(min(chernoff - total.tilt * high, _CAP))
    losses, curve, slope = total.curve(+1)
    if delta <= 0 or losses.size == 0:
        return _simple_bound(stack, total.tilt, delta)
    wrong = stack.wrong
    # No curve falls faster than 1; the mass below the window adds at most its value at 0.
    at_zero = float(curve[0] - slope[0] * math.expm1(-losses[0])) + wrong
    if at_zero + (_OUTSIDE * math.exp(min(chernoff, _CAP)) if low > 0 else 0.0) <= delta:
        return 0.0
    passed = np.flatnonzero(np.append(math.inf, curve[:-1]) > delta)
    j = int(passed[-1])
    share = max(0.0, delta - float(curve[j])) / float(slope[j])
    found = float(losses[j]) + (math.log1p(-share) if share < 1 else -math.inf)
    found = max(found, low, 0.0) + wrong + 4 * UNIT * (1 + float(losses[j]))
    return min(found, _simple_bound(stack, total.tilt, delta))


def _simple_bound(stack: Stack, tilt: float, delta: float) -> float:
    """Return Chernoff's bound on the epsilon at ``delta``, or the largest loss there is."""
    most = stack.extremes[1]
    if delta > 0:
        exponent = stack.exponent(tilt) + stack.rounding(tilt)
        least = tilt * math.log(tilt) - (1 + tilt) * math.log1p(tilt)
        most = min(most, (exponent + least - math.log(delta)) / tilt)
    return max(0.0, most * (1 + 8 * UNIT) + stack.wrong)


def _lower_end(total: _Composition, delta: float, surely: float) -> float:
    """Return a loss where the curve surely exceeds ``delta``, minus a fall; ``surely`` is lost."""
    stack, tilt = total.stack, total.tilt
    weights, _ = stack.tilted(tilt)
    doubts, drops = stack.lattices.doubt, stack.lattices.drop
    rest = delta - surely * (1 - 1e-12)
    chance = delta * min(max(tilt * stack.grid, 1e-9), 1e-3)  # costs about one step of the grid
    # Masses that would drop far, and are next to nothing even all together, are left out.
    masses = np.repeat(stack.counts, stack.sizes) * np.exp(stack.logs)
    rare = (drops > stack.grid) & (masses < chance / masses.size)
    weighed = stack.each(np.where(rare, 0.0, weights * doubts))
    taken = 2 * _OUTSIDE + float(stack.counts @ weighed)
    losses, curve, _ = total.curve(-1)
    chernoff = total.exponent + total.rounding - tilt * losses
    room = rest + chance + float(masses[rare].sum())
    sure = np.flatnonzero(curve - taken * np.exp(np.minimum(chernoff, _CAP)) >= room)
    if sure.size == 0:
        return 0.0
    j = int(sure[-1])
    goal = max(float(chernoff[j]) - math.log(chance), 0.0) + total.rounding
    fall = _fall(stack, weights, np.where(rare, 0.0, drops), goal)
    return max(0.0, float(losses[j]) * (1 - 8 * UNIT) - fall)


def _fall(stack: Stack, weights: Floats, drops: Floats, goal: float) -> float:
    """Return a bound on the sum of the drops that holds but for a tilted chance of e^(-goal)."""
    squares = float(stack.counts @ stack.each(weights * drops**2))
    furthest = max(float(drops.max()), 1e-300)
    steepest = min(2 * math.sqrt(2 * goal / max(squares, 1e-300)), _CAP / furthest)
    # A power of two, so that roundings of the drops change nothing.
    fall, t = math.inf, 2.0 ** math.floor(math.log2(min(steepest, 64 / stack.grid)))
    for _ in range(_MOST_STEPS):
        moments = np.log(stack.each(weights * np.exp(t * drops)))
        found = (goal + float(stack.counts @ moments)) / t
        if found >= fall:
            break
        fall, t = found, t / 2
    return fall
