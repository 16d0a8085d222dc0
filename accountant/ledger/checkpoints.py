"""Checkpoints (C2SP tlog-checkpoint v1.0.0): a log's name, size and root, in a signed note."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from accountant.ledger.notes import BadNote, canonical_base64

_SIZE: Final = re.compile(rb"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a log says that it is at one moment."""

    origin: str
    size: int
    root: bytes

    def to_text(self) -> str:
        """The three lines that are signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @classmethod
    def from_text(cls, text: bytes) -> Checkpoint:
        """Reads three lines, and ignores extension lines, which we never write. Raises BadNote."""
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
    """A head that a ledger has to continue, and whose word it is."""

    size: int
    root: bytes
    whose: str
