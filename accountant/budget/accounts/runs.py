"""The classes of all cells as bytes: where one begins in row-major order, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

import numpy as np

from accountant.budget.accounts.classes import PIECE, Classes
from accountant.budget.accounts.numbering import NONE, Shape
from accountant.budget.columns import Take, integers, raw

_FAST: Final = 1


def dump(classes: Classes, count: int) -> Iterator[bytes]:
    """Yield the classes of when there were ``count``, for ``load``: cells may be parted since."""
    yield raw(np.array([count]))
    yield raw(classes.parents[:count].astype(np.int64))
    flat = classes.numbers.reshape(-1)
    for start in range(0, flat.size, PIECE):
        piece = flat[start : start + PIECE].copy()
        if piece.max() >= count:
            piece = classes.ancestors(piece, count).astype(np.int32)
        first = np.concatenate([[0], np.flatnonzero(piece[1:] != piece[:-1]) + 1])
        short = 2 * len(first) > len(piece)  # then each cell is a run, without its length
        numbers = piece if short else piece[first]
        lengths = np.diff(first, append=piece.size)[: 0 if short else None]
        runs = np.concatenate([lengths, numbers]).astype("<i4").tobytes()
        data = zlib.compress(runs, _FAST)
        yield raw(np.array([len(numbers), len(data)]))
        yield data


def load(take: Take, shape: Shape, grown: Sequence[tuple[int, int, int]]) -> Classes:
    """Load what ``dump`` wrote, of a population that has ``grown`` (population.py). Raises
    ValueError if it is not there.
    """
    [count] = integers(take, 1).tolist()
    if not 0 < count <= prod(shape):
        raise ValueError("there are more classes than cells")
    parents = integers(take, count).astype(np.int32)
    if not (parents < np.arange(count)).all() or parents.min() < NONE:
        raise ValueError("a class was parted off one that came later")
    flat = np.empty(prod(shape), dtype=np.int32)
    for start in range(0, flat.size, PIECE):
        piece = flat[start : start + PIECE]
        runs, size = integers(take, 2).tolist()
        short = runs == piece.size
        found = np.frombuffer(_opened(take(size), (4 if short else 8) * runs), "<i4")
        if short:
            piece[:] = found
            continue
        lengths, numbers = found.reshape(2, runs)
        if lengths.min() < 0 or lengths.sum(dtype=np.int64) != piece.size:
            raise ValueError("the classes are not those of all cells")
        piece[:] = np.repeat(numbers, lengths)
    if flat.min() < 0 or flat.max() >= count:
        raise ValueError("a cell is of no class")
    classes = Classes.of(flat.reshape(shape), parents, np.zeros(count, dtype=np.int64))
    if not (classes.sizes > 0).all():
        raise ValueError("a class has no cell")
    there = np.unravel_index(classes.firsts, shape)
    for axis, first, stamp in grown:  # all cells of a class were added at once
        classes.born[there[axis] >= first] = stamp
    return classes


def _opened(data: memoryview, size: int) -> bytes:
    """Return what was compressed, of ``size`` bytes. Raises ValueError if it is not."""
    opener = zlib.decompressobj()
    try:
        found = opener.decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(f"the classes cannot be read: {error}") from error
    if len(found) != size or not opener.eof:
        raise ValueError("the classes are not as long as they say")
    return found
