"""The side of the service's process: requests come from ``outside``, replies go there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Scope
from structlog.contextvars import bind_contextvars

from accountant.gateway.around import failed
from accountant.gateway.frames import Frames, Reply, Replying, Request, frame, plain, raw

Taking = Callable[[Request, Replying], bool]
"""Looks at a request, and says whether it takes it; then it replies, now or later."""


def replied(response: Response, client: str | None = None) -> Reply:
    """A response as a reply."""
    return Reply(response.status_code, client, plain(response.raw_headers), bytes(response.body))


class Requests:
    """What comes is offered to ``take``, then to the application, each in a task of its own."""

    def __init__(self, app: ASGIApp, take: Taking) -> None:
        self._app, self._take = app, take
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, request: Request, reply: Replying) -> None:
        """Sees to it that there is a reply."""
        try:
            if self._take(request, reply):
                return
        except Exception as error:  # noqa: BLE001 nobody is left without a reply
            reply(replied(failed(error, request.path, request.id)))
            return
        task = self._loop.create_task(self._answer(request, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Request, reply: Replying) -> None:
        bind_contextvars(request_id=request.id)  # whatever is logged in this task is of it
        scope = _scope(request)
        answer = _Answer()
        try:
            await self._app(scope, _Body(request.body), answer)
        except Exception as error:  # noqa: BLE001 nobody is left without a reply
            reply(replied(failed(error, request.path, request.id)))
            return
        headers, body = plain(answer.headers), b"".join(answer.parts)
        reply(Reply(answer.status, scope["state"].get("client"), headers, body))


class Inside(asyncio.Protocol):
    """The channel to the process that speaks HTTP."""

    def __init__(self, requests: Requests) -> None:
        self._loop = asyncio.get_running_loop()
        self._requests = requests
        self._frames = Frames()
        self._replies: deque[bytes] = deque()
        self._due = False
        self.over: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The channel is open, and the other process may take requests."""
        self._channel = cast("asyncio.WriteTransport", transport)
        self._channel.write(frame(0, Reply(200, None, [], b"")))

    def connection_lost(self, exc: Exception | None) -> None:
        """The other process has ended."""
        if not self.over.done():
            self.over.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Requests."""
        for number, fields in self._frames.read(data):
            self._requests.handle(Request(*fields), partial(self._reply, number))

    def _reply(self, number: int, reply: Reply) -> None:
        """In whatever thread. Replies that come together go out together."""
        self._replies.append(frame(number, reply))
        if not self._due:
            self._due = True
            try:
                self._loop.call_soon_threadsafe(self._send)
            except RuntimeError:
                return  # the loop has ended, and who waited for a reply with it

    def _send(self) -> None:
        self._due = False  # first, so that whoever comes too late for this asks for another
        ready = [self._replies.popleft() for _ in range(len(self._replies))]
        if ready:
            self._channel.write(b"".join(ready))


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
        "headers": raw(request.headers),
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
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message["headers"]
        else:
            self.parts.append(message.get("body", b""))
