"""Free texts, put back in the places where events hold only their digests.

For readers who may see them. Without the texts at hand every place says that one is sealed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, Protocol

from accountant.budget.batches import REFUSED, as_single
from accountant.budget.sealing import FIELDS, Opened, field_of
from accountant.ledger.events import Event

SEALED: Final = "(sealed)"
"""There is a text, which is not at hand here."""
ERASED: Final = "(erased)"
ALTERED: Final = "(not the text that was sealed)"
"""Somebody has changed what is kept beside the ledger."""
PAGE: Final = 1_000


class TextLike(Protocol):
    """A text as it is kept, with the salt of its digest."""

    @property
    def sequence(self) -> int:
        """Of the event that it belongs to."""

    @property
    def field(self) -> str:
        """Of the event's command."""

    @property
    def salt(self) -> bytes:
        """What its digest begins with."""

    @property
    def text(self) -> str:
        """What somebody wrote."""


class Texts:
    """Reads texts where events need them. ``read`` gives those of a range of events, both ends
    included; they are read ``page`` events at a time, for events mostly come in order.
    """

    def __init__(
        self, read: Callable[[int, int], Iterable[TextLike]] | None = None, page: int = PAGE
    ) -> None:
        self._read = read
        self._page = page
        self._range = range(0)
        self._kept: dict[tuple[int, str], Opened] = {}

    def opened(self, event: Event) -> Event:
        """``event`` as it was asked, with its texts in place of their digests; a refused batch as
        the refusal of the item that did not go.
        """
        item = event.body["item"] if event.type == REFUSED else None
        event = as_single(event)
        command = event.body.get("command")
        if not isinstance(command, dict) or not any(_sealed(*field) for field in command.items()):
            return event
        opened = self.open(event.sequence, command, item)
        return replace(event, body=event.body | {"command": opened})

    def open(
        self, sequence: int, command: dict[str, Any], item: int | None = None
    ) -> dict[str, Any]:
        """The command of event ``sequence`` with its texts in place of their digests; ``item``: its
        place in a refused batch.
        """
        return {
            name: self._text(
                sequence, name if item is None else field_of(item, name), value["sealed"]
            )
            if _sealed(name, value)
            else value
            for name, value in command.items()
        }

    def _text(self, sequence: int, field: str, digest: str) -> str:
        if self._read is None:
            return SEALED
        if sequence not in self._range:
            self._range = range(sequence, sequence + self._page)
            rows = self._read(self._range.start, self._range.stop - 1)
            self._kept = {(row.sequence, row.field): Opened(row.salt, row.text) for row in rows}
        kept = self._kept.get((sequence, field))
        if kept is None:
            return ERASED
        return kept.text if kept.digest == digest else ALTERED


def _sealed(field: str, value: Any) -> bool:
    # Elsewhere in a command a dimension may be called "sealed".
    return field in FIELDS and isinstance(value, dict)
