"""One evidence bundle, read once from front to back (docs/evidence.md)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import chain
from typing import IO, Final

from accountant.auditing.findings import Findings
from accountant.auditing.members import Layout, Packs, TileCheck
from accountant.auditing.signatures import Custodian, Signatures
from accountant.auditing.texts import TextCheck
from accountant.ledger import bundle, notes
from accountant.ledger.bundle import Manifest, Member
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.events import canonical
from accountant.ledger.merkle import leaf_hash
from accountant.ledger.notes import BadNote
from accountant.ledger.tiles import Tile, unpack_entries

MAX_FILES: Final = 2**30
"""Bytes of keys, checkpoints and policies that are read in; what is beyond is reported."""


class Archive:
    """Reads a bundle, reporting to ``findings``. ``entries`` must be consumed before ``finish``.
    ``earlier`` are checkpoints, with their names in findings, that the tree has to continue.

    Raises ValueError if the manifest is of no use: then nothing else can be checked.
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
        texts.begin(self.first, size, expected=manifest.texts)
        self._read_files()
        self._checkpoints = Packs(findings, self._files, manifest.packs)
        self.tiles = TileCheck(findings, self._sizes())
        self.checkpoint = self._files.get(bundle.CHECKPOINT, b"")
        self.totals = self._files.get(bundle.TOTALS, b"")

    # -- the beginning ----------------------------------------------------------------------

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
                reason = f"it was not checked: with it, files have more than {MAX_FILES} bytes"
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

    # -- tiles and entries ------------------------------------------------------------------

    def entries(self, told: Callable[[int], None]) -> Iterator[bytes]:
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
            told(len(bodies))

    def _unpacked(self, tile: Tile, data: bytes) -> list[bytes]:
        try:
            bodies = unpack_entries(data)
        except ValueError as error:
            self._findings.add(str(error), member=tile.path)
            bodies = []
        if len(bodies) != tile.width:
            self._findings.add(f"it has {len(bodies)} entries", member=tile.path)
        elif not self.tiles.holds(tile, [leaf_hash(body) for body in bodies]):
            self._findings.add("its entries are not those of the tree", member=tile.path)
        return bodies

    # -- the end ----------------------------------------------------------------------------

    def finish(self, whole: bool, pin: str | None = None) -> None:
        """Check what needs everything to be read. ``whole``: all events of the tree were read, in
        this bundle or those before it; ``pin`` is a key that is known otherwise.
        """
        self._absent(len(self._layout))
        self._head()
        keys = self._files.get(bundle.KEYS, b"").decode(errors="replace").split("\n")
        self._same_keys(keys, whole)
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

    def _same_keys(self, keys: list[str], whole: bool) -> None:
        adopted = [key.text for key in self._custodian.keys]
        held = keys[:-1] if whole else [key for key in keys if key in adopted]
        if keys[-1] != "" or held != adopted:
            self._findings.add("they are not those that events adopted", member=bundle.KEYS)

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
