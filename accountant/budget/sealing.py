"""Free texts stay outside the ledger, which holds only their salted digests.

A text can then be erased without touching an event. Texts that rules compare stay in
clear: purposes that the policy lists, and blank texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from accountant.budget.batches import OPENED, PART, REFUSED, refused_items
from accountant.budget.commands import ConfirmChange, Envelope, Sealed, construct
from accountant.budget.population.packing import packed, packed_as
from accountant.budget.rules.require import blank
from accountant.budget.state import State
from accountant.ledger.events import Entry, Event, to_keep, written

FIELDS: Final = ("justification", "purpose", "reason")
"""The fields of commands that hold free text."""
WHY_CONFIRMED: Final = "confirms.reason"
"""The field of an event with the reason of whoever confirmed it; the change may have one, too."""
SALT_BYTES: Final = 32


class Opened(NamedTuple):
    """A text with the salt of its digest."""

    salt: bytes
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the salt and the text, in hex."""
        return sha256(self.salt + self.text.encode()).hexdigest()


Texts = Mapping[tuple[int, str], Opened]
"""Texts by the sequence of the event and the field."""


def seal(
    state: State, asked: Envelope, new_salt: Callable[[], bytes]
) -> tuple[Envelope, dict[str, Opened]]:
    """Replace free texts by digests. Returns also the texts to keep, by field or ``field_of``."""
    opened = dict[str, Opened]()
    if asked.items:
        parts = []
        for place, part in enumerate(asked.parts):
            sealed, texts = seal(state, part, new_salt)
            parts.append(sealed)
            opened |= {field_of(place, field): one for field, one in texts.items()}
        return Envelope.together(asked.by, parts, asked.key), opened
    if (command := packed(state.population, asked.command)) is not asked.command:
        asked = asked.asking(command)
    stated = vars(command)
    for field in FIELDS:
        text = stated.get(field)
        if isinstance(text, str) and not blank(text) and not _in_clear(state, field, text):
            opened[field] = Opened(new_salt(), text)
    sealed = _with(asked, {field: one.digest for field, one in opened.items()})
    if isinstance(command, ConfirmChange) and opened:  # the event has its reason elsewhere
        opened = {WHY_CONFIRMED: opened["reason"]}
    return sealed, opened


def _in_clear(state: State, field: str, text: str) -> bool:
    """Return whether a text stands in events as it is: a purpose that the policy lists."""
    adopted = state.adopted
    return field == "purpose" and adopted is not None and text in adopted.purposes


def seal_again(state: State, asked: Envelope, stored: Sequence[Event], texts: Texts) -> Envelope:
    """Return ``asked`` as the event that answered it before would hold it, so that a retry is
    recognised: the same text gets the same digest, and so does a text that was erased. ``stored``
    are that event and, behind a batch, its items; before a refused batch, its parts.
    """
    first = stored[0]
    if not asked.items:
        return _again(state, asked, texts, (first.body["command"], first.sequence, ""))
    before: list[_Held] = [(event.body["command"], event.sequence, "") for event in stored[1:]]
    if stored[-1].type == REFUSED:
        items = refused_items(stored)
        before = [(command, sequence, field_of(at, "")) for command, sequence, at in items]
    if len(before) != len(asked.items):
        return asked  # another request
    places = zip(asked.parts, before, strict=True)
    parts = [_again(state, part, texts, held) for part, held in places]
    return Envelope.together(asked.by, parts, asked.key)


def places_of(
    events: Sequence[Entry], opened: Mapping[str, Opened]
) -> Iterator[tuple[int, str, Opened]]:
    """Yield the sequence and the field of each text of a request; ``events`` answer it."""
    if len(events) == 1:  # as of most requests
        for field, text in opened.items():
            yield events[0].sequence, field, text
        return
    header = next((i for i, event in enumerate(events) if event.type == OPENED), None)
    parted = any(event.type == PART for event in events)
    items = list(refused_items(Event.from_bytes(one.body) for one in events)) if parted else []
    for field, text in opened.items():
        if header is None and not parted:
            yield events[-1].sequence, field, text
            continue
        _, place, name = field.split(".")
        if header is not None:
            yield events[header + 1 + int(place)].sequence, name, text
        else:
            _, sequence, at = items[int(place)]
            yield sequence, field_of(at, name), text


def field_of(item: int, field: str) -> str:
    """Return the name of an item's field in an event that holds items of a refused batch."""
    return f"items.{item}.{field}"


_Held = tuple[Mapping[str, Any], int, str]
"""A command as an event holds it, that event's sequence, and what its fields' names begin with."""


def _again(state: State, asked: Envelope, texts: Texts, before: _Held) -> Envelope:
    command, sequence, prefix = before
    digests = {}
    if isinstance(asked.command, ConfirmChange):
        command, prefix = command.get("confirms", {}), "confirms."
    if (held_so := packed_as(state.population, asked.command, command)) is not asked.command:
        asked = asked.asking(held_so)
    for field in FIELDS:
        text, held = getattr(asked.command, field, None), command.get(field)
        if not isinstance(text, str) or not isinstance(held, dict):
            continue
        kept = texts.get((sequence, prefix + field))
        if kept is None or (kept.text == text and kept.digest == held["sealed"]):
            digests[field] = held["sealed"]
    return _with(asked, digests)


def _with(asked: Envelope, digests: Mapping[str, str]) -> Envelope:
    if not digests:
        return asked
    shown, fields = asked.document.copy(), vars(asked.command).copy()
    for field, digest in digests.items():
        shown[field] = held = {"sealed": digest}
        fields[field] = construct(Sealed, held)
    command = construct(type(asked.command), fields)
    sound = asked.sound or asked.spelled is not None  # a digest is valid in an event
    spelled = to_keep(written(shown)) if sound else None
    about = asked.by, command, asked.key, asked.items, sound
    return Envelope(*about, shown=shown, spelled=spelled)
