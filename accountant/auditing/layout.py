"""Which members a bundle must have, and in which order: counted, never listed, since a manifest may
claim any size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accountant.ledger.merkle import TILE_HEIGHT
from accountant.ledger.tiles import WIDTH, Tile


class _Run(NamedTuple):
    """Tiles of one level: the numbers from ``first`` to before ``end`` of ``covered`` hashes."""

    level: int | None
    first: int
    end: int
    covered: int

    def tile(self, number: int) -> Tile:
        return Tile(self.level, number, min(WIDTH, self.covered - number * WIDTH))


class Layout:
    """The places of all members but the manifest and texts, from 0 on: ``files``, the hash tiles of
    a tree of ``size``, then the entry bundles of the entries from ``first`` to before ``end``.
    """

    def __init__(self, files: Sequence[str], size: int, first: int, end: int) -> None:
        self._files = list(files)
        self._places = {name: place for place, name in enumerate(files)}
        self._runs = [*_levels(size), _Run(None, first // WIDTH, -(-end // WIDTH), size)]

    def __len__(self) -> int:
        return len(self._files) + sum(run.end - run.first for run in self._runs)

    def place(self, name: str) -> int | None:
        """The place of a member; None if there is none of that name."""
        if name in self._places:
            return self._places[name]
        try:
            tile = Tile.from_path(name)
        except ValueError:
            return None
        before = len(self._files)
        for run in self._runs:
            if run.level == tile.level and run.first <= tile.number < run.end:
                return before + tile.number - run.first if run.tile(tile.number) == tile else None
            before += run.end - run.first
        return None

    def name(self, place: int) -> str:
        """The name of the member at a place."""
        if place < len(self._files):
            return self._files[place]
        place -= len(self._files)
        for run in self._runs:
            if place < run.end - run.first:
                return run.tile(run.first + place).path
            place -= run.end - run.first
        raise IndexError(place)


def _levels(size: int) -> Iterator[_Run]:
    level = 0
    while covered := size >> level * TILE_HEIGHT:
        yield _Run(level, 0, -(-covered // WIDTH), covered)
        level += 1
