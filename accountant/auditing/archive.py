"""One evidence bundle, read once from front to back (docs/evidence.md).

Members are counted, never listed, since a manifest may claim any size.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import IO, Final

from accountant.auditing.findings import Findings
from accountant.auditing.signatures import Custodian, Signatures
from accountant.auditing.texts import Part, TextCheck
from accountant.ledger import bundle, notes
from accountant.ledger.bundle import Manifest, Member
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.events import canonical
from accountant.ledger.merkle import TILE_HEIGHT, Tree, leaf_hash
from accountant.ledger.notes import BadNote
from accountant.ledger.tiles import HASH, WIDTH, Tile, covered, unpack_entries

MAX_FILES: Final = 2**30  # Bytes of keys, checkpoints and policies to read in
_LARGEST: Final = 2**53


class Archive:
    """Reads a bundle. ``entries`` must be consumed before ``finish``; ``earlier`` are checkpoints,
    with their names in findings, that the tree has to continue. Raises ValueError if the manifest
    is of no use: then nothing else can be checked.
    """

    def __init__(
        self,
        stream: IO[bytes],
        findings: Findings,
        custodian: Custodian,
        texts: TextCheck,
        earlier: Sequence[tuple[str, bytes]],
    ) -> None:
        self._findings, self._custodian, self._texts = findings, custodian, texts
        self._earlier = earlier
        self._members = bundle.read_members(stream)
        self._pending: Member | None = None
        self._position = 0  # The place in the layout that comes next
        self._files: dict[str, bytes] = {}
        self.cosigned = 0
        member = self._next()
        if member is None or member.name != bundle.MANIFEST:
            raise ValueError("it does not begin with a manifest")
        self.manifest = manifest = Manifest.from_bytes(member.data)
        self.first, self.count = manifest.entries.first, manifest.entries.count
        self.end, size = self.first + self.count, manifest.tree.size
        self.reaches_end = self.end == size
        self._layout = Layout(manifest.names, size, self.first, self.end)
        texts.parts.append(Part(self.first, size, manifest.texts))
        self._read_files()
        self._checkpoints = Packs(findings, self._files, manifest.packs)
        self.tiles = TileCheck(findings, self._sizes())
        self.checkpoint = self._files.get(bundle.CHECKPOINT, b"")
        self.totals = self._files.get(bundle.TOTALS, b"")

    def _next(self) -> Member | None:
        """Return the next sound member; report what is wrong before it."""
        member, self._pending = self._pending, None
        while member is None or member.problem:
            if member is not None:
                self._findings.add(member.problem)
            member = next(self._members, None)
            if member is None:
                return None
        return member

    def _read_files(self) -> None:
        """Read keys, checkpoints and policies: everything before the first tile."""
        left = MAX_FILES
        for member in iter(self._next, None):
            if member.name.startswith(("tile/", "texts/")):
                self._pending = member
                break
            if not self._in_order(member.name):
                continue
            if len(member.data) > left:
                reason = (
                    f"it was not checked: the files before it and this one exceed {MAX_FILES} bytes"
                )
                self._findings.add(reason, member=member.name)
                continue
            self._files[member.name] = member.data
            left -= len(member.data)
        for file in self.manifest.files:
            held = self._files.get(file.path)
            if held is None:
                continue  # it is absent or too large, which is reported as such
            if (len(held), sha256(held).hexdigest()) != (file.size, file.sha256):
                self._findings.add("it is not what the manifest says", member=file.path)

    def _in_order(self, name: str) -> bool:
        """Report a member that does not come next; return whether it is one that may still come."""
        place = self._layout.place(name)
        if place is None:
            self._findings.add("it does not belong here", member=name)
        elif place < self._position:
            self._findings.add("it is there twice, or in the wrong place", member=name)
        else:
            self._absent(place)
            self._position = place + 1
            return True
        return False

    def _absent(self, end: int) -> None:
        """Report the members from the position to before ``end``."""
        first = self._position
        if first < end:
            more = f" to {self._layout.name(end - 1)}" if end - first > 1 else ""
            self._findings.add(f"{self._layout.name(first)}{more} is missing")

    def _sizes(self) -> Iterator[int]:
        """Yield the sizes at which the root of the tree has to be known."""
        yield self.manifest.tree.size
        for _, data in chain(self._checkpoints, self._earlier):
            try:
                yield Checkpoint.from_text(notes.parse(data).text).size
            except BadNote:
                continue  # reported with the signatures

    def entries(self, progress: Callable[[int], None]) -> Iterator[bytes]:
        """Yield the bytes of every entry, in order."""
        for name, data, _ in iter(self._next, None):
            if not self._in_order(name) or not name.startswith("tile/"):
                continue
            tile = Tile.from_path(name)
            if tile.level is not None:
                self.tiles.take(tile, data)
                continue
            bodies = self._unpacked(tile, data)
            member, texts = bundle.texts_member(name), None
            self._pending = self._next()
            if self._pending is not None and self._pending.name == member:
                texts, self._pending = self._pending.data, None
            self._texts.take(member, tile.first, bodies, texts)
            for sequence, body in enumerate(bodies, start=tile.first):
                self._custodian.take(sequence, body)
            yield from bodies
            progress(len(bodies))

    def _unpacked(self, tile: Tile, data: bytes) -> list[bytes]:
        try:
            bodies = list(unpack_entries(data))
        except ValueError as error:
            self._findings.add(str(error), member=tile.path)
            bodies = []
        if len(bodies) != tile.width:
            self._findings.add(f"it has {len(bodies)} entries", member=tile.path)
        elif not self.tiles.holds(tile, [leaf_hash(body) for body in bodies]):
            self._findings.add("its entries are not those of the tree", member=tile.path)
        return bodies

    def finish(self, whole: bool, pin: str | None = None) -> None:
        """Check the end. ``whole``: all events were read; ``pin``: a key known otherwise."""
        self._absent(self._layout.count)
        self._head()
        keys = self._files.get(bundle.KEYS, b"").decode(errors="replace").split("\n")
        adopted = [key.text for key in self._custodian.keys]
        held = keys[:-1] if whole else [key for key in keys if key in adopted]
        if keys[-1] != "" or held != adopted:
            self._findings.add("they are not those that events adopted", member=bundle.KEYS)
        self._same_policies(whole)
        try:
            checkpoints = Signatures(self._findings, self._custodian, keys[:-1], whole)
        except ValueError as error:
            self._findings.add(str(error), member=bundle.KEYS)
            return
        self.cosigned = checkpoints.check(self._checkpoints, self.tiles.roots)
        for one in self._earlier:
            checkpoints.check([one], self.tiles.roots, in_a_row=False)
        if pin is not None:
            checkpoints.anchor(self.checkpoint, pin)

    def _head(self) -> None:
        """Report where manifest, checkpoint and tree do not say the same."""
        last = self._checkpoints.last
        if last is not None and self.checkpoint != last:
            self._findings.add("it is not the last checkpoint", member=bundle.CHECKPOINT)
        try:
            head = Checkpoint.from_text(notes.parse(self.checkpoint).text)
        except BadNote as error:
            self._findings.add(str(error), member=bundle.CHECKPOINT)
            return
        says = bundle.Head(base64.b64encode(head.root).decode(), head.size)
        if (says, head.origin) != (self.manifest.tree, self.manifest.origin):
            self._findings.add("it is of another head than the checkpoint", member=bundle.MANIFEST)
        if (self.tiles.tree.size, self.tiles.tree.root) != (head.size, head.root):
            self._findings.add("its tiles are not of the checkpoint's tree")

    def _same_policies(self, whole: bool) -> None:
        adopted = set()
        for policy in self._custodian.policies:
            try:
                adopted.add(bundle.policy_member(sha256(canonical(policy)).hexdigest()))
            except ValueError:
                continue  # reported with the event
        there = {name for name in self._files if name.startswith("policies/")}
        for name in sorted(adopted ^ there if whole else adopted - there):
            self._findings.add("events adopted other policies than are here", member=name)
        for name in sorted(there):
            if bundle.policy_member(sha256(self._files[name]).hexdigest()) != name:
                self._findings.add("its content has another digest", member=name)


class Layout:
    """The places of all members but the manifest and texts, from 0 on: ``files``, the hash tiles of
    a tree of ``size``, then the entry bundles of the entries from ``first`` to before ``end``.
    """

    def __init__(self, files: Sequence[str], size: int, first: int, end: int) -> None:
        self._files, self._size = list(files), size
        self._places = {name: place for place, name in enumerate(files)}
        self._runs: dict[int | None, tuple[int, range]] = {}  # By level: first place, tile numbers
        place = len(self._files)
        for level in (*range(size.bit_length() // TILE_HEIGHT + 1), None):
            numbers = range(-(-covered(level, size) // WIDTH))
            if level is None:
                numbers = range(first // WIDTH, -(-end // WIDTH))
            self._runs[level] = (place, numbers)
            place += len(numbers)
        self.count = place

    def place(self, name: str) -> int | None:
        """Return the place of a member; None if there is none of that name."""
        if name in self._places:
            return self._places[name]
        try:
            tile = Tile.from_path(name)
            place, numbers = self._runs[tile.level]
            place += numbers.index(tile.number)
        except (KeyError, ValueError):
            return None
        return place if self.name(place) == name else None

    def name(self, place: int) -> str:
        """Return the name of the member at a place."""
        if place < len(self._files):
            return self._files[place]
        runs = reversed(self._runs.items())
        level, (first, numbers) = next(run for run in runs if run[1][0] <= place)
        return Tile.of(level, numbers[place - first], self._size).path


class Packs:
    """The checkpoints of a bundle, in ``count`` packs of ``files``, unpacked one pack at a time."""

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
    """Grows the tree from the lowest tiles and compares those above; ``roots`` has wanted sizes."""

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
                reason = "its hashes are not those of the tiles below it"
                self._findings.add(reason, member=tile.path)

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
