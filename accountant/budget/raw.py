"""Columns of integers as raw bytes, little-endian on every machine, as snapshots hold them.

What is written is a copy: an array whose memory somebody else looks at cannot grow.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Take = Callable[[int], memoryview]
"""The next so many bytes. Raises ValueError if there are fewer."""

_ITEM: Final = 8


def raw(column: array[int] | NDArray[np.int64]) -> bytes:
    """The bytes of a column, or of an array in C order."""
    return np.asarray(column, dtype=np.int64).astype("<i8", copy=False).tobytes()


def integers(take: Take, count: int) -> NDArray[np.int64]:
    """The inverse of ``raw``, flat."""
    return np.frombuffer(take(_ITEM * count), dtype="<i8").astype(np.int64)


def growing(take: Take, count: int) -> array[int]:
    """The inverse of ``raw``, as an array that grows."""
    found = array("q")
    found.frombytes(integers(take, count).tobytes())
    return found
