"""Pieces of an event's bytes, cut out without parsing: a wrong cut only matches nothing."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from accountant.budget.express.stamps import LENGTH, Stamps

_STAMP: Final = b',"time":"'
_TYPE: Final = b'"type":"'
_PLAIN: Final = re.compile(rb"[ !#-\[\]-~]{1,1000}")
"""Text that is its own JSON."""
_SEALED: Final = b'"sealed":"'
_SEAL: Final = 64
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


def unsealed(data: bytes) -> tuple[bytes, list[bytes]]:
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
    return data, seals
