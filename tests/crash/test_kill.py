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
from harness.custodian import Custodian
from harness.deployment import POPULATION, Deployment, free_port
from harness.effort import HEAVY, SEED, effort
from harness.importing import Importing
from harness.pipelines import DATASETS, POLICY, at_work, pipelines, settled
from harness.programs import Plain, kill

CLIENTS = 5
ROUNDS = effort(2, 20)
"""Kills of one ledger: it grows, and is read at each start."""


def rounds(deployment: Deployment, number: int, dice: random.Random) -> None:
    """Kills the service so often, or asks it to end, while clients are at work, texts are erased,
    past invocations are imported and an operator has the signing key replaced, who are killed too;
    compares in the end.
    """
    clients = pipelines(deployment, CLIENTS, dice)
    custodian = Custodian(deployment, clients, dice)
    importing = Importing(
        deployment, deployment.home.with_name("past.jsonl"), effort(300, 100) * number
    )
    for count in range(number):
        with deployment.serving(ACCOUNTANT_CHECKPOINT_SECONDS="0.1") as service:
            if count == 0:
                deployment.register(service.port, POLICY, *DATASETS)
            for client in clients:
                client.connect(service.port)
                client.settle()
                client.repeat(5)
            custodian.settle(service.port)
            with at_work(clients, [service.port]), custodian.at_work(service.port):
                rotating = deployment.begin("keys", "rotate", "--population", POPULATION)
                past = importing.begin()
                time.sleep(dice.uniform(0.05, 0.9))
                service.end(dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
                kill(rotating)
                kill(past)
    with deployment.serving() as service:
        settled(clients, service.port, 40)
        custodian.settle(service.port)
        importing.finish()
    checked = check(deployment, clients, custodian=custodian, importing=importing)
    assert len(checked.events) > 10 * number


@pytest.mark.parametrize("ledger", range(effort(1, 4)))
def test_killed_at_any_moment(either: Deployment, tmp_path: Path, ledger: int) -> None:
    """After every kill: acknowledged answers stand, retries agree with them, no budget is over, and
    the evidence verifies.
    """
    rounds(either, ROUNDS, random.Random(SEED + ledger))
    if HEAVY:
        verified(either, tmp_path)


def test_killed_as_its_users_start_it(on_file: Deployment) -> None:
    """The same when each service is a fresh process of its own."""
    on_file.starter = Plain()
    if HEAVY:
        rounds(on_file, 3, random.Random(SEED))
        return
    clients = pipelines(on_file, 2, random.Random(SEED))
    with on_file.serving() as service:
        on_file.register(service.port, POLICY, *DATASETS)
        with at_work(clients, [service.port]):
            time.sleep(0.3)
            service.kill()
    with on_file.serving() as service:
        settled(clients, service.port, 40)
    check(on_file, clients)


def test_one_of_two_is_killed(either: Deployment) -> None:
    """Two services race on the same budgets, and one of them is killed and started again: the other
    goes on, and in the end both say the same.
    """
    dice = random.Random(SEED)
    clients = pipelines(either, 4, dice)
    port = free_port()
    with either.serving() as lasting:
        either.register(lasting.port, POLICY, *DATASETS)
        with at_work(clients, [lasting.port, port], patient=True):
            for _ in range(effort(2, 20)):
                with either.serving(port) as mortal:
                    time.sleep(dice.uniform(0.05, 0.5))
                    mortal.kill()
        with either.serving(port) as mortal:
            for service in (lasting, mortal):
                settled(clients, service.port, 40)
    check(either, clients)
