"""What was read before: pipelines ask for the same over and over, and reading it takes longer than
deciding it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST: Final = 4_096
"""A thousand datasets with a few questions each."""
LONGEST: Final = 512
"""Bytes of JSON that is remembered. What is read of it holds 4 kilobytes, at the worst 23: lists of
small things.
"""


class Memory(Generic[K, V]):
    """Remembers few values. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """What is remembered."""
        return self._kept.get(key)

    def put(self, key: K, value: V) -> None:
        """Remembers; if that were too many, instead of all others."""
        if len(self._kept) >= MOST:
            self._kept.clear()
        self._kept[key] = value
