"""Two clients who share what they learn, against what the ledger counts for all clients."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import support
from catalogue import dataset, people

from accountant.client import Client, Refused, Registrar
from accountant.config.settings import Settings
from accountant.publishing.publisher import Publisher
from accountant.queries.collusion import collude
from accountant.runtime.service import Service
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from accountant.store.vault import Vault

POLICY = """
policy: shares
rules:
  - {id: lifetime, limit: {epsilon: "1.2"}, gate: basic}
  - {id: share, limit: {epsilon: "0.5"}, per: client, gate: basic}
"""
CLIENTS = 3


@pytest.fixture
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Client]]:
    """Three pipelines' clients of one population, with a share of 0.5 each and 1.2 for everyone."""
    folder = tmp_path_factory.mktemp("shares")
    url = f"sqlite:///{folder}/accountant.db"
    migrate(url)
    ledgers = open_ledgers(url)
    settings = Settings(home=folder)
    service = Service(ledgers, vault=Vault(settings.home))
    running = support.Served(service, settings, Publisher(service, Vault(folder), settings.origin))
    address = f"http://127.0.0.1:{running.port}"
    admin = service.credentials.create("admin", "admin", "test")
    with Registrar(address, admin, "people") as registrar:
        registrar.register(
            privacy_unit="person", neighbouring="add_or_remove_one", membership="public",
            dimensions={"country": ["CH", "JP", "KR"]},
        )  # fmt: skip
        registrar.dataset("visits", namespace="people", name="visits")
        first = registrar.policy(POLICY)
    officer = service.credentials.create("officer", "officer", "test")
    with Registrar(address, officer, "people") as second:
        second.confirm(first["proposal"], first["digest"])
    names = [f"pipeline-{i}" for i in range(CLIENTS)]
    keys = [service.credentials.create(name, "pipeline", "test") for name in names]
    made = [Client(address, key, "people") for key in keys]
    yield made
    for client in made:
        client.close()
    running.close()
    ledgers.close()


def counts(clients: list[Client], epsilon: Any) -> list[Any]:
    """The same count by each client."""
    rows = people(500)
    return [dataset(client, rows).count(epsilon=epsilon) for client in clients]


def test_shares_protect_nobody_and_the_total_does(clients: list[Client]) -> None:
    """Each of two clients stays within its share, and together they have spent twice as much, with
    less noise: the ledger counts both for everyone, and refuses what would pass their limit.
    """
    two = collude(counts(clients[:2], "0.5"))
    assert two.per_client == (Decimal("0.5"), Decimal("0.5"))
    assert two.for_everyone == 1
    assert {(each.rule, each.client) for each in two.shares} >= {
        ("share", "pipeline-0"),
        ("share", "pipeline-1"),
    }
    assert {each.total.spent for each in two.shares} == {Decimal("0.5")}
    assert all(not each.total.over for each in two.shares)
    [total] = two.totals
    assert (total.rule, total.total.spent) == ("lifetime", Decimal(1))
    assert two.together == pytest.approx(two.alone / 2**0.5)
    assert two.average == pytest.approx(np.mean([answer.value for answer in two.answers]))
    with pytest.raises(Refused) as caught:
        counts(clients[2:], "0.5")[0].release()
    assert caught.value.rules == ("lifetime",), "its own share has room"


def test_averages_have_the_deviation_that_is_stated(clients: list[Client]) -> None:
    """The deviation of one answer, and of the average of two, is that of the noise drawn."""
    queries = counts(clients[:2], "0.5")
    two = collude(queries)
    [step], [value] = queries[0].steps, queries[0].values()
    draws = np.array(step.many(value, 8000), dtype=float)
    assert draws.std() == pytest.approx(two.alone, rel=0.06)
    assert draws.reshape(-1, 2).mean(axis=1).std() == pytest.approx(two.together, rel=0.06)


def test_only_the_same_question_is_averaged(clients: list[Client]) -> None:
    """One client alone, two questions, and answers that are no number are refused for free."""
    one, other = counts(clients[:2], "0.1")
    rows = people(500)
    for wrong in (
        [one],
        [one, one],
        [one, counts(clients[1:2], "0.2")[0]],
        [one, dataset(clients[1], rows).sum("x", epsilon="0.1")],
        [dataset(each, rows).median("age", epsilon="0.1") for each in clients[:2]],
    ):
        with pytest.raises(ValueError, match=r"same question|same query"):
            collude(wrong)
    assert clients[0].accounts()["lifetime"].total.spent == 0
    assert other.steps == one.steps
