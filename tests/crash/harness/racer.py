"""A process that asks for as much as it can, on a few connections at once, with nothing but
sockets: ``racer.py FILE``, with what to do as JSON on standard input.

Now and then it asks the same again, and the answer must be the same to the byte. What it was told
it writes to FILE, a line each: key, dataset, status, sequence. It prints how many answers it got.
"""

# The random choices are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import json
import random
import re
import socket
import sys
import time
from hashlib import sha256
from typing import Any, TextIO

_SEQUENCE = re.compile(rb'"sequence":(\d+)')


class Connection:
    """One request at a time on one connection, kept alive."""

    def __init__(self, port: int, secret: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._secret = secret

    def send(self, key: str, dataset: str) -> None:
        """Asks for a thousandth."""
        body = (
            f'{{"dataset":"{dataset}","mechanisms":'
            '[{"kind":"laplace","sensitivity":"0.001","scale":"1"}]}'
        )
        head = (
            "POST /v1/populations/fair/grants HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {self._secret}\r\nIdempotency-Key: {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall((head + body).encode())

    def receive(self) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert found, head
        while len(body) < int(found[1]):
            body += self._more()
        return int(head[9:12]), body

    def _more(self) -> bytes:
        data = self._socket.recv(1 << 16)
        assert data, "the connection was closed"
        return data


class Racer:
    """Asks until the number is reached and everything is answered."""

    def __init__(self, order: dict[str, Any], out: TextIO) -> None:
        self._dice = random.Random(order["seed"])
        self._connections = [Connection(p, order["secret"]) for p in order["ports"] for _ in "1234"]
        self._prefix, self._number, self._datasets = (
            order[name] for name in ("prefix", "number", "datasets")
        )
        self._out = out
        self._told: dict[int, tuple[str, bytes]] = {}
        self._put_off: list[tuple[int, str]] = []
        self._asked = 0
        self.answers = 0

    def run(self) -> None:
        """Asks on every connection, then waits for every answer, again and again."""
        while self._asked < self._number or self._put_off:
            busy = []
            for connection in self._connections:
                if (request := self._next()) is not None:
                    number, dataset = request
                    connection.send(f"{self._prefix}-{number}", dataset)
                    busy.append((connection, number, dataset))
            for connection, number, dataset in busy:
                self._hear(number, dataset, *connection.receive())
            if self._put_off:
                time.sleep(0.05)

    def _next(self) -> tuple[int, str] | None:
        if self._put_off:
            return self._put_off.pop()
        if self._told and self._dice.random() < 0.2:
            number = self._asked - 1 - self._dice.randrange(min(500, self._asked))
            return (number, self._told[number][0]) if number in self._told else None
        if self._asked == self._number:
            return None
        self._asked += 1
        return self._asked - 1, self._dice.choice(self._datasets)

    def _hear(self, number: int, dataset: str, status: int, body: bytes) -> None:
        self.answers += 1
        if status == 503:  # for a reason that passes
            self._put_off.append((number, dataset))
            return
        assert status in (201, 403), body
        seen = dataset, sha256(body).digest()
        assert self._told.setdefault(number, seen) == seen, f"another answer: {body!r}"
        sequence = int(_SEQUENCE.findall(body)[-1])
        self._out.write(f"{self._prefix}-{number} {dataset} {status} {sequence}\n")


def race(order: dict[str, Any], file: str) -> int:
    """How many answers there were."""
    with open(file, "w") as out:
        racer = Racer(order, out)
        racer.run()
    return racer.answers


if __name__ == "__main__":
    print(race(json.loads(sys.stdin.read()), sys.argv[1]))  # noqa: T201 (what the test reads)
