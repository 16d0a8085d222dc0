"""What surrounds every request: its id, a limit on its body, one line in the log."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

import structlog
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accountant.gateway.problem import problem

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_FAILED: Final = (
    "the service failed; nothing was promised: retry with the same Idempotency-Key, and give the "
    "X-Request-ID to whoever runs it"
)
_log = structlog.get_logger()


class Around:
    """ASGI middleware. Reads the body before anything else sees the request, so that one that is
    too large, or that ends early, never gets further.
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._most = max_body_bytes
        # Counted, for a random one each would take a system call.
        self._ids = map(f"{secrets.token_hex(4)}{{:08x}}".format, count())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection; anything but HTTP passes."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given, length, encoded = _of(scope)
        request_id = given if _REQUEST_ID.fullmatch(given) else next(self._ids)
        header = b"x-request-id", request_id.encode()
        started = time.perf_counter()
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], header]
            await send(message)

        scope.setdefault("state", {})["request_id"] = request_id
        try:
            if encoded:
                text = "send the body as it is, without Content-Encoding"
                await problem("encoded-body", 415, text)(scope, receive, sending)
            else:
                await self._limited(scope, length, receive, sending)
        except Exception as error:
            if status:
                raise  # the answer has begun: all that is left is to cut the connection
            await failed(error, scope["path"], request_id)(scope, receive, sending)
        finally:
            _log.info(
                "request",
                method=scope["method"],
                path=scope["path"],
                status=status,
                request_id=request_id,
                client=scope["state"].get("client"),
                milliseconds=round((time.perf_counter() - started) * 1000, 2),
            )

    async def _limited(self, scope: Scope, length: bytes, receive: Receive, send: Send) -> None:
        """Reads the body, and hands it on as one message unless it is too large."""
        parts: list[bytes] = []
        size = 0
        more = length.isdigit() and int(length) <= self._most
        too_large = not more
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            too_large = size > self._most
            more = message.get("more_body", False) and not too_large
        if too_large:
            text = f"the body has more than {self._most} bytes; split the request"
            await problem("body-too-large", 413, text)(scope, receive, send)
            return
        await self._app(scope, once(b"".join(parts), receive), send)


def failed(error: Exception, path: str, request_id: str) -> JSONResponse:
    """The answer to an error that nobody has foreseen, which is logged."""
    _log.error("request failed", path=path, request_id=request_id, exc_info=error)
    return problem("internal-error", 500, _FAILED)


def _of(scope: Scope) -> tuple[str, bytes, bool]:
    """The request's id, the length of its body, and whether that is encoded."""
    given, length, encoded = "", b"0", False
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given = given or value.decode("latin-1")
        elif name == b"content-length":
            length = value
        elif name == b"content-encoding":
            encoded |= value.lower() != b"identity"
    return given, length, encoded


def once(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """A receive that hands out ``body``, then whatever comes after it."""
    handed_out = False

    async def receiving() -> Message:
        nonlocal handed_out
        if handed_out:
            return await receive()
        handed_out = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving
