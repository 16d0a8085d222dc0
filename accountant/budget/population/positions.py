"""Sets of positions on a dimension, as events hold them where their names would take too much.

Positions are permanent: values are only appended. A set has exactly one spelling: the shorter of
``bits`` (bit i of the bytes, lowest first, is position i; the last byte is not zero) and ``gaps``
(the first position, then how many are left out before each next one; LEB128), in base64url without
padding; ``bits`` if they are of one length.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.budget.population.population import MAX_CELLS

Code = Literal["bits", "gaps"]


class Spelled(NamedTuple):
    """A set of positions in its one spelling."""

    code: Code
    text: str


def spell(positions: NDArray[np.int64]) -> Spelled:
    """The spelling of positions, which are sorted and unique, at least one."""
    marks = np.zeros(int(positions[-1]) + 1, dtype=np.bool_)
    marks[positions] = True
    bits = np.packbits(marks, bitorder="little").tobytes()
    gaps = _leb128(np.diff(positions, prepend=-1) - 1)
    code: Code = "bits" if len(bits) <= len(gaps) else "gaps"
    data = bits if code == "bits" else gaps
    return Spelled(code, base64.urlsafe_b64encode(data).rstrip(b"=").decode())


@lru_cache(maxsize=64)
def read(spelled: Spelled) -> NDArray[np.int64]:
    """The positions, sorted. Raises ValueError for anything that ``spell`` does not write."""
    code, text = spelled
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("positions are spelled in base64url without padding") from None
    raw = np.frombuffer(data, dtype=np.uint8)
    if code == "bits":
        positions = np.flatnonzero(np.unpackbits(raw, bitorder="little"))
    else:
        positions = np.cumsum(_numbers(raw) + 1) - 1
    if not positions.size or positions[-1] >= MAX_CELLS or spell(positions) != spelled:
        raise ValueError("this is not how these positions are spelled")
    positions.flags.writeable = False  # it is remembered
    return positions


def count(values: dict[str, Any]) -> int:
    """How many positions an event names. Raises ValueError for anything else."""
    return len(read(spelled(values)))


def spelled(values: Mapping[str, Any]) -> Spelled:
    """What an event holds of a set of positions. Raises ValueError for anything else."""
    match dict(values):
        case {"bits": str(text), **rest} if not rest:
            return Spelled("bits", text)
        case {"gaps": str(text), **rest} if not rest:
            return Spelled("gaps", text)
    raise ValueError("positions are spelled by bits or by gaps")


def _leb128(numbers: NDArray[np.int64]) -> bytes:
    """Seven bits a byte, lowest first; all but a number's last byte have the highest bit."""
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
    """The inverse. Raises ValueError if the last one is cut off, or one is beyond 2**28."""
    ends = np.flatnonzero(data < 0x80)
    if not ends.size or ends[-1] != len(data) - 1:
        raise ValueError("the positions are cut off")
    first = np.concatenate([[0], ends[:-1] + 1])
    place = np.arange(len(data)) - np.repeat(first, ends - first + 1)
    if place.max() > 3:
        raise ValueError("a position is beyond all dimensions")
    parts = (data & 0x7F).astype(np.int64) << (7 * place)
    return np.add.reduceat(parts, first)
