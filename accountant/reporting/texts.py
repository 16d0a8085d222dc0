"""Free texts in place of their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from accountant.budget.batches import REFUSED, as_single
from accountant.budget.sealing import FIELDS, WHY_CONFIRMED, Opened, field_of
from accountant.ledger.events import Event

if TYPE_CHECKING:
    from accountant.store.ledgers import Text

SEALED: Final = "(sealed)"
"""There is a text, but the reader has no texts."""
ERASED: Final = "(erased)"
ALTERED: Final = "(not the text that was sealed)"
"""The text that is kept beside the ledger was changed."""
PAGE: Final = 1_000


class FromText(str):
    """A text that stands beside the ledger, and may be erased there: at which event, under which
    name, and by which digest. It can be told from words of our own wherever it was taken, so that
    it is not written to another place.
    """

    __slots__ = ("digest", "field", "sequence")

    def __new__(cls, text: str, sequence: int, field: str, digest: str) -> FromText:
        """Return the text with its place."""
        made = super().__new__(cls, text)
        made.sequence, made.field, made.digest = sequence, field, digest
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Become a plain text on the way to another process: answers are made of those."""
        return str, (str(self),)

    sequence: int
    field: str
    digest: str


def closed(event: Event) -> Event:
    """Return an event whose texts were opened with the digests that it has in their place."""
    command = event.body.get("command", {})
    digests = {
        name: {"sealed": text.digest}
        for name in FIELDS
        if isinstance(text := command.get(name), FromText)
    }
    return replace(event, body=event.body | {"command": command | digests}) if digests else event


class Texts:
    """Reads the texts that events need. ``read`` returns those of a range of events, both ends
    included; it is called for ``page`` events at a time, as events mostly come in order. With
    ``placed`` they are ``FromText``.
    """

    def __init__(
        self,
        read: Callable[[int, int], Iterable[Text]] | None = None,
        page: int = PAGE,
        *,
        placed: bool = False,
    ) -> None:
        self._read = read
        self._page, self._placed = page, placed
        self._range = range(0)
        self._kept: dict[tuple[int, str], Opened] = {}

    def opened(self, event: Event) -> Event:
        """Return ``event`` with its texts; a refused batch as the refusal of the failed item. Those
        of a change that was confirmed stand with its proposal, but for why it was confirmed.
        """
        item = event.body["item"] if event.type == REFUSED else None
        sequence = event.sequence
        if "request" in (asked := event.body.get("command", {})):  # its texts stand with the wait
            sequence = int(asked["grant"][1:])
        event = as_single(event)
        command = event.body.get("command", {})
        confirms = command.get("confirms") or {}
        sealed = confirms.get("reason")
        if type(sealed) is dict:
            reason = self._text(sequence, WHY_CONFIRMED, sealed["sealed"])
            command = command | {"confirms": confirms | {"reason": reason}}
        elif not any(type(command.get(name)) is dict for name in FIELDS):
            return event
        opened = self.open(confirms.get("proposal", sequence), command, item)
        return replace(event, body=event.body | {"command": opened})

    def open(
        self, sequence: int, command: dict[str, Any], item: int | None = None
    ) -> dict[str, Any]:
        """Return a command of event ``sequence`` (``item`` of a refused batch) with its texts."""
        opened = dict(command)
        for name in FIELDS:  # a dimension may be called "sealed", so no other field is looked at
            if type(sealed := command.get(name)) is dict:
                field = name if item is None else field_of(item, name)
                opened[name] = self._text(sequence, field, sealed["sealed"])
        return opened

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
        if kept.digest != digest:
            return ALTERED
        return FromText(kept.text, sequence, field, digest) if self._placed else kept.text
