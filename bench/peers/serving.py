"""Asks a real service for a workload, over HTTP, one request after another."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.asking import PEOPLE, confirm, register
from bench.load import request
from bench.peers.clockwork import Clock
from bench.peers.workload import DATASET, Workload
from bench.running import Served, free_port, made_keys, process

POPULATION: Final = "peers"
START: Final = 1_890_000_000_000_000
"""When the clock of the service begins."""
_PATH: Final = f"/v1/populations/{POPULATION}"
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_REFUSED: Final = "budget-exceeded"
_LONGEST: Final = 30 * 24 * 3600
"""Seconds that a grant may be open."""


class Asked(NamedTuple):
    """The places of the requests that were admitted, in the order in which they were; seconds."""

    admitted: tuple[int, ...]
    seconds: float


@contextmanager
def opened(
    workload: Workload, folder: Path, policy: str | None = None
) -> Iterator[tuple[Served, Clock]]:
    """A service with the workload's population and a policy, its own by default, and its clock. If
    blocks come with time, the first one is there.
    """
    folder.mkdir()
    clock = Clock(folder / "clock", START - (workload.window - 1) * workload.every)
    url, port = f"sqlite:///{folder}/peers.db", free_port()
    secret, officer = made_keys(folder, url)
    command = ("bench.peers.clockwork", str(folder / "clock"), "--home", str(folder))
    with process(
        port, folder / "serve.log", *command, "--database-url", url, "serve", "--port", str(port)
    ) as pid:
        service = Served(port, pid, secret, officer)
        values = workload.values
        if workload.every and policy:
            values["block"] = values["block"][:1]
        register(service, POPULATION, policy or workload.policy, [DATASET], values)
        yield service, clock


def at_once(workload: Workload, folder: Path, order: Sequence[int] | None = None) -> Asked:
    """Ask for each request when it comes, or for all in an ``order`` of their places at the
    beginning; what does not fit is refused.
    """
    admitted = []
    with opened(workload, folder) as (service, clock), closing(Wire(service)) as wire:
        began = time.monotonic()
        for place in range(len(workload.asks)) if order is None else order:
            ask = workload.asks[place]
            clock.set(START + (ask.at if order is None else 0))
            status, answer = wire.post(f"request-{place}", workload.body(ask))
            if status == 201:
                admitted.append(place)
            elif not answer["type"].endswith(_REFUSED):
                raise RuntimeError(f"{ask}: {answer}")
        return Asked(tuple(admitted), time.monotonic() - began)


def waiting(workload: Workload, folder: Path, order: str, unlock: str, wait: str = "30d") -> Asked:
    """Ask for each request when it comes, and let it wait for so long where it does not fit: under
    a policy that admits those that wait in an ``order``, and unlocks the limit gradually. Where
    blocks come with time, each is added when it comes.
    """
    held = {"wait": wait, "ttl_seconds": _LONGEST}
    granted, waits = dict[int, int](), dict[int, str]()
    policy = workload.policy_of(order, unlock)
    with opened(workload, folder, policy) as (service, clock), closing(Wire(service)) as wire:
        began, blocks = time.monotonic(), _Blocks(workload, service, clock)
        for place, ask in enumerate(workload.asks):
            blocks.until(ask.at)
            clock.set(START + ask.at)
            status, answer = wire.post(f"request-{place}", workload.body(ask) | held)
            if status == 201:
                granted[place] = answer["sequence"]
            elif status == 202:
                waits[place] = answer["id"]
            elif not answer["type"].endswith(_REFUSED):
                raise RuntimeError(f"{ask}: {answer}")
        for place, name in waits.items():
            _, view = wire.get(f"grants/{name}")
            if "waited_as" in view:
                granted[place] = int(view["id"].removeprefix("g"))
        admitted = tuple(sorted(granted, key=granted.__getitem__))
        return Asked(admitted, time.monotonic() - began)


class _Blocks:
    """The blocks that come with time: the first window of them before the beginning."""

    def __init__(self, workload: Workload, service: Served, clock: Clock) -> None:
        self._workload, self._service, self._clock, self._there = workload, service, clock, 1

    def until(self, now: int) -> None:
        """Add those that have come, each at its stamp."""
        values, first = self._workload.values, self._workload.window - 1
        while self._workload.every and self._there < len(values["block"]):
            stamp = (self._there - first) * self._workload.every
            if stamp > now:
                return
            self._clock.set(START + stamp)
            self._there += 1
            people = PEOPLE | {"dimensions": values | {"block": values["block"][: self._there]}}
            with self._service.client() as client:
                path = f"/v1/populations/{POPULATION}"
                answer = client.put(path, json=people | {"attested_new": True})
            confirm(self._service, POPULATION, answer.raise_for_status().json())


def planned(workload: Workload, folder: Path) -> dict[str, Any]:
    """What ``accountant plan`` finds for all requests together."""
    with opened(workload, folder):
        pass  # the ledger stays
    lines = [json.dumps({"ask": workload.body(ask)}) for ask in workload.asks]
    home = ["--home", str(folder), "--database-url", f"sqlite:///{folder}/peers.db"]
    done = subprocess.run(  # noqa: S603 our own program
        [sys.executable, "-m", "accountant", *home, "plan", "-", "-p", POPULATION, "--json"],
        input="\n".join(lines), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Wire:
    """One connection."""

    def __init__(self, service: Served) -> None:
        self._headers = service.headers
        self._socket = socket.create_connection(("127.0.0.1", service.port))
        self._read = b""

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def post(self, key: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Ask for a grant; the status and the answer."""
        headers = self._headers | {"Idempotency-Key": key}
        return self._exchange(
            request("POST", f"/v1/populations/{POPULATION}/grants", body, headers)
        )

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Read something of the population."""
        return self._exchange(request("GET", f"{_PATH}/{path}", b"", self._headers))

    def _exchange(self, wire: bytes) -> tuple[int, dict[str, Any]]:
        self._socket.sendall(wire)
        head = self._until(self._end_of_head)
        found = _LENGTH.search(head)
        body = self._until(lambda: int(found[1]) if found else 0)
        return int(head[9:12]), json.loads(body or b"{}")

    def _end_of_head(self) -> int | None:
        end = self._read.find(b"\r\n\r\n")
        return end + 4 if end >= 0 else None

    def _until(self, size: Any) -> bytes:
        while (end := size()) is None or len(self._read) < end:
            more = self._socket.recv(1 << 16)
            if not more:
                raise RuntimeError("the service closed the connection")
            self._read += more
        found, self._read = self._read[:end], self._read[end:]
        return found
