"""Requests that wait, over HTTP: 202, long polls, retries, the clients, two services."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from served import Served, served
from support import Clock, World, ask, laplace

from accountant.api import polling
from accountant.client import Client, Failed, Refused
from accountant.client.aio import AsyncClient

__all__ = ["served"]
RULES = "  - {id: a, limit: {epsilon: 2}}\n"


@pytest.fixture
def clock() -> Clock:
    """The clock of ``made``."""
    return Clock()


@pytest.fixture
def made(world: Callable[..., World], clock: Clock) -> World:
    """A service whose one limit is used up by the grant g4."""
    made = world(clock).hospital(RULES)
    assert made.post("/grants", ask(laplace(2))).json()["id"] == "g4"
    return made


def waits(made: World, **more: Any) -> dict[str, Any]:
    """The answer to a request that waits, sent under the key ``k``."""
    answer = made.post("/grants", ask(laplace(1), wait="1h", **more), key="k")
    return {"status": answer.status_code, **answer.json()}


def test_a_wait_is_answered_by_202_and_a_retry_like_a_poll(made: World) -> None:
    """It is 202 while it waits, and what a grant's answer is once it is admitted."""
    first = waits(made)
    assert (first["status"], first["state"], first["id"]) == (202, "waiting", "g5")
    assert waits(made)["status"] == 202
    assert made.get("/grants/g5").json()["state"] == "waiting"
    made.post("/grants/g4/release", {"reason": "not run"})
    again = waits(made)
    assert (again["status"], again["id"], again["waited_as"]) == (201, "g7", "g5")
    assert again["count"] == 1
    polled = made.get("/grants/g5?wait=30s").json()
    assert (polled["id"], polled["state"], polled["waited_as"]) == ("g7", "reserved", "g5")
    assert made.post("/grants/g7/commit").json()["state"] == "committed"


def test_what_waits_is_listed(made: World) -> None:
    """Whoever oversees sees all that waits, since when; a pipeline sees its own."""
    waits(made)
    [one] = made.get("/grants?state=waiting").json()["grants"]
    assert (one["id"], one["state"], one["client"]) == ("g5", "waiting", "pipeline")
    assert one["opened"] < one["expires"]
    assert made.get("/grants?state=waiting&client=other").json()["grants"] == []
    assert [grant["id"] for grant in made.get("/grants").json()["grants"]] == ["g4"]


def test_what_waited_in_vain_is_refused(made: World, clock: Clock) -> None:
    """A wait that has timed out is answered as a refusal, with the decision that was the last."""
    waits(made)
    clock.forward(3_601)
    made.service.expire_due()
    late = waits(made)
    assert (late["status"], late["type"].rsplit(":", 1)[1]) == (403, "wait-timed-out")
    assert late["decision"]["outcome"] == "block"
    assert made.get("/grants/g5").json()["state"] == "timed_out"


def test_a_wait_is_cancelled_by_its_client(made: World) -> None:
    """A release ends it, and it is never admitted."""
    waits(made)
    assert made.post("/grants/g5/commit").status_code == 409
    ended = made.post("/grants/g5/release", {"reason": "not needed"})
    assert (ended.status_code, ended.json()["state"]) == (200, "cancelled")
    assert waits(made)["status"] == 409
    made.post("/grants/g4/release", {"reason": "not run"})
    assert made.get("/grants/g5").json()["state"] == "cancelled"


def test_the_job_admits_what_time_lets_in(world: Callable[..., World], clock: Clock) -> None:
    """A window that passes lets a request in without anybody asking."""
    made = world(clock).hospital("  - {id: a, limit: {epsilon: 2}, window: 12h}\n")
    made.post("/grants", ask(laplace(2)))
    made.post("/grants/g4/commit")
    assert made.post("/grants", ask(laplace(1), wait="1d")).status_code == 202
    made.service.expire_due()
    assert made.get("/grants/g6").json()["state"] == "waiting"
    clock.forward(12 * 3_600)
    made.service.expire_due()
    assert made.get("/grants/g6").json()["id"] == "g7"


def test_a_restart_and_another_service_admit_the_same(made: World, clock: Clock) -> None:
    """Who waits is in the ledger: a service that did not see the request admits it."""
    waits(made)
    other = World(made.url, clock)  # it replaces all keys
    made.secrets, other.keys = other.secrets, 100
    try:
        ended = other.post("/grants/g4/release", {"reason": "not run"})
        assert ended.json().get("state") == "released", ended.text
        assert other.get("/grants/g5").json()["id"] == "g7"
        assert made.get("/grants/g5").json()["id"] == "g7"
    finally:
        other.close()


LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "4"}


def release_later(served: Served, client: Client, grant: str) -> threading.Thread:
    """Releases a grant in a moment, from another thread."""

    def release() -> None:
        time.sleep(0.5)
        with served.client(client.population) as other:
            other.release(grant, "not run")

    thread = threading.Thread(target=release)
    thread.start()
    return thread


def test_the_client_returns_once_it_is_admitted(served: Served) -> None:
    """It waits without asking again and again, and commits what it was admitted for."""
    with served.client(served.population()) as accountant:
        first = accountant.grant("visits", [{**LAPLACE, "count": 4}], purpose="test")
        thread = release_later(served, accountant, first.id)
        began = time.monotonic()
        with accountant.grant("visits", [LAPLACE], purpose="test", wait="1h") as grant:
            assert time.monotonic() - began < 10
            assert grant.id != first.id
        thread.join()
        assert accountant.grant_state(grant.id).state == "committed"


def test_the_client_knows_how_much_was_admitted(served: Served) -> None:
    """Of a request that is admitted in part no more may be used than was admitted."""
    with served.client(served.population()) as accountant:
        accountant.grant("visits", [{**LAPLACE, "count": 2}], purpose="test")
        mechanism = {**LAPLACE, "count": 4}
        grant = accountant.grant("visits", [mechanism], purpose="t", wait=60, at_least=1)
        assert grant.answer["count"] == 2
        with pytest.raises(ValueError, match="1 more invocations"):
            grant.use(mechanism, 3)
        grant.commit()


def test_the_client_raises_what_a_wait_ends_in(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot fit is refused at once, and what waited in vain when its time is over."""
    monkeypatch.setattr(polling, "_READ", 0.5)
    with served.client(served.population()) as accountant:
        with pytest.raises(Refused):
            accountant.grant("visits", [{**LAPLACE, "count": 5}], purpose="test", wait="1h")
        assert accountant.grant("visits", [{**LAPLACE, "count": 4}], purpose="test")
        with pytest.raises((Refused, Failed), match="waited in vain"):
            accountant.grant("visits", [LAPLACE], purpose="test", wait=1)


def test_polls_hold_up_nobody(served: Served) -> None:
    """While many poll, others are answered; all return when they are admitted."""
    population = served.population()
    with served.client(population) as accountant:
        first = accountant.grant("visits", [{**LAPLACE, "count": 4}], purpose="test")

        async def one() -> str:
            async with AsyncClient(accountant.url, served.keys["pipeline"], population) as client:
                small = {**LAPLACE, "scale": "400"}
                return (await client.grant("visits", [small], purpose="test", wait="1h")).id

        async def all_of_them() -> list[str]:
            tasks = [asyncio.create_task(one()) for _ in range(60)]
            await asyncio.sleep(1)
            assert not any(task.done() for task in tasks)
            began = time.monotonic()
            await asyncio.to_thread(accountant.grant_state, first.id)
            assert time.monotonic() - began < 2
            await asyncio.to_thread(accountant.release, first.id, "not run")
            return await asyncio.gather(*tasks)

        assert len(set(asyncio.run(all_of_them()))) == 60
