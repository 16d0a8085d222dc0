"""Receipts (C2SP tlog-proof): that an event stands in a ledger, for whoever keeps the event."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final

from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.merkle import includes, leaf_hash
from accountant.ledger.notes import BadNote, Verifier

MAGIC: Final = "c2sp.org/tlog-proof@v1"
_INDEX: Final = re.compile(r"index (0|[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class Receipt:
    """An entry's number, its inclusion proof from the leaf up, and the checkpoint that it is of."""

    index: int
    proof: tuple[bytes, ...]
    checkpoint: bytes

    def to_bytes(self) -> bytes:
        """The receipt as a file."""
        hashes = "".join(base64.b64encode(step).decode() + "\n" for step in self.proof)
        return f"{MAGIC}\nindex {self.index}\n{hashes}\n".encode() + self.checkpoint

    @classmethod
    def from_bytes(cls, data: bytes) -> Receipt:
        """Reads a receipt. Raises BadNote."""
        head, blank, checkpoint = data.partition(b"\n\n")
        try:
            lines = head.decode("ascii").split("\n")
        except UnicodeDecodeError:
            raise BadNote("it is no receipt") from None
        match = _INDEX.fullmatch(lines[1]) if len(lines) > 1 else None
        if not blank or lines[0] != MAGIC or match is None:
            raise BadNote("it is no receipt")
        proof = tuple(notes.canonical_base64(line) for line in lines[2:])
        if len(proof) > 63 or any(len(step) != 32 for step in proof):
            raise BadNote("its proof is no list of hashes")
        return cls(int(match[1]), proof, checkpoint)

    def check(self, entry: bytes, origin: str, trusted: list[Verifier]) -> Checkpoint:
        """The checkpoint under which ``entry`` stands in the log. Raises BadNote if it does not.

        ``trusted`` are the log's own keys: one of them must have signed.
        """
        note = notes.parse(self.checkpoint)
        if not note.verified(trusted):
            raise BadNote("no trusted key has signed the checkpoint")
        found = Checkpoint.from_text(note.text)
        if found.origin != origin:
            raise BadNote(f"the checkpoint is of {found.origin}, not of {origin}")
        if not includes(found.root, found.size, self.index, leaf_hash(entry), self.proof):
            raise BadNote(f"entry {self.index} is not what the checkpoint says")
        return found
