"""The service ends under load, and its port is free for the next one."""

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
from harness.effort import SEED
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
    """It is ended without a chance to tidy up."""
    service.kill()
    gone(service)


def asked_to_end(service: Running) -> None:
    """It is asked, as service managers do: that is no failure."""
    os.kill(service.process.pid, signal.SIGTERM)
    assert service.process.wait() == 0


@pytest.mark.parametrize("end", [killed, asked_to_end])
def test_it_ends_under_load(deployment: Deployment, end: Callable[[Running], None]) -> None:
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
