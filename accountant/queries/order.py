"""How far data are from such on which one unit moves a quantile by more than a proposed bound.

Values are whole numbers from 0 to ``most``, one a unit, sorted. The quantile of a share s of n
values is the one of rank ceil(s n), and 0 if there are none. Below the first value stands 0, and
``most`` above the last: no unit moves a quantile further.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
"""Sorted values."""


class _Band(NamedTuple):
    """Where a gap between two neighbouring values, with b values below it and u above, is one that
    the quantile crosses if a unit comes or goes: least <= u * above - b * below <= most.
    """

    above: int
    below: int
    least: int
    most: int


_BANDS: Final = {
    Fraction(1, 4): _Band(1, 3, -2, 3),
    Fraction(1, 2): _Band(1, 1, 0, 1),
    Fraction(3, 4): _Band(3, 1, -2, 3),
}
SHARES: Final = tuple(_BANDS)
"""The shares whose distance is known where units come and go."""


def rank(share: Fraction, size: int) -> int:
    """Return the rank of a quantile among so many values, from 1; 0 if there are none."""
    return math.ceil(share * size)


def quantile(values: Places, share: Fraction) -> int:
    """Return the quantile; 0 of no values."""
    found = rank(share, len(values))
    return int(values[found - 1]) if found else 0


def to_replace(values: Places, share: Fraction, reach: int, most: int) -> int:
    """Return how many values have to be exchanged until exchanging one more can move the quantile
    by more than ``reach``, which is less than ``most``.

    After k exchanges one more moves the value of rank m by the largest of x(m + t) - x(m + t - k -
    1), t = 0 .. k + 1, at most, and can (Nissim, Raskhodnikova, Smith 2007, Sec. 3.1). So it is the
    least length, less 1, of a run of values that spans more than ``reach`` and m.
    """
    x = np.concatenate([[0], values, [most]])
    m = rank(share, len(values))
    starts = np.arange(m + 1)
    ends = np.maximum(np.searchsorted(x, x[: m + 1] + reach, side="right"), m)
    runs = (ends - starts)[ends < len(x)]
    return int(runs.min()) - 1


def to_add_or_remove(values: Places, share: Fraction, reach: int, most: int) -> int:
    """Return how many values have to be added or removed until one more can move the quantile by
    more than ``reach``, which is less than ``most``. The share is a quartile.

    One value that comes or goes moves the quantile to a neighbouring one, across the gaps of
    ``_BANDS``. To make that gap wider than ``reach``, take values x(i) and x(j) that are so far
    apart, remove those between, and then add or remove values beyond them until the gap is in its
    band. A step there moves the band's number by 3 at most (1 for the median). The next x(j) above
    reach is the best: one further removes one more, and saves no more than one.
    """
    band, size = _BANDS[share], len(values)
    x = np.concatenate([[0], values, [most]])
    i = np.arange(size + 1)
    j = np.searchsorted(x, x[:-1] + reach, side="right")
    i, j = i[j < len(x)], j[j < len(x)]
    level = (size + 1 - j) * band.above - i * band.below
    beyond = np.maximum(np.maximum(level - band.most, band.least - level), 0)
    steps = -(-beyond // max(band.above, band.below))
    return int((j - i - 1 + steps).min())
