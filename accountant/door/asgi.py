"""Hands complete requests to an ASGI application, each in a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import IO

from starlette.types import ASGIApp, Message, Scope
from structlog.contextvars import bind_contextvars

from accountant.door.messages import (
    Arrived,
    RawFields,
    Reply,
    Replying,
    Request,
    Taking,
    failed,
)
from accountant.door.sending import FILE


class Requests:
    """Offers requests to ``take``, then to the application."""

    def __init__(self, app: ASGIApp, take: Taking) -> None:
        self._app, self._take = app, take
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, arrived: Sequence[Arrived]) -> None:
        """Hand on complete requests that came together; there will be one reply to each."""
        try:
            left = self._take(arrived)
        except Exception as error:  # noqa: BLE001 every request gets a reply
            for request, reply in arrived:
                reply(failed(error, request))
            return
        for request, reply in left:
            task = asyncio.get_running_loop().create_task(self._answer(request, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Request, reply: Replying) -> None:
        # For the log lines of this task
        bind_contextvars(request_id=request.id, traceparent=request.trace)
        scope = _scope(request)
        scope["state"]["gone"] = getattr(reply, "gone", lambda: False)
        scope["state"]["address"] = getattr(reply, "address", "")
        received = iter([{"type": "http.request", "body": request.body, "more_body": False}])
        status, headers, parts = 500, RawFields(), list[bytes]()
        file: IO[bytes] | None = None

        async def receive() -> Message:
            return next(received, {"type": "http.disconnect"})

        async def send(message: Message) -> None:
            nonlocal status, headers, file
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [(bytes(name), bytes(value)) for name, value in message["headers"]]
            elif message["type"] == FILE:
                file = message["file"]
            else:
                parts.append(message.get("body", b""))

        try:
            await self._app(scope, receive, send)
        except Exception as error:  # noqa: BLE001 every request gets a reply
            if file is not None:
                file.close()
            reply(failed(error, request))
            return
        known = scope["state"]
        told = known.get("client"), headers, b"".join(parts), file, known.get("facts")
        reply(Reply(status, *told))


def _scope(request: Request) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "server": None,
        "client": None,
        "scheme": "http",
        "root_path": "",
        "method": request.method,
        "path": request.path,
        "raw_path": request.raw_path.encode("latin-1"),
        "query_string": request.query.encode("latin-1"),
        "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in request.headers],
        "state": {"request_id": request.id},
    }
