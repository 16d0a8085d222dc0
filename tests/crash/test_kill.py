"""The real service, killed without warning again and again while clients are at work.

What a client was told is in the ledger; what it was not told it may ask again, and then it is told
what the ledger says. Nothing is charged twice, nothing is over budget, and the ledger replays.
"""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from harness.checker import check, verified
from harness.deployment import POPULATION, Deployment
from harness.effort import SEED, effort
from harness.pipelines import DATASETS, POLICY, at_work, pipelines
from harness.programs import Plain, kill

CLIENTS = 6
ROUNDS = effort(4, 25)
"""Kills of one ledger: it grows, and is read at each start."""


def rounds(deployment: Deployment, number: int, dice: random.Random) -> None:
    """Kills the service so often, or asks it to end, while clients are at work and an operator has
    its signing key replaced, who is killed too; compares in the end.
    """
    clients = pipelines(deployment, CLIENTS, dice)
    for count in range(number):
        with deployment.serving(ACCOUNTANT_CHECKPOINT_SECONDS="0.1") as service:
            if count == 0:
                deployment.register(service.port, POLICY, *DATASETS)
            for client in clients:
                client.connect(service.port)
                client.settle()
                client.repeat(5)
            with at_work(clients, [service.port]):
                command = deployment.begin("keys", "rotate", "--population", POPULATION)
                time.sleep(dice.uniform(0.05, 0.9))
                service.end(dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
                kill(command)
    with deployment.serving() as service:
        for client in clients:
            client.connect(service.port)
            client.settle()
            client.repeat(40)
            client.close()
    checked = check(deployment, clients)
    assert len(checked.events) > 10 * number


@pytest.mark.parametrize("ledger", range(effort(1, 12)))
def test_killed_at_any_moment(deployment: Deployment, tmp_path: Path, ledger: int) -> None:
    """After every kill: acknowledged answers stand, retries agree with them, no budget is over, and
    the evidence verifies.
    """
    rounds(deployment, ROUNDS, random.Random(SEED + ledger))
    verified(deployment, tmp_path)


def test_killed_as_its_users_start_it(deployment: Deployment) -> None:
    """The same when each service is a fresh process of its own."""
    deployment.starter = Plain()
    rounds(deployment, effort(1, 3), random.Random(SEED))
