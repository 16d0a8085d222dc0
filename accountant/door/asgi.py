"""Requests that go to an ASGI application, each in a task of its own; whole, and answered whole."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from accountant.door.messages import RawFields, Reply, Replying, Request, Taking
from accountant.door.wire import failed


class Requests:
    """What comes is offered to ``take``, then to the application."""

    def __init__(self, app: ASGIApp, take: Taking) -> None:
        self._app, self._take = app, take
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, request: Request, reply: Replying) -> None:
        """Sees to it that there is a reply."""
        try:
            if self._take(request, reply):
                return
        except Exception as error:  # noqa: BLE001 nobody is left without a reply
            reply(failed(error, request.path, request.id))
            return
        task = asyncio.get_running_loop().create_task(self._answer(request, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Request, reply: Replying) -> None:
        bind_contextvars(request_id=request.id)  # whatever is logged in this task is of it
        scope = _scope(request)
        answer = _Answer()
        try:
            await self._app(scope, _Body(request.body), answer)
        except Exception as error:  # noqa: BLE001 nobody is left without a reply
            reply(failed(error, request.path, request.id))
            return
        client = scope["state"].get("client")
        reply(Reply(answer.status, client, answer.headers, b"".join(answer.parts)))


class Coming:
    """An application that is still being made: who needs it waits."""

    def __init__(self, made: asyncio.Future[ASGIApp]) -> None:
        self._made = made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        app = await asyncio.shield(self._made)  # who goes away meanwhile ends nothing
        await app(scope, receive, send)


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


class _Body:
    """Receives a body that is there."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    async def __call__(self) -> Message:
        if self._body is None:
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Answer:
    """Sends nothing yet: a reply goes out whole."""

    def __init__(self) -> None:
        self.status = 500
        self.headers: RawFields = []
        self.parts: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(bytes(n), bytes(v)) for n, v in message["headers"]]
        else:
            self.parts.append(message.get("body", b""))
