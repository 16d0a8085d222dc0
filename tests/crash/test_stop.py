"""The service is asked to stop while requests wait."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import closing

from harness.checker import check
from harness.deployment import POPULATION, Deployment
from harness.effort import SEED
from harness.pipelines import DATASETS, POLICY, in_parallel, pipelines
from support import laplace

from accountant.store.opening import open_ledgers

GRANT = {"dataset": "wide", "mechanisms": [laplace("0.001", 2)]}


def test_stopped_while_requests_wait(deployment: Deployment) -> None:
    """Those that wait for the database when SIGTERM comes are answered before it ends, and what was
    answered is in the ledger.
    """
    clients = pipelines(deployment, 8, random.Random(SEED))  # noqa: S311 (for variety)
    told: list[tuple[int, bytes]] = []
    with deployment.serving() as service:
        deployment.register(service.port, POLICY, *DATASETS)
        wishes = []
        for client in clients:
            client.connect(service.port)
            wishes.append(client.new("/grants", GRANT))
            client.ask(client.new("/invocations", GRANT))
        with closing(open_ledgers(deployment.database_url)) as ledgers, ledgers.writing(POPULATION):
            threads = in_parallel(
                [
                    lambda c=client, w=wish: told.append(c.send(w))
                    for client, wish in zip(clients, wishes, strict=True)
                ]
            )
            time.sleep(0.5)
            assert not told
            os.kill(service.process.pid, signal.SIGTERM)
            time.sleep(0.5)
            assert not told
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()
        assert service.process.wait() == 0
    assert [status for status, _ in told] == [201] * len(clients)
    assert len({json.loads(body)["id"] for _, body in told}) == len(clients)
    with deployment.serving() as service:
        for client in clients:
            client.connect(service.port)
            client.settle()  # the same keys: the same answers
            client.close()
    assert {body for _, body in told} == {wish.answer for wish in wishes}
    check(deployment, clients)
