"""Dagster's retries and re-executions are charged once, in real runs."""

# Dagster reads the annotations of an asset when it is made: they may not be postponed.
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger import committed
from pages import code
from service import Running

dagster = pytest.importorskip("dagster", reason="dagster is not installed")

from accountant.adapters.dagster import (  # noqa: E402
    LedgerResource,
    TaskMayHaveRun,
    TaskRefused,
)
from accountant.client import MayHaveRun, Refused, laplace  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Dagster warns of itself
COUNT = laplace(1, 4)
TOO_MUCH = laplace(1, "0.1")


@pytest.fixture
def population(served: Running) -> str:
    """A limit of epsilon 1."""
    return served.population()


@pytest.fixture
def ledger(served: Running, population: str) -> LedgerResource:
    """The resource, configured."""
    return LedgerResource(url=served.url, key=served.keys["pipeline"], population=population)


@pytest.fixture
def instance() -> Iterator[Any]:
    """A Dagster instance that forgets."""
    with dagster.DagsterInstance.ephemeral() as found:
        yield found


def asset_of(work: Callable[[Any, LedgerResource], None]) -> Any:
    """An asset that Dagster retries three times."""

    @dagster.asset(name="weekly", retry_policy=dagster.RetryPolicy(max_retries=3))
    def weekly(context: dagster.AssetExecutionContext, ledger: LedgerResource) -> None:
        work(context, ledger)

    return weekly


def run(asset: Any, ledger: LedgerResource, instance: Any, **more: Any) -> Any:
    """Materialize an asset; return how that went."""
    resources = {"ledger": ledger}
    return dagster.materialize(
        [asset], resources=resources, instance=instance, raise_on_error=False, **more
    )


def test_a_run_is_charged_as_it_was_granted(
    served: Running, population: str, ledger: LedgerResource, instance: Any
) -> None:
    """An asset's grant is committed when it is materialized."""
    drawn: list[int] = []

    def work(context: Any, ledger: LedgerResource) -> None:
        with ledger.granted(context, "visits", [COUNT], purpose="test"):
            drawn.append(1)

    assert run(asset_of(work), ledger, instance).success
    assert (drawn, committed(served, population)) == ([1], [COUNT])


def test_a_resource_shows_no_key(served: Running, ledger: LedgerResource) -> None:
    """A resource may be logged, and stands in tracebacks."""
    assert served.keys["pipeline"] not in repr(ledger) + str(ledger)


def test_a_retry_after_noise_draws_nothing(
    served: Running, population: str, ledger: LedgerResource, instance: Any
) -> None:
    """A step that failed after its noise fails for good at its second try; it is charged once."""
    drawn: list[int] = []
    met: list[BaseException] = []

    def work(context: Any, ledger: LedgerResource) -> None:
        try:
            with ledger.granted(context, "visits", [COUNT], purpose="test"):
                drawn.append(1)
                raise ConnectionError
        except MayHaveRun as error:
            met.append(error)
            raise

    assert not run(asset_of(work), ledger, instance).success
    assert (drawn, committed(served, population)) == ([1], [COUNT])
    [error] = met  # and no third try
    assert isinstance(error, TaskMayHaveRun)
    assert "again=1" in str(error.description)


def test_a_retry_before_noise_goes_on(
    served: Running, population: str, ledger: LedgerResource, instance: Any
) -> None:
    """Tries that drew nothing cost nothing; the third draws and is charged."""
    tries: list[int] = []

    def work(context: Any, ledger: LedgerResource) -> None:
        with ledger.granted(context, "visits", [COUNT], purpose="test", tracked=True) as grant:
            tries.append(context.retry_number)
            if len(tries) < 3:
                raise ConnectionError
            grant.use(COUNT)

    assert run(asset_of(work), ledger, instance).success
    assert (tries, committed(served, population)) == ([0, 1, 2], [COUNT])


def test_a_refusal_is_not_tried_again(
    served: Running, population: str, ledger: LedgerResource, instance: Any
) -> None:
    """A refused step draws nothing, and Dagster does not retry it."""
    met: list[BaseException] = []

    def work(context: Any, ledger: LedgerResource) -> None:
        try:
            with ledger.granted(context, "visits", [TOO_MUCH], purpose="test"):
                raise AssertionError
        except Refused as error:
            met.append(error)
            raise

    assert not run(asset_of(work), ledger, instance).success
    [error] = met
    assert isinstance(error, TaskRefused)
    assert "lifetime" in str(error.description)
    assert committed(served, population) == []


@dagster.op(name="count")
def count_visits(context: dagster.OpExecutionContext, ledger: LedgerResource) -> None:
    """Draw once for each grant, and say so in a file."""
    with (
        ledger.granted(context, "visits", [COUNT], purpose="test"),
        Path(os.environ["DRAWN"]).open("a") as drawn,
    ):
        drawn.write("1")


@dagster.job(
    executor_def=dagster.in_process_executor,
    resource_defs={
        "ledger": LedgerResource(
            url=dagster.EnvVar("ACCOUNTANT_URL"),
            key=dagster.EnvVar("ACCOUNTANT_KEY"),
            population=dagster.EnvVar("ACCOUNTANT_POPULATION"),
        )
    },
)
def weekly_job() -> None:
    """One count."""
    count_visits()


def test_a_run_that_is_executed_again_is_the_same_work(
    served: Running, population: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run re-executed from another one meets its grant; a run of its own is another work."""
    monkeypatch.setenv("ACCOUNTANT_URL", served.url)
    monkeypatch.setenv("ACCOUNTANT_KEY", served.keys["pipeline"])
    monkeypatch.setenv("ACCOUNTANT_POPULATION", population)
    monkeypatch.setenv("DRAWN", str(tmp_path / "drawn"))
    job = dagster.reconstructable(weekly_job)
    with dagster.DagsterInstance.local_temp() as instance:
        with dagster.execute_job(job, instance=instance) as first:
            assert first.success
        from_first = dagster.ReexecutionOptions(parent_run_id=first.run_id)
        with dagster.execute_job(job, instance=instance, reexecution_options=from_first) as again:
            assert not again.success
        with dagster.execute_job(job, instance=instance) as next_week:
            assert next_week.success
    assert (tmp_path / "drawn").read_text() == "11"
    assert committed(served, population) == [COUNT, COUNT]


def test_the_documented_asset_pays(
    served: Running, population: str, ledger: LedgerResource, instance: Any
) -> None:
    """The example of the page, with a resource for the test's service."""
    names: dict[str, Any] = {"draw": lambda: 1.0}
    for block in code("orchestrators.md", "Dagster"):
        exec(compile(block, "orchestrators.md", "exec"), names)  # noqa: S102 our own page
    assert run(names["weekly"], ledger, instance).success
    assert [each["scale"] for each in committed(served, population)] == ["10"]
    assert isinstance(names["defs"], dagster.Definitions)
