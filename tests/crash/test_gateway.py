"""The service is two processes; one of them is ended."""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import json
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from harness.checker import check
from harness.deployment import Deployment, Running
from harness.effort import SEED, effort
from harness.pipelines import DATASETS, POLICY, at_work, pipelines, settled
from harness.programs import kill

SECONDS = 10


def gone(service: Running) -> None:
    """Waits until nobody listens at the service's port."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(ConnectionResetError):
            try:
                socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS).close()
            except ConnectionRefusedError:
                return
        time.sleep(0.005)
    raise AssertionError(f"somebody still listens at port {service.port}")


def test_the_one_that_speaks_http_is_killed(deployment: Deployment) -> None:
    """The service ends with an error that says so; started again it has lost nothing that was
    answered, and who had no answer gets one.
    """
    dice = random.Random(SEED)
    clients = pipelines(deployment, 4, dice)
    for count in range(effort(2, 20)):
        with deployment.serving() as service:
            if count == 0:
                deployment.register(service.port, POLICY, *DATASETS)
            with at_work(clients, [service.port]):
                time.sleep(dice.uniform(0.05, 0.5))
                os.kill(service.outside, signal.SIGKILL)
                assert service.process.wait() == 2
                gone(service)
    assert "the process that speaks HTTP has ended (exit code -9)" in deployment.output.read_text()
    with deployment.serving() as service:
        settled(clients, service.port)
    check(deployment, clients)


def listening(deployment: Deployment) -> int:
    """Waits until the service says at which port it listens."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError):  # it has printed nothing yet
            for line in deployment.output.read_text().splitlines():
                if '"event":"listening"' in line:
                    return int(json.loads(line)["port"])
        time.sleep(0.01)
    raise AssertionError("the service does not say where it listens")


def test_it_says_where_it_listens(deployment: Deployment) -> None:
    """Who leaves the port to the system learns it from the log."""
    process = deployment.begin("serve", "--port", "0")
    try:
        port = listening(deployment)
        assert deployment.call(port, "GET", "/accounts")[0] == 404  # no population yet
    finally:
        kill(process)


def killed(service: Running) -> None:
    """The one that decides is ended without a chance to tidy up: the other does not outlive it."""
    service.kill()
    gone(service)


def asked_to_end(service: Running) -> None:
    """Both are asked at once, as service managers do: that is no failure."""
    for pid in (service.process.pid, service.outside):
        os.kill(pid, signal.SIGTERM)
    assert service.process.wait() == 0


@pytest.mark.parametrize("end", [killed, asked_to_end])
def test_the_one_that_decides_ends(deployment: Deployment, end: Callable[[Running], None]) -> None:
    """However it ends under load, the port is free for the next one, and what was answered is in
    the ledger.
    """
    clients = pipelines(deployment, 4, random.Random(SEED))
    with deployment.serving() as service:
        deployment.register(service.port, POLICY, *DATASETS)
        with at_work(clients, [service.port]):
            time.sleep(0.2)
            end(service)
    with deployment.serving(service.port) as again:
        settled(clients, again.port)
    check(deployment, clients)
