"""The members of a bundle: which there must be, and whether packs and tiles hold what they should.

Members are counted, never listed, since a manifest may claim any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from accountant.auditing.findings import Findings
from accountant.ledger import bundle
from accountant.ledger.merkle import TILE_HEIGHT, Tree
from accountant.ledger.tiles import HASH, WIDTH, Tile

_LARGEST: Final = 2**53


class _Run(NamedTuple):
    """Tiles of one level: ``tiles`` of ``covered`` hashes, from number ``first`` on."""

    level: int | None
    first: int
    tiles: int
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
        self._runs, level = list[_Run](), 0
        while covered := size >> level * TILE_HEIGHT:
            self._runs.append(_Run(level, 0, -(-covered // WIDTH), covered))
            level += 1
        first //= WIDTH
        self._runs.append(_Run(None, first, -(-end // WIDTH) - first, size))

    def __len__(self) -> int:
        return len(self._files) + sum(run.tiles for run in self._runs)

    def place(self, name: str) -> int | None:
        """Return the place of a member; None if there is none of that name."""
        if name in self._places:
            return self._places[name]
        try:
            tile = Tile.from_path(name)
        except ValueError:
            return None
        before = len(self._files)
        for run in self._runs:
            at = tile.number - run.first
            if run.level == tile.level and 0 <= at < run.tiles:
                return before + at if run.tile(tile.number) == tile else None
            before += run.tiles
        return None

    def name(self, place: int) -> str:
        """Return the name of the member at a place."""
        if place < len(self._files):
            return self._files[place]
        place -= len(self._files)
        for run in self._runs:
            if place < run.tiles:
                return run.tile(run.first + place).path
            place -= run.tiles
        raise IndexError(place)


class Packs:
    """The checkpoints of a bundle, in ``count`` packs among its ``files``; one pack is unpacked at
    a time. A malformed pack is reported at once, and then passed over.
    """

    def __init__(self, findings: Findings, files: Mapping[str, bytes], count: int) -> None:
        self._packs: dict[int, bytes] = {}
        self._count = count
        for number in range(count):
            member = bundle.pack_member(number)
            if member not in files:
                continue  # its absence is reported as such
            try:
                held = len(bundle.checkpoints_of(files[member]))
            except ValueError as error:
                findings.add(str(error), member=member)
                continue
            self._packs[number] = files[member]
            if held < WIDTH and number != count - 1:
                findings.add(f"it has {held} checkpoints, though others follow", member=member)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Return every checkpoint in order, with its name in findings."""
        for number, pack in self._packs.items():
            for place, note in enumerate(bundle.checkpoints_of(pack), number * WIDTH):
                yield f"checkpoint {place}", note

    @property
    def last(self) -> bytes | None:
        """The last checkpoint; None if its pack is of no use, which is reported."""
        pack = self._packs.get(self._count - 1)
        return None if pack is None else bundle.checkpoints_of(pack)[-1]


class TileCheck:
    """Grows the tree again from the lowest hash tiles, and compares every other tile with it. Takes
    tiles in order, lowest level first. ``roots`` has the root at each wanted size that the tiles
    reach.
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
        """Check one tile."""
        if len(data) != tile.width * HASH:
            self._findings.add("its length is not that of its hashes", member=tile.path)
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
        self._broken |= tile.first != self.tree.size
        end = self.tree.size if self._broken else tile.first + tile.width
        while self.tree.size < end:
            wanted = self._wanted and self._wanted[-1] <= end
            stop = self._wanted.pop() if wanted else end
            leaves = hashes[self.tree.size - tile.first : stop - tile.first]
            self.tree, nodes = self.tree.grown(leaves)
            for node in nodes:
                self._above.setdefault(node.level, []).append(node.hash)
            if wanted:
                self.roots[stop] = self.tree.root

    def holds(self, tile: Tile, leaves: list[bytes]) -> bool:
        """Return whether the lowest tile at an entry bundle's place has these leaf hashes."""
        return self._digests.get(tile.number) == sha256(b"".join(leaves)).digest()
