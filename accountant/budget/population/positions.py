"""Sets of positions on a dimension, as events hold them where names would take too many bytes.

Positions are permanent: values are only appended. A set has exactly one spelling: the shorter of
``bits`` (bit i of the bytes, lowest first, is position i; the last byte is not zero) and ``gaps``
(the first position, then how many are left out before each next one; LEB128), in base64url without
padding; ``bits`` if both have one length.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.budget.population.population import MAX_VALUES

CODES = frozenset({"bits", "gaps"})


def spell(positions: NDArray[np.int64]) -> dict[str, str]:
    """Return the object in an event for positions: sorted, unique, at least one."""
    marks = np.zeros(int(positions[-1]) + 1, dtype=np.bool_)
    marks[positions] = True
    bits = np.packbits(marks, bitorder="little").tobytes()
    gaps = _leb128(np.diff(positions, prepend=-1) - 1)
    code, data = ("bits", bits) if len(bits) <= len(gaps) else ("gaps", gaps)
    return {code: base64.urlsafe_b64encode(data).rstrip(b"=").decode()}


def read(values: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the positions, sorted. Raises ValueError for anything that ``spell`` does not make."""
    if len(values) == 1:
        [(code, text)] = values.items()
        if code in CODES and isinstance(text, str):
            return _read(code, text)
    raise ValueError("positions are spelled by bits or by gaps")


@lru_cache(maxsize=64)
def _read(code: str, text: str) -> NDArray[np.int64]:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("positions are spelled in base64url without padding") from None
    raw = np.frombuffer(data, dtype=np.uint8)
    if code == "bits":
        positions = np.flatnonzero(np.unpackbits(raw, bitorder="little"))
    else:
        positions = np.cumsum(_numbers(raw) + 1) - 1
    if not positions.size or positions[-1] >= MAX_VALUES or spell(positions) != {code: text}:
        raise ValueError("these positions have another spelling")
    positions.flags.writeable = False  # the cache shares it
    return positions


def _leb128(numbers: NDArray[np.int64]) -> bytes:
    """Encode numbers, seven bits a byte, lowest first; the highest bit says that more follow."""
    columns = []
    rest = numbers
    present = np.ones(len(numbers), dtype=np.bool_)
    while present.any():
        more = rest >> 7 > 0
        columns.append((np.where(more, 0x80, 0) | rest & 0x7F, present))
        rest, present = rest >> 7, present & more
    table = np.stack([column for column, _ in columns], axis=1).astype(np.uint8)
    there = np.stack([there for _, there in columns], axis=1)
    return table[there].tobytes()


def _numbers(data: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Decode ``_leb128``. Raises ValueError if a number is cut off or beyond 2**28."""
    ends = np.flatnonzero(data < 0x80)
    if not ends.size or ends[-1] != len(data) - 1:
        raise ValueError("the positions are cut off")
    first = np.concatenate([[0], ends[:-1] + 1])
    place = np.arange(len(data)) - np.repeat(first, ends - first + 1)
    if place.max() > 3:
        raise ValueError("a position is beyond all dimensions")
    parts = (data & 0x7F).astype(np.int64) << (7 * place)
    return np.add.reduceat(parts, first)
