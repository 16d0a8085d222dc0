"""A body in chunks, read as they come (RFC 9112, section 7.1)."""

from __future__ import annotations

import re
from typing import Final

from accountant.door.head import Refused

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[\t\x20-\x7e\x80-\xff]*+")
_LINE: Final = 256
"""Bytes of a line with a size."""
_TRAILERS: Final = 8_192
_OVERHEAD: Final = 65_536
"""Bytes that are no part of the body, beside as many again as the body has."""


class Chunks:
    """Takes chunks out of a buffer. Raises Refused for what is no chunk, and for too much."""

    def __init__(self, most: int) -> None:
        self.body = bytearray()
        self._most = most
        self._left = -1
        """Bytes of the present chunk with its line end; -1 between two, -2 in the trailers."""
        self._around = 0

    def feed(self, buffer: bytearray) -> bool:
        """Takes what is there; whether the body has ended."""
        while buffer:
            if self._left > 0:
                self._data(buffer)
                if self._left > 0:
                    return False
                continue
            most = _TRAILERS if self._left == -2 else _LINE
            end = buffer.find(b"\n", 0, most)
            if end < 0:
                if len(buffer) >= most:
                    raise _bad("a line is too long")
                return False
            if end == 0 or buffer[end - 1] != 0x0D:
                raise _bad("a line ends with a bare LF")
            line = bytes(buffer[: end - 1])
            del buffer[: end + 1]
            if self._line(line):
                return True
        return False

    def _line(self, line: bytes) -> bool:
        """A size, or a trailer field; whether that is the end."""
        self._around += len(line) + 4
        if self._around > _OVERHEAD + len(self.body):
            raise _bad("there is more around the chunks than in them")
        if self._left == -2:
            if line and not _TRAILER.fullmatch(line):
                raise _bad("a trailer field cannot be read")
            return not line
        size = _SIZE.fullmatch(line)
        if size is None:
            raise _bad("a chunk's size cannot be read")
        count = int(size[1], 16)
        if len(self.body) + count > self._most:
            raise too_large(self._most)
        self._left = count + 2 if count else -2
        return False

    def _data(self, buffer: bytearray) -> None:
        if self._left > 2:
            part = buffer[: self._left - 2]
            self.body += part
            self._left -= len(part)
            del buffer[: len(part)]
        if self._left <= 2 and len(buffer) >= self._left:
            if buffer[: self._left] != b"\r\n":
                raise _bad("a chunk does not end where it says")
            del buffer[: self._left]
            self._left = -1
        elif buffer and self._left == 2 and buffer[0] != 0x0D:
            raise _bad("a chunk does not end where it says")


def too_large(most: int) -> Refused:
    """What is answered to a body that is too large."""
    return Refused("body-too-large", 413, f"the body has more than {most} bytes; split the request")


def _bad(detail: str) -> Refused:
    return Refused("http-error", 400, f"this is not proper HTTP: {detail}")
