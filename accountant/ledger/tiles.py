"""The tlog-tiles layout (C2SP tlog-tiles v0.1.0): where hashes and entries lie, and how.

A tile holds up to 256 hashes of a kept level, an entry bundle up to 256 entries. Full ones never
change; a partial one says its width in its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from accountant.ledger.merkle import TILE_HEIGHT

WIDTH: Final = 256
HASH: Final = 32
_PATH: Final = re.compile(
    r"tile/(entries|[0-9]|[1-5][0-9]|6[0-3])/((?:x\d{3}/){0,6}\d{3})(?:\.p/([1-9][0-9]{0,2}))?"
)


def spelled(number: int) -> str:
    """Spell a number: groups of three digits, with an x before all but the last."""
    groups = [group.zfill(3) for group in f"{number:,}".split(",")]
    return "/".join([*("x" + group for group in groups[:-1]), groups[-1]])


def covered(level: int | None, size: int) -> int:
    """Return how many hashes of a level, or entries, a tree of ``size`` entries has."""
    return size >> (TILE_HEIGHT * (level or 0))


@dataclass(frozen=True, slots=True)
class Tile:
    """A place in the layout; ``level`` is None for an entry bundle."""

    level: int | None
    number: int
    width: int = WIDTH

    @classmethod
    def of(cls, level: int | None, number: int, size: int) -> Tile:
        """Return a tile of the tree of ``size`` entries, as wide as it is there."""
        return cls(level, number, min(WIDTH, covered(level, size) - number * WIDTH))

    @property
    def path(self) -> str:
        """The path of the tile."""
        kind = "entries" if self.level is None else str(self.level)
        partial = f".p/{self.width}" if self.width < WIDTH else ""
        return f"tile/{kind}/{spelled(self.number)}{partial}"

    @classmethod
    def from_path(cls, path: str) -> Tile:
        """Return the place that ``path`` names. Raises ValueError for any other spelling."""
        match = _PATH.fullmatch(path)
        if match is None:
            raise ValueError(f"{path!r} is no place in the tile layout")
        level = None if match[1] == "entries" else int(match[1])
        number = int(match[2].replace("x", "").replace("/", ""))
        found = cls(level, number, int(match[3] or WIDTH))
        if found.path != path:
            raise ValueError(f"{path!r} is not how that place is spelled")
        return found

    @property
    def first(self) -> int:
        """The number of its first hash, or entry."""
        return self.number * WIDTH


def tiles_of(size: int, entries: bool = False) -> Iterator[Tile]:
    """Yield all hash tiles (or entry bundles) of a tree, lowest level first."""
    for level in (None,) if entries else range(size.bit_length() // TILE_HEIGHT + 1):
        for number in range(-(-covered(level, size) // WIDTH)):
            yield Tile.of(level, number, size)


def pack_entries(entries: Iterable[bytes]) -> bytes:
    """Return an entry bundle: each entry after its length, 16 bits, big-endian."""
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def unpack_entries(data: bytes) -> Iterator[bytes]:
    """Yield the entries of a bundle. Raises ValueError where it ends within one."""
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if end > len(data) or at + 2 > len(data):
            raise ValueError("it ends within an entry")
        yield data[at + 2 : end]
        at = end
