"""The application: middleware, health, documentation, and the calls."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from accountant import __version__
from accountant.api import problems
from accountant.api.access import TheService
from accountant.api.routes import router
from accountant.service import Service
from accountant.settings import Settings

_REQUEST_ID: Final = re.compile(r"^[A-Za-z0-9_.:-]{1,128}$")
_log = structlog.get_logger()


def create_app(service: Service, settings: Settings) -> FastAPI:
    """The HTTP door of ``service``."""
    app = FastAPI(
        title="accountant",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = service
    problems.install(app)

    @app.exception_handler(RequestValidationError)
    async def _parameters(_: Request, error: RequestValidationError) -> JSONResponse:
        reasons = [f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors()]
        return problems.problem("invalid-request", 422, "; ".join(reasons))

    @app.middleware("http")
    async def _around(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        given = request.headers.get("X-Request-ID", "")
        request_id = given if _REQUEST_ID.match(given) else secrets.token_hex(8)
        started = time.perf_counter()
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            response = await _limited(request, call_next, settings.max_body_bytes)
            _log.info(
                "request",
                method=request.method,
                path=request.url.path,
                status=response.status_code,
                client=getattr(request.state, "client", None),
                milliseconds=round((time.perf_counter() - started) * 1000, 2),
            )
        response.headers["X-Request-ID"] = request_id
        return response

    @app.get("/healthz", tags=["health"])
    def healthz() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok", "version": __version__}

    @app.get("/readyz", tags=["health"])
    def readyz(service: TheService) -> dict[str, str]:
        """The service can decide: the database answers and every ledger folds."""
        service.ready()
        return {"status": "ready"}

    app.include_router(router)
    return app


async def _limited(
    request: Request, call_next: Callable[[Request], Awaitable[Response]], most: int
) -> Response:
    """Refuses a body over ``most`` bytes, by its header or as it arrives."""
    text = f"the body has more than {most} bytes; split the request"
    length = request.headers.get("Content-Length", "0")
    if not length.isdigit() or int(length) > most:
        return problems.problem("body-too-large", 413, text)
    if request.method in ("POST", "PUT", "PATCH"):
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                return problems.problem("body-too-large", 413, text)
            chunks.append(chunk)
        request._body = b"".join(chunks)  # what Request.body() would keep
    return await call_next(request)
