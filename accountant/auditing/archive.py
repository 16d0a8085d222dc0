"""One evidence bundle, read once from front to back (docs/evidence.md)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import chain
from typing import IO, Any, Final, NamedTuple

import orjson

from accountant.auditing.findings import Findings
from accountant.auditing.members import Layout, Packs, TileCheck
from accountant.auditing.signatures import Custodian, Signatures
from accountant.auditing.texts import TextCheck
from accountant.ledger import bundle, notes
from accountant.ledger.bundle import Member
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.events import canonical
from accountant.ledger.merkle import leaf_hash
from accountant.ledger.notes import BadNote
from accountant.ledger.tiles import Tile, unpack_entries

MAX_FILES: Final = 2**30
"""Bytes of keys, checkpoints and policies that are read in; what is beyond is reported."""


class Held(NamedTuple):
    """An entry bundle whose texts may still follow."""

    tile: Tile
    bodies: list[bytes]


class Archive:
    """Reads a bundle, reporting to ``findings``. ``entries`` must be consumed before ``finish``.

    ``manifest`` is None if it is of no use: then nothing else can be checked. ``earlier`` are
    checkpoints, by what they are called, that the tree has to continue.
    """

    def __init__(
        self,
        stream: IO[bytes],
        findings: Findings,
        custodian: Custodian,
        texts: TextCheck,
        earlier: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        self._findings = findings
        self._custodian = custodian
        self._members = bundle.read_members(stream)
        self._texts = texts
        self._earlier = earlier
        self._files: dict[str, bytes] = {}
        self._position = 0
        self._pending: Member | None = None
        self.cosigned = self.count = 0
        self.manifest = self._read_manifest()
        if self.manifest is None:
            return
        tree, entries = self.manifest["tree"], self.manifest["entries"]
        self.first, self.count = int(entries["first"]), int(entries["count"])
        self.end = self.first + self.count
        self.reaches_end = self.end == tree["size"]
        names = [file["path"] for file in self.manifest["files"]]
        self._layout = Layout(names, tree["size"], self.first, self.end)
        texts.begin(self.first, tree["size"], expected=self.manifest["texts"])
        self._read_files(self.manifest["files"])
        packs = sum(name.startswith("checkpoints/") for name in names)
        self._checkpoints = Packs(findings, self._files, packs)
        self.tiles = TileCheck(findings, self._sizes(tree["size"]))

    @property
    def checkpoint(self) -> bytes:
        """The checkpoint that the bundle is of."""
        return self._files.get(bundle.CHECKPOINT, b"")

    @property
    def totals(self) -> bytes:
        """What its events add up to, as it says."""
        return self._files.get(bundle.TOTALS, b"")

    # -- the beginning ----------------------------------------------------------------------

    def _read_manifest(self) -> dict[str, Any] | None:
        member = next(self._sound(), None)
        try:
            if member is None or member.data is None or member.name != bundle.MANIFEST:
                raise ValueError("it does not begin with a manifest")
            found = bundle.manifest(orjson.loads(member.data))
            if canonical(found) != member.data:
                raise ValueError("it is not canonical")
        except ValueError as error:
            self._findings.add(str(error), member=bundle.MANIFEST)
            return None
        return found

    def _sound(self) -> Iterator[Member]:
        """Members, with what is wrong between them reported."""
        if self._pending is not None:
            member, self._pending = self._pending, None
            yield member
        for member in self._members:
            if member.data is None:
                self._findings.add(member.problem)
            else:
                yield member

    def _read_files(self, listed: Sequence[dict[str, Any]]) -> None:
        """Keys, checkpoints and policies: everything before the first tile."""
        left = MAX_FILES
        for member in self._sound():
            if member.name.startswith(("tile/", "texts/")):
                self._pending = member
                break
            if not self._in_order(member.name):
                continue
            data = member.data or b""
            if len(data) > left:
                reason = f"it was not checked: with it, files have more than {MAX_FILES} bytes"
                self._findings.add(reason, member=member.name)
                continue
            self._files[member.name] = data
            left -= len(data)
        for file in listed:
            held = self._files.get(file["path"])
            if held is None:
                continue  # it is absent or too large, which is reported as such
            if (len(held), sha256(held).hexdigest()) != (file["size"], file["sha256"]):
                self._findings.add("it is not what the manifest says", member=file["path"])

    def _in_order(self, name: str) -> bool:
        """Reports a member that does not come next; true if it comes at all."""
        place = self._layout.place(name)
        if place is None:
            self._findings.add("it does not belong here", member=name)
        elif place < self._position:
            self._findings.add("it is there twice, or in the wrong place", member=name)
        else:
            self._absent(self._position, place)
            self._position = place + 1
            return True
        return False

    def _absent(self, first: int, end: int) -> None:
        if first < end:
            more = f" to {self._layout.name(end - 1)}" if end - first > 1 else ""
            self._findings.add(f"{self._layout.name(first)}{more} is missing")

    def _sizes(self, size: int) -> Iterator[int]:
        yield size
        for _, data in chain(self._checkpoints, self._earlier):
            try:
                yield Checkpoint.from_text(notes.parse(data).text).size
            except BadNote:
                continue  # reported with the signatures

    # -- tiles and entries ------------------------------------------------------------------

    def entries(self, told: Callable[[int], None]) -> Iterator[bytes]:
        """The bytes of every entry, in order."""
        held: Held | None = None
        for member in self._sound():
            name, data = member.name, member.data or b""
            if held is not None and name == bundle.texts_member(held.tile.path):
                yield from self._checked(held, data, told)
                held = None
                continue
            if held is not None:
                yield from self._checked(held, None, told)
                held = None
            if not self._in_order(name) or not name.startswith("tile/"):
                continue
            tile = Tile.from_path(name)
            if tile.level is not None:
                self.tiles.take(tile, data)
            else:
                held = self._unpacked(tile, data)
        if held is not None:
            yield from self._checked(held, None, told)

    def _unpacked(self, tile: Tile, data: bytes) -> Held:
        try:
            bodies = unpack_entries(data)
        except ValueError as error:
            self._findings.add(str(error), member=tile.path)
            bodies = []
        if len(bodies) != tile.width:
            self._findings.add(f"it has {len(bodies)} entries", member=tile.path)
        elif not self.tiles.holds(tile, [leaf_hash(body) for body in bodies]):
            self._findings.add("its entries are not those of the tree", member=tile.path)
        return Held(tile, bodies)

    def _checked(
        self, held: Held, texts: bytes | None, told: Callable[[int], None]
    ) -> Iterator[bytes]:
        first = held.tile.first
        self._texts.take(bundle.texts_member(held.tile.path), first, held.bodies, texts)
        for sequence, body in enumerate(held.bodies, start=first):
            self._custodian.take(sequence, body)
        yield from held.bodies
        told(len(held.bodies))

    # -- the end ----------------------------------------------------------------------------

    def finish(self, whole: bool, pin: str | None = None) -> None:
        """What can only be told once everything was read. ``whole``: all events of the tree were,
        in this bundle or those before it; ``pin`` is a key that is known otherwise.
        """
        self._absent(self._position, len(self._layout))
        self._head()
        keys = self._files.get(bundle.KEYS, b"").decode(errors="replace").split("\n")
        self._same_keys(keys, whole)
        self._same_policies(whole)
        try:
            checkpoints = Signatures(self._findings, self._custodian, keys[:-1], whole)
        except ValueError as error:
            self._findings.add(str(error), member=bundle.KEYS)
            return
        self.cosigned = checkpoints.check(self._checkpoints, self.tiles.root)
        for one in self._earlier:
            checkpoints.check([one], self.tiles.root, in_a_row=False)
        if pin is not None:
            checkpoints.anchor(self.checkpoint, pin)

    def _head(self) -> None:
        """The manifest, the checkpoint and the tree must say the same."""
        manifest = self.manifest or {}
        last = self._checkpoints.last
        if last is not None and self.checkpoint != last:
            self._findings.add("it is not the last checkpoint", member=bundle.CHECKPOINT)
        try:
            note = notes.parse(self.checkpoint)
            head = Checkpoint.from_text(note.text)
        except BadNote as error:
            self._findings.add(str(error), member=bundle.CHECKPOINT)
            return
        says = {"root": base64.b64encode(head.root).decode(), "size": head.size}
        if (says, head.origin) != (manifest["tree"], manifest["origin"]):
            self._findings.add("it is of another head than the checkpoint", member=bundle.MANIFEST)
        if self.tiles.tree.size != head.size or self.tiles.tree.root != head.root:
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
