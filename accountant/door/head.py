"""The head of a request: its line and its fields, read strictly (RFC 9112).

What two programs on the way could read differently is refused, not repaired: bare CR or LF, folded
lines, spaces before a colon, a length that is doubled or contradicts chunks. Both patterns are
possessive, so that no head takes more than linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from accountant.auth.keys import PREFIX
from accountant.door.limits import FIELDS
from accountant.door.messages import Fields

END: Final = b"\r\n\r\n"
_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"  # noqa: S105 a token of the grammar
_FIELD: Final = _TOKEN + r":[\t\x20-\x7e\x80-\xff]*+"
_HEAD: Final = re.compile(
    rf"({_TOKEN}) ([\x21\x22\x24-\x7e]++) HTTP/1\.([01])((?:\r\n{_FIELD})*+)\r\n\r\n"
)
_LINE: Final = re.compile(rf"({_TOKEN}) (\S++) HTTP/(\d)\.(\d)\r\n")
_FIELDS: Final = re.compile(rf"(?:{_FIELD}\r\n)*+\r\n")
_ABSOLUTE: Final = re.compile(r"https?://[^/?#@]++", re.IGNORECASE)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_KEY: Final = re.compile(PREFIX + r"[A-Za-z0-9_-]{43}")
BROKEN_LINE: Final = re.compile(rb"(?<!\r)\n|\r(?=[^\n])")
"""A line that does not end as lines must."""

_ONCE: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "authorization", "expect", "content-type"}
)
_SEEN: Final = _ONCE | {"connection", "content-encoding", "idempotency-key", "x-request-id"}
_MISPLACED: Final = (
    "an API key stands in the {}, where it is logged on its way: nothing was done; revoke the key, "
    "make another, and send it in Authorization only"
)


class Refused(Exception):
    """A request that is not answered otherwise; after ``closes`` nothing more is read."""

    def __init__(self, code: str, status: int, detail: str, *, closes: bool = True) -> None:
        super().__init__(detail)
        self.code, self.status, self.detail, self.closes = code, status, detail, closes


@dataclass(slots=True)
class Head:
    """A head that was read. ``length`` is None for a body in chunks, 0 for none."""

    method: str
    target: str
    path: str
    raw_path: str
    query: str
    fields: Fields
    length: int | None
    http11: bool
    keep_alive: bool
    continues: bool
    """The client waits for 100 Continue."""
    encoded: bool
    authorization: str
    request_id: str
    """As it was sent; empty if that is no id."""
    misplaced: str
    """Where an API key stands that should not: then nothing of the head may be logged."""


def read_head(data: bytes) -> Head:
    """The head in ``data``, which ends with a blank line. Raises Refused."""
    text = data.decode("latin-1")
    match = _HEAD.fullmatch(text)
    if match is None:
        raise _why(text)
    method, target, minor, block = match.groups()
    fields, seen = _fields(block)
    http11 = minor == "1"
    if "host" not in seen and http11:
        raise _malformed("there is no Host")
    raw_path, query = _path(method, target)
    connection = seen.get("connection", "").lower()
    keep = "close" not in connection if http11 else "keep-alive" in connection
    expect = seen.get("expect", "").lower()
    if expect and expect != "100-continue":
        raise Refused("http-error", 417, "the only expectation that can be met is 100-continue")
    path = unquote(raw_path) if "%" in raw_path else raw_path
    sent = seen.get("x-request-id", "")
    misplaced = ""
    if PREFIX in text:
        misplaced = _misplaced(unquote(target), seen.get("idempotency-key", ""))
        sent = "" if _KEY.search(sent) else sent
    elif "%" in target and _KEY.search(unquote(target)):
        misplaced = "URL"
    return Head(
        method,
        target,
        path,
        raw_path,
        query,
        fields,
        _length(seen, http11=http11),
        http11,
        keep,
        bool(expect) and http11,
        seen.get("content-encoding", "identity").lower() != "identity",
        seen.get("authorization", ""),
        sent if _REQUEST_ID.fullmatch(sent) else "",
        _MISPLACED.format(misplaced) if misplaced else "",
    )


def _fields(block: str) -> tuple[Fields, dict[str, str]]:
    """All fields, and those that the door looks at, each once."""
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
                raise _malformed(f"{name} is given twice")
            else:
                seen[name] += ", " + value
    if len(fields) > FIELDS:
        raise Refused("header-too-large", 431, f"a request has at most {FIELDS} header fields")
    return fields, seen


def _length(seen: dict[str, str], *, http11: bool) -> int | None:
    """How long the body is; None if it comes in chunks."""
    length, coding = seen.get("content-length"), seen.get("transfer-encoding")
    if coding is not None:
        if length is not None:
            raise _malformed("a body has a Content-Length or a Transfer-Encoding, not both")
        if not http11:
            raise _malformed("HTTP/1.0 has no Transfer-Encoding")
        if coding.lower() != "chunked":
            raise Refused("http-error", 501, "the only Transfer-Encoding is chunked")
        return None
    if length is None:
        return 0
    if not _LENGTH.fullmatch(length):
        raise _malformed("Content-Length is no number")
    return int(length)


def _path(method: str, target: str) -> tuple[str, str]:
    """The raw path and the query of a request target."""
    if not target.startswith("/"):
        absolute = _ABSOLUTE.match(target)
        if absolute is not None:
            target = target[absolute.end() :]
            target = target if target.startswith("/") else "/" + target
        elif not (target == "*" and method == "OPTIONS"):
            raise _malformed("the request target is neither a path nor an http address")
    path, _, query = target.partition("?")
    return path, query


def _misplaced(target: str, idempotency: str) -> str:
    if _KEY.search(target):
        return "URL"
    return "Idempotency-Key" if _KEY.search(idempotency) else ""


def _malformed(detail: str) -> Refused:
    return Refused("http-error", 400, f"this is not proper HTTP: {detail}")


def _why(text: str) -> Refused:
    """What is wrong with a head that does not match."""
    line = _LINE.match(text)
    if line is None:
        return _malformed("the request line cannot be read")
    if line[3] != "1" or line[4] not in "01":
        return Refused("http-error", 505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    if _FIELDS.fullmatch(text, line.end()) is None:
        return _malformed("a header field cannot be read")
    return _malformed("the request target cannot be read")
