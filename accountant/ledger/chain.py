"""The hash chain: each link is the SHA-256 of the link before and the event's canonical bytes.

It stands beside the events, not inside them, so that the bytes of an event say nothing about the
structure that protects it. Whoever keeps one link can prove that nothing before it was changed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

EMPTY: Final = bytes(32)
"""The link before the first event."""


def link(previous: bytes, event: bytes) -> bytes:
    """The link after ``event``."""
    return sha256(previous + event).digest()
