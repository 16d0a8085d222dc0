"""Privacy loss distributions: the total of any fixed schedule, as an interval.

The pairs are put on a grid (lattice.py), tilted (stacked.py), multiplied (transform.py) and read
off (composition.py); once for each direction if some pair is not symmetric. The order of the
mechanisms does not matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from accountant.privacy.composition.composition import (
    OUTSIDE,
    Composition,
    lower_end,
    simple_bound,
    upper_end,
)
from accountant.privacy.composition.lattice import narrowed
from accountant.privacy.composition.pairs import Pair
from accountant.privacy.composition.stacked import Stack, best_tilt, window

GRID: Final = 1e-4
MOST_POINTS: Final = 2**22
_MOST_WORK: Final = 2**27
"""Points of all mechanisms together: many different ones share a coarser grid."""
_FINEST: Final = 1e-12
_COARSEST: Final = 100.0
_LARGEST: Final = 1e8
"""Larger losses are only added up: there is no noise to speak of."""
_EACH: Final = (32, 4096)
"""Points of the grid in a deviation of the average mechanism: with fewer the grid would show, more
are not worth the work.
"""
_ALL: Final = 1024
"""The fewest in a deviation of the total."""
_SPARE: Final = 1e-9
"""How much of delta may lie above all losses that are looked at."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The epsilon of a schedule at a delta lies in here."""

    lower: float
    upper: float


def total(schedule: Mapping[Pair, int], delta: float, grid: float = GRID) -> Interval:
    """The epsilon at ``delta`` of a schedule of pairs, each with its count, whichever of the two
    neighbours was used. The grid is about ``grid``, finer or coarser if the pairs need it.

    Raises ValueError for an empty schedule, a count below 1 or a delta outside (0, 1).
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
    """With the P of every pair used, and Q being the neighbour."""
    counts = list(schedule.values())
    surely = _at_least_once((pair.infinite, count) for pair, count in schedule.items())
    if surely > delta * (1 + 1e-12):
        return Interval(math.inf, math.inf)
    if max(max(-low, high) for low, high in (pair.span for pair in schedule)) > _LARGEST:
        certain = surely + 1e-30 * sum(counts) < delta
        return Interval(0.0, _largest(schedule) if certain else math.inf)
    spans = [narrowed(pair, delta * _SPARE / sum(counts)) for pair in schedule]
    most = min(MOST_POINTS, max(_MOST_WORK // len(schedule), 2**14))
    stack = _fine(schedule, spans, grid, most)
    lost = _at_least_once(zip((part.lost for part in stack.lattices), counts, strict=True))
    spare = delta - lost * (1 + 1e-12)
    if spare <= 0:
        return Interval(0.0, math.inf)
    while True:
        tilt = best_tilt(stack, spare)
        ends = window(stack, tilt, OUTSIDE)
        points = (ends[1] - ends[0]) / stack.grid + 2
        if points <= most:
            break
        coarser = stack.grid * max(1.5, 1.01 * points / most)
        if coarser > _COARSEST:
            return Interval(0.0, simple_bound(stack, tilt, spare))
        stack = Stack.of(schedule, spans, coarser)
    composed = Composition.of(stack, counts, tilt, ends)
    return Interval(lower_end(composed, delta, surely), upper_end(composed, spare, ends))


def _largest(schedule: dict[Pair, int]) -> float:
    """All the largest losses, but for a mass of 1e-30 of each."""
    return sum(count * pair.span[1] for pair, count in schedule.items()) * (1 + 1e-12)


def _fine(
    schedule: dict[Pair, int], spans: list[tuple[float, float]], grid: float, points: int
) -> Stack:
    """On a grid that is as fine as the average mechanism needs, and ``points`` allow."""
    fewest, most = max(_EACH[0], _ALL / math.sqrt(sum(schedule.values()))), _EACH[1]
    widest = max(high - low for low, high in spans)
    furthest = max(max(-low, high) for low, high in spans)
    least = max(_FINEST, widest * 4 / points, furthest * 2.0**-40)
    cells = sum(high - low for low, high in spans) / grid
    coarse = max(grid, widest / most, least if cells > MOST_POINTS else 0.0)
    stack = Stack.of(schedule, spans, coarse if cells > MOST_POINTS / 4 else grid)
    for _ in range(30):
        deviation = math.sqrt(stack.moments(0.0)[2] / stack.steps)
        needed = max(min(grid, deviation / fewest), deviation / most, least)
        if needed > 0.7 * stack.grid:
            break
        stack = Stack.of(schedule, spans, needed)
    return stack


def _at_least_once(chances: Iterable[tuple[float, int]]) -> float:
    """The probability that one of some independent things happens, each tried so many times."""
    return -math.expm1(sum(n * math.log1p(-p) if p < 1 else -math.inf for p, n in chances))
