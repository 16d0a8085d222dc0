"""Columns of integers as raw bytes, little-endian on every machine, as snapshots hold them.

Bytes are copied, because an array cannot grow while its memory is shared.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Take = Callable[[int], memoryview]
"""Returns the next bytes, as many as given. Raises ValueError if there are fewer."""


def raw(column: array[int] | NDArray[np.int64]) -> bytes:
    """Return the bytes of a column, or of an array in C order."""
    values = np.asarray(column)
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def growing(take: Take, code: Literal["q", "I"], count: int) -> array[int]:
    """Read what ``raw`` wrote as an array that grows."""
    found = array(code)
    found.frombytes(take(found.itemsize * count))
    if sys.byteorder == "big":
        found.byteswap()
    return found


def integers(take: Take, count: int) -> NDArray[np.int64]:
    """Read what ``raw`` wrote as 64-bit integers of NumPy, flat."""
    return np.frombuffer(take(8 * count), dtype="<i8").astype(np.int64)
