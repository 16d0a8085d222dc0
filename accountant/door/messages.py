"""Requests and replies, problem documents, and the bytes of a reply."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import IO, Any, Final, NamedTuple

import structlog
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

Fields = list[tuple[str, str]]  # Names in lower case, and values, each byte a character (Latin-1)
RawFields = list[tuple[bytes, bytes]]

FORMS: Final = "/console/"
LINKS: Final = "/console/signin/link/"
"""Where the paths of pages for people begin, and of links by which they sign in."""
MEDIA: Final = "application/problem+json"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINES: Final = {
    int(status): f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_BODILESS: Final = (204, 304)
_FAILED: Final = (
    "the service failed; nothing was promised: retry with the same Idempotency-Key, and give the "
    "X-Request-ID to the operator of the service"
)
_HEADERS: Final[dict[int, dict[str, str]]] = {
    401: {"WWW-Authenticate": 'Bearer realm="accountant"'},
    503: {"Retry-After": "1"},
}
_log = structlog.get_logger()


class Request(NamedTuple):
    """A request. ``raw_path`` and ``query`` are as received."""

    id: str
    method: str
    path: str
    raw_path: str
    query: str
    headers: Fields
    body: bytes
    trace: str = ""
    """Its traceparent (W3C Trace Context)."""


Facts = dict[str, Any]
"""What the log's line says of a decision: outcome, rule, epsilon."""


class Telling(JSONResponse):
    """A response that tells the log of a decision."""

    facts: Facts | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self.facts is not None:
            scope["state"]["facts"] = self.facts
        await super().__call__(scope, receive, send)


class Reply(NamedTuple):
    """An answer. ``client`` is the name of the API key, for the log, as are the ``facts`` of a
    decision. The rest of ``file``, if there is one, follows the body; whoever has the reply closes
    it.
    """

    status: int
    client: str | None
    headers: RawFields
    body: bytes
    file: IO[bytes] | None = None
    facts: Facts | None = None

    def drop(self) -> None:
        """Let go of an answer that is not sent."""
        if self.file is not None:
            self.file.close()


Replying = Callable[[Reply], None]  # Takes the reply to one request, in any thread
Arrived = tuple[Request, Replying]
"""A complete request, and what takes its reply."""
Taking = Callable[[Sequence[Arrived]], list[Arrived]]
"""Takes requests that came together, and replies to each, now or later; returns those that it does
not take.
"""


class Refused(Exception):
    """A request that the door answers itself. If ``closes``, it reads nothing after it."""

    def __init__(
        self, code: str, status: int, detail: str, *, closes: bool = True, seconds: int = 1
    ) -> None:
        super().__init__(detail)
        self.code, self.status, self.detail, self.closes = code, status, detail, closes
        self.seconds = seconds  # After which the client may try again (429)

    def reply(self) -> Reply:
        """Return the answer."""
        headers = {"Retry-After": str(self.seconds)} if self.status == 429 else {}
        return replied(problem(self.code, self.status, self.detail, headers))


def problem(
    code: str, status: int, detail: str, headers: Mapping[str, str] | None = None, **facts: Any
) -> Telling:
    """Return a problem document (RFC 9457). ``code`` ends its type and, in words, is its title."""
    body = {
        "type": f"urn:accountant:problem:{code}",
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
    }
    headers = {**_HEADERS.get(status, {}), **(headers or {})}
    return Telling(body | facts, status, headers, media_type=MEDIA)


def replied(response: Response, client: str | None = None) -> Reply:
    """Return a response as a reply."""
    facts = getattr(response, "facts", None)
    fields = response.raw_headers
    return Reply(response.status_code, client, fields, bytes(response.body), facts=facts)


def shown(path: str) -> str:
    """Return a path as logs show it: without the code of a link by which somebody signs in."""
    return LINKS if path.startswith(LINKS) else path


def failed(error: BaseException, request: Request) -> Reply:
    """Log an unforeseen error, and return the answer to it."""
    about = {"request_id": request.id, "traceparent": request.trace}
    _log.error("request failed", path=shown(request.path), **about, exc_info=error)
    return replied(problem("internal-error", 500, _FAILED))


def wire(
    reply: Reply, request_id: str, trace: str, *, closes: bool, http11: bool, bodiless: bool
) -> bytes:
    """Return the bytes of a reply. ``bodiless``: the reply to HEAD, without a body."""
    status, _, fields, body, *_ = reply
    line = _LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status
    parts = [line, _date(int(time.time()))]
    sized = status in _BODILESS
    for name, value in fields:
        sized = sized or name == b"content-length"
        parts.append(b"%b: %b\r\n" % (name, value))
    if not sized:
        parts.append(b"content-length: %d\r\n" % len(body))
    parts.append(f"x-request-id: {request_id}\r\ntraceparent: {trace}\r\n".encode())
    if closes:
        parts.append(b"connection: close\r\n\r\n")
    else:
        parts.append(b"\r\n" if http11 else b"connection: keep-alive\r\n\r\n")
    if not bodiless and status not in _BODILESS:
        parts.append(body)
    return b"".join(parts)


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    """Return the Date field; it is made once a second."""
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()
