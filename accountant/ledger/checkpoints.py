"""Checkpoints (C2SP tlog-checkpoint v1.0.0): a log's name, size and root, in a signed note; and
receipts (C2SP tlog-proof), which prove to the holder of an event that a ledger has it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from typing import Final, NamedTuple

from accountant.ledger.notes import BadNote, canonical_base64

MAGIC: Final = "c2sp.org/tlog-proof@v1"
_SIZE: Final = re.compile(rb"0|[1-9][0-9]{0,18}")
_INDEX: Final = re.compile(r"index (0|[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A log at one moment: its name, size and root."""

    origin: str
    size: int
    root: bytes

    def to_text(self) -> str:
        """Return the three lines that are signed."""
        return f"{self.origin}\n{self.size}\n{b64encode(self.root).decode()}\n"

    @classmethod
    def from_text(cls, text: bytes) -> Checkpoint:
        """Read three lines, and ignore extension lines, which we never write. Raises BadNote."""
        lines = text.split(b"\n")
        if len(lines) < 4 or lines.pop() != b"" or not all(lines):
            raise BadNote("a checkpoint has an origin, a size and a root, a line each")
        origin, size, root = lines[:3]
        if not _SIZE.fullmatch(size) or int(size) >= 2**63:
            raise BadNote("a checkpoint's size is a decimal number")
        try:
            return cls(origin.decode(), int(size), canonical_base64(root.decode()))
        except UnicodeDecodeError:
            raise BadNote("a checkpoint is UTF-8 text") from None


class Known(NamedTuple):
    """A head that a ledger has to continue; ``whose``: where it is known from."""

    size: int
    root: bytes
    whose: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """An entry's number, its inclusion proof from the leaf up, and the checkpoint that it is of."""

    index: int
    proof: tuple[bytes, ...]
    checkpoint: bytes

    def to_bytes(self) -> bytes:
        """Return the receipt as a file."""
        hashes = "".join(b64encode(step).decode() + "\n" for step in self.proof)
        return f"{MAGIC}\nindex {self.index}\n{hashes}\n".encode() + self.checkpoint

    @classmethod
    def from_bytes(cls, data: bytes) -> Receipt:
        """Read a receipt. Raises BadNote."""
        head, blank, checkpoint = data.partition(b"\n\n")
        magic, index, *lines = [*head.decode("ascii", "replace").split("\n"), ""]
        match = _INDEX.fullmatch(index)
        if not blank or magic != MAGIC or match is None or not head.isascii():
            raise BadNote("it is no receipt")
        proof = tuple(map(canonical_base64, lines[:-1]))
        if len(proof) > 63 or any(len(step) != 32 for step in proof):
            raise BadNote("its proof is no list of hashes")
        return cls(int(match[1]), proof, checkpoint)
