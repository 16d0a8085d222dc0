"""What datasets were made from is registered while they are used, and the service is killed."""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from harness.checker import check, verified
from harness.deployment import Deployment
from harness.effort import HEAVY, SEED, effort
from harness.pipelines import DATASETS, POLICY, at_work, pipelines, settled
from harness.steward import Steward

ROUNDS = effort(3, 20)
"""Kills of one ledger."""


def test_killed_while_ancestors_are_registered(either: Deployment, tmp_path: Path) -> None:
    """After every kill each answered registration stands, none is there twice, and every ancestor
    holds what was used of its datasets, to the unit.
    """
    dice = random.Random(SEED)
    clients, steward = pipelines(either, 4, dice), Steward(either)
    for count in range(ROUNDS):
        with either.serving(ACCOUNTANT_CHECKPOINT_SECONDS="0.1") as service:
            if count == 0:
                either.register(service.port, POLICY, *DATASETS)
            for client in clients:
                client.connect(service.port)
                client.settle()
            steward.settle(service.port)
            with at_work(clients, [service.port]), steward.at_work(service.port):
                time.sleep(dice.uniform(0.05, 0.9))
                service.end(dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
    with either.serving() as service:
        settled(clients, service.port)
        steward.settle(service.port)
    checked = check(either, clients)
    steward.compare(checked)
    assert steward.told
    if HEAVY:
        verified(either, tmp_path)
