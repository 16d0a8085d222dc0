"""Free texts against the salted digests that events hold of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import orjson

from accountant.auditing.findings import Findings
from accountant.budget.batches import PART, REFUSED
from accountant.budget.outcome import (
    ADMITTED,
    TIMED_OUT,
)
from accountant.budget.proposals import (
    CONFIRMING,
)
from accountant.budget.sealing import FIELDS, WHY_CONFIRMED, Opened, field_of
from accountant.ledger.events import canonical

# In canonical JSON this cannot stand inside a string: its quotes would be escaped there. It begins
# with plain bytes, which are searched for much faster than a choice of names.
_SEALED: Final = re.compile(rb'":\{"sealed":"([0-9a-f]{64})"\}')
ERASED: Final = b'"type":"text.erased.v1"}'
_LISTING: Final = tuple(f'"type":"{kind}"}}'.encode() for kind in (PART, REFUSED))
_CAME_TO: Final = tuple(f'"type":"{kind}"}}'.encode() for kind in (ADMITTED, TIMED_OUT))

_Place = tuple[int, str]  # A sequence, and a field of its event


def _sealed_in(body: bytes) -> Iterator[tuple[str, str]]:
    """Yield the sealed fields, with digests, of an entry, or of the items of a refused batch that
    it holds. Those of a confirmed change are the proposal's, which has the texts; why it was
    confirmed is its own.
    """
    if CONFIRMING in body:
        yield from _why_confirmed(body)
        return
    if body.endswith(_LISTING):
        with suppress(KeyError, TypeError, ValueError):  # malformed: the replay reports it
            for place, command in enumerate(orjson.loads(body)["items"]):
                for name, digest in _sealed_in(canonical(command)):
                    yield field_of(place, name), digest
        return
    # The texts of what waited are sealed where the wait began; an approval has a reason of its own.
    fields = ("reason",) if body.endswith(_CAME_TO) else FIELDS
    for found in _SEALED.finditer(body):
        name = body[body.rfind(b'"', 0, found.start()) + 1 : found.start()].decode(errors="replace")
        if name in fields:
            yield name, found[1].decode()


def _why_confirmed(body: bytes) -> Iterator[tuple[str, str]]:
    with suppress(KeyError, TypeError, ValueError):  # malformed: the replay reports it
        reason = orjson.loads(body)["command"]["confirms"].get("reason")
        if isinstance(reason, dict):
            yield WHY_CONFIRMED, str(reason["sealed"])


class Part(NamedTuple):
    """A bundle of entries from ``first`` on, of a tree of ``size``; ``expected``: with texts."""

    first: int
    size: int
    expected: bool


class TextCheck:
    """Checks entries in order with their texts, over bundles that continue each other."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.parts: list[Part] = []
        self._missing: dict[_Place, int] = {}
        """Sealed texts that are not there, with the size of the tree of the bundle that lacks
        them: an event below it must erase each."""

    def take(self, member: str, first: int, bodies: list[bytes], data: bytes | None) -> None:
        """Check the texts of one entry bundle; ``data`` is None if it has none."""
        part = self.parts[-1]
        texts = {} if data is None else self._read(member, data)
        if data is not None and not part.expected:
            self._findings.add("there are texts, though they were left out", member=member)
        for sequence, body in enumerate(bodies, start=first):
            for field, digest in _sealed_in(body):
                opened = texts.pop((sequence, field), None)
                if opened is None:
                    if part.expected:
                        self._missing[sequence, field] = part.size
                elif opened.digest != digest:
                    self._findings.add(f"its {field} is not what was sealed", sequence=sequence)
            if body.endswith(ERASED):
                self._erase(sequence, body)
        for sequence, field in texts:
            self._findings.add(f"there is a {field} that it does not hold", sequence=sequence)

    def finish(self, end: int) -> None:
        """Report missing texts that no event below ``end``, all of which were read, erased."""
        for (sequence, field), size in self._missing.items():
            if size <= end:
                reason = f"its {field} is missing, though it was not erased"
                self._findings.add(reason, sequence=sequence)

    def _erase(self, sequence: int, body: bytes) -> None:
        try:
            command = orjson.loads(body)["command"]
            event, fields = int(command["event"]), [str(field) for field in command["fields"]]
        except (KeyError, TypeError, ValueError):
            return  # malformed: the replay reports it
        for field in fields:
            erased = self._missing.pop((event, field), None) is not None
            if not erased and self._shown(event, sequence):
                reason = f"the {field} of event {event} is there, though it was erased"
                self._findings.add(reason, sequence=sequence)

    def _shown(self, event: int, erasure: int) -> bool:
        """Return whether a bundle written after the erasure shows the texts of ``event``."""
        parts = [part for part in self.parts if part.first <= event]
        return event < erasure and bool(parts) and parts[-1].expected and erasure < parts[-1].size

    def _read(self, member: str, data: bytes) -> dict[_Place, Opened]:
        texts: dict[_Place, Opened] = {}
        last: _Place = (-1, "")
        for line in data.split(b"\n")[:-1]:
            try:
                place, opened = _text(line)
                if place <= last:
                    raise ValueError(place)
            except (AttributeError, KeyError, TypeError, ValueError):
                self._findings.add("a line of it is malformed or out of order", member=member)
                continue
            texts[place] = opened
            last = place
        if not data.endswith(b"\n"):
            self._findings.add("its last line is cut off", member=member)
        return texts


def _text(line: bytes) -> tuple[_Place, Opened]:
    """Return a text and its place. A malformed line raises any of the errors that callers catch."""
    document = orjson.loads(line)
    sequence, field, salt, text = (document[n] for n in ("sequence", "field", "salt", "text"))
    opened = Opened(bytes.fromhex(salt), text)
    sound = canonical(document) == line and len(document) == 4 and type(sequence) is int
    if not sound or len(opened.salt) != 32 or opened.salt.hex() != salt or not opened.digest:
        raise ValueError("it is malformed")
    return (sequence, field), opened
