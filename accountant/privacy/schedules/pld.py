"""Privacy loss distributions: the total of any fixed schedule, as an interval.

Each pair's losses are put on a grid by *connecting the dots* (Doroshenko, Ghazi, Kamath, Kumar,
Manurangsi, *Connect the dots*, PETS 2022): the mass between two neighbouring losses goes to both in
the proportion that keeps its P and its Q, which can only make the pair easier to tell apart. So the
composed curve is an upper bound. Distributions are multiplied as characteristic functions (Koskela,
Jalko, Honkela 2020); the order of the mechanisms does not matter.

What is added to delta, beside: the mass that a Chernoff bound leaves outside the window, twice, for
it wraps around; and the rounding of transforms and powers, bounded by Parseval's identity.

A mass moves by at most one step of the grid, on average by at most an eighth of its square towards
a larger loss; so by Hoeffding's inequality the true curve at epsilon - t is at least the composed
one at epsilon, but for a probability that is also taken off: the lower end of the interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from accountant.privacy.schedules.pairs import Floats, Pair

GRID: Final = 1e-4
MOST_POINTS: Final = 2**22
_UNIT: Final = 2.0**-53
_DIRECT: Final = 4_000_000
"""Entries of the table of exponentials, up to which few frequencies are summed directly."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The epsilon of a schedule at a delta lies in here."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class _Lattice:
    """P's mass at ``(first + i) * grid``; ``lost`` of it is at infinity."""

    first: int
    mass: Floats
    lost: float


def total(schedule: Mapping[Pair, int], delta: float, grid: float = GRID) -> Interval:
    """The epsilon at ``delta`` of a schedule of pairs, each with its count.

    Raises ValueError for an empty schedule, a count below 1 or a delta outside (0, 1).
    """
    if not schedule or min(schedule.values()) < 1 or not 0 < delta < 1:
        raise ValueError("a schedule has mechanisms, each at least once, and a delta in (0, 1)")
    schedule = dict(sorted(schedule.items(), key=repr))  # the order given changes not one bit
    grid = max(grid, max(pair.reach for pair in schedule) * 4 / MOST_POINTS)
    parts = [(_on_grid(pair, grid), count) for pair, count in schedule.items()]
    lost = _at_least_once((part.lost, count) for part, count in parts)
    if lost >= delta:
        surely = _at_least_once((pair.infinite, count) for pair, count in schedule.items())
        return Interval(math.inf if surely > delta else 0.0, math.inf)
    tail = delta * 1e-9
    while True:
        low, high = _window(parts, grid, tail)
        if (high - low) / grid < MOST_POINTS:
            break
        grid *= 2
        parts = [(_on_grid(pair, grid), count) for pair, count in schedule.items()]
    first = math.floor(low / grid)
    size = 1 << math.ceil(math.log2(high / grid - first + 2))
    mass, error = _composed(parts, size, first, delta * 1e-4)
    error += 2 * _UNIT * sum(count * part.mass.size for part, count in parts)  # of the masses
    error += size * _UNIT * delta * 100  # of adding them up
    extra = lost + 2 * tail + error
    losses = np.asarray((first + np.arange(size)) * grid, dtype=np.float64)
    upper = _epsilon(losses, np.maximum(mass, 0.0), delta - extra)
    steps = sum(count for _, count in parts)
    chance = delta * 1e-3
    shift = steps * grid**2 / 8 + grid * math.sqrt(steps / 2 * math.log(1 / chance))
    below = _epsilon(losses, np.maximum(mass, 0.0), delta - lost + 2 * tail + 2 * error + chance)
    return Interval(max(0.0, below - shift), upper)


def _at_least_once(chances: Iterable[tuple[float, int]]) -> float:
    """The probability that one of some independent things happens, each tried so many times."""
    return -math.expm1(sum(n * math.log1p(-p) if p < 1 else -math.inf for p, n in chances))


def _on_grid(pair: Pair, grid: float) -> _Lattice:
    n = math.ceil(pair.reach / grid) + 1
    edges = np.asarray(np.arange(-n, n + 1) * grid, dtype=np.float64)
    p_above, q_above = pair.above(edges)
    p, q = p_above[:-1] - p_above[1:], q_above[:-1] - q_above[1:]
    # What keeps P and Q of a bucket: its upper end takes (p - e^low q) / (1 - e^-grid) of P.
    # (Where e^low overflows, a smaller number in its place only moves more upwards.)
    up = (p - np.exp(np.minimum(edges[:-1], 700.0)) * q) / -math.expm1(-grid)
    up = np.clip(up + 4 * _UNIT / grid * p, 0.0, p)
    mass = np.zeros(2 * n + 1)
    mass[1:] += up
    mass[:-1] += p - up
    finite = 1.0 - pair.infinite
    mass[0] += max(0.0, finite - p_above[0])  # rounded up to the lowest loss
    return _Lattice(-n, mass, pair.infinite + float(p_above[-1]))


def _window(parts: list[tuple[_Lattice, int]], grid: float, tail: float) -> tuple[float, float]:
    """Chernoff: outside lies at most ``tail`` to either side, whatever the exponent."""
    points = [((p.first + np.arange(p.mass.size)) * grid, p.mass, count) for p, count in parts]
    means = [float(losses @ mass) for losses, mass, _ in points]
    variance = sum(
        count * max(float(losses**2 @ mass) - mean**2, 0.0)
        for (losses, mass, count), mean in zip(points, means, strict=True)
    )
    spread = math.sqrt(variance) + grid
    ends = []
    for sign in (-1, 1):
        best = math.inf
        for power in range(1, 6):
            t = sign * 2.0**power / spread
            exponent = 0.0
            for losses, mass, count in points:
                peak = max(t * losses[0], t * losses[-1])
                moment = float(mass @ np.exp(t * losses - peak))
                exponent += count * (peak + math.log(max(moment, 1e-300)))
            best = min(best, (exponent - math.log(tail)) / abs(t))
        ends.append(best)
    most = sum(count * losses[-1] for losses, _, count in points)
    least = sum(count * losses[0] for losses, _, count in points)
    return max(-ends[0], float(least)), min(ends[1], float(most))


def _composed(
    parts: list[tuple[_Lattice, int]], size: int, first: int, allowed: float
) -> tuple[Floats, float]:
    """(P's mass at first, first + 1, …, modulo ``size``; a bound on the sum of its errors).

    High frequencies of a product fade quickly. Once those from ``live`` on cannot add up to more
    than a fraction of ``allowed`` they are left out, and the rest is summed directly.
    """
    live, left_out = size // 2 + 1, 0.0
    whole = np.zeros(live, dtype=np.complex128)
    product = np.ones(live, dtype=np.complex128)
    error, most = np.zeros(live), np.ones(live)
    each = 8 * _UNIT * math.log2(size)
    table: NDArray[np.complex128] = np.empty((0, 0), dtype=np.complex128)
    widest = max(part.mass.size for part, _ in parts)
    for part, count in sorted(parts, key=lambda p: -p[1] * p[0].mass.size):
        if live * widest <= _DIRECT:
            if table.shape[0] < live:
                table = _turned(np.outer(np.arange(live), np.arange(widest)), size)
            values = table[:live, : part.mass.size] @ part.mass
        else:
            values = np.fft.rfft(_folded(part.mass, size))[:live]
        bounds = np.minimum(np.abs(values) + each, 1.0)
        most = most * bounds**count
        product = product * _power(values, count)
        product *= _turned(np.arange(live) * (part.first * count % size), size)
        error = error + count * (each + 64 * _UNIT) / bounds
        rest = np.sqrt(np.cumsum((2 * most**2)[::-1])[::-1])
        cut = int(np.searchsorted(-rest, -allowed / 64))
        if cut < 0.9 * live:
            left_out += float(rest[cut]) if cut < live else 0.0
            live = max(cut, 1)
            product, error, most = product[:live], error[:live], most[:live]
    whole[:live] = product * _turned(np.arange(live) * (-first % size), size)
    wrong = most * np.expm1(np.minimum(error, 50.0))
    bound = math.sqrt(2 * float(wrong @ wrong)) + left_out + 1e-15 * math.log2(size)
    return np.fft.irfft(whole, size), bound


def _turned(steps: NDArray[np.int64], size: int) -> NDArray[np.complex128]:
    """e^(-2 pi i steps / size), reduced in whole numbers so that the angle is exact."""
    turned: NDArray[np.complex128] = np.exp(-2j * np.pi / size * (steps % size))
    return turned


def _folded(mass: Floats, size: int) -> Floats:
    if mass.size <= size:
        return mass if mass.size == size else np.pad(mass, (0, size - mass.size))
    folded: Floats = np.pad(mass, (0, -mass.size % size)).reshape(-1, size).sum(axis=0)
    return folded


def _power(values: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    if count == 1:
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values == 0, 0.0, np.exp(count * np.log(values)))


def _epsilon(losses: Floats, mass: Floats, delta: float) -> float:
    """The smallest epsilon >= 0 at which the curve of ``mass`` is at most ``delta``."""
    if delta <= 0:
        return math.inf
    above, p = losses[losses > 0], mass[losses > 0]
    p_above = np.cumsum(p[::-1])[::-1]  # at above[j] and beyond
    fade = math.exp(losses[0] - losses[1])
    q_above = lfilter([1.0], [1.0, -fade], p[::-1])[::-1]  # the same of Q, times e^above[j]
    # The curve between above[j - 1] and above[j] is p_above[j] - e^(x - above[j]) q_above[j].
    steps = np.concatenate([[0.0], above[:-1]]) - above
    left = np.flatnonzero(p_above - np.exp(steps) * q_above > delta)
    if left.size == 0:
        return 0.0
    j = int(left[-1])
    share = (p_above[j] - delta) / q_above[j]
    return float(above[j] + min(0.0, math.log(share)))
