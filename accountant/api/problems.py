"""Foreseen errors, and the problem document of each."""

from __future__ import annotations

from typing import Final, cast

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from accountant.budget.errors import Conflict, Forbidden, Invalid, NotFound, Problem, Unavailable
from accountant.budget.malformed import in_one_line, reasons
from accountant.config.logs import logger
from accountant.door.messages import problem, shown
from accountant.publishing.evidence import Gone
from accountant.store.ledgers import StoreError

_STATUS: Final[dict[type[Problem], int]] = {
    Invalid: 422,
    NotFound: 404,
    Conflict: 409,
    Forbidden: 403,
    Unavailable: 503,
}
_STATUS_OF_CODE: Final = {
    "malformed-json": 400,
    "idempotency-key-required": 400,
    "malformed-idempotency-key": 400,
    "unauthenticated": 401,
    "body-too-large": 413,
    "evidence-not-written": 507,
    "no-pdf": 501,
}
_UNREADABLE: Final = (
    "the database cannot be read; try again, and look at the service's log if it stays so"
)
_log = logger()


def answer_to(error: Exception, path: str = "") -> JSONResponse | None:
    """Return the answer to a foreseen error; None for any other."""
    match error:
        case Problem():
            status = _STATUS_OF_CODE.get(error.code) or _STATUS[type(error)]
            return problem(error.code, status, error.detail, **error.numbers)
        case StoreError():
            _log.error("the database failed", path=path, reason=str(error))
            return problem("storage-failed", 503, _UNREADABLE)
        case ValidationError():
            fields = reasons(error)
            detail = in_one_line(fields, "body")
            return problem("invalid-request", 422, detail, errors=fields)
        case HTTPException():
            status = error.status_code
            code = {404: "no-such-page", 405: "method-not-allowed"}.get(status, "http-error")
            detail = f"{error.detail}; the calls are listed at /docs"
            return problem(code, status, detail, error.headers)
    return None


def install(app: Starlette) -> None:
    """Answer foreseen errors with a problem. The door answers all others."""

    async def foreseen(request: Request, error: Exception) -> JSONResponse:
        return cast(JSONResponse, answer_to(error, shown(request.url.path)))

    async def unread(request: Request, error: Exception) -> Response:
        return Response(status_code=499)  # nobody reads it; the access log shows it

    app.add_exception_handler(Gone, unread)
    for kind in (Problem, StoreError, ValidationError, HTTPException):
        app.add_exception_handler(kind, foreseen)
