"""Doors on real sockets, and clients that speak to them in bytes."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from support import _loop

from accountant.auth.keys import Credentials
from accountant.config.settings import Settings
from accountant.door.access_log import AccessLog
from accountant.door.asgi import Requests
from accountant.door.messages import Taking
from accountant.door.server import Door
from accountant.store.opening import open_ledgers

SECONDS = 10.0


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Echo the request; answer a path that is a number with that many bytes."""
    body = (await receive())["body"]
    said = {"method": scope["method"], "path": scope["path"], "body": body.decode("latin-1")}
    data = json.dumps(said).encode()
    if scope["path"][1:].isdigit():
        data = bytes(int(scope["path"][1:]))
    head = [(b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": data})


@dataclass
class Opened:
    """A door at a port, its log, and a key that it takes."""

    door: Door
    port: int
    lines: list[dict[str, Any]]
    credentials: Credentials
    secret: str

    def connect(self) -> socket.socket:
        """A connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def say(self, *parts: bytes, ends: bool = True, pause: float = 0.0) -> bytes:
        """All that is answered to bytes until the door closes; ``ends``: no more is sent then."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            return everything(connection)

    def asks(self) -> bytes:
        """A request of the usual kind is answered."""
        return self.say(b"GET /usual HTTP/1.1\r\nHost: x\r\n\r\n")

    @property
    def key(self) -> bytes:
        """A header with a key."""
        return b"Authorization: Bearer " + self.secret.encode() + b"\r\n"


def everything(connection: socket.socket) -> bytes:
    """All bytes until the end."""
    found = b""
    while True:
        try:
            more = connection.recv(1 << 20)
        except ConnectionResetError:
            return found
        if not more:
            return found
        found += more


def answer(connection: socket.socket) -> bytes:
    """One answer, by its length."""
    found = b""
    while b"\r\n\r\n" not in found:
        more = connection.recv(65_536)
        if not more:
            return found
        found += more
    head, _, body = found.partition(b"\r\n\r\n")
    [length] = [int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length")]
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def status(said: bytes) -> int:
    """Of the first answer; 0 for none."""
    return int(said[9:12]) if said.startswith(b"HTTP/1.1 ") else 0


def problem(said: bytes) -> dict[str, Any]:
    """The document of the last answer."""
    document: dict[str, Any] = json.loads(said.rpartition(b"\r\n\r\n")[2])
    return document


@contextmanager
def opened(
    url: str,
    settings: Settings | None = None,
    app: Any = echo,
    take: Taking | None = None,
) -> Iterator[Opened]:
    """A door on the keys of a database."""
    ledgers = open_ledgers(url)
    credentials = Credentials(ledgers, lambda: time.time_ns() // 1_000)
    secret = credentials.create(f"client-{time.time_ns()}", "pipeline", "test")
    listening = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    lines: list[dict[str, Any]] = []

    class Log(BytesIO):
        def write(self, data: Any) -> int:
            lines.extend(json.loads(line) for line in data.splitlines())
            return len(data)

    async def begin() -> Door:
        requests = Requests(app, take or list)
        door = Door(requests, credentials, settings or Settings(), AccessLog(Log()))
        door.listen(listening)
        return door

    async def end(door: Door) -> None:
        door.close()

    port = listening.getsockname()[1]
    door = asyncio.run_coroutine_threadsafe(begin(), _loop()).result()
    try:
        yield Opened(door, port, lines, credentials, secret)
    finally:
        asyncio.run_coroutine_threadsafe(end(door), _loop()).result()
        ledgers.close()


def in_threads(work: list[Callable[[], None]]) -> list[threading.Thread]:
    """Does all at once."""
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    return threads


def until(true: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Waits."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
