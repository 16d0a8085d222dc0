"""Free texts against the salted digests that events hold of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

from accountant.auditing.findings import Findings
from accountant.budget.batches import REFUSED
from accountant.budget.sealing import FIELDS, Opened, field_of
from accountant.ledger.events import canonical

# In canonical JSON this cannot stand inside a string: its quotes would be escaped there. It begins
# with plain bytes, which are searched for much faster than a choice of names.
_SEALED: Final = re.compile(rb'":\{"sealed":"([0-9a-f]{64})"\}')
_ERASED: Final = b'"type":"text.erased.v1"}'
_REFUSED: Final = f'"type":"{REFUSED}"}}'.encode()


def _sealed_in(body: bytes) -> Iterator[tuple[str, str]]:
    """The fields of an entry that hold a digest, with it."""
    if body.endswith(_REFUSED):
        yield from _sealed_in_items(body)
        return
    for found in _SEALED.finditer(body):
        name = body[body.rfind(b'"', 0, found.start()) + 1 : found.start()].decode()
        if name in FIELDS:
            yield name, found[1].decode()


def _sealed_in_items(body: bytes) -> Iterator[tuple[str, str]]:
    """The same of a refused batch: each item has its own."""
    try:
        for place, command in enumerate(orjson.loads(body)["items"]):
            for name, digest in _sealed_in(canonical(command)):
                yield field_of(place, name), digest
    except (KeyError, TypeError, ValueError):
        return  # malformed: the replay reports it


class Part(NamedTuple):
    """The entries of a bundle from ``first`` on, which is of a tree of ``size``."""

    first: int
    size: int
    expected: bool


class TextCheck:
    """Takes the entries in order, each bundle of them with its texts. It goes on over bundles that
    continue each other, since a text may be erased by an event in a later one.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._parts: list[Part] = []
        self._missing: dict[tuple[int, str], int] = {}
        """The sealed texts that are not there, with the size of the tree that they were left out
        of: the event that erased them is below it."""

    def begin(self, first: int, size: int, *, expected: bool) -> None:
        """A bundle begins; ``expected``: with its texts."""
        self._parts.append(Part(first, size, expected))

    def take(self, member: str, first: int, bodies: list[bytes], data: bytes | None) -> None:
        """Checks the texts of one entry bundle; ``data`` is None if it has none."""
        part = self._parts[-1]
        texts = {} if data is None else self._read(member, data)
        if data is not None and not part.expected:
            self._findings.add("there are texts, though they were left out", member=member)
        for sequence, body in enumerate(bodies, start=first):
            for field, digest in _sealed_in(body):
                place = (sequence, field)
                opened = texts.pop(place, None)
                if opened is None:
                    if part.expected:
                        self._missing[place] = part.size
                elif opened.digest != digest:
                    self._findings.add(f"its {place[1]} is not what was sealed", sequence=sequence)
            if body.endswith(_ERASED):
                self._erase(sequence, body)
        for sequence, field in texts:
            self._findings.add(f"there is a {field} that it does not hold", sequence=sequence)

    def finish(self, end: int) -> None:
        """Reports texts that are missing though nobody erased them; all events below ``end`` were
        read.
        """
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
        """True if a bundle that was written after the erasure shows the texts of ``event``."""
        parts = [part for part in self._parts if part.first <= event]
        return event < erasure and bool(parts) and parts[-1].expected and erasure < parts[-1].size

    def _read(self, member: str, data: bytes) -> dict[tuple[int, str], Opened]:
        texts: dict[tuple[int, str], Opened] = {}
        last: tuple[int, str] = (-1, "")
        for line in data.split(b"\n")[:-1]:
            try:
                document: dict[str, Any] = orjson.loads(line)
                place = (document["sequence"], document["field"])
                opened = Opened(bytes.fromhex(document["salt"]), document["text"])
                sound = canonical(document) == line and len(document) == 4
                sound = sound and type(place[0]) is int and place > last
                sound = sound and len(opened.salt) == 32 and bool(opened.digest)
                sound = sound and opened.salt.hex() == document["salt"]
            except (AttributeError, KeyError, TypeError, ValueError):
                sound = False
            if not sound:
                self._findings.add("a line of it is malformed or out of order", member=member)
                continue
            texts[place] = opened
            last = place
        if not data.endswith(b"\n"):
            self._findings.add("its last line is cut off", member=member)
        return texts
