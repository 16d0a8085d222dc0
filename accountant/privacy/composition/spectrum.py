"""The sum of many independent losses on one grid, from their characteristic functions.

These are multiplied (Koskela, Jalko, Honkela, *Computing tight differential privacy guarantees
using FFT*, AISTATS 2020). Those of many distributions fade quickly: of 100,000 frequencies some 100
matter. So it is first shown from how many on all may be left out; the others are summed directly,
as one product of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.privacy.composition.grids import EVEN, Floats, Grid, Integers, runs

UNIT: Final = 2.0**-53
_BINS: Final = 16, 4  # Frequencies that are bounded together, at first and if that is too coarse
_FEW: Final = 128  # As many are few enough: they need no better bound
_MOST_DIRECT: Final = 4096  # The most that are summed directly,
_DIRECT: Final = 3.0  # each of which takes as long as so many of a Fourier transform
_BLOCKS: Final = 64, 256  # Masses that are summed at once, of few and of many
_MANY: Final = 4096
_MOST_BLOCKS: Final = 2**21  # Numbers in a product of matrices
_TOGETHER: Final = 16  # Transforms that are made at once

Complex = NDArray[np.complex128]


class Parts(NamedTuple):
    """Distributions, one after another in ``mass``: each adds up to 1, has ``sizes`` masses from
    ``starts`` on, at the slots from ``firsts`` on of a grid that is ``fine``, and is there
    ``counts`` times.
    """

    mass: Floats
    starts: Integers
    sizes: Integers
    firsts: Integers
    counts: Floats
    fine: int = EVEN

    def one(self, i: int) -> Floats:
        """Return one of them."""
        start = int(self.starts[i])
        return self.mass[start : start + int(self.sizes[i])]

    def places(self) -> Integers:
        """Return the places of all masses."""
        return self._grid.places(runs(self.firsts, self.sizes))

    def at(self, places: Integers, i: int | np.integer) -> tuple[Floats, Integers]:
        """Return the masses of one of them, and their places."""
        there = slice(int(self.starts[i]), int(self.starts[i] + self.sizes[i]))
        return self.mass[there], places[there]

    def reaches(self) -> Integers:
        """Return how many places there are from the first of each to its last."""
        ends = self._grid.places(np.array([self.firsts, self.firsts + self.sizes - 1]))
        found: Integers = ends[1] - ends[0] + 1
        return found

    @property
    def _grid(self) -> Grid:
        return Grid(1.0, self.fine)


def composed(parts: Parts, size: int, first: int, allowed: float) -> tuple[Floats, float]:
    """Return the mass of the total at first, first + 1, …, modulo ``size``, a power of two, and a
    bound on the error of each. What is left out is a fraction of ``allowed``.
    """
    places, reaches = parts.places(), parts.reaches()
    if parts.counts.sum() == 1:
        folded = _folded(parts.mass, places - first, size)
        return folded, UNIT * (float(reaches[0]) / size + 1)
    live, left_out = _live(parts, places, size, allowed / 64)
    product, error, most = np.ones(live, dtype=np.complex128), np.zeros(live), np.zeros(live)
    for some, values, wrong in _values(parts, places, size, live):
        counts, each = parts.counts[some], wrong[:, np.newaxis]
        bounds = np.minimum(np.abs(values), 1 + UNIT * parts.sizes[some, np.newaxis]) + each
        product = product * np.prod(_powers(values, counts), axis=0)
        most = most + counts @ np.log(bounds)
        error = error + counts @ ((each + 64 * UNIT) / bounds)
    values = np.zeros(size // 2 + 1, dtype=np.complex128)
    values[:live] = product * _roots(np.arange(live) * (-first % size), size)
    wrong = np.exp(most) * (np.expm1(np.minimum(error, 50.0)) + 8 * UNIT * (math.log2(size) + 4))
    return np.fft.irfft(values, size), 2 / size * float(wrong.sum()) * (1 + 1e-9) + left_out


def _live(parts: Parts, places: Integers, size: int, allowed: float) -> tuple[int, float]:
    """Return from which frequency on all may be left out, and what they add to a mass at most."""
    found = size // 2 + 1, 0.0
    for width in _BINS:
        if found[0] <= _MOST_DIRECT or size < 32 * width**2:
            break
        found = min(found, _bounded(parts, places, size, width, allowed))
    return found


def _bounded(
    parts: Parts, places: Integers, size: int, width: int, allowed: float
) -> tuple[int, float]:
    """Return the same, from every ``width``-th frequency.

    The square of a characteristic function is E cos(theta (X - Y)), with Y another X, so its second
    derivative is at most 2 Var X: between two frequencies, at a distance of h, it is at most the
    larger of both plus Var X h^2 / 4.
    """
    nodes = size // width
    counts, variances = parts.counts, _variances(parts, places)
    slack, reaches = variances * (math.pi / nodes) ** 2 * (1 + 1e-6), parts.reaches()
    most, order = np.zeros(nodes // 2), np.argsort(-counts * variances)
    for some in np.split(order, range(_TOGETHER, order.size, _TOGETHER)):
        values = np.fft.rfft([_folded(*parts.at(places, i), nodes) for i in some])
        wrong = 4 * UNIT * (8 * math.log2(nodes) + reaches[some] / nodes + 5)
        square = values.real**2 + values.imag**2
        bounds = np.maximum(square[:, 1:], square[:, :-1])
        bounds += (slack[some] + wrong)[:, np.newaxis]
        np.minimum(bounds, 1 + 4 * UNIT * parts.sizes[some, np.newaxis], out=bounds)
        most += counts[some] / 2 @ np.log(bounds)
        # One more in each bin, for the last has both its ends.
        rest = 2 * (width + 1) / size * np.cumsum(np.exp(most[::-1]))[::-1] * (1 + 1e-9)
        bins = int(np.searchsorted(-rest, -allowed))
        if bins * width <= _FEW:
            break
    if bins >= rest.size:
        return size // 2 + 1, 0.0
    return max(bins * width, 1), float(rest[bins])


def _variances(parts: Parts, places: Integers) -> Floats:
    """Return the variance of each from above: sums are wrong by a rounding for each term."""
    reaches = parts.reaches()
    middles = np.repeat(places[parts.starts] + reaches / 2, parts.sizes)
    far = places - middles
    weighed = parts.mass * far
    means = np.add.reduceat(weighed, parts.starts)
    squares: Floats = np.add.reduceat(weighed * far, parts.starts)
    rounded = UNIT * parts.sizes * reaches.astype(np.float64) ** 2
    found: Floats = np.maximum(squares - means**2, 0.0) + rounded
    return found


def _values(
    parts: Parts, places: Integers, size: int, live: int
) -> Iterator[tuple[Integers, Complex, Floats]]:
    """Yield some of the parts, their characteristic functions at the first ``live`` frequencies,
    and a bound on the error of each.

    A frequency of a transform is a tree of sums, so wrong by at most 8 roundings for each of its
    log2(size) levels.
    """
    cheap = parts.sizes * float(live) <= _DIRECT * size * math.log2(size)
    direct, reaches = cheap & (live <= _MOST_DIRECT), parts.reaches()
    for i in np.flatnonzero(~direct):
        values = np.fft.rfft(_folded(*parts.at(places, i), size))[np.newaxis, :live]
        wrong = UNIT * (8 * math.log2(size) + reaches[[i]] / size + 1)
        yield np.array([i]), values, wrong
    for block, many in zip(_BLOCKS, (parts.sizes <= _MANY, parts.sizes > _MANY), strict=True):
        left = np.flatnonzero(direct & many)
        blocks = np.cumsum(-(-parts.sizes[left] // block))
        most = max(_MOST_BLOCKS // live, 1)
        for some in np.split(left, np.flatnonzero(np.diff(blocks // most)) + 1):
            if some.size:
                yield some, *_summed(parts, some, block, size, live)


def _summed(
    parts: Parts, some: Integers, block: int, size: int, live: int
) -> tuple[Complex, Floats]:
    """Return the first frequencies of some parts, added up block by block, and their errors: a
    rounding for each mass of a block and for each block, and those of two roots of unity. Blocks
    are those of all slots, each with one distance from place to place.
    """
    firsts = parts.firsts[some]
    begins, ends = firsts // block, (firsts + parts.sizes[some] - 1) // block + 1
    rows = np.cumsum(ends - begins)
    padded = np.zeros((int(rows[-1]), block))
    for i, place, row in zip(some, firsts - begins * block, rows - (ends - begins), strict=True):
        mass = parts.one(i)
        start = int(row) * block + int(place)
        padded.reshape(-1)[start : start + mass.size] = mass
    # Parts may be far from one another.
    known, which = np.unique(runs(begins, ends - begins), return_inverse=True)
    places, seconds = (Grid(1.0, parts.fine).places(known * block + one) for one in (0, 1))
    sums = np.empty((len(padded), live), dtype=np.complex128)
    distances = (seconds - places)[which]
    for distance in np.unique(distances):
        roots = _roots(np.multiply.outer(np.arange(block) * distance, np.arange(live)), size)
        there = distances == distance
        sums[there] = (padded[there] @ roots.view(np.float64)).view(np.complex128)
    beyond = _roots(np.multiply.outer(places, np.arange(live)), size)
    found: Complex = np.empty((some.size, live), dtype=np.complex128)
    for i, (start, end) in enumerate(zip(rows - (ends - begins), rows, strict=True)):
        first = int(which[start])
        mine = beyond[first : first + int(end - start)]
        np.einsum("ij,ij->j", sums[start:end], mine, out=found[i])
    wrong: Floats = UNIT * (32.0 + np.minimum(parts.sizes[some], block) + (ends - begins))
    return found, wrong


def _roots(powers: Integers, size: int) -> Complex:
    """Return e^(-2 pi i k / size) for all k, wrong by 8 roundings: those of an angle of at most pi
    and of its sine and cosine. A remainder of integers has no error.
    """
    half = size // 2
    roots: Complex = np.exp(-2j * np.pi / size * ((powers + half) % size - half))
    return roots


def _folded(mass: Floats, places: Integers, size: int) -> Floats:
    """Return masses at their places modulo ``size``, a power of two."""
    return np.bincount(places & (size - 1), mass, size).astype(np.float64, copy=False)


def _powers(values: Complex, counts: Floats) -> Complex:
    """Return each row to the power of its count."""
    if (counts == 1).all():
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.exp(counts[:, np.newaxis] * np.log(values))
    return np.where(values == 0, 0, found)
