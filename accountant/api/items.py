"""The items of batches, read: those that came before are not read anew."""

from __future__ import annotations

from decimal import Decimal
from hashlib import sha256
from typing import Any, Final, NamedTuple

import orjson

from accountant.api.memory import LONGEST, Memory
from accountant.budget.commands import MOST_ITEMS, Asked, BatchRequest, Item, alone

_REMEMBERED: Final = ("ask_grant", "record_invocations")
"""The types of items that come again: each of the others names a grant of its own."""


class _Known(NamedTuple):
    """An item that is in order, and what it asks for."""

    item: Item
    asked: Asked


class Items:
    """Reads batches, and remembers their items. Thread-safe."""

    def __init__(self) -> None:
        self._memory: Memory[bytes, _Known] = Memory()

    def read(self, by: str, body: dict[str, Any]) -> tuple[list[Asked], list[int]]:
        """What ``by`` asks for with the body of a batch, which is strict JSON (``strict_json``), in
        the order in which it is decided; and the places at which that is listed. Raises pydantic's
        ValidationError.
        """
        listed = body.get("items")
        if not isinstance(listed, list) or len(listed) > MOST_ITEMS:
            listed = []  # nothing is looked at of what will be refused
        marks = [_mark(item) for item in listed]
        known = [self._memory.get(mark) if mark else None for mark in marks]
        if any(known):  # what is an item already is taken as it is
            body = body | {
                "items": [k.item if k else i for k, i in zip(known, listed, strict=True)]
            }
        request = BatchRequest.model_validate(body)
        order, parts = request.order, []
        for place in order:
            found, mark = known[place], marks[place]
            if found is None:
                item = request.items[place]
                found = _Known(item, Asked(by, alone(item)))
                if mark:
                    self._memory.put(mark, found)
            parts.append(found.asked.again(by, None))
        return parts, order


def _mark(item: Any) -> bytes | None:
    """What no other item has; None if it is not remembered."""
    if not isinstance(item, dict) or item.get("type") not in _REMEMBERED:
        return None
    try:
        words = orjson.dumps(item, default=_number)
    except TypeError:  # a whole number beyond 64 bits
        return None
    return sha256(words).digest() if len(words) <= LONGEST else None


def _number(value: Decimal) -> dict[str, str]:
    # "0.1" and 0.1 are different items, and strict JSON has no NUL in a name.
    return {"\0": str(value)}
