"""Many distributions on one grid, multiplied as characteristic functions (Koskela, Jalko, Honkela,
*Computing tight differential privacy guarantees using FFT*, AISTATS 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accountant.privacy.composition.lattice import UNIT
from accountant.privacy.composition.pairs import Floats

_DIRECT: Final = 4_000_000
"""Entries of the table of exponentials, up to which few frequencies are summed directly."""


@dataclass(frozen=True, slots=True)
class Part:
    """Masses at first, first + 1, …, which add up to 1, and how often they are there."""

    first: int
    mass: Floats
    count: int


def composed(parts: list[Part], size: int, first: int, allowed: float) -> tuple[Floats, float]:
    """The mass of the total at first, first + 1, …, modulo ``size``; a bound on each one's error.

    A frequency of a distribution is a tree of sums, so wrong by at most 8 roundings for each of its
    log2(size) levels. High frequencies of a product fade quickly: once those from ``live`` on add
    up to less than a fraction of ``allowed`` they are left out, and the rest is summed directly.
    """
    if sum(part.count for part in parts) == 1:
        [only] = parts
        whole = _folded(only.mass, size)
        return np.roll(whole, only.first - first), UNIT * only.mass.size / size
    live, left_out = size // 2 + 1, 0.0
    product = np.ones(live, dtype=np.complex128)
    error, most = np.zeros(live), np.ones(live)
    table: NDArray[np.complex128] = np.empty((0, 0), dtype=np.complex128)
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


def _roots(size: int) -> NDArray[np.complex128]:
    """e^(-2 pi i k / size) for all k; a product of whole numbers modulo size has no error."""
    roots: NDArray[np.complex128] = np.exp(-2j * np.pi / size * np.arange(size))
    return roots


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
