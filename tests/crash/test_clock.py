"""The machine's clock jumps while the service is at work."""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from harness.checker import check, verified
from harness.deployment import Deployment
from harness.effort import SEED, effort
from harness.pipelines import DATASETS, POLICY, at_work, pipelines
from support import laplace

HOUR = 3600
YEAR = 365 * 24 * HOUR
HOLD = effort(0.2, 5.0)


def test_a_clock_that_jumps(deployment: Deployment, tmp_path: Path) -> None:
    """An hour back and a year forward: no stamp goes back, no budget is exceeded, what expires is
    charged, and a commit that comes too late changes nothing.
    """
    clock = tmp_path / "clock"

    def jump(seconds: int) -> None:
        (tmp_path / "next").write_text(str(seconds))
        (tmp_path / "next").replace(clock)

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
        for seconds, state in ((-HOUR, "reserved"), (YEAR, "expired"), (0, "expired")):
            jump(seconds)
            with at_work(clients, [service.port], patient=True):
                time.sleep(HOLD)
            _, seen = deployment.call(service.port, "GET", f"/grants/{grant}")
            assert seen["state"] == state
            assert seen["charged"] == (seen["reserved"] if state == "expired" else None)
        for client in clients:
            client.connect(service.port)
            client.settle()
        late = clients[0].new(f"/grants/{grant}/commit", {})
        clients[0].ask(late)
        assert json.loads(late.answer)["state"] == "expired"
    with deployment.serving() as service:  # the clock is right again, and behind the last event
        for client in clients:
            client.connect(service.port)
            client.repeat(30)
        with at_work(clients, [service.port]):
            time.sleep(HOLD)
    check(deployment, clients)
    verified(deployment, tmp_path)
