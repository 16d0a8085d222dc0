"""A request and a reply, whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from starlette.responses import Response

Fields = list[tuple[str, str]]
"""Names in small letters, and values; every byte a character (Latin-1)."""
RawFields = list[tuple[bytes, bytes]]


class Request(NamedTuple):
    """A request. ``raw_path`` and ``query`` are as they came."""

    id: str
    method: str
    path: str
    raw_path: str
    query: str
    headers: Fields
    body: bytes


class Reply(NamedTuple):
    """An answer. ``client`` is the name of the API key that asked, for the log."""

    status: int
    client: str | None
    headers: RawFields
    body: bytes


Replying = Callable[[Reply], None]
"""Takes the reply to one request, in any thread."""
Taking = Callable[[Request, Replying], bool]
"""Looks at a request, and says whether it takes it; then it replies, now or later."""


def replied(response: Response, client: str | None = None) -> Reply:
    """A response as a reply."""
    return Reply(response.status_code, client, response.raw_headers, bytes(response.body))
