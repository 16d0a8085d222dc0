"""A reply as bytes."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import structlog

from accountant.door.head import Refused
from accountant.door.messages import Reply, replied
from accountant.door.problem import problem

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINES: Final = {
    int(status): f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_BODILESS: Final = (204, 304)
_FAILED: Final = (
    "the service failed; nothing was promised: retry with the same Idempotency-Key, and give the "
    "X-Request-ID to whoever runs it"
)
_AGAIN: Final = {"Retry-After": "1"}
_WHO: Final = {"WWW-Authenticate": 'Bearer realm="accountant"'}
_log = structlog.get_logger()


class _Date:
    """The Date field, made anew each second."""

    second = 0
    line = b""

    def __call__(self) -> bytes:
        now = int(time.time())
        if now != self.second:
            self.second, self.line = now, f"date: {formatdate(now, usegmt=True)}\r\n".encode()
        return self.line


_date: Final = _Date()


def wire(reply: Reply, request_id: str, *, closes: bool, http11: bool, bodiless: bool) -> bytes:
    """The bytes of a reply. ``bodiless``: to HEAD, which gets the fields alone."""
    status, _, fields, body = reply
    parts = [_LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status, _date()]
    sized = status in _BODILESS
    for name, value in fields:
        sized = sized or name == b"content-length"
        parts.append(b"%b: %b\r\n" % (name, value))
    if not sized:
        parts.append(b"content-length: %d\r\n" % len(body))
    parts.append(b"x-request-id: %b\r\n" % request_id.encode())
    if closes:
        parts.append(b"connection: close\r\n\r\n")
    else:
        parts.append(b"\r\n" if http11 else b"connection: keep-alive\r\n\r\n")
    if not bodiless and status not in _BODILESS:
        parts.append(body)
    return b"".join(parts)


def refused(refusal: Refused) -> Reply:
    """The answer to a request that goes no further."""
    headers = _AGAIN if refusal.status in (429, 503) else None
    headers = _WHO if refusal.status == 401 else headers
    return replied(problem(refusal.code, refusal.status, refusal.detail, headers))


def too_often(seconds: int) -> Reply:
    """The answer to an address that has sent too many wrong keys."""
    detail = f"too many wrong API keys came from this address; come again in {seconds} seconds"
    return replied(problem("too-many-wrong-keys", 429, detail, {"Retry-After": str(seconds)}))


def failed(error: BaseException, path: str, request_id: str) -> Reply:
    """The answer to an error that nobody has foreseen, which is logged."""
    _log.error("request failed", path=path, request_id=request_id, exc_info=error)
    return replied(problem("internal-error", 500, _FAILED))
