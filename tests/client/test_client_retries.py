"""Retries: bounded, patient, and never charged twice."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accountant.client import Client, Unreachable
from accountant.client.transport import LONGEST_WAIT, retry_after

if TYPE_CHECKING:
    from conftest import Network, Served

LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "4"}


def spent(served: Served, population: str) -> str:
    """What the lifetime rule counts."""
    with served.client(population, "auditor") as accountant:
        return str(accountant.accounts().accounts[0].total.spent)


def types(served: Served, population: str) -> list[str]:
    """The events after the four that register and adopt."""
    with served.client(population, "auditor") as accountant:
        return [event.type for event in accountant.events()][4:]


def test_lost_answer(served: Served, network: Network) -> None:
    """A request whose answer was lost is sent again under the same key and is charged once."""
    population = served.population()
    network.plan = ["lose", "lose"]
    with (
        served.client(population, url=network.url) as accountant,
        accountant.grant("visits", [LAPLACE], purpose="test") as grant,
    ):
        assert grant.repeated
    assert len(set(network.keys[:3])) == 1
    assert network.keys[0] is not None
    assert len(set(network.bodies[:3])) == 1
    assert types(served, population) == ["grant.reserved.v1", "grant.committed.v1"]
    assert spent(served, population) == "0.25"


def test_lost_commit(served: Served, network: Network) -> None:
    """A commit whose answer was lost is repeated and gets the first answer again."""
    population = served.population()
    with served.client(population, url=network.url) as accountant:
        grant = accountant.grant("visits", [LAPLACE], purpose="test")
        network.plan = ["lose"]
        assert grant.commit().charged["epsilon"] == Decimal("0.25")
    assert network.keys[1] == network.keys[2] != network.keys[0]


def test_lost_record(served: Served, network: Network) -> None:
    """What already ran is recorded once, however often its recording is retried."""
    population = served.population()
    network.plan = ["lose", "cut", "lose"]
    with served.client(population, url=network.url) as accountant:
        accountant.record("visits", [LAPLACE], purpose="test")
    assert types(served, population) == ["invocation.recorded.v1"]


def test_busy(served: Served, network: Network) -> None:
    """A 503 is retried under the same key, no sooner than its Retry-After asks."""
    population = served.population()
    network.plan, network.wait = ["busy"], "1"
    started = time.monotonic()
    with served.client(population, url=network.url) as accountant:
        accountant.grant("visits", [LAPLACE], purpose="test")
    assert time.monotonic() - started >= 1
    assert network.keys[0] == network.keys[1]


def test_bounded(served: Served, network: Network) -> None:
    """Retries end, and the error names the key with which one may ask once more."""
    population = served.population()
    network.plan = ["cut"] * 10
    with (
        served.client(population, url=network.url, attempts=3) as accountant,
        pytest.raises(Unreachable) as caught,
    ):
        accountant.grant("visits", [LAPLACE], purpose="test")
    assert len(network.keys) == 3
    assert caught.value.idempotency_key == network.keys[0]


def test_busy_to_the_end(served: Served, network: Network) -> None:
    """A service that stays busy leaves the key in the error, for the grant may have been given."""
    network.plan = ["busy"] * 10
    with (
        served.client(served.population(), url=network.url, attempts=2) as accountant,
        pytest.raises(Unreachable, match="503") as caught,
    ):
        accountant.grant("visits", [LAPLACE], purpose="test")
    assert caught.value.idempotency_key == network.keys[0]


def test_an_address_without_a_scheme() -> None:
    """An address that cannot work is an error at once, not a service out of reach."""
    with pytest.raises(ValueError, match="http://"):
        Client("127.0.0.1:8321", "key", "p")


def test_fresh_keys(served: Served, network: Network) -> None:
    """Two logical requests have two keys, even with equal bodies."""
    population = served.population()
    with served.client(population, url=network.url) as accountant:
        first = accountant.grant("visits", [LAPLACE], purpose="test")
        second = accountant.grant("visits", [LAPLACE], purpose="test")
    assert first.id != second.id
    assert network.keys[0] != network.keys[1]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 7.0),
        ("3", 3.0),
        ("0", 0.0),
        ("-5", 0.0),
        ("1e9", LONGEST_WAIT),
        ("nan", 7.0),
        ("soon", 7.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after(header: str | None, seconds: float) -> None:
    """Retry-After is honoured within bounds, and ignored where it makes no sense."""
    assert retry_after(header, otherwise=7.0) == seconds


def test_retry_after_date() -> None:
    """Retry-After may be a date."""
    header = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    assert 15 < retry_after(header, otherwise=7.0) <= 20


@pytest.mark.parametrize("key", ["", " ", "a b", "a\nb", "für-2026", "x" * 201, "\0"])
def test_a_key_that_no_service_takes_is_refused_at_once(
    served: Served, tmp_path: Path, key: str
) -> None:
    """An idempotency key is 1 to 200 visible ASCII characters: with another nothing is sent, and
    nothing waits in a spool, where it would stop all that wait behind it.
    """
    with served.client(served.population(), spool=tmp_path) as client:
        for ask in (client.grant, client.record):
            with pytest.raises(ValueError, match="idempotency key"):
                ask("visits", [LAPLACE], purpose="test", idempotency_key=key)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("treatment", ["fault", "slow"])
def test_what_the_service_says_to_retry_is_retried(
    served: Served, network: Network, treatment: str
) -> None:
    """A fault of the service, and a request that came too slowly, are asked again under one key."""
    network.plan = [treatment, treatment]
    with served.client(served.population(), url=network.url) as client:
        client.record("visits", [LAPLACE], purpose="test")
    assert len(network.keys) == 3
    assert len(set(network.keys)) == 1
