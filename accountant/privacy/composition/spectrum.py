"""The sum of many independent losses on one grid, from their characteristic functions.

These are multiplied (Koskela, Jalko, Honkela, *Computing tight differential privacy guarantees
using FFT*, AISTATS 2020). Those of many distributions fade quickly: of 100,000 frequencies some 100
matter. So it is first shown from how many on all may be left out; the others are summed directly,
as one product of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.privacy.composition.pairs import Floats

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
Integers = NDArray[np.int64]


class Parts(NamedTuple):
    """Distributions, one after another in ``mass``: each adds up to 1, has ``sizes`` masses from
    ``starts`` on, at the places from ``firsts`` on, and is there ``counts`` times.
    """

    mass: Floats
    starts: Integers
    sizes: Integers
    firsts: Sequence[int]
    counts: Sequence[int]

    def one(self, i: int) -> Floats:
        """Return one of them."""
        start = int(self.starts[i])
        return self.mass[start : start + int(self.sizes[i])]


def composed(parts: Parts, size: int, first: int, allowed: float) -> tuple[Floats, float]:
    """Return the mass of the total at first, first + 1, …, modulo ``size``, a power of two, and a
    bound on the error of each. What is left out is a fraction of ``allowed``.
    """
    if sum(parts.counts) == 1:
        folded = _folded(parts.mass, size)
        return np.roll(folded, parts.firsts[0] - first), UNIT * parts.mass.size / size
    live, left_out = _live(parts, size, allowed / 64)
    product, error, most = np.ones(live, dtype=np.complex128), np.zeros(live), np.zeros(live)
    for some, values, wrong in _values(parts, size, live):
        counts = np.array([parts.counts[i] for i in some], dtype=np.float64)
        each = wrong[:, np.newaxis]
        bounds = np.minimum(np.abs(values), 1 + UNIT * parts.sizes[some, np.newaxis]) + each
        product = product * np.prod(_powers(values, counts), axis=0)
        most = most + counts @ np.log(bounds)
        error = error + counts @ ((each + 64 * UNIT) / bounds)
    shift = sum(n * place for n, place in zip(parts.counts, parts.firsts, strict=True)) - first
    values = np.zeros(size // 2 + 1, dtype=np.complex128)
    values[:live] = product * _roots(np.arange(live) * (shift % size), size)
    wrong = np.exp(most) * (np.expm1(np.minimum(error, 50.0)) + 8 * UNIT * (math.log2(size) + 4))
    return np.fft.irfft(values, size), 2 / size * float(wrong.sum()) * (1 + 1e-9) + left_out


def _live(parts: Parts, size: int, allowed: float) -> tuple[int, float]:
    """Return from which frequency on all may be left out, and what they add to a mass at most."""
    found = size // 2 + 1, 0.0
    for width in _BINS:
        if found[0] <= _MOST_DIRECT or size < 32 * width**2:
            break
        found = min(found, _bounded(parts, size, width, allowed))
    return found


def _bounded(parts: Parts, size: int, width: int, allowed: float) -> tuple[int, float]:
    """Return the same, from every ``width``-th frequency.

    The square of a characteristic function is E cos(theta (X - Y)), with Y another X, so its second
    derivative is at most 2 Var X: between two frequencies, at a distance of h, it is at most the
    larger of both plus Var X h^2 / 4.
    """
    nodes = size // width
    counts, variances = np.array(parts.counts, dtype=np.float64), _variances(parts)
    slack = variances * (math.pi / nodes) ** 2 * (1 + 1e-6)
    most, order = np.zeros(nodes // 2), np.argsort(-counts * variances)
    for some in np.split(order, range(_TOGETHER, order.size, _TOGETHER)):
        values = np.fft.rfft([_folded(parts.one(i), nodes) for i in some])
        wrong = 4 * UNIT * (8 * math.log2(nodes) + parts.sizes[some] / nodes + 4)
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


def _variances(parts: Parts) -> Floats:
    """Return the variance of each from above: sums are wrong by a rounding for each term."""
    middles = np.repeat(parts.starts + parts.sizes / 2, parts.sizes)
    places = np.arange(parts.mass.size) - middles
    weighed = parts.mass * places
    means = np.add.reduceat(weighed, parts.starts)
    squares: Floats = np.add.reduceat(weighed * places, parts.starts)
    found: Floats = np.maximum(squares - means**2, 0.0) + UNIT * parts.sizes**3.0
    return found


def _values(parts: Parts, size: int, live: int) -> Iterator[tuple[Integers, Complex, Floats]]:
    """Yield some of the parts, their characteristic functions at the first ``live`` frequencies,
    each with its first place at 0, and a bound on the error of each.

    A frequency of a transform is a tree of sums, so wrong by at most 8 roundings for each of its
    log2(size) levels.
    """
    cheap = parts.sizes * float(live) <= _DIRECT * size * math.log2(size)
    direct = cheap & (live <= _MOST_DIRECT)
    for i in np.flatnonzero(~direct):
        values = np.fft.rfft(_folded(parts.one(int(i)), size))[np.newaxis, :live]
        wrong = UNIT * (8 * math.log2(size) + parts.sizes[[i]] / size)
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
    rounding for each mass of a block and for each block, and those of two roots of unity.
    """
    sizes = parts.sizes[some]
    blocks = -(-sizes // block)
    ends = np.cumsum(blocks)
    padded = np.zeros((int(ends[-1]), block))
    rows = [slice(end - number, end) for end, number in zip(ends, blocks, strict=True)]
    for i, there in zip(some, rows, strict=True):
        mass = parts.one(i)
        padded[there].reshape(-1)[: mass.size] = mass
    within = _roots(np.multiply.outer(np.arange(block), np.arange(live)), size)
    places = np.arange(int(blocks.max())) * block
    beyond = _roots(np.multiply.outer(places, np.arange(live)), size)
    sums = (padded @ within.view(np.float64)).view(np.complex128)
    values = [np.einsum("ij,ij->j", sums[there], beyond[: len(sums[there])]) for there in rows]
    found: Complex = np.array(values)
    wrong: Floats = UNIT * (32.0 + np.minimum(sizes, block) + blocks)
    return found, wrong


def _roots(powers: Integers, size: int) -> Complex:
    """Return e^(-2 pi i k / size) for all k, wrong by 8 roundings: those of an angle of at most pi
    and of its sine and cosine. A remainder of integers has no error.
    """
    half = size // 2
    roots: Complex = np.exp(-2j * np.pi / size * ((powers + half) % size - half))
    return roots


def _folded(mass: Floats, size: int) -> Floats:
    folded: Floats = np.pad(mass, (0, -mass.size % size)).reshape(-1, size).sum(axis=0)
    return folded


def _powers(values: Complex, counts: Floats) -> Complex:
    """Return each row to the power of its count."""
    if (counts == 1).all():
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.exp(counts[:, np.newaxis] * np.log(values))
    return np.where(values == 0, 0, found)
