"""Read a ledger and recompute its Merkle tree, so that the service need not be trusted.

``accountant verify`` and ``python -m accountant.verify_minimal`` check signatures, charges and
decisions, on a bundle.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Self

from accountant.client.errors import AccountantError, Body


class LedgerBroken(AccountantError):
    """The events do not match their hashes, or not a checkpoint."""


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """One event: its canonical bytes, its hash in the ledger's tree, and its content."""

    data: bytes
    leaf: bytes
    content: Body

    @property
    def type(self) -> str:
        """The event's type, such as ``grant.reserved.v1``."""
        return str(self.content["type"])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A ledger at one moment: its log's origin, its size, the root of its tree.

    ``note`` is the signed note as received: keep it to check any later ledger against it.
    """

    origin: str
    size: int
    root: bytes
    note: bytes

    @classmethod
    def from_note(cls, note: bytes) -> Self:
        """Read a note (C2SP tlog-checkpoint), without its signatures. Raise LedgerBroken."""
        try:
            origin, size, root = note.decode().split("\n")[:3]
            return cls(origin, int(size), base64.b64decode(root, validate=True), note)
        except ValueError:
            raise LedgerBroken(f"not a checkpoint: {note[:100]!r}") from None


@dataclass(slots=True)
class Tree:
    """The Merkle tree over events (RFC 6962, section 2.1), kept as the roots of full subtrees."""

    size: int = 0
    _peaks: list[bytes] = field(default_factory=list)

    def add(self, data: bytes) -> bytes:
        """Append an event. Return its leaf hash."""
        leaf = node = sha256(b"\x00" + data).digest()
        full = self.size
        while full & 1:  # joins the full subtree of the same size on its left
            node, full = sha256(b"\x01" + self._peaks.pop() + node).digest(), full >> 1
        self._peaks.append(node)
        self.size += 1
        return leaf

    @property
    def root(self) -> bytes:
        """The hash of the tree."""
        *left, root = self._peaks or [sha256().digest()]
        for peak in reversed(left):
            root = sha256(b"\x01" + peak + root).digest()
        return root


def canonical(content: Body) -> bytes:
    """Return the canonical bytes (RFC 8785) of an event: JSON with sorted keys and no spaces, as it
    has only ASCII keys, strings, booleans and integers below 2**53.
    """
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


class Continuation:
    """Checks events in order against their hashes and against checkpoints."""

    def __init__(self, kept: Sequence[Checkpoint]) -> None:
        self._kept, self._tree = kept, Tree()

    def next(self, item: Body) -> LedgerEvent:
        """Return the next event. Raise LedgerBroken if it does not match its hash, or the ledger a
        checkpoint.
        """
        data, number = canonical(item["event"]), self._tree.size
        leaf = self._tree.add(data)
        if leaf.hex() != item["leaf"] or item["event"].get("sequence") != number:
            raise LedgerBroken(f"event {number} does not match its hash")
        size, root = self._tree.size, self._tree.root
        if any(kept.size == size and kept.root != root for kept in self._kept):
            raise LedgerBroken(f"the first {size} events do not match the checkpoint")
        return LedgerEvent(data, leaf, item["event"])

    def end(self) -> None:
        """Raise LedgerBroken if a checkpoint has more events than came."""
        for end in (kept.size for kept in self._kept if kept.size > self._tree.size):
            raise LedgerBroken(
                f"the ledger has {self._tree.size} events, fewer than its checkpoint of {end}"
            )
