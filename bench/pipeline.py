"""What a pipeline feels: the client's grant and commit over loopback, seen and unseen requests.

Beside it, by turns, the same bytes over a bare socket: what is left if a client costs nothing.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

from accountant.client import Client, laplace
from bench.asking import HOT, register
from bench.core import POLICY
from bench.load import request
from bench.running import Served, served

TIMES: Final = 400
TURNS: Final = 8
LOADS: Final = 15
BARE: Final = "bare sockets"
_EMPTY: Final = "pass"
_CLIENT: Final = "import accountant.client"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

Row = dict[str, Any]
Work = Callable[[int], None]


class Bare:
    """Asks and commits by bytes, and looks at nothing but the grant's id."""

    def __init__(self, server: Served) -> None:
        self._server, self._keys = server, count()
        self._socket = socket.create_connection(("127.0.0.1", server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def block(self, scale: int) -> None:
        """A grant for Laplace noise, and its commit."""
        asked = {"dataset": HOT, "mechanisms": [dict(laplace(1, scale))]}
        self._post(f"/{self._post('', asked)['id']}/commit", {})

    def _post(self, place: str, body: Any) -> Any:
        headers = {**self._server.headers, "Idempotency-Key": f"bare-{next(self._keys)}"}
        path = f"/v1/populations/three/grants{place}"
        self._socket.sendall(request("POST", path, body, headers))
        head, _, content = self._read().partition(b"\r\n\r\n")
        found = _LENGTH.search(head)
        if found is None or head[9:10] != b"2":
            raise RuntimeError(f"answered {head!r}")
        while len(content) < int(found[1]):
            content += self._read()
        return json.loads(content)

    def _read(self) -> bytes:
        if not (data := self._socket.recv(65_536)):
            raise RuntimeError("the service closed the connection")
        return data

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


def grant_and_commit(folder: Path) -> list[Row]:
    """Milliseconds that a block with a grant adds, its commit included; the median of many."""
    home = folder / "pipeline"
    home.mkdir()
    with served(home, f"sqlite:///{home}/bench.db") as server:
        register(server, "three", POLICY, [HOT])
        url = f"http://127.0.0.1:{server.port}"
        with Client(url, server.secret, "three") as ledger:

            def block(scale: int) -> None:
                with ledger.grant(HOT, [laplace(1, scale)]):
                    pass

            bare = Bare(server)
            works: list[Work] = [block, bare.block]
            rows = _compared("grant and commit", works, lambda _: 100)
            fresh = count(1_000)
            rows += _compared("grant and commit, unseen", works, lambda _: next(fresh))
            bare.close()
    return [*rows, {"what": "loading the client", "value": _loading(), "unit": "ms"}]


def _compared(what: str, works: list[Work], scale: Callable[[int], int]) -> list[Row]:
    """The client, and how many times as long as the bare sockets it takes, by turns."""
    for work in works:
        work(scale(0))
    turns = [[_milliseconds(work, scale) for work in works] for _ in range(TURNS)]
    ratio = median(mine / bare for mine, bare in turns)
    return [
        {"what": what, "value": median(mine for mine, _ in turns), "unit": "ms"},
        {"what": f"{what}, {BARE}", "value": median(bare for _, bare in turns), "unit": "ms"},
        {"what": what, "value": ratio, "unit": "ratio", "beside": BARE},
    ]


def _milliseconds(work: Work, scale: Callable[[int], int]) -> float:
    taken = []
    for n in range(TIMES // TURNS):
        value = scale(n)
        began = time.perf_counter()
        work(value)
        taken.append(time.perf_counter() - began)
    return median(taken) * 1e3


def _loading() -> float:
    """Milliseconds by which a process that imports the client is slower than one that does not."""

    def process(program: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603 our own program
        return time.perf_counter() - began

    pairs = [(process(_CLIENT), process(_EMPTY)) for _ in range(LOADS)]
    return (median(a for a, _ in pairs) - median(b for _, b in pairs)) * 1e3
