"""Reading a ledger without taking the service's word: the bytes must continue the hash chain."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from accountant.client.errors import AccountantError

START = bytes(32)
"""The link before the first event."""


class ChainBroken(AccountantError):
    """An event does not continue the chain: it, or one before it, is not what was written."""


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """One event: its canonical bytes, the link after it, and its content."""

    data: bytes
    link: bytes
    content: dict[str, Any]

    @property
    def type(self) -> str:
        """What happened: ``grant.reserved.v1`` and so on."""
        return str(self.content["type"])


def canonical(content: dict[str, Any]) -> bytes:
    """The canonical bytes (RFC 8785) of an event.

    For documents of ASCII keys, strings, booleans and integers below 2**53, as events are, sorted
    and tight JSON is already canonical.
    """
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def chained(pages: Iterable[list[dict[str, Any]]]) -> Iterator[LedgerEvent]:
    """The events of all pages in order. Raises ChainBroken where bytes and links disagree."""
    link, sequence = START, 0
    for page in pages:
        for item in page:
            data = canonical(item["event"])
            link = sha256(link + data).digest()
            if link.hex() != item["link"] or item["event"].get("sequence") != sequence:
                raise ChainBroken(f"event {sequence} does not continue the chain")
            yield LedgerEvent(data, link, item["event"])
            sequence += 1
