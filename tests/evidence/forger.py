"""An insider with the real keys: takes a bundle apart, and signs whatever he makes of it."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import orjson
from house import House

from accountant.auditing.totals import totals_of
from accountant.budget.apply import follow
from accountant.budget.state import State
from accountant.ledger import bundle, notes
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.events import canonical
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.ledger.notes import Signer
from accountant.ledger.tiles import WIDTH, pack_entries, tiles_of, unpack_entries

Change = Callable[[list[dict[str, Any]]], Any]


def members_of(data: bytes) -> list[tuple[str, bytes]]:
    """The members of a sound bundle."""
    found = list(bundle.read_members(io.BytesIO(data)))
    assert not any(member.problem for member in found)
    return [(member.name, member.data) for member in found]


def packed(members: Sequence[tuple[str, bytes]]) -> bytes:
    """Members as an archive."""
    out = io.BytesIO()
    for name, data in members:
        bundle.write_member(out, name, data)
    out.write(bundle.END)
    return out.getvalue()


def packs_of(checkpoints: Sequence[bytes]) -> list[tuple[str, bytes]]:
    """The members that checkpoints are packed in."""
    firsts = range(0, len(checkpoints), WIDTH)
    packs = [pack_entries(checkpoints[first : first + WIDTH]) for first in firsts]
    return [(bundle.pack_member(number), pack) for number, pack in enumerate(packs)]


class Forger:
    """``events`` may be changed at will; ``bundle`` makes all hashes and signatures anew."""

    def __init__(self, house: House) -> None:
        members = members_of(house.bundle())
        self._members = dict(members)
        keys = sorted((house.home / "vault/fair").glob("*.key"))
        self.signers = [Signer.from_text(path.read_text()) for path in keys]
        entries = [
            entry
            for name, data in members
            if name.startswith("tile/entries/")
            for entry in unpack_entries(data)
        ]
        self.events: list[dict[str, Any]] = [orjson.loads(entry) for entry in entries]
        self.sizes = [
            Checkpoint.from_text(notes.parse(note).text).size
            for name, data in members
            if name.startswith("checkpoints/")
            for note in unpack_entries(data)
        ]

    def of(self, kind: str, nth: int = 0) -> int:
        """The place of the ``nth`` event of a type."""
        return [i for i, event in enumerate(self.events) if event["type"] == kind][nth]

    def renumbered(self) -> None:
        """Gives every event the sequence of its place."""
        for place, event in enumerate(self.events):
            event["sequence"] = place

    def note(self, origin: str, leaves: Sequence[bytes]) -> bytes:
        """A checkpoint that every key has signed."""
        tree, _ = Tree().grown(leaves)
        signers = [signer for signer in self.signers if signer.name == origin]
        return notes.sign(Checkpoint(origin, tree.size, tree.root).to_text(), signers)

    def members(self) -> list[tuple[str, bytes]]:
        """The members of the forged bundle."""
        entries = [canonical(event) for event in self.events]
        leaves = [leaf_hash(entry) for entry in entries]
        size = len(leaves)
        origin = orjson.loads(self._members[bundle.MANIFEST])["origin"]
        sizes = [min(one, size) for one in self.sizes[:-1]] + [size]
        checkpoints = [self.note(origin, leaves[:one]) for one in sizes]
        policies = {
            bundle.policy_member(sha256(canonical(event["command"]["policy"])).hexdigest()): (
                canonical(event["command"]["policy"])
            )
            for event in self.events
            if event["type"] == "policy.adopted.v1"
        }
        keys = [
            event["command"]["key"]
            for event in self.events
            if event["type"] == "signing_key.adopted.v1"
        ]
        files = [
            (bundle.KEYS, "".join(key + "\n" for key in keys).encode()),
            (bundle.CHECKPOINT, checkpoints[-1]),
            (bundle.TOTALS, self._totals(entries)),
            *packs_of(checkpoints),
            *sorted(policies.items()),
        ]
        manifest = orjson.loads(self._members[bundle.MANIFEST]) | {
            "entries": {"first": 0, "count": size},
            "files": [
                {"path": name, "sha256": sha256(data).hexdigest(), "size": len(data)}
                for name, data in files
            ],
            "tree": {"root": base64.b64encode(Tree().grown(leaves)[0].root).decode(), "size": size},
        }
        return [(bundle.MANIFEST, canonical(manifest)), *files, *self._tiles(leaves, entries)]

    def _totals(self, entries: list[bytes]) -> bytes:
        """What the forged events add up to, or, where they do not, what the true ones did."""
        state = State(self.events[0]["ledger"])
        try:
            for entry in entries:
                follow(state, entry)
        except (KeyError, ValueError):
            return self._members.get(bundle.TOTALS, b"")
        return totals_of(state)

    def _tiles(self, leaves: list[bytes], entries: list[bytes]) -> list[tuple[str, bytes]]:
        hashes: dict[int | None, list[bytes]] = {0: leaves}
        for node in Tree().grown(leaves)[1]:
            hashes.setdefault(node.level, []).append(node.hash)
        found = [
            (tile.path, b"".join(hashes[tile.level][tile.first : tile.first + tile.width]))
            for tile in tiles_of(len(leaves))
        ]
        for tile in tiles_of(len(leaves), entries=True):
            found.append((tile.path, pack_entries(entries[tile.first : tile.first + WIDTH])))
            texts = bundle.texts_member(tile.path)
            if texts in self._members:
                found.append((texts, self._members[texts]))
        return found

    def bundle(self) -> bytes:
        """The forged bundle."""
        return packed(self.members())
