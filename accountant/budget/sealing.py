"""Free texts stay outside the ledger, which holds only their salted digests.

A text can then be erased without touching an event. What the rules compare stays in clear: a
purpose that the policy lists is a term of the policy's, and a blank text says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from accountant.budget.batches import OPENED, REFUSED
from accountant.budget.commands import Command, Envelope, Sealed
from accountant.budget.commands.base import construct
from accountant.budget.population.packing import packed, packed_as
from accountant.budget.rules.require import blank
from accountant.budget.state import State
from accountant.ledger.events import Entry, Event

FIELDS: Final = ("justification", "purpose", "reason")
"""The fields of commands that hold free text."""
SALT_BYTES: Final = 32


class Opened(NamedTuple):
    """A text with the salt of its digest."""

    salt: bytes
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the salt and the text, in hex."""
        return sha256(self.salt + self.text.encode()).hexdigest()


def seal(
    state: State, asked: Envelope, new_salt: Callable[[], bytes]
) -> tuple[Envelope, dict[str, Opened]]:
    """Replace the free texts of ``asked`` by digests. Returns it with the texts to keep, by field;
    those of a batch by ``field_of``.
    """
    if asked.items:
        opened: dict[str, Opened] = {}
        parts = []
        for place, part in enumerate(asked.parts):
            sealed, texts = seal(state, part, new_salt)
            parts.append(sealed)
            opened |= {field_of(place, field): one for field, one in texts.items()}
        return Envelope.together(asked.by, parts, asked.key), opened
    opened = {}
    asked = _as(asked, packed(state.population, asked.command))
    for field in FIELDS:
        text = vars(asked.command).get(field)
        if isinstance(text, str) and not blank(text) and text not in _terms(state, field):
            opened[field] = Opened(new_salt(), text)
    return _with(asked, {field: one.digest for field, one in opened.items()}), opened


def seal_again(
    state: State, asked: Envelope, stored: Sequence[Event], texts: Mapping[tuple[int, str], Opened]
) -> Envelope:
    """``asked`` as the event that answered it before would hold it, ``stored`` with the items of a
    batch behind it: the same text gets the same digest, so that a retry is known for one. A text
    that was erased counts as the same. ``texts`` are kept by sequence and field.
    """
    first = stored[0]
    if not asked.items:
        return _again(state, asked, first.body["command"], partial(_kept, texts, first.sequence))
    if first.type == REFUSED:
        before = [
            (command, partial(_kept, texts, first.sequence, item=place))
            for place, command in enumerate(first.body["items"])
        ]
    else:
        before = [(e.body["command"], partial(_kept, texts, e.sequence)) for e in stored[1:]]
    if len(before) != len(asked.items):
        return asked  # another request
    parts = [
        _again(state, part, command, kept)
        for part, (command, kept) in zip(asked.parts, before, strict=True)
    ]
    return Envelope.together(asked.by, parts, asked.key)


def places_of(
    events: Sequence[Entry], opened: Mapping[str, Opened]
) -> Iterator[tuple[int, str, Opened]]:
    """The sequence and the field that each text of a request belongs to; ``events`` answer it."""
    header = next((i for i, event in enumerate(events) if event.type == OPENED), None)
    for field, text in opened.items():
        if header is None:
            yield events[-1].sequence, field, text
        else:
            _, place, name = field.split(".")
            yield events[header + 1 + int(place)].sequence, name, text


def field_of(item: int, field: str) -> str:
    """Return the name of an item's field in a refused batch, which is one event."""
    return f"items.{item}.{field}"


def _kept(
    texts: Mapping[tuple[int, str], Opened], sequence: int, field: str, item: int | None = None
) -> Opened | None:
    return texts.get((sequence, field if item is None else field_of(item, field)))


def _again(
    state: State,
    asked: Envelope,
    command: Mapping[str, Any],
    kept_in: Callable[[str], Opened | None],
) -> Envelope:
    digests = {}
    asked = _as(asked, packed_as(state.population, asked.command, command))
    for field in FIELDS:
        text, held = getattr(asked.command, field, None), command.get(field)
        if not isinstance(text, str) or not isinstance(held, dict):
            continue
        kept = kept_in(field)
        if kept is None or (kept.text == text and kept.digest == held["sealed"]):
            digests[field] = held["sealed"]
    return _with(asked, digests)


def _as(asked: Envelope, command: Command) -> Envelope:
    # What an Envelope has worked out already is not thrown away for nothing.
    return asked if command is asked.command else replace(asked, command=command)


def _with(asked: Envelope, digests: Mapping[str, str]) -> Envelope:
    if not digests:
        return asked
    shown = {field: {"sealed": digest} for field, digest in digests.items()}
    sealed = {field: construct(Sealed, one) for field, one in shown.items()}
    command = construct(type(asked.command), vars(asked.command) | sealed)
    sound = asked.sound or "canonical" in vars(asked)  # a digest is
    other = Envelope(asked.by, command, asked.key, asked.items, sound)
    vars(other)["document"] = asked.document | shown
    return other


def _terms(state: State, field: str) -> Collection[str]:
    if field != "purpose" or state.adopted is None:
        return ()
    return state.adopted.purposes
