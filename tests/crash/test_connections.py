"""Clients that break off, are slow, are many, or are served by two services at once."""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.checker import check
from harness.deployment import POPULATION, Deployment
from harness.effort import SEED, effort
from harness.pipelines import (
    DATASETS,
    POLICY,
    Pipeline,
    Request,
    at_work,
    in_parallel,
    pipelines,
    settled,
)

IDLE = effort(150, 800)
BREAKS = effort(20, 400)


def test_two_services_on_one_database(deployment: Deployment) -> None:
    """Clients that go from one service to the other and back get the same answers at both, and no
    budget is exceeded, also where one is held up for a moment and goes on from what it knew.
    """
    clients = pipelines(deployment, 4, random.Random(SEED))
    with deployment.serving() as one, deployment.serving() as other:
        deployment.register(one.port, POLICY, *DATASETS)
        for ports in ([one.port, other.port], [other.port, one.port]) * effort(1, 4):
            with at_work(clients, ports):
                time.sleep(effort(0.2, 1.0))
                os.kill(other.process.pid, signal.SIGSTOP)
                time.sleep(effort(0.2, 1.0))
                os.kill(other.process.pid, signal.SIGCONT)
                time.sleep(0.1)
            for client, port in zip(clients, reversed(ports * 2), strict=True):
                client.connect(port)
                client.settle()
                client.repeat(15)
                client.close()
    check(deployment, clients)


def opened(client: Pipeline) -> socket.socket:
    """A connection without anything on it."""
    return socket.create_connection(("127.0.0.1", client.port), timeout=30)


def bytes_of(client: Pipeline, request: Request) -> bytes:
    """A request as it travels; the connection ends after it."""
    body = json.dumps(request.body).encode()
    head = (
        f"POST /v1/populations/{POPULATION}{request.path} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {client.secret}\r\nIdempotency-Key: {request.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def reset(connection: socket.socket) -> None:
    """Cuts the connection at once, whatever is under way."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def leave(connection: socket.socket) -> None:
    """Says good-bye and does not wait for an answer."""
    connection.close()


@pytest.mark.parametrize("cut", [reset, leave])
def test_connections_that_break(
    deployment: Deployment, cut: Callable[[socket.socket], None]
) -> None:
    """Half a request does nothing; a whole one whose answer nobody waits for happens once or not at
    all, and its key tells which.
    """
    clients = pipelines(deployment, 3, random.Random(SEED))
    breaking = clients.pop()
    with deployment.serving() as service:
        deployment.register(service.port, POLICY, *DATASETS)
        breaking.connect(service.port)
        with at_work(clients, [service.port]):
            for _ in range(BREAKS):
                request = breaking.next()
                data = bytes_of(breaking, request)
                body = data.index(b"\r\n\r\n") + 4
                half = breaking.dice.random() < 0.5
                with opened(breaking) as connection:
                    if half:  # it never asked, then
                        breaking.requests.pop()
                        breaking.grants.clear()
                        data = data[: breaking.dice.randrange(body // 2, len(data))]
                    connection.sendall(data)
                    time.sleep(breaking.dice.choice([0, 0.001, 0.005, 0.02]))
                    cut(connection)
                if half:  # its key is free for what comes next
                    continue
        settled([*clients, breaking], service.port, 30)
    check(deployment, [*clients, breaking])


def test_slow_and_idle_connections(deployment: Deployment) -> None:
    """While hundreds of connections are open and silent, or come a byte at a time, others are
    served; a slow request is served too.
    """
    clients = pipelines(deployment, 3, random.Random(SEED))
    slow = clients.pop()
    with deployment.serving() as service:
        deployment.register(service.port, POLICY, *DATASETS)
        slow.connect(service.port)
        idle = [opened(slow) for _ in range(IDLE)]
        for connection in idle[::2]:
            connection.sendall(b"POST /v1/populations/fair/grants HTTP/1.1\r\nHost:")
        requests = [slow.next() for _ in range(8)]
        drips = in_parallel([lambda r=request: drip(slow, r) for request in requests])
        with at_work(clients, [service.port]):
            time.sleep(effort(0.5, 5.0))
        assert all(len(client.requests) > 3 for client in clients)
        for thread in drips:
            thread.join()
        assert all(request.status is not None for request in requests)
        for connection in idle:
            connection.close()
        for client in clients:
            client.connect(service.port)
            client.settle()
            client.close()
    check(deployment, [*clients, slow])


def drip(client: Pipeline, request: Request) -> None:
    """Sends a request a few bytes at a time, and keeps what is answered."""
    data = bytes_of(client, request)
    with opened(client) as connection:
        for start in range(0, len(data), 7):
            connection.sendall(data[start : start + 7])
            time.sleep(0.005)
        answer = b""
        while more := connection.recv(1 << 16):
            answer += more
    head, _, body = answer.partition(b"\r\n\r\n")
    request.status, request.answer = int(head[9:12]), body


def test_no_more_open_files(deployment: Deployment) -> None:
    """A service that may open no more files refuses what needs one (on a file every commit does),
    loses nothing, and goes on when it may.
    """
    clients = pipelines(deployment, 4, random.Random(SEED))
    with deployment.serving() as service:
        deployment.register(service.port, POLICY, *DATASETS)
        pid = service.process.pid
        on_file = deployment.database_url.startswith("sqlite")
        for _ in range(effort(1, 10)):
            with at_work(clients, [service.port], patient=True):
                time.sleep(0.1)
                before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
                refused = sum(client.failures for client in clients)
                deadline = time.monotonic() + 10
                few = len(list(Path(f"/proc/{pid}/fd").iterdir())) - 2
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, before[1]))
                time.sleep(effort(0.3, 2.0))
                while on_file and sum(client.failures for client in clients) == refused:
                    assert time.monotonic() < deadline, "nobody was refused"
                    time.sleep(0.05)
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
                time.sleep(0.1)
            settled(clients, service.port, 10)
    check(deployment, clients)
