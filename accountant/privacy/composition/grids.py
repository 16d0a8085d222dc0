"""The losses that masses lie at: evenly spaced near 0, ever further apart beyond."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

EVEN: Final = 2**44
"""All places are there."""

Integers = NDArray[np.int64]


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

    def around(self, low: float, high: float) -> tuple[int, int]:
        """Return the slots of losses that are surely below ``low`` and above ``high``."""
        return self._below(math.floor(low / self.step) - 1), -self._below(
            -math.ceil(high / self.step) - 1
        )

    def _below(self, place: int) -> int:
        """Return the last slot that is not beyond a place."""
        far = abs(place)
        octave = max((far // self.fine).bit_length() - 1, 0)
        within = far - (self.fine << octave)
        if not octave or self.fine == EVEN:
            return place
        up = -(-within >> octave) if place < 0 else within >> octave
        slot = (octave + 1) * self.fine + up
        return -slot if place < 0 else slot


def fine_enough(steps: float) -> int:
    """Return the ``fine`` of a grid that has all losses up to so many steps, or more."""
    return min(EVEN, 1 << max(math.ceil(math.log2(max(steps, 1.0))), 8))
