"""PostgreSQL is killed, restarted or cut off while the service is at work.

The service is never restarted: it answers 503 as long as it must, goes on by itself, and what it
could not know in between it finds out.
"""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from harness.checker import check, verified
from harness.custodian import Custodian
from harness.deployment import Deployment
from harness.effort import HEAVY, SEED, effort
from harness.importing import Importing
from harness.pipelines import DATASETS, POLICY, at_work, pipelines
from harness.programs import kill
from places import Hosted
from wire import Wire

TIMES = effort(1, 20)
"""How often it happens in one life of a service."""
PATIENCE = 10.0
"""Seconds within which a service answers again: a server that lost a process is slow to notice."""
Disaster = Callable[[Hosted, random.Random], None]


def kill_postmaster(hosted: Hosted, _: random.Random) -> None:
    """The server is killed, stays away for a moment, and is started again."""
    hosted.server.kill()
    hosted.server.start()


def kill_backend(hosted: Hosted, dice: random.Random) -> None:
    """A process that serves a session is killed; the server then ends all, and recovers."""
    with suppress(ProcessLookupError):
        os.kill(dice.choice(hosted.sessions()), signal.SIGKILL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)
        with suppress(psycopg.OperationalError), closing(hosted.server.connect(hosted.name)):
            return
    raise AssertionError("the server does not recover")


def restart(hosted: Hosted, _: random.Random) -> None:
    """An administrator restarts the server; sessions are ended."""
    hosted.server.stop()
    hosted.server.start()


def end_sessions(hosted: Hosted, dice: random.Random) -> None:
    """An administrator ends sessions, one after the other."""
    for _ in range(5):
        for pid in dice.sample(found := hosted.sessions(), min(2, len(found))):
            hosted.run(f"SELECT pg_terminate_backend({pid})", role="superuser")
        time.sleep(dice.uniform(0, 0.05))


@pytest.mark.parametrize(
    "disaster",
    effort([kill_postmaster, end_sessions], [kill_postmaster, kill_backend, restart, end_sessions]),
)
def test_a_server_that_fails(
    on_server: Deployment, hosted: Hosted, tmp_path: Path, disaster: Disaster
) -> None:
    """However the server or a session of it ends, nothing that was answered is lost or doubled, and
    the service goes on by itself.
    """
    goes_on(on_server, lambda dice: disaster(hosted, dice))
    if HEAVY:
        verified(on_server, tmp_path)


@pytest.fixture
def wire(hosted: Hosted) -> Iterator[Wire]:
    """Between the service and the server."""
    made = Wire(hosted.server.port)
    yield made
    made.close()


def test_connections_that_are_cut(on_server: Deployment, hosted: Hosted, wire: Wire) -> None:
    """Wherever a connection is cut, before, while or after a transaction is committed too, each
    request happens once or not at all, and its answer says which.
    """
    url = hosted.url.replace(f":{hosted.server.port}/", f":{wire.port}/")

    def cut(dice: random.Random) -> None:
        for how in dice.choices(["before", "while", "after", ""], k=4):
            time.sleep(dice.uniform(0.0, 0.1))
            wire.cut = how
            if not how:
                wire.sever()

    goes_on(replace(on_server, database_url=url), cut)
    assert wire.cuts >= TIMES


def goes_on(deployment: Deployment, disaster: Callable[[random.Random], None]) -> None:
    """Lets it happen again and again to a service at work, and compares in the end."""
    dice = random.Random(SEED)
    clients = pipelines(deployment, 4, dice)
    custodian = Custodian(deployment, clients, dice)
    importing = Importing(deployment, deployment.home.with_name("past.jsonl"), 100 * TIMES)
    with deployment.serving(ACCOUNTANT_CHECKPOINT_SECONDS="0.1") as service:
        deployment.register(service.port, POLICY, *DATASETS)
        for _ in range(TIMES):
            past = importing.begin()
            with at_work(clients, [service.port], patient=True), custodian.at_work(service.port):
                time.sleep(dice.uniform(0.1, 0.5))
                disaster(dice)
                time.sleep(dice.uniform(0.0, 0.2))
            kill(past)
            for client in clients:
                client.connect(service.port)
                client.settle(PATIENCE)
                client.repeat(10)
                client.close()
            custodian.settle(service.port, PATIENCE)
    importing.finish()
    check(deployment, clients, custodian=custodian, importing=importing)
