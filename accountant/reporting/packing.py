"""How what was followed of a ledger is written down and read back: its charges and texts.

Texts that can be erased are never written: in their place stands where they are, and they are read
from there again. If one is not there any more, what was written is of no use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from accountant.budget.sealing import Opened
from accountant.privacy.units import Charge
from accountant.reporting.texts import FromText
from accountant.store.ledgers import Text

Place = tuple[int, str, str]
"""Where a text is: the event, the name of the field, the digest."""
Written = str | int
"""A text as it is, or the number of its place."""
ReadTexts = Callable[[int, int], Iterable[Text]]


class Tables(Struct, frozen=True):
    """The charges, as events spell them, and the places of texts, each once."""

    charges: list[dict[str, Any]]
    texts: list[Place]


class Pack:
    """Numbers charges and texts while they are written."""

    def __init__(self) -> None:
        self._charges: dict[Charge, int] = {}
        self._texts: dict[str, int] = {}
        self._places: list[Place] = []

    def charge(self, charge: Charge) -> int:
        """Return the number of a charge."""
        return self._charges.setdefault(charge, len(self._charges))

    def text(self, text: str) -> Written:
        """Return a text of our own as it is, of another the number of its place."""
        if not isinstance(text, FromText):
            return text
        number = self._texts.setdefault(str(text), len(self._texts))
        if number == len(self._places):
            self._places.append((text.sequence, text.field, text.digest))
        return number

    def tables(self) -> Tables:
        """Return what the numbers stand for."""
        return Tables([charge.to_json() for charge in self._charges], self._places)


class Unpack:
    """Returns charges and texts by their numbers. Raise ValueError for a text that is gone."""

    def __init__(self, tables: Tables, read: ReadTexts) -> None:
        self._charges = list(map(Charge.from_json, tables.charges))
        self._texts = [_read(place, read) for place in tables.texts]

    def charge(self, number: int) -> Charge:
        """Return the charge of a number."""
        return self._charges[number]

    def text(self, written: Written) -> str:
        """Return the text of a number; a text as it is."""
        return written if isinstance(written, str) else self._texts[written]

    def texts(self, written: Sequence[Written]) -> tuple[str, ...]:
        """Return ``text`` of each."""
        return tuple(map(self.text, written))


def _read(place: Place, read: ReadTexts) -> FromText:
    sequence, field, digest = place
    for row in read(sequence, sequence):
        if row.field == field and Opened(row.salt, row.text).digest == digest:
            return FromText(row.text, *place)
    raise ValueError(f"the text {field} of event {sequence} was erased or changed since")
