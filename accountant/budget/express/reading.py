"""Pieces of an event's bytes, cut out without parsing: a wrong cut only matches nothing."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple

from accountant.budget.express.stamps import LENGTH, Stamps

_STAMP: Final = b',"time":"'
_TYPE: Final = b'"type":"'
_PLAIN: Final = re.compile(rb"[ !#-\[\]-~]{1,1000}")
"""Text that is its own JSON."""
_SEALED: Final = b'"sealed":"'
_SEAL: Final = 64
_RAN_AT: Final = b'"ran_at":"'
_MOMENT: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
_HEX: Final = b"0123456789abcdef"


class Read(NamedTuple):
    """The bytes of an event with what stands at its end."""

    data: bytes
    kind: bytes
    stamp: bytes
    stamp_at: int
    now: int


def read(data: bytes, stamps: Stamps) -> Read | None:
    """None for a stamp that no event has."""
    at = data.rfind(_STAMP)
    stamp = data[at + len(_STAMP) : at + len(_STAMP) + LENGTH]
    now = stamps.read(stamp)
    if now is None:
        return None
    return Read(data, data[data.rfind(_TYPE) + len(_TYPE) : -2], stamp, at, now)


def key_at(data: bytes, first: int) -> bytes | None:
    """The key that begins at ``first``; None if it is not its own JSON."""
    key = data[first : data.find(b'"', first)]
    return key if _PLAIN.fullmatch(key) else None


class Holes(NamedTuple):
    """What differs from one request to the next of the same form."""

    seals: tuple[bytes, ...]
    """The digests of its sealed texts."""
    ran_at: bytes
    """When it ran; empty if it does not say."""


def hollowed(data: bytes) -> tuple[bytes, Holes]:
    """A request's bytes without what differs, and that. What is no moment stays, for who says so is
    refused.
    """
    data, seals = unsealed(data)
    first = data.find(_RAN_AT) + len(_RAN_AT)
    if first < len(_RAN_AT):
        return data, Holes(seals, b"")
    moment = data[first : data.find(b'"', first)]
    if not _MOMENT.fullmatch(moment) or not _is_moment(moment):
        return data, Holes(seals, b"")
    return data[:first] + data[first + len(moment) :], Holes(seals, moment)


def _is_moment(text: bytes) -> bool:
    try:
        datetime.fromisoformat(text.decode())
    except ValueError:
        return False
    return True


def unsealed(data: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """``data`` without the digests of its sealed texts, and these."""
    seals: list[bytes] = []
    at = data.find(_SEALED)
    while at >= 0:
        first = at + len(_SEALED)
        seal = data[first : first + _SEAL]
        if len(seal) == _SEAL and not seal.strip(_HEX):
            seals.append(seal)
            data = data[:first] + data[first + _SEAL :]
        at = data.find(_SEALED, first)
    return data, tuple(seals)
