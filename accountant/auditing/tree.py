"""The tree, grown again from the lowest tiles, and every other tile compared with it."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from accountant.auditing.findings import Findings
from accountant.ledger.merkle import Tree
from accountant.ledger.tiles import HASH, Tile

_LARGEST: Final = 2**53


class TileCheck:
    """Takes the hash tiles in order, lowest level first. ``roots`` has the root at every wanted
    size that was reached.
    """

    def __init__(self, findings: Findings, wanted: Iterable[int]) -> None:
        self._findings = findings
        self._wanted = sorted({size for size in wanted if 0 < size < _LARGEST}, reverse=True)
        self._above: dict[int, list[bytes]] = {}
        self._digests: dict[int, bytes] = {}
        self._broken = False
        self.tree = Tree()
        self.roots: dict[int, bytes] = {0: Tree().root}

    def take(self, tile: Tile, data: bytes) -> None:
        """Checks one tile."""
        if len(data) != tile.width * HASH:
            self._findings.add("it has not the length of so many hashes", member=tile.path)
            self._broken = True
            return
        hashes = [data[at : at + HASH] for at in range(0, len(data), HASH)]
        if tile.level == 0:
            self._digests[tile.number] = sha256(data).digest()
            self._grow(tile, hashes)
        elif not self._broken:
            above = self._above.get(tile.level or 0, [])
            if above[tile.first : tile.first + tile.width] != hashes:
                self._findings.add(
                    "its hashes are not those of the tiles below it", member=tile.path
                )

    def _grow(self, tile: Tile, hashes: list[bytes]) -> None:
        if tile.first != self.tree.size:
            self._broken = True
        if self._broken:
            return
        end = tile.first + tile.width
        while self.tree.size < end:
            wanted = self._wanted and self._wanted[-1] <= end
            stop = self._wanted.pop() if wanted else end
            leaves = hashes[self.tree.size - tile.first : stop - tile.first]
            self.tree, nodes = self.tree.grown(leaves)
            for node in nodes:
                self._above.setdefault(node.level, []).append(node.hash)
            if wanted:
                self.roots[stop] = self.tree.root

    def root(self, size: int) -> bytes | None:
        """The root at a wanted size; None if the tiles do not reach so far."""
        return self.roots.get(size)

    def holds(self, tile: Tile, leaves: list[bytes]) -> bool:
        """True if the lowest tile at the place of an entry bundle has these leaf hashes."""
        return self._digests.get(tile.number) == sha256(b"".join(leaves)).digest()
