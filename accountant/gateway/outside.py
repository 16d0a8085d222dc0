"""The process that speaks HTTP with clients: ``python -m accountant.gateway.outside DOOR CHANNEL
MOST``, with two inherited sockets by their numbers, and the bytes that a body may have.

It knows nothing of budgets: it reads requests whole, refuses those that are too large, hands on the
others and writes what it is answered. It ends when the other process does.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from itertools import count
from typing import cast

import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from accountant.config import logs
from accountant.gateway.around import Around
from accountant.gateway.corked import Corked
from accountant.gateway.frames import Frames, Reply, Request, frame, plain, raw


def request_of(scope: Scope, body: bytes) -> Request:
    """A request that ``Around`` has read."""
    return Request(
        scope["state"]["request_id"],
        scope["method"],
        scope["path"],
        scope["raw_path"].decode("latin-1"),
        scope["query_string"].decode("latin-1"),
        plain(scope["headers"]),
        body,
    )


async def answer(reply: Reply, scope: Scope, send: Send) -> None:
    """Sends ``reply``, and tells ``Around`` whose request it was."""
    scope["state"]["client"] = reply.client
    start = {"type": "http.response.start", "status": reply.status, "headers": raw(reply.headers)}
    await send(start)
    await send({"type": "http.response.body", "body": reply.body})


class Outside(asyncio.Protocol):
    """The channel to the process that decides, as an ASGI application within ``Around``."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._numbers = count(1)
        self._requests: list[bytes] = []
        self.ready: asyncio.Future[Reply] = self._loop.create_future()
        """The first reply, to nobody: the other process takes requests from now on."""
        self._waiting = {0: self.ready}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The channel is open."""
        self._channel = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """There is nobody left who could answer: no request may wait, and the port must be free for
        who comes next.
        """
        os._exit(1)

    def data_received(self, data: bytes) -> None:
        """Replies, which those who asked wait for."""
        for number, fields in self._frames.read(data):
            waiting = self._waiting.pop(number, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(Reply(*fields))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        number = next(self._numbers)
        waiting = self._waiting[number] = self._loop.create_future()
        self._requests.append(frame(number, request_of(scope, (await receive())["body"])))
        if len(self._requests) == 1:
            self._loop.call_soon(self._send)
        await answer(await waiting, scope, send)

    def _send(self) -> None:
        """Requests that come together go out together: the other process need not wake for each,
        nor decide the first one alone.
        """
        requests, self._requests = self._requests, []
        self._channel.write(b"".join(requests))


async def _serve(door: socket.socket, channel: socket.socket, most: int) -> None:
    _, outside = await asyncio.get_running_loop().create_unix_connection(Outside, sock=channel)
    await outside.ready  # until then whoever asks waits in the kernel's line
    config = uvicorn.Config(
        Around(outside, most),
        lifespan="off",
        http=Corked,
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=10,
    )
    await uvicorn.Server(config).serve(sockets=[door])


def main() -> None:
    """Serves until it is told to stop."""
    door, channel, most = map(int, sys.argv[1:])
    logs.configure()
    uvloop.run(_serve(socket.socket(fileno=door), socket.socket(fileno=channel), most))


if __name__ == "__main__":
    main()
