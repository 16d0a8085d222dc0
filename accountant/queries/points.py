"""Points of a line, at equal distances from the least value that counts: what a quantile is chosen
among, or rounded to.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from accountant.client.amounts import Amount
from accountant.queries.exact import Numbers, positive

POINTS: Final = 2**20
"""The points of a line of real numbers, unless a step is given."""
MOST_POINTS: Final = 2**32


@dataclass(frozen=True, slots=True)
class Points:
    """The points ``low``, ``low`` + ``distance``, ..., so many as ``count``."""

    low: Fraction
    distance: Fraction
    count: int

    @classmethod
    def of(cls, low: Fraction, high: Fraction, step: Amount | None, *, whole: bool = False) -> Self:
        """Return the points from ``low`` to ``high``, ``step`` apart: by default 1 for ``whole``
        numbers, else 2^-20 of the distance of the bounds. Raise ValueError where these are fewer
        than 2 points, or more than 2^32.
        """
        if step is not None:
            distance = positive("the step", step)
        else:
            distance = Fraction(1) if whole else (high - low) / POINTS
        count = int((high - low) / distance) + 1
        if not 2 <= count <= MOST_POINTS:
            told = f"the step {distance if step is None else step}"
            if count < 2:
                raise ValueError(f"{told} is larger than the distance of the bounds")
            raise ValueError(f"{told} makes more than 2^32 points: take a larger one")
        if not float(distance):
            raise ValueError("the bounds are too close together for their points to be floats")
        return cls(low, distance, count)

    def nearest(self, values: Numbers) -> NDArray[np.int64]:
        """Return the place of the point next to each value. Each depends on its own value alone."""
        places = np.floor((values - float(self.low)) / float(self.distance) + 0.5)
        return np.clip(places, 0, self.count - 1).astype(np.int64)

    def at(self, place: int) -> Fraction:
        """Return the point at a place."""
        return self.low + place * self.distance
