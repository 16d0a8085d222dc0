"""The long parts of commands, mechanisms and subject groups, remembered by their bytes.

A part is remembered from its second request on: most parts are requested once, and keeping them
would cost as much as reading them again. A part keeps the last result that was derived from it.
Nothing here is authoritative: forgetting it costs time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_REMEMBERED: Final = 4_096
_MET: Final = 16_384
"""Hashes of parts that were requested once."""
_LONGEST: Final = 2_048
"""Bytes of a part that is remembered."""


class Listed(list[Any]):
    """Mechanisms or a union of groups. ``memo``: the terms of the last result, and the result."""

    memo: tuple[Any, Any] | None = None


class Term(dict[str, Any]):
    """A subject group that was read."""

    memo: tuple[Any, Any] | None = None


_KINDS: Final[dict[type, Callable[[Any], Any]]] = {list: Listed, dict: Term}


class Parts:
    """Parts by their bytes, which ``read`` parses. Thread-safe."""

    def __init__(self, read: Callable[[bytes], tuple[Any, bytes]]) -> None:
        self._read = read
        self._known: dict[bytes, tuple[Any, bytes]] = {}
        self._met: set[int] = set()

    def get(self, data: bytes) -> tuple[Any, bytes]:
        """Return the part that ``data`` spells, and its canonical bytes. Raises as ``read``."""
        found = self._known.get(data)
        if found is None:
            part, spelled = self._read(data)
            kept = _KINDS.get(type(part))
            found = kept(part) if kept else part, spelled
            if self._met_before(data):
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[bytes(memoryview(data))] = found
        return found

    def _met_before(self, data: bytes) -> bool:
        """Return whether ``data`` was requested before, and note that it is now."""
        if len(data) > _LONGEST:
            return False
        if (mark := hash(data)) in self._met:
            return True
        if len(self._met) >= _MET:
            self._met.clear()
        self._met.add(mark)
        return False
