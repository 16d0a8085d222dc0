"""The events of a ledger, and the charter that keeps old ones valid for ever.

Charter
    1. An event is written once and never changed; what it says is its canonical bytes.
    2. A type's name carries its version. A field's meaning or default never changes within a
       version; fields may be added if leaving them out means what it meant before, and if whoever
       passes over them has the same sums. Anything else is a new version, and the fold keeps
       understanding the old one.
    3. Quantities that anything compares are integers in decimal strings (units.py) or decimal
       strings; no event holds a float, and integers stay below 2**53.
    4. No personal data: subject groups are selections over public dimensions, and free text stands
       beside the ledger, which holds its salted digest.
    5. An event holds the command that it answers, so that the decision can be taken again, by the
       version of the bounds that the ledger names at that place. No version is ever taken away.
    6. Every format that was ever released is accepted for ever: the tests have bundles of each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
import orjson

MAX_BYTES: Final = 65_535  # An entry of the evidence formats has a 16-bit length

MAX_DEPTH: Final = 64

_EPOCH: Final = datetime(1970, 1, 1)  # UTC
_STAMP: Final = re.compile(r"[1-9]\d{3}(-\d\d){2}T([01]\d|2[0-3])(:[0-5]\d){2}\.\d{6}Z", re.ASCII)


class EventTooLarge(ValueError):
    """The event would have more than 65,535 canonical bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"what is asked takes {size} bytes of the ledger, the most is {MAX_BYTES}: "
            "make it smaller, or ask in several parts"
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One fact. ``time`` is microseconds since 1970 UTC; ``body`` is everything specific to it."""

    ledger: str
    sequence: int
    type: str
    time: int
    by: str
    body: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the event as it is hashed and served."""
        return self.body | {
            "ledger": self.ledger,
            "sequence": self.sequence,
            "type": self.type,
            "time": rfc3339(self.time),
            "by": self.by,
        }

    def to_bytes(self) -> bytes:
        """Return canonical bytes. Raises EventTooLarge, or ValueError for a forbidden value."""
        data = canonical(self.to_json())
        if len(data) > MAX_BYTES:
            raise EventTooLarge(len(data))
        return data

    @classmethod
    def from_bytes(cls, data: bytes, *, compared: bool = False) -> Event:
        """Read canonical bytes. Raises ValueError if they are not exactly what we would write;
        where the caller compares them itself (``compared``), only if the Event has a wrong shape.
        """
        plain = None if compared else _read_plain(data)
        body = orjson.loads(data) if plain is None else plain
        if not isinstance(body, dict):
            raise ValueError("an event is a JSON object")
        try:
            pop = body.pop
            ledger, sequence, kind = pop("ledger"), pop("sequence"), pop("type")
            event = cls(ledger, sequence, kind, microseconds(pop("time")), pop("by"), body)
        except (KeyError, TypeError) as missing:
            raise ValueError(f"the event lacks a field or has a wrong one: {missing}") from None
        sound = type(event.ledger) is type(event.type) is type(event.by) is str
        if not sound or type(event.sequence) is not int:
            raise ValueError("a field of the event has a wrong type")
        if plain is None and not compared:
            event.check(data)
        return event

    def check(self, data: bytes) -> None:
        """Raise ValueError unless ``data`` are the event's canonical bytes."""
        if self.to_bytes() != data:
            raise ValueError("the event's bytes are not in canonical form")


class Entry(NamedTuple):
    """An event as it is appended: its canonical bytes, and what columns repeat of them."""

    sequence: int
    type: str
    time: int
    body: bytes

    @classmethod
    def of(cls, event: Event) -> Entry:
        """Return the entry of ``event``. Raises as ``to_bytes``."""
        return cls(event.sequence, event.type, event.time, event.to_bytes())


def check_canonical(data: bytes) -> None:
    """Raise ValueError unless ``data`` are the canonical bytes of an event."""
    if _read_plain(data) is None:
        Event.from_bytes(data)


def canonical(document: Any) -> bytes:
    """Return the RFC 8785 bytes of objects with ASCII keys, strings, booleans and integers below
    2**53, for which orjson's sorted output is RFC 8785. Raises ValueError for other documents.
    """
    _check(document, MAX_DEPTH)
    try:
        return written(document)
    except TypeError as error:  # a string with half of a surrogate pair
        raise ValueError(str(error)) from None


def _no_float(text: str) -> Any:
    raise ValueError(f"{text} has no place in an event")


_DECODER: Final = msgspec.json.Decoder(float_hook=_no_float)


def _read_plain(data: bytes) -> dict[str, Any] | None:
    """Read canonical bytes in the common case: all ASCII, few brackets. Return None for others."""
    if type(data) is not bytes or not data.isascii() or len(data) > MAX_BYTES:
        return None
    if data.count(b"{") + data.count(b"[") >= MAX_DEPTH:
        return None
    try:
        document = _DECODER.decode(data)
        same = orjson.dumps(document, option=_STRICT) == data
    except (msgspec.MsgspecError, TypeError, ValueError):  # no JSON, a float, a large integer
        return None
    return document if same and type(document) is dict else None


_STRICT: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


def written(document: Any) -> bytes:
    """Return the ``canonical`` bytes of a document that is known to be sound."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def kept(document: Any, name: str) -> bytes:
    """Return a field's ``canonical`` bytes; it may hold tuples. Raises TypeError with ``name``."""
    try:
        data = orjson.dumps(document, option=_STRICT)
        _DECODER.decode(data)
        if not data.isascii() or data.count(b"{") + data.count(b"[") >= MAX_DEPTH - 1:
            canonical({"": orjson.loads(data)})
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise TypeError(f"{name} cannot stand in an event: {error}") from None
    return data


def to_keep(data: bytes) -> bytes:
    """Return a copy without spare memory: orjson leaves bytes a buffer of 4 KiB or more."""
    return bytes(memoryview(data))


def _check(value: Any, depth: int) -> None:
    if depth < 0:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, (str, bool)):
        return
    if isinstance(value, int):
        if abs(value) >= 2**53:
            raise ValueError(f"{value} is not below 2**53: write it as a string")
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check(item, depth - 1)
    elif isinstance(value, dict):
        _check_fields(value, depth)
    else:
        raise ValueError(f"a {type(value).__name__} has no place in an event")


def _check_fields(fields: dict[Any, Any], depth: int) -> None:
    for key, item in fields.items():
        if not (isinstance(key, str) and key.isascii()):
            raise ValueError(f"the key {key!r} is not ASCII text")
        if type(item) is not str or depth == 0:  # most are texts, which need no closer look
            _check(item, depth - 1)


def digest(document: Any) -> str:
    """Return the SHA-256 of the canonical bytes, in hex."""
    return sha256(canonical(document)).hexdigest()


@lru_cache(maxsize=64)  # the events of a unit of work have one stamp
def rfc3339(time: int) -> str:
    """Return microseconds since 1970 as RFC 3339 UTC with six digits."""
    return f"{_second(time // 1_000_000)}.{time % 1_000_000:06d}Z"


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    day, second = divmod(second, 86_400)
    hour, second = divmod(second, 3_600)
    minute, second = divmod(second, 60)
    return f"{_day(day)}T{hour:02d}:{minute:02d}:{second:02d}"


@lru_cache
def _day(day: int) -> str:
    # Years before 1000 lose their zeros, and are no stamps.
    return (_EPOCH + timedelta(days=day)).isoformat()[:10].lstrip("0")


def microseconds(text: str) -> int:
    """Invert ``rfc3339``. Raises ValueError for any other form."""
    if not _STAMP.fullmatch(text):
        raise ValueError(f"{text!r} is no stamp of an event")
    minutes = int(text[11:13]) * 60 + int(text[14:16])
    seconds = minutes * 60 + int(text[17:19])
    return (_days(text[:10]) * 86_400 + seconds) * 1_000_000 + int(text[20:26])


@lru_cache
def _days(day: str) -> int:
    return (datetime.fromisoformat(day) - _EPOCH).days
