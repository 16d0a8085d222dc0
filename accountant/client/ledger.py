"""Reading a ledger without taking the service's word: the bytes must make the tree that was signed.

Whether the signatures hold, and whether every charge and decision is right, is the business of
``accountant verify`` and of ``python -m accountant.verify_minimal``, on a bundle.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

from accountant.client.errors import AccountantError


class LedgerBroken(AccountantError):
    """The events are not those that were hashed, or not those of a checkpoint."""


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """One event: its canonical bytes, its hash in the ledger's tree, and its content."""

    data: bytes
    leaf: bytes
    content: dict[str, Any]

    @property
    def type(self) -> str:
        """What happened: ``grant.reserved.v1`` and so on."""
        return str(self.content["type"])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the ledger was at one moment: its log's origin, its size, the root of its tree.

    ``note`` is the signed note as it came: keep it, and any later ledger can be held against it.
    """

    origin: str
    size: int
    root: bytes
    note: bytes

    @classmethod
    def from_note(cls, note: bytes) -> Self:
        """Reads a note (C2SP tlog-checkpoint) without looking at its signatures. Raises
        LedgerBroken for anything else.
        """
        try:
            origin, size, root = note.decode().split("\n")[:3]
            found = cls(origin, int(size), base64.b64decode(root, validate=True), note)
        except (binascii.Error, ValueError):
            raise LedgerBroken(f"this is no checkpoint: {note[:100]!r}") from None
        return found


class Tree:
    """The Merkle tree over events in order (RFC 6962, section 2.1), as its full subtrees' roots."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[bytes] = []

    def add(self, data: bytes) -> bytes:
        """Appends an event; its leaf hash."""
        leaf = node = sha256(b"\x00" + data).digest()
        full = self.size
        while full & 1:  # every full subtree of this size joins the one to its left
            node, full = sha256(b"\x01" + self._peaks.pop() + node).digest(), full >> 1
        self._peaks.append(node)
        self.size += 1
        return leaf

    @property
    def root(self) -> bytes:
        """The tree's hash."""
        if not self._peaks:
            return sha256().digest()
        *left, root = self._peaks
        for peak in reversed(left):
            root = sha256(b"\x01" + peak + root).digest()
        return root


def canonical(content: dict[str, Any]) -> bytes:
    """The canonical bytes (RFC 8785) of an event.

    For documents of ASCII keys, strings, booleans and integers below 2**53, as events are, sorted
    and tight JSON is already canonical.
    """
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def checked(
    pages: Iterable[list[dict[str, Any]]], checkpoints: Sequence[Checkpoint]
) -> Iterator[LedgerEvent]:
    """The events of all pages in order. Raises LedgerBroken where one is not what its leaf says,
    where they are not those of a checkpoint, and in the end if there are fewer.
    """
    tree = Tree()
    for page in pages:
        for item in page:
            data, number = canonical(item["event"]), tree.size
            leaf = tree.add(data)
            if leaf.hex() != item["leaf"] or item["event"].get("sequence") != number:
                raise LedgerBroken(f"event {number} is not what was hashed")
            _held(tree, checkpoints)
            yield LedgerEvent(data, leaf, item["event"])
    for checkpoint in checkpoints:
        if checkpoint.size > tree.size:
            raise LedgerBroken(
                f"the ledger has {tree.size} events, fewer than its checkpoint of {checkpoint.size}"
            )


def _held(tree: Tree, checkpoints: Sequence[Checkpoint]) -> None:
    for checkpoint in checkpoints:
        if checkpoint.size == tree.size and checkpoint.root != tree.root:
            raise LedgerBroken(f"the first {tree.size} events are not those of the checkpoint")
