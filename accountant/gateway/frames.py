"""What passes between the two processes: requests one way, replies the other.

A frame is the length of what follows its lengths, the length of its head, a number that ties a
reply to its request (all big-endian), then the head, which is JSON, and the body as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import orjson

_LENGTHS: Final = struct.Struct(">IIQ")
Headers = list[tuple[str, str]]
"""Names in small letters, and values; every byte a character (Latin-1)."""


class Request(NamedTuple):
    """A request, whole. ``raw_path`` and ``query`` are as they came, every byte a character."""

    id: str
    method: str
    path: str
    raw_path: str
    query: str
    headers: Headers
    body: bytes


class Reply(NamedTuple):
    """An answer, whole. ``client`` is who asked, as the log names them."""

    status: int
    client: str | None
    headers: Headers
    body: bytes


Replying = Callable[[Reply], None]
"""Takes the reply to one request, in whatever thread."""


def frame(number: int, message: Request | Reply) -> bytes:
    """One frame. Raises struct.error for one of 4 GiB."""
    *head, body = message
    text = orjson.dumps(head)
    return b"".join((_LENGTHS.pack(len(text) + len(body), len(text), number), text, body))


class Frames:
    """Takes a stream to pieces, however it was cut on its way."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._missing = 0
        """Bytes without which nothing more is whole."""

    def read(self, data: bytes) -> Iterator[tuple[int, list[Any]]]:
        """The number and the fields of every message that is whole with ``data``."""
        self._pieces.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        data = b"".join(self._pieces)
        first, wanted = 0, _LENGTHS.size
        while len(data) - first >= wanted:
            size, text, number = _LENGTHS.unpack_from(data, first)
            start = first + _LENGTHS.size
            if len(data) - start < size:
                wanted += size
                break
            first = start + size
            yield number, [*orjson.loads(data[start : start + text]), data[start + text : first]]
        self._pieces = [data[first:]]
        self._missing = wanted - len(data) + first


def plain(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers as a message holds them."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def raw(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The inverse of ``plain``."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
