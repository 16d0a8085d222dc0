"""The long parts of commands, mechanisms and subject groups, remembered by their bytes.

A part is remembered from the second time on that it is asked for. Many parts are asked for once:
to keep them would fill memory with what nobody looks at, which costs as much as to read them. A
part that is remembered remembers what was last worked out of it, on the same terms. Nothing here is
authoritative: forgetting it costs time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_REMEMBERED: Final = 4_096
_MET: Final = 16_384
"""Hashes of parts that were asked for once."""
_LONGEST: Final = 2_048
"""Bytes of a part that is remembered."""


class Listed(list[Any]):
    """Mechanisms, or a union of groups, that were read. ``memo``: terms, and what came of them."""

    __slots__ = ("memo",)

    def __init__(self, items: list[Any]) -> None:
        super().__init__(items)
        self.memo: tuple[Any, Any] | None = None


class Term(dict[str, Any]):
    """A subject group that was read."""

    __slots__ = ("memo",)

    def __init__(self, term: dict[str, Any]) -> None:
        super().__init__(term)
        self.memo: tuple[Any, Any] | None = None


def remembering(part: Any) -> Any:
    """The part, able to remember."""
    if isinstance(part, list):
        return Listed(part)
    return Term(part) if isinstance(part, dict) else part


class Parts:
    """Parts by their bytes, with what ``read`` makes of these. Thread-safe."""

    def __init__(self, read: Callable[[bytes], tuple[Any, bytes]]) -> None:
        self._read = read
        self._known: dict[bytes, tuple[Any, bytes]] = {}
        self._met: set[int] = set()

    def get(self, data: bytes) -> tuple[Any, bytes]:
        """The part that ``data`` spells, and its canonical bytes. Raises as reading it does."""
        found = self._known.get(data)
        if found is None:
            part, spelled = self._read(data)
            found = remembering(part), spelled
            if self._met_before(data):
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[bytes(memoryview(data))] = found
        return found

    def _met_before(self, data: bytes) -> bool:
        """Whether ``data``, if it may be remembered, was asked for; it is from now on."""
        if len(data) > _LONGEST:
            return False
        if (mark := hash(data)) in self._met:
            return True
        if len(self._met) >= _MET:
            self._met.clear()
        self._met.add(mark)
        return False
