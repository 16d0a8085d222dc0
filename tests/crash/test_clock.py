"""The machine's clock jumps while the service is at work."""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.checker import check, verified
from harness.deployment import POPULATION, Deployment
from harness.effort import SEED, effort
from harness.pipelines import DATASETS, POLICY, at_work, pipelines
from support import laplace

HOUR = 3600
YEAR = 365 * 24 * HOUR
HOLD = effort(0.2, 5.0)


DAY = 24 * HOUR


def test_a_start_with_a_clock_far_ahead(deployment: Deployment, tmp_path: Path) -> None:
    """A service that was last sure of its clock two days ago asks before anything is stamped, by
    whatever call or job; after a pause of two days with a fresh mark it does not ask.
    """
    clock, mark = tmp_path / "clock", deployment.home / "clock-believed"
    settings = {"CRASH_CLOCK": str(clock), "ACCOUNTANT_CHECKPOINT_SECONDS": "0.2"}
    clients = pipelines(deployment, 2, random.Random(SEED))

    def jump(days: int) -> int:
        clock.write_text(str(days * DAY))
        return (int(time.time()) + days * DAY) * 10**6

    def stamps(port: int) -> set[str]:
        listed = deployment.call(port, "GET", "/events?limit=1000")[1]["events"]
        return {one["event"]["time"] for one in listed}

    def grants() -> int:
        wish = clients[0].new("/grants", {"dataset": "wide", "mechanisms": [laplace("0.01", 2)]})
        return clients[0].send(wish)[0]

    mark.write_text(str(jump(0)))
    with deployment.serving(**settings) as service:
        deployment.register(service.port, POLICY, *DATASETS)
        clients[0].connect(service.port)
        assert grants() == 201
        clients[0].close()
        service.stop()
    marked = mark.read_text()

    jump(2)
    with deployment.started(**settings) as service:
        until(lambda: service.ready() == 503)
        before = stamps(service.port)
        clients[0].connect(service.port)
        assert grants() == 503
        clients[0].close()
        time.sleep(1)  # for the jobs
        assert stamps(service.port) == before
        assert mark.read_text() == marked
        accept_time(deployment, tmp_path, clock)
        assert service.ready() == 200
        clients[0].connect(service.port)
        assert grants() == 201
        clients[0].close()
        service.stop()

    mark.write_text(str(jump(4) - HOUR * 10**6))
    with deployment.serving(**settings) as service:
        clients[0].connect(service.port)
        assert grants() == 201
        clients[0].settle()
        clients[0].close()
    check(deployment, clients)


def accept_time(deployment: Deployment, folder: Path, clock: Path) -> str:
    """What ``accountant accept-time`` prints to the second of two people."""

    def command(who: str, *more: str) -> str:
        (key := folder / f"{who}.key").write_text(deployment.secrets[who])
        words = ("accept-time", "-p", POPULATION, "--key-file", str(key), *more)
        return deployment.command(*words, CRASH_CLOCK=str(clock))

    said = command("admin", "--reason", "looked at it")
    words = said[said.index("accept-time --confirm") :].split()
    number, digest = words[2], words[words.index("--digest") + 1]
    return command("officer", "--confirm", number, "--digest", digest)


def until(true: Callable[[], bool]) -> None:
    """Waits until it is true; until the service listens it is not."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(OSError):
            if true():
                return
        time.sleep(0.05)
    raise AssertionError("it never was")


def test_a_clock_that_jumps(deployment: Deployment, tmp_path: Path) -> None:
    """An hour back and a year forward: no stamp goes back, no budget is exceeded, and nothing
    expires before an operator has accepted the time. Then what is due is charged, and a commit that
    comes too late changes nothing.
    """
    clock = tmp_path / "clock"

    def jump(seconds: int) -> None:
        (tmp_path / "next").write_text(str(seconds))
        (tmp_path / "next").replace(clock)

    def accept() -> str:
        return accept_time(deployment, tmp_path, clock)

    def work() -> None:
        with at_work(clients, [service.port], patient=True):
            time.sleep(HOLD)

    def seen() -> Any:
        return deployment.call(service.port, "GET", f"/grants/{grant}")[1]

    jump(0)
    dice = random.Random(SEED)
    clients = pipelines(deployment, 3, dice)
    with deployment.serving(CRASH_CLOCK=str(clock)) as service:
        deployment.register(service.port, POLICY, *DATASETS)
        for client in clients:
            client.connect(service.port)
        body = {"dataset": "d", "mechanisms": [laplace("0.01", 2)], "ttl_seconds": 2 * HOUR}
        held = clients[0].new("/grants", body)
        clients[0].ask(held)
        grant = json.loads(held.answer)["id"]
        clients[0].grants.clear()
        for seconds in (-HOUR, YEAR, 0, YEAR):
            jump(seconds)
            work()
            assert seen()["state"] == "reserved"
            assert seen()["charged"] is None
            wish = clients[0].new("/grants", body | {"dataset": "wide"})
            answered = clients[0].send(wish)[0]
            assert answered == (503 if seconds else 201)
        accept()
        deadline = time.monotonic() + 30
        while seen()["state"] != "expired" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert seen()["charged"] == seen()["reserved"]
        work()
        jump(0)  # right again, and a year behind the last stamp
        assert "no grant expires" in " ".join(accept().split())
        for client in clients:
            client.connect(service.port)
            client.settle()
        late = clients[0].new(f"/grants/{grant}/commit", {})
        clients[0].connect(service.port)  # its connection was idle while the others settled
        clients[0].ask(late)
        assert json.loads(late.answer)["state"] == "expired"
    with deployment.serving() as service:  # it starts behind the last stamp, which was accepted
        for client in clients:
            client.connect(service.port)
            client.repeat(30)
        with at_work(clients, [service.port]):
            time.sleep(HOLD)
    check(deployment, clients)
    verified(deployment, tmp_path)
