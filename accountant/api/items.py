"""The items of batches, read. What came before, word for word, asks for the same: pipelines ask for
the same over and over, and reading an item takes longer than deciding it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import orjson

from accountant.budget.commands import Asked, AskGrant, BatchRequest, Item, RecordInvocations, alone

_REMEMBERED: Final = 4_096
_SHORT: Final = 1_024
"""Bytes of an item that is remembered: with as many of them as are, some megabytes."""


class Items:
    """Reads batches. Thread-safe."""

    def __init__(self) -> None:
        self._read: dict[bytes, tuple[Item, Asked]] = {}

    def read(self, by: str, body: dict[str, Any]) -> tuple[list[Asked], list[int]]:
        """What ``by`` asks for with the body of a batch, in the order in which it is decided, and
        the places at which that is listed. Raises pydantic's ValidationError.
        """
        listed = body.get("items")
        words = [_words(item) for item in listed] if isinstance(listed, list) else []
        known = [self._read.get(word) for word in words]
        if listed and known:  # what is an item already is not read again; all else is, as ever
            read = [old[0] if old else new for old, new in zip(known, listed, strict=True)]
            body = body | {"items": read}
        request = BatchRequest.model_validate(body)
        order = request.order
        parts = []
        for place in order:
            if (old := known[place]) is not None:
                parts.append(old[1].again(by, None))
            else:
                item = request.items[place]
                asked = Asked(by, alone(item))
                self._learn(words[place], item, asked)
                parts.append(asked)
        return parts, order

    def _learn(self, words: bytes, item: Item, asked: Asked) -> None:
        # What names a grant does not come again.
        if 0 < len(words) <= _SHORT and isinstance(item, AskGrant | RecordInvocations):
            if len(self._read) >= _REMEMBERED:
                self._read.clear()
            self._read[words] = item, asked


def _words(item: Any) -> bytes:
    """What tells an item from every other one; nothing if it cannot be told."""
    try:
        return orjson.dumps(item, default=_number)
    except TypeError:  # a whole number beyond 64 bits
        return b""


def _number(value: Decimal) -> dict[str, str]:
    # No text: "0.1" and 0.1 are different items. No strict JSON has a NUL in a name.
    return {"\0": str(value)}
