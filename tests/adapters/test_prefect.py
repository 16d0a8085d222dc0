"""Prefect's retries of tasks and flows are charged once, in real runs on its own server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from ledger import committed
from pages import code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from service import Running

os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
prefect = pytest.importorskip("prefect", reason="prefect is not installed")

from prefect.testing.utilities import prefect_test_harness  # noqa: E402

from accountant.adapters.prefect import charged, granted, worth_a_retry  # noqa: E402
from accountant.client import Client, MayHaveRun, Refused, laplace  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Prefect warns of itself
COUNT = laplace(1, 4)
TOO_MUCH = laplace(1, "0.1")
RETRIED = {"retries": 3, "retry_condition_fn": worth_a_retry}


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """Prefect's own server, on a database that is thrown away."""
    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture
def population(served: Running) -> str:
    """A limit of epsilon 1."""
    return served.population()


@pytest.fixture
def ledger(served: Running, population: str) -> Callable[[], Client]:
    """What opens a client."""
    return lambda: served.client(population)


def flow_of(task: Any, times: int = 1, **options: Any) -> Any:
    """A flow that calls a task so many times."""

    @prefect.flow(name="weekly", **options)
    def weekly() -> None:
        for number in range(times):
            task(number)

    return weekly


def test_a_retry_after_noise_draws_nothing(
    served: Running, population: str, ledger: Callable[[], Client]
) -> None:
    """A task that failed after its noise fails for good at its second try; it is charged once."""
    drawn: list[int] = []
    tries: list[int] = []

    @prefect.task(**RETRIED)
    def count(number: int) -> None:
        tries.append(number)
        with granted(ledger, "visits", [COUNT], purpose="test"):
            drawn.append(number)
            raise ConnectionError

    with pytest.raises(MayHaveRun):
        flow_of(count)()
    assert (tries, drawn, committed(served, population)) == ([0, 0], [0], [COUNT])


def test_a_retry_before_noise_goes_on(
    served: Running, population: str, ledger: Callable[[], Client]
) -> None:
    """Tries that drew nothing cost nothing; the third draws and is charged."""
    tries: list[int] = []

    @prefect.task(**RETRIED)
    def count(number: int) -> None:
        with granted(ledger, "visits", [COUNT], purpose="test", tracked=True) as grant:
            tries.append(number)
            if len(tries) < 3:
                raise ConnectionError
            grant.use(COUNT)

    flow_of(count)()
    assert (len(tries), committed(served, population)) == (3, [COUNT])


def test_a_retried_flow_is_the_same_work(
    served: Running, population: str, ledger: Callable[[], Client]
) -> None:
    """A flow that is retried after its task drew meets the task's grant."""
    drawn: list[int] = []

    @prefect.task
    @charged(ledger, "visits", [COUNT], purpose="test")
    def count() -> None:
        drawn.append(1)
        raise ConnectionError

    @prefect.flow(retries=1)
    def weekly() -> None:
        count()

    with pytest.raises(MayHaveRun):
        weekly()
    assert (drawn, committed(served, population)) == ([1], [COUNT])


def test_another_run_is_another_work(
    served: Running, population: str, ledger: Callable[[], Client]
) -> None:
    """The flow of next week is charged again."""

    @prefect.task
    @charged(ledger, "visits", [COUNT], purpose="test")
    def count(number: int) -> None:
        del number

    flow = flow_of(count)
    flow()
    flow()
    assert committed(served, population) == [COUNT, COUNT]


def test_calls_of_one_task_need_parts(
    served: Running, population: str, ledger: Callable[[], Client]
) -> None:
    """A task that a flow calls twice has two grants if they are named, else the second stops."""

    @prefect.task
    def named(number: int) -> None:
        with granted(ledger, "visits", [COUNT], purpose="test", part=str(number)):
            pass

    @prefect.task
    def nameless(number: int) -> None:
        del number
        with granted(ledger, "visits", [COUNT], purpose="test"):
            pass

    flow_of(named, times=2)()
    assert committed(served, population) == [COUNT, COUNT]
    with pytest.raises(MayHaveRun):
        flow_of(nameless, times=2)()
    assert committed(served, population) == [COUNT, COUNT, COUNT]


def test_a_flow_without_tasks_may_ask(
    served: Running, population: str, ledger: Callable[[], Client]
) -> None:
    """A flow is work too, and ``run`` names it where its own run would not stay the same."""

    @prefect.flow
    @charged(ledger, "visits", [COUNT], purpose="test", run="week 7")
    def weekly() -> None:
        pass

    weekly()
    with pytest.raises(MayHaveRun):
        weekly()
    assert committed(served, population) == [COUNT]


def test_a_refusal_is_not_tried_again(
    served: Running, population: str, ledger: Callable[[], Client]
) -> None:
    """A refused task draws nothing, and Prefect does not retry it."""
    tries: list[int] = []

    @prefect.task(**RETRIED)
    def count(number: int) -> None:
        tries.append(number)
        with granted(ledger, "visits", [TOO_MUCH], purpose="test"):
            raise AssertionError

    with pytest.raises(Refused, match="lifetime"):
        flow_of(count)()
    assert (tries, committed(served, population)) == ([0], [])


def test_outside_of_a_run_there_is_no_key(ledger: Callable[[], Client]) -> None:
    """A function that Prefect does not run has no run that could name its work."""
    with (
        pytest.raises(RuntimeError, match="while it runs"),
        granted(ledger, "visits", [COUNT], purpose="test"),
    ):
        raise AssertionError


def test_where_a_client_is_may_come_from_the_environment(
    served: Running, population: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``Client.from_env`` opens the client when the task runs."""
    monkeypatch.setenv("ACCOUNTANT_URL", served.url)
    monkeypatch.setenv("ACCOUNTANT_KEY", served.keys["pipeline"])
    monkeypatch.setenv("ACCOUNTANT_POPULATION", population)
    monkeypatch.setenv("ACCOUNTANT_SPOOL", str(tmp_path / "spool"))

    @prefect.task
    @charged(Client.from_env, "visits", [COUNT], purpose="test")
    def count(number: int) -> None:
        del number

    flow_of(count)()
    assert committed(served, population) == [COUNT]


def test_the_documented_task_pays(
    served: Running, population: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of the page, with the address and the key in the environment."""
    monkeypatch.setenv("ACCOUNTANT_URL", served.url)
    monkeypatch.setenv("ACCOUNTANT_KEY", served.keys["pipeline"])
    monkeypatch.setenv("ACCOUNTANT_POPULATION", population)
    names: dict[str, Any] = {}
    for block in code("orchestrators.md", "Prefect"):
        exec(compile(block, "orchestrators.md", "exec"), names)  # noqa: S102 our own page

    @prefect.flow(name="documented")
    def documented() -> None:
        names["weekly"]()

    documented()
    assert [each["scale"] for each in committed(served, population)] == ["10"]
