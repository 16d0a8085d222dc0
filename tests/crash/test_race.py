"""Many processes ask two services for what is left of a few budgets, as fast as they can."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import harness.racer
import pytest
from harness.checker import verified
from harness.deployment import POPULATION, Deployment
from harness.effort import SEED, effort
from support import last_replay

from accountant.store.opening import open_ledgers

REQUESTS = int(os.environ.get("CRASH_REQUESTS") or effort(1_000, 16_000))
"""Different requests; a fifth as many more are verbatim retries. CRASH_REQUESTS=1000000 takes
a quarter of an hour on one service and SQLite.
"""
RACERS = effort(3, 6)
BUDGETS = ("b0", "b1", "b2", "b3")
EACH = REQUESTS // 16
"""Thousandths that each budget holds: a quarter of what is asked of it."""


@pytest.mark.parametrize("services", [1, 2])
def test_never_one_over_and_never_one_lost(
    deployment: Deployment, tmp_path: Path, services: int
) -> None:
    """Of each budget exactly what it holds is granted, every answer has its event, and every event
    its answer, whichever service of the file was asked.
    """
    requests = REQUESTS if services == 1 else REQUESTS // 2
    policy = f"policy: p\nrules:\n  - {{id: cap, limit: {{epsilon: {requests // 16 / 1000}}}}}\n"
    with ExitStack() as stack:
        running = [stack.enter_context(deployment.serving()) for _ in range(services)]
        ports = [each.port for each in running]
        deployment.register(ports[0], policy, *BUDGETS)
        answers = race(deployment, ports, requests, tmp_path)
    assert answers > requests * 1.1  # verbatim retries among them
    told: dict[str, tuple[str, str, int]] = {}
    for line in lines(tmp_path):
        key, dataset, status, sequence = line.split()
        answer = dataset, status, int(sequence)
        assert told.setdefault(key, answer) == answer
    assert len(told) == requests
    granted: Counter[str] = Counter()

    def events() -> Iterator[bytes]:
        ledgers = open_ledgers(deployment.database_url)
        for stored in ledgers.stream(POPULATION):
            event = json.loads(stored.body)
            if "key" in event:
                dataset, status, sequence = told.pop(event["key"])
                assert sequence == event["sequence"]
                assert dataset == event["command"]["dataset"]
                assert event["type"] == ("grant.reserved.v1" if status == "201" else REFUSED)
                granted[dataset] += status == "201"
            yield stored.body
        ledgers.close()

    assert last_replay(POPULATION, events()).findings == []
    assert not told, "an answer has no event"
    assert granted == dict.fromkeys(BUDGETS, requests // 16)
    if services == 1:
        verified(deployment, tmp_path)


REFUSED = "grant.refused.v1"


def race(deployment: Deployment, ports: list[int], requests: int, folder: Path) -> int:
    """Lets the racers run; how many answers they got. Raises AssertionError if one gives up."""
    racers = []
    for number in range(RACERS):
        order = {
            "seed": SEED + number,
            "ports": ports,
            "secret": deployment.secrets["c0"],
            "prefix": f"r{number}",
            "number": requests * (number + 1) // RACERS - requests * number // RACERS,
            "datasets": BUDGETS,
        }
        racer = subprocess.Popen(
            [sys.executable, harness.racer.__file__, str(folder / f"told-{number}")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert racer.stdin is not None
        racer.stdin.write(json.dumps(order))
        racer.stdin.close()
        racers.append(racer)
    answers = 0
    for racer in racers:
        assert racer.stdout is not None
        with racer.stdout:
            printed = racer.stdout.read()
        assert racer.wait() == 0
        answers += int(printed)
    return answers


def lines(folder: Path) -> Iterator[str]:
    """What the racers were told."""
    for file in sorted(folder.glob("told-*")):
        with file.open() as found:
            yield from found
