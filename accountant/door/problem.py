"""A problem document (RFC 9457): what is wrong, with the numbers, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse

MEDIA: Final = "application/problem+json"


def problem(
    code: str, status: int, detail: str, headers: Mapping[str, str] | None = None, **facts: Any
) -> JSONResponse:
    """A problem document. ``code`` ends its type and, in words, is its title."""
    title = code.replace("-", " ").capitalize()
    body = {
        "type": f"urn:accountant:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail,
    }
    return JSONResponse(body | facts, status, dict(headers or {}), media_type=MEDIA)
