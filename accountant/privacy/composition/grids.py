"""The losses that masses lie at: evenly spaced near 0, ever further apart beyond."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

EVEN: Final = 2**44
"""All places are there."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


def runs(firsts: Integers, sizes: Integers) -> Integers:
    """Return ``sizes[0]`` whole numbers from ``firsts[0]`` on, then the next run, and so on."""
    starts = np.cumsum(sizes) - sizes
    found: Integers = np.arange(int(sizes.sum())) + np.repeat(firsts - starts, sizes)
    return found


def spread(values: Floats, sizes: Integers) -> Floats:
    """Return ``sizes[0]`` times the first value, then the next, and so on; or one, if all are equal
    and it stands for any number of them.
    """
    return values[:1] if (values == values[0]).all() else np.repeat(values, sizes)


def cuts(sizes: Integers, most: int) -> list[slice]:
    """Return how to cut runs into groups of neighbours with about ``most`` in each."""
    groups = (np.cumsum(sizes) - sizes) // most
    ends = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), sizes.size]
    return [slice(one, other) for one, other in pairwise(ends)]


class Grid(NamedTuple):
    """Losses at whole *places*, times ``step``; not all places are there. *Slots* number those that
    are, from 0 at a loss of 0: all up to twice ``fine``, a power of two, then every second one up
    to twice as far, then every fourth, as floats are spaced.
    """

    step: float
    fine: int = EVEN

    def places(self, slots: Integers) -> Integers:
        """Return the place of each slot."""
        if self.fine == EVEN:
            return slots
        far, bits = np.abs(slots), self.fine.bit_length() - 1
        octaves = np.maximum((far >> bits) - 1, 0)
        places = (far - (octaves << bits)) << octaves
        found: Integers = np.where(slots < 0, -places, places)
        return found

    def around(self, lows: Floats, highs: Floats) -> tuple[Integers, Integers]:
        """Return the slots of losses that are surely below ``lows`` and above ``highs``."""
        below, above = np.floor(lows / self.step) - 1, np.ceil(highs / self.step) + 1
        return self._below(below.astype(np.int64)), -self._below(-above.astype(np.int64))

    def _below(self, places: Integers) -> Integers:
        """Return the last slots that are not beyond places."""
        if self.fine == EVEN:
            return places
        far = np.abs(places)
        octaves = np.maximum(np.frexp(far // self.fine)[1].astype(np.int64) - 1, 0)
        within = far - (self.fine << octaves)
        up = np.where(places < 0, -(-within >> octaves), within >> octaves)
        slots = (octaves + 1) * self.fine + up
        found: Integers = np.where(places < 0, -slots, slots)
        return found


def fine_enough(steps: float) -> int:
    """Return the ``fine`` of a grid that has all losses up to so many steps, or more."""
    return min(EVEN, 1 << max(math.ceil(math.log2(max(steps, 1.0))), 8))
