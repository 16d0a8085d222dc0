"""The Merkle tree of a ledger (RFC 6962, section 2.1, with SHA-256).

Entries are leaves from left to right. A ``Tree`` keeps only its peaks, the roots of the full
subtrees, which is all that appending and the root need. Proofs read the hashes that are kept
beside the events: those of every eighth level, as the tlog-tiles layout has them (``tiles.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

EMPTY_ROOT: Final = sha256(b"").digest()
_PIECE: Final = 2_000
TILE_HEIGHT: Final = 8  # Levels in a tile: a hash of kept level L covers 256**L entries


class Node(NamedTuple):
    """The hash of a full subtree of 256**level entries, the ``number``-th from the left."""

    level: int
    number: int
    hash: bytes


Read = Callable[[int, int, int], Sequence[bytes]]
"""``read(level, first, count)``: kept hashes of a level; fewer if some are missing."""


class MissingHash(LookupError):
    """A hash that a proof needs is not there."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry. At 2 KiB and more hashlib lets other threads run, and waiting
    for the next turn takes a thousand times longer than hashing: hence pieces.
    """
    hashed = sha256(b"\x00" + entry[:_PIECE])
    for first in range(_PIECE, len(entry), _PIECE):
        hashed.update(entry[first : first + _PIECE])
    return hashed.digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a subtree from those of its halves."""
    return sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree's size, and its peaks from the largest (leftmost) to the smallest."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 0 or len(self.peaks) != self.size.bit_count():
            raise ValueError(f"a tree of {self.size} has not {len(self.peaks)} peaks")

    def grown(self, leaves: Iterable[bytes]) -> tuple[Tree, list[Node]]:
        """Return the tree with ``leaves`` appended, and the kept nodes that became full."""
        size, peaks, kept = self.size, list(self.peaks), []
        for leaf in leaves:
            peaks.append(leaf)
            size += 1
            height, rest = 0, size
            while not rest & 1:  # the carries of adding one, each a pair of equal subtrees
                right = peaks.pop()
                peaks[-1] = sha256(b"\x01" + peaks[-1] + right).digest()
                height, rest = height + 1, rest >> 1
                if height % TILE_HEIGHT == 0:
                    kept.append(Node(height // TILE_HEIGHT, rest - 1, peaks[-1]))
        return Tree(size, tuple(peaks)), kept

    @property
    def root(self) -> bytes:
        """The tree's hash."""
        return _joined(self.peaks) if self.peaks else EMPTY_ROOT

    @property
    def packed(self) -> bytes:
        """The peaks one after the other, as the database keeps them."""
        return b"".join(self.peaks)


def _joined(peaks: Sequence[bytes]) -> bytes:
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root


def tree_of(read: Read, size: int) -> Tree:
    """Return the tree of the first ``size`` entries. Raises MissingHash."""
    return Tree(size, tuple(_peaks(read, 0, size)))


def inclusion_proof(read: Read, index: int, size: int) -> list[bytes]:
    """Return hashes from entry ``index`` to the root (2.1.1). Raises ValueError, MissingHash."""
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} entries has no entry {index}")
    path, _ = _descend(read, index, size, 0)
    return path


def consistency_proof(read: Read, old: int, new: int) -> list[bytes]:
    """Return hashes that tie both roots (section 2.1.2). Raises ValueError, MissingHash."""
    if not 0 <= old <= new:
        raise ValueError(f"a tree of {new} entries does not continue one of {old}")
    if old in (0, new):
        return []
    path, low = _descend(read, old - 1, new, old)
    return [_range(read, low, old), *path] if low else path


def _descend(read: Read, index: int, size: int, end: int) -> tuple[list[bytes], int]:
    """Return the siblings, lowest first, down to a subtree before ``end``, and its first entry."""
    path, low, high = [], 0, size
    while high - low > 1 and high != end:
        middle = low + (1 << (high - low - 1).bit_length() - 1)  # the largest power of two within
        if index < middle:
            path.append(_range(read, middle, high))
            high = middle
        else:
            path.append(_range(read, low, middle))
            low = middle
    return path[::-1], low


def includes(root: bytes, size: int, index: int, leaf: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether ``proof`` ties ``leaf`` at ``index`` to ``root`` (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    node, position, last = leaf, index, size - 1
    for step in proof:
        if last == 0:
            return False
        if position & 1 or position == last:
            node = node_hash(step, node)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            node = node_hash(node, step)
        position, last = position >> 1, last >> 1
    return last == 0 and node == root


def _range(read: Read, low: int, high: int) -> bytes:
    """Return the hash of entries ``low`` to ``high``, a range that the tree's recursion reaches."""
    return _joined(_peaks(read, low, high - low))


def _peaks(read: Read, start: int, count: int) -> list[bytes]:
    """Return the hashes of the full subtrees of ``count`` entries from ``start`` on."""
    peaks = []
    for height in range(count.bit_length() - 1, -1, -1):
        if count >> height & 1:
            peaks.append(_full(read, start, height))
            start += 1 << height
    return peaks


def _full(read: Read, start: int, height: int) -> bytes:
    """Return the hash of the full subtree of 2**height entries that begins at ``start``."""
    level, above = divmod(height, TILE_HEIGHT)
    count = 1 << above
    first = start >> (level * TILE_HEIGHT)
    hashes = list(read(level, first, count))
    if len(hashes) != count:
        raise MissingHash(f"hashes {first} to {first + count - 1} of level {level} are missing")
    while len(hashes) > 1:
        hashes = list(map(node_hash, hashes[::2], hashes[1::2]))
    return hashes[0]
