"""Reads requests strictly (RFC 9112): the head (``Head``) and bodies in chunks (``Chunks``).

Requests that two programs could read differently are refused, not repaired: bare CR or LF, folded
lines, spaces before a colon, a length that is doubled or contradicts chunks. The patterns of a head
are possessive, so that none takes more than linear time.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from accountant.auth.keys import PREFIX
from accountant.door.messages import FORMS, Fields, Refused

HEAD_BYTES: Final = 65_536  # Bytes of a head before the blank line that ends it
FORM_BYTES: Final = 65_536  # Bytes of a form that somebody sends who has no key
FIELDS: Final = 128  # Header fields of a request
END: Final = b"\r\n\r\n"
_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"  # noqa: S105 a token of the grammar
_FIELD: Final = _TOKEN + r":[\t\x20-\x7e\x80-\xff]*+"
# Groups are not repeated possessively: before 3.11.5 Python does not match them (gh-106052).
_HEAD: Final = re.compile(
    rf"({_TOKEN}) ([\x21\x22\x24-\x7e]++) HTTP/1\.([01])((?:\r\n{_FIELD})*)\r\n\r\n"
)
_LINE: Final = re.compile(rf"({_TOKEN}) (\S++) HTTP/(\d)\.(\d)\r\n")
_FIELDS: Final = re.compile(rf"(?:{_FIELD}\r\n)*\r\n")
_ABSOLUTE: Final = re.compile(r"https?://[^/?#@]++", re.IGNORECASE)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_TRACE: Final = re.compile(
    r"(00|(?!ff)[0-9a-f]{2}(?=.{53}-|.{53}$))"
    r"(-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})"
)
"""W3C Trace Context: of a version after 00 the beginning is read, and handed on as 00."""
_KEY: Final = re.compile(PREFIX + r"[A-Za-z0-9_-]{43}")
_BROKEN_LINE: Final = re.compile(rb"(?<!\r)\n|\r(?=[^\n])")  # A CR or LF that is not part of CRLF

_ONCE: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "authorization", "expect", "content-type"}
)
_SEEN: Final = _ONCE | {
    "connection",
    "content-encoding",
    "idempotency-key",
    "x-request-id",
    "traceparent",
}
_MISPLACED: Final = (
    "an API key stands in the {}, where it is logged on its way: nothing was done; revoke the key, "
    "make another, and send it in Authorization only"
)

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER: Final = re.compile(_FIELD.encode())
_SIZE_LINE: Final = 256  # Bytes of a line with a chunk's size
_TRAILERS: Final = 8_192
_OVERHEAD: Final = 65_536  # Bytes around the chunks, beyond as many as are in them


class Head:
    """The head of a request. Raises Refused where it cannot be read."""

    __slots__ = (
        "authorization", "continues", "encoded", "fields", "http11", "keep_alive", "length",
        "method", "misplaced", "path", "query", "raw_path", "request_id", "trace",
    )  # fmt: skip

    def __init__(self, data: bytes) -> None:
        """Read ``data``, which ends with a blank line."""
        text = data.decode("latin-1")
        match = _HEAD.fullmatch(text)
        if match is None:
            raise _why(text)
        self.method, target, minor, block = match.groups()
        self.fields, seen = _fields(block)
        self.http11 = minor == "1"
        if "host" not in seen and self.http11:
            raise malformed("there is no Host")
        self.raw_path, self.query = _path(self.method, target)
        self.path = unquote(self.raw_path) if "%" in self.raw_path else self.raw_path
        connection = seen.get("connection", "").lower()
        self.keep_alive = "close" not in connection if self.http11 else "keep-alive" in connection
        expect = seen.get("expect", "").lower()
        if expect and expect != "100-continue":
            raise Refused("http-error", 417, "the only expectation that can be met is 100-continue")
        self.continues = bool(expect) and self.http11  # The client waits for 100 Continue
        self.length = _length(seen, http11=self.http11)  # None for a body in chunks, 0 for none
        self.encoded = seen.get("content-encoding", "identity").lower() != "identity"
        self.authorization = seen.get("authorization", "")
        self.misplaced = ""  # Where an API key wrongly stands; nothing of the head is logged then
        sent = seen.get("x-request-id", "")
        if PREFIX in text or "%" in target:
            if _KEY.search(unquote(target)):
                self.misplaced = "URL"
            elif _KEY.search(seen.get("idempotency-key", "")):
                self.misplaced = "Idempotency-Key"
            sent = "" if _KEY.search(sent) else sent
        self.request_id = sent if _REQUEST_ID.fullmatch(sent) else ""
        self.trace = _trace(seen["traceparent"]) if "traceparent" in seen else ""

    def is_form(self) -> bool:
        """Return whether the body is a form of a page for people, which is taken without an API
        key. Raise Refused for a large one.
        """
        if self.authorization or not self.path.startswith(FORMS):
            return False
        if self.length is None or self.length > FORM_BYTES:
            raise too_large(FORM_BYTES)
        return True

    def check(self, most: int) -> None:
        """Raise Refused for errors that do not depend on the body, of at most ``most`` bytes."""
        if self.misplaced:
            raise Refused("misplaced-key", 400, _MISPLACED.format(self.misplaced), closes=False)
        if self.encoded:
            text = "send the body as it is, without Content-Encoding"
            raise Refused("encoded-body", 415, text, closes=False)
        if self.length is not None and self.length > most:
            raise too_large(most)


def check_begun(buffer: bytearray, first: int) -> None:
    """Raise Refused if a line of a head that is not whole yet, from ``first`` on, is broken."""
    if _BROKEN_LINE.search(buffer, first):
        raise malformed("a line ends without CRLF")


def _fields(block: str) -> tuple[Fields, dict[str, str]]:
    """Return all fields, and by name those that the door needs."""
    fields: Fields = []
    seen: dict[str, str] = {}
    for line in block.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        fields.append((name, value))
        if name in _SEEN:
            if name not in seen:
                seen[name] = value
            elif name in _ONCE:
                raise malformed(f"{name} is given twice")
            else:
                seen[name] += ", " + value
    if len(fields) > FIELDS:
        raise Refused("header-too-large", 431, f"a request has at most {FIELDS} header fields")
    return fields, seen


def _trace(sent: str) -> str:
    """Return a traceparent that is sound, as version 00; empty for any other."""
    match = _TRACE.match(sent)
    if match is None or (match[1] == "00" and match.end() < len(sent)):
        return ""
    return "00" + match[2]


def _length(seen: dict[str, str], *, http11: bool) -> int | None:
    """Return the length of the body; None if it comes in chunks."""
    length, coding = seen.get("content-length"), seen.get("transfer-encoding")
    if coding is not None:
        if length is not None:
            raise malformed("a body has a Content-Length or a Transfer-Encoding, not both")
        if not http11:
            raise malformed("HTTP/1.0 has no Transfer-Encoding")
        if coding.lower() != "chunked":
            raise Refused("http-error", 501, "the only Transfer-Encoding is chunked")
        return None
    if length is None:
        return 0
    if not _LENGTH.fullmatch(length):
        raise malformed("Content-Length is no number")
    return int(length)


def _path(method: str, target: str) -> tuple[str, str]:
    """Return the raw path and the query of a request target."""
    if not target.startswith("/"):
        absolute = _ABSOLUTE.match(target)
        if absolute is not None:
            target = target[absolute.end() :]
            target = target if target.startswith("/") else "/" + target
        elif not (target == "*" and method == "OPTIONS"):
            raise malformed("the request target is neither a path nor an http address")
    path, _, query = target.partition("?")
    return path, query


def _why(text: str) -> Refused:
    """Return the refusal of a head that does not match."""
    line = _LINE.match(text)
    if line is None:
        return malformed("the request line cannot be read")
    if line[3] != "1" or line[4] not in "01":
        return Refused("http-error", 505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    if _FIELDS.fullmatch(text, line.end()) is None:
        return malformed("a header field cannot be read")
    return malformed("the request target cannot be read")


class Chunks:
    """Takes chunks out of a buffer. Raises Refused for malformed chunks and for too many bytes."""

    def __init__(self, most: int) -> None:
        self.body = bytearray()
        self._most = most
        self._left = -1  # Bytes of the chunk and its line end; -1 between two, -2 in the trailers
        self._around = 0

    def feed(self, buffer: bytearray) -> bool:
        """Take the chunks in the buffer; return whether the body has ended."""
        while buffer:
            if self._left > 0:
                if not self._data(buffer):
                    return False
                continue
            most = _TRAILERS if self._left == -2 else _SIZE_LINE
            end = buffer.find(b"\n", 0, most)
            if end < 0:
                if len(buffer) >= most:
                    raise malformed("a line is too long")
                return False
            if end == 0 or buffer[end - 1] != 0x0D:
                raise malformed("a line ends with a bare LF")
            line = bytes(buffer[: end - 1])
            del buffer[: end + 1]
            if self._line(line):
                return True
        return False

    def _line(self, line: bytes) -> bool:
        """Read a size or a trailer field; return whether the body has ended."""
        self._around += len(line) + 4
        if self._around > _OVERHEAD + len(self.body):
            raise malformed("there is more around the chunks than in them")
        if self._left == -2:
            if line and not _TRAILER.fullmatch(line):
                raise malformed("a trailer field cannot be read")
            return not line
        size = _SIZE.fullmatch(line)
        if size is None:
            raise malformed("a chunk's size cannot be read")
        count = int(size[1], 16)
        if len(self.body) + count > self._most:
            raise too_large(self._most)
        self._left = count + 2 if count else -2
        return False

    def _data(self, buffer: bytearray) -> bool:
        """Take data of the present chunk; return whether the chunk has ended."""
        part = buffer[: max(0, self._left - 2)]
        self.body += part
        self._left -= len(part)
        del buffer[: len(part)]
        if self._left > 2 or not buffer:
            return False
        if not b"\r\n".startswith(bytes(buffer[:2])):
            raise malformed("a chunk does not end where it says")
        if len(buffer) < 2:
            return False
        del buffer[:2]
        self._left = -1
        return True


def too_large(most: int) -> Refused:
    """Return the refusal of a body that is too large."""
    return Refused("body-too-large", 413, f"the body has more than {most} bytes; split the request")


def malformed(detail: str) -> Refused:
    """Return the refusal of a request that is not HTTP."""
    return Refused("http-error", 400, f"this is not proper HTTP: {detail}")
