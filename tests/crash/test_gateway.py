"""The service is two processes; one of them is ended."""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

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
