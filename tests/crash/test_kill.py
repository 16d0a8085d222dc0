"""The real service, killed without warning again and again while clients are at work.

What a client was told is in the ledger; what it was not told it may ask again, and then it is told
what the ledger says. Nothing is charged twice, nothing is over budget, and the ledger replays.
"""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import declared, laplace, last_replay, root_of, sparse_vector

from accountant.service import Service
from accountant.store.ledgers import Ledgers

ROUNDS = 9
CLIENTS = 4
LIMIT = 10**9
POLICY = (
    "policy: p\nrules:\n"
    "  - {id: a, limit: {epsilon: 1}}\n"
    "  - {id: wide, datasets: wide, limit: {epsilon: 1000, delta: 0.1}}\n"
)


@dataclass
class Request:
    """One request of a client, and what it was told, if it was."""

    path: str
    body: dict[str, Any]
    key: str
    status: int | None = None
    answer: bytes | None = None


@dataclass
class Client:
    """A pipeline that keeps its requests, to ask again after a crash."""

    name: str
    secret: str
    port: int
    log: list[Request] = field(default_factory=list)
    unknown: list[Request] = field(default_factory=list)

    def send(self, request: Request) -> tuple[int, bytes]:
        """Sends a request; raises OSError or HTTPException if there is no whole answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            headers = {
                "Authorization": f"Bearer {self.secret}",
                "Idempotency-Key": request.key,
                "Content-Type": "application/json",
            }
            url = f"/v1/populations/fair{request.path}"
            connection.request("POST", url, json.dumps(request.body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def work(self, stop: threading.Event, dice: random.Random) -> None:
        """Asks, commits, releases and records until the service dies."""
        grants: list[str] = []
        while not stop.is_set():
            kind = dice.random()
            dataset = dice.choice(["d", "wide"])
            asked = {"dataset": dataset, "mechanisms": [laplace(dice.choice(["0.001", "0.01"]), 2)]}
            if grants and kind < 0.3:
                path, body = f"/grants/{grants.pop()}/commit", {}
            elif grants and kind < 0.5:
                path, body = f"/grants/{grants.pop()}/release", {"reason": "never run"}
            elif kind < 0.6:
                path, body = (
                    "/invocations",
                    asked | {"mechanisms": [declared("0.001", "1e-9")], "dataset": "wide"},
                )
            elif kind < 0.65:
                path, body = "/sparse-vector", {"dataset": "wide", "mechanism": sparse_vector()}
            else:
                path, body = "/grants", asked | {"ttl_seconds": dice.choice([1, 3600])}
            request = Request(path, body, f"{self.name}-{len(self.log) + len(self.unknown)}")
            try:
                request.status, request.answer = self.send(request)
            except (OSError, http.client.HTTPException):
                self.unknown.append(request)
                return
            self.log.append(request)
            if request.status == 201 and path == "/grants":
                grants.append(json.loads(request.answer)["id"])


@contextmanager
def serving(environment: dict[str, str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The service as its users start it; killed at the end, without a chance to tidy up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "accountant.cli", "serve", "--port", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            with suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/readyz")
                status = connection.getresponse().status
                connection.close()
                if status == 200:
                    break
            assert process.poll() is None, "the service did not start"
            assert time.monotonic() < deadline, "the service is not ready"
            time.sleep(0.02)
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def command(environment: dict[str, str], *arguments: str) -> str:
    """What ``accountant`` prints."""
    run = subprocess.run(
        [sys.executable, "-m", "accountant.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Settings for a service of this test's own, migrated."""
    settings = {"ACCOUNTANT_HOME": str(tmp_path), "ACCOUNTANT_EXPIRY_SECONDS": "0.2"}
    chosen = {k: v for k, v in os.environ.items() if not k.startswith("ACCOUNTANT_")} | settings
    command(chosen, "migrate")
    return chosen


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def put(port: int, secret: str, path: str, body: str) -> None:
    """Registers something."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(
        "PUT", f"/v1/populations/fair{path}", body, {"Authorization": f"Bearer {secret}"}
    )
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def in_parallel(calls: list[Callable[[], Any]]) -> list[threading.Thread]:
    """Starts all calls."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def test_killed_at_any_moment(environment: dict[str, str], tmp_path: Path) -> None:
    """After every kill: acknowledged answers stand, retries agree with them, no budget is over."""
    admin = command(environment, "keys", "create", "--role", "admin", "--name", "admin")
    port = free_port()
    clients = [
        Client(
            f"c{i}",
            command(environment, "keys", "create", "--role", "pipeline", "--name", f"c{i}"),
            port,
        )
        for i in range(CLIENTS)
    ]
    with serving(environment, port):
        population = {
            "privacy_unit": "person",
            "neighbouring": "replace_one",
            "membership": "public",
        }
        put(port, admin, "", json.dumps(population))
        for name in ("d", "wide"):
            put(port, admin, f"/datasets/{name}", json.dumps({"namespace": "n", "name": name}))
        put(port, admin, "/policy", POLICY)

    dice = random.Random(20261121)
    for _ in range(ROUNDS):
        with serving(environment, port) as process:
            for client in clients:
                pending, client.unknown = client.unknown, []
                for request in pending:  # it may have been answered or not: now it is, once
                    request.status, request.answer = client.send(request)
                    client.log.append(request)
                for request in dice.sample(client.log, min(5, len(client.log))):
                    assert client.send(request) == (request.status, request.answer)
            stop = threading.Event()
            seeds = [random.Random(dice.random()) for _ in clients]
            threads = in_parallel(
                [
                    lambda c=client, s=seed, e=stop: c.work(e, s)
                    for client, seed in zip(clients, seeds, strict=True)
                ]
            )
            time.sleep(dice.uniform(0.1, 1.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
            stop.set()
            for thread in threads:
                thread.join()

    with serving(environment, port):
        for client in clients:
            for request in client.unknown:
                request.status, request.answer = client.send(request)
            every = client.log + client.unknown
            for request in dice.sample(every, min(25, len(every))):
                assert client.send(request) == (request.status, request.answer)

    check(tmp_path, clients)


def check(home: Path, clients: list[Client]) -> None:
    """Compares what the clients were told with what the ledger says."""
    service = Service(Ledgers(f"sqlite:///{home}/accountant.db"))
    stored = [row.body for row in service.stream("fair")]
    result = last_replay("fair", stored)
    assert result.findings == []
    assert root_of(stored) == service.ledgers.head("fair").root

    by_key: dict[tuple[str, str], dict[str, Any]] = {}
    for body in stored:
        event = json.loads(body)
        if "key" in event:
            assert (event["by"], event["key"]) not in by_key  # nothing is answered twice
            by_key[event["by"], event["key"]] = event
    told = 0
    for client in clients:
        for request in client.log + client.unknown:
            assert request.status is not None
            assert request.status < 500
            if request.status in (200, 201) or b"decision" in (request.answer or b""):
                told += 1
                event = by_key[client.name, request.key]
                assert json.loads(request.answer or b"")["sequence"] == event["sequence"]
    assert told == len(by_key) > 100  # nor is anything in the ledger that nobody asked for

    state = result.state
    [used] = [
        a.used.cells() for k, a in state.accounts.items() if (k.rule, k.dataset) == ("a", "d")
    ]
    assert 0 < int(used[0]) <= LIMIT
    with service.state("fair") as again:
        assert again.sequence == len(stored)
    service.ledgers.close()
