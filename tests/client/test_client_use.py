"""What a grant pays for: what was used, and all of it where nobody said."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from awaited import FOLDER, derived
from forked import ran

from accountant.client import AsyncClient, Client, Refused, laplace
from accountant.client.reservations import Uses

if TYPE_CHECKING:
    from conftest import Served

COUNT, MEAN = laplace(1, 4), laplace(1, 8, count=3)


def charged(client: Client, grant: str) -> tuple[str, str]:
    """A grant's state, and the epsilon that it was charged."""
    found = client.grant_state(grant)
    return found.state, str((found.charged or {}).get("epsilon", ""))


def test_what_was_used_is_committed_and_the_rest_comes_back(served: Served) -> None:
    """A pipeline that names what it draws pays for that, once a draw."""
    with served.client(served.population()) as client:
        with client.grant("visits", [COUNT, MEAN], purpose="test") as grant:
            grant.use(MEAN, times=2)
        assert charged(client, grant.id) == ("committed", "0.25")


def test_what_was_used_before_an_exception_is_committed(served: Served) -> None:
    """An exception after a draw is charged for that draw alone, and goes on."""
    with served.client(served.population()) as client:
        grant = client.grant("visits", [COUNT, MEAN], purpose="test")

        def work() -> None:
            with grant:
                grant.use(COUNT)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            work()
        assert charged(client, grant.id) == ("committed", "0.25")


@pytest.mark.parametrize("error", [None, ZeroDivisionError], ids=str)
def test_tracked_and_unused_is_released(served: Served, error: type[Exception] | None) -> None:
    """Where every draw is announced, a block without one costs nothing, however it ends."""
    with served.client(served.population()) as client:
        try:
            with client.grant("visits", [COUNT], purpose="test", tracked=True) as grant:
                if error is not None:
                    raise error
        except ZeroDivisionError:
            assert error is not None
        assert charged(client, grant.id)[0] == "released"


def test_everything_used_is_committed_whole(served: Served) -> None:
    """``use`` without a name stands for all that was granted."""
    with served.client(served.population()) as client:
        with client.grant("visits", [COUNT, MEAN], purpose="test") as grant:
            grant.use()
        assert charged(client, grant.id) == ("committed", "0.625")


def test_what_was_not_granted_cannot_be_used(served: Served) -> None:
    """Announcing another mechanism, or one more draw, fails before anything is drawn."""
    with (
        served.client(served.population()) as client,
        client.grant("visits", [COUNT, COUNT], purpose="test") as grant,
    ):
        with pytest.raises(ValueError, match="not granted"):
            grant.use(laplace(1, 5))
        grant.use(COUNT)
        grant.use(COUNT)
        with pytest.raises(ValueError, match="1 more invocations of this laplace"):
            grant.use(COUNT)
        with pytest.raises(ValueError, match="at least 1"):
            grant.use(COUNT, times=0)


def test_a_charged_function_asks_each_time(served: Served) -> None:
    """The decorator asks for each call, and a refused call never runs."""
    with served.client(served.population()) as client:
        runs: list[int] = []

        @client.charged("visits", [laplace(1, 2)], purpose="test")
        def count(value: int) -> int:
            """Counts."""
            runs.append(value)
            return value + 1

        assert (count(1), count(2)) == (2, 3)
        with pytest.raises(Refused):
            count(3)
        assert runs == [1, 2]
        assert count.__doc__ == "Counts."
        with pytest.raises(ValueError, match="key for each call"):
            client.charged("visits", [COUNT], idempotency_key="once")


def test_a_charged_function_cannot_be_tracked(served: Served) -> None:
    """A function that never sees its grant cannot say what it draws: nothing would be charged."""
    population = served.population()
    with served.client(population) as client, pytest.raises(ValueError, match="tracked"):
        client.charged("visits", [COUNT], tracked=True)  # type: ignore[call-arg]
    asked = AsyncClient(served.url, served.keys["pipeline"], population)
    with pytest.raises(ValueError, match="tracked"):
        asked.charged("visits", [COUNT], tracked=True)  # type: ignore[call-arg]


def test_threads_use_what_was_granted_and_no_more() -> None:
    """Of many threads that announce draws at once, as many may draw as draws were granted."""
    one, before = laplace(1, 1000), sys.getswitchinterval()

    def drawn() -> int:
        uses, together = Uses([laplace(1, 1000, count=400)], tracked=True), threading.Barrier(16)
        found: list[int] = []

        def draw() -> None:
            together.wait()
            for _ in range(60):
                with suppress(ValueError):
                    uses.use(one, 1)
                    found.append(1)

        threads = [threading.Thread(target=draw) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert uses.ran() is None  # all of it
        return len(found)

    sys.setswitchinterval(1e-6)
    try:
        assert [drawn() for _ in range(60)] == [400] * 60
    finally:
        sys.setswitchinterval(before)


FORKED = """
import os
from accountant.client import Client
with Client.from_env() as client:
    client.accounts()
    inherited = client._http
    child = os.fork()
    if not child:
        client.accounts()
        os._exit(client._http is inherited)
    _, status = os.waitpid(child, 0)
    client.accounts()
    assert client._http is inherited
    raise SystemExit(os.waitstatus_to_exitcode(status))
"""


def test_a_child_process_has_connections_of_its_own(served: Served) -> None:
    """After a fork two processes would read each other's answers from one connection."""
    env = {"ACCOUNTANT_URL": served.url, "ACCOUNTANT_KEY": served.keys["pipeline"]}
    env |= {"ACCOUNTANT_POPULATION": served.population()}
    assert ran(FORKED, environment=os.environ | env).code == 0


def test_a_cancelled_task_is_charged(served: Served) -> None:
    """A task that is cancelled within a block may have drawn: what was granted is committed."""
    population = served.population()

    async def work() -> str:
        inside = asyncio.Event()
        async with AsyncClient(served.url, served.keys["pipeline"], population) as client:

            async def draw() -> None:
                async with client.grant("visits", [COUNT], purpose="test"):
                    inside.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(draw())
            await inside.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
            return str((await client.accounts())["lifetime"].total.spent)

    assert asyncio.run(work()) == "0.25"


def test_the_asynchronous_client_is_the_blocking_one_awaited() -> None:
    """``aio.py`` is what is derived from ``sync.py``, to the letter."""
    assert (FOLDER / "aio.py").read_text() == derived((FOLDER / "sync.py").read_text())


def test_the_asynchronous_client_does_what_the_blocking_one_does(served: Served) -> None:
    """Grants are entered or awaited, sessions count, records record, lists are read in pages."""
    population = served.population()

    async def work() -> list[Any]:
        async with AsyncClient(served.url, served.keys["pipeline"], population) as client:
            async with client.grant("visits", [COUNT, MEAN], purpose="test") as grant:
                grant.use(COUNT)
            held = await client.grant("visits", [laplace(1, 100)], purpose="test")
            waiting = [each.id async for each in client.open_grants()]
            await held.release("not started")
            recorded = await client.record("visits", [laplace(1, 100)], purpose="test")

            @client.charged("visits", [laplace(1, 100)], purpose="test")
            async def answer() -> int:
                return 42

            found = await answer()
            spent = (await client.accounts())["lifetime"].total.spent
            return [grant.epsilon, waiting == [held.id], recorded is not None, found, str(spent)]

    assert [str(each) for each in asyncio.run(work())] == ["0.625", "True", "True", "42", "0.27"]


def test_asynchronous_pages_and_the_ledger(served: Served) -> None:
    """The ledger is read and checked by an asynchronous auditor too."""
    population = served.population()

    async def work() -> list[str]:
        key = served.keys["auditor"]
        async with AsyncClient(served.url, key, population) as client:
            return [event.type async for event in client.events()]

    assert asyncio.run(work())[0] == "population.registered.v1"


def test_an_awaited_grant_is_refused_like_any_other(served: Served) -> None:
    """A refusal is raised where the grant is entered, and nothing runs."""
    population = served.population()

    async def work() -> None:
        async with (
            AsyncClient(served.url, served.keys["pipeline"], population) as client,
            client.grant("visits", [laplace(1, "0.1")], purpose="test"),
        ):
            raise AssertionError

    with pytest.raises(Refused, match="refused by rule lifetime"):
        asyncio.run(work())


def test_where_a_client_is_comes_from_the_environment(served: Served, tmp_path: Path) -> None:
    """``from_env`` reads address, key, population and spool; a missing one is named."""
    env = {"ACCOUNTANT_URL": served.url, "ACCOUNTANT_KEY": served.keys["pipeline"] + "\n"}
    env["ACCOUNTANT_SPOOL"] = str(tmp_path / "spool")
    with pytest.raises(KeyError, match="ACCOUNTANT_POPULATION"):
        Client.from_env(env=env)
    with Client.from_env(env=env | {"ACCOUNTANT_POPULATION": served.population()}) as client:
        assert client.accounts().sequence >= 0
        assert client.spool is not None


def test_a_client_loads_fast_and_loads_little() -> None:
    """Importing the client imports no numpy, pydantic, sqlalchemy, nor httpx2 before it is used."""
    program = "import sys, accountant.client; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "pydantic", "sqlalchemy", "httpx2", "asyncio"} & set(found)
