"""The load: one process that keeps N connections busy with requests that were made beforehand.

It runs beside the server, on a core of its own, and does as little as it can: one write and one
read a request, the status and the length of the answer, nothing else. ``bench.http.generator``
measures what it costs itself.

Without ``rate`` each connection asks again as soon as it was answered. Such a loop slows down with
the server, so its latencies leave out those who would have asked meanwhile. With ``rate`` request
i is due at i / rate whatever the server does, and its latency counts from then, also where it had
to wait for a free connection: what a caller from outside sees. Timers tick in milliseconds, so
these latencies may be one too long.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

import uvloop

_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to. Latencies in seconds; ``busy`` is the share of its core that the load
    took: near one, it was the load that was measured.
    """

    answers: int
    seconds: float
    p50: float
    p99: float
    busy: float

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.answers / self.seconds


def request(method: str, path: str, body: Any, headers: Mapping[str, str]) -> bytes:
    """A request as bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"Host": "localhost", "Content-Type": "application/json"} | dict(headers)
    lines["Content-Length"] = str(len(content))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content


def drive(
    port: int,
    requests: Sequence[bytes],
    connections: int,
    seconds: float = 3600,
    rate: float | None = None,
) -> Result:
    """Sends the requests in order, each once, until there are none or the time is over.

    Raises RuntimeError if one is answered with an error or not at all.
    """
    plan = {
        "port": port,
        "connections": connections,
        "seconds": seconds,
        "rate": rate,
        "sizes": [len(one) for one in requests],
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=json.dumps(plan).encode() + b"\n" + b"".join(requests),
        stdout=subprocess.PIPE,
        check=True,
    )
    answer = json.loads(done.stdout)
    if "failed" in answer:
        raise RuntimeError(answer["failed"])
    return Result(**answer)


class _Connection(asyncio.Protocol):
    """One connection: at most one request on its way."""

    __slots__ = ("due", "load", "rest", "transport")

    def __init__(self, load: _Load) -> None:
        self.load = load
        self.rest = b""
        self.due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.rest:
            data = self.rest + data
        end = data.find(_END)
        length = _LENGTH.search(data, 0, end) if end >= 0 else None
        if end >= 0 and length is None:
            self.load.fail(f"an answer without a length: {data[:200]!r}")
        elif length is None or len(data) < end + len(_END) + int(length[1]):
            self.rest = data
        else:
            self.rest = b""
            self.load.answered(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.load.fail(f"the server closed a connection: {exc}")


class _Load:
    """All connections of a run, and what they were answered."""

    def __init__(self, requests: list[bytes], seconds: float, rate: float | None) -> None:
        self.requests, self.seconds, self.rate = requests, seconds, rate
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.latencies = array("d")
        self.statuses: Counter[bytes] = Counter()
        self.idle: list[_Connection] = []
        self.sent = self.working = self.late = 0
        self.last = 0.0

    async def run(self, port: int, connections: int) -> dict[str, Any]:
        """Connects, then sends until the end; what drive() returns."""
        loop = asyncio.get_running_loop()
        made = [
            await loop.create_connection(lambda: _Connection(self), "127.0.0.1", port)
            for _ in range(connections)
        ]
        used = time.process_time()
        self.start = time.perf_counter()
        self.end = self.start + self.seconds
        self.working = connections
        for _, connection in made:
            self.send(connection)
        await self.over
        busy = (time.process_time() - used) / (time.perf_counter() - self.start)
        found = sorted(self.latencies)
        if not found:
            raise RuntimeError(f"nothing was answered within {self.seconds} seconds")
        result = Result(
            len(found),
            min(self.last, self.end) - self.start,
            found[len(found) // 2],
            found[int(len(found) * 0.99)],
            busy,
        )
        return asdict(result)

    def send(self, connection: _Connection) -> None:
        """The next request on this connection, if there is one and it is due."""
        now = time.perf_counter()
        due = self.start + self.sent / self.rate if self.rate else now
        if self.sent == len(self.requests) or max(now, due) >= self.end:
            self.working -= 1
            if not self.working and not self.over.done():
                self.over.set_result(None)
        elif due > now:
            if not self.idle:
                asyncio.get_running_loop().call_later(due - now, self._wake)
            self.idle.append(connection)
        else:
            connection.due = due
            connection.transport.write(self.requests[self.sent])
            self.sent += 1

    def _wake(self) -> None:
        waiting, self.idle = self.idle, []
        for connection in waiting:
            self.send(connection)

    def answered(self, connection: _Connection, data: bytes) -> None:
        """Counts an answer, unless it came after the end."""
        now = time.perf_counter()
        if data[9:10] != b"2":
            self.fail(f"answered {data.decode(errors='replace')}")
            return
        if now <= self.end:
            self.latencies.append(now - connection.due)
            self.last = now
        self.send(connection)

    def fail(self, reason: str) -> None:
        """Ends the run."""
        if not self.over.done():
            self.over.set_exception(RuntimeError(reason))


async def _main() -> dict[str, Any]:
    plan = json.loads(sys.stdin.buffer.readline())
    requests = [sys.stdin.buffer.read(size) for size in plan["sizes"]]
    try:
        load = _Load(requests, plan["seconds"], plan["rate"])
        return await load.run(plan["port"], plan["connections"])
    except (OSError, RuntimeError) as error:
        return {"failed": str(error)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(_main())))
