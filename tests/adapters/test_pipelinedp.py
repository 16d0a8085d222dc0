"""PipelineDP asks when it splits its budget, before any data are read."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

pipeline_dp = pytest.importorskip("pipeline_dp", reason="PipelineDP is not installed")
pytest.importorskip("hypothesis", reason="hypothesis is not installed")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from ledger import ROOMY, asked, charge, counts, events  # noqa: E402
from pipeline_dp import Metrics, NoiseKind  # noqa: E402
from pipeline_dp.aggregate_params import MechanismType  # noqa: E402

from accountant.adapters.pipelinedp import LedgerAccountant  # noqa: E402
from accountant.client import Client, MayHaveRun, Refused, Unreachable  # noqa: E402

if TYPE_CHECKING:
    from service import Running

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
POLICY = """
policy: roomy
rules:
  - {id: lifetime, limit: {epsilon: 1, delta: 1e-3}}
"""
ADDED = {"neighbouring": "add_or_remove_one"}


class Visits:
    """Rows of a person, a shop and an amount, which count how often they are read."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        self.read += 1
        yield from ((person, shop, person % 5) for person in range(3_000) for shop in range(2))


def aggregate(
    budget: Any, rows: Visits, *metrics: Any, noise: Any = NoiseKind.LAPLACE, **how: Any
) -> Any:
    """A lazy result."""
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )
    bounds = {"max_partitions_contributed": 2, "max_contributions_per_partition": 1}
    params = pipeline_dp.AggregateParams(
        metrics=[*metrics], noise_kind=noise, min_value=0, max_value=5, **bounds, **how
    )
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
    return engine.aggregate(rows, params, extractors)


@pytest.fixture
def ledger(served: Running) -> Any:
    """A client of a population with a limit of 1, in which units are there or not."""
    with served.client(served.population(POLICY, "add_or_remove_one")) as client:
        yield client


def accountant(ledger: Client, epsilon: float = 0.75, delta: float = 1e-6, **how: Any) -> Any:
    """An accountant that asks for the population's visits."""
    return LedgerAccountant(ledger, "visits", epsilon, delta, **how)


def test_the_list_is_that_of_the_noises(served: Running, ledger: Client) -> None:
    """A count and a sum are Laplace noise of their own scale, and the choice of partitions is
    declared; the pipeline runs once the grant is given, and is committed at the end of the block.
    """
    rows = Visits()
    with accountant(ledger) as budget:
        lazy = aggregate(budget, rows, Metrics.COUNT, Metrics.SUM)
        budget.compute_budgets()
        assert counts(served, ledger.population) == (1, 0, 0, 0)
        assert len(list(lazy)) == 2
    noise = {"kind": "laplace", "sensitivity": {"l1": "1"}, "scale": "4"} | ADDED
    [[*noises, partitions]] = asked(served, ledger.population)
    assert noises == [noise | {"claimed": {"epsilon": "0.25"}}] * 2
    assert partitions == {"kind": "declared", "epsilon": "0.25", "delta": "0.000001"} | ADDED
    assert [each.eps for each in budget.mechanism_specs] == [0.25] * 3
    [committed] = events(served, ledger.population, "grant.committed")
    assert committed["charge"]["epsilon"] == "750000000"
    assert counts(served, ledger.population) == (1, 1, 0, 0)


def test_a_refusal_comes_before_data_and_leaves_no_budget(served: Running, ledger: Client) -> None:
    """No mechanism has an epsilon, so that nothing can run; the same accountant may ask again."""
    rows = Visits()
    budget = accountant(ledger, 1.5)
    lazy = aggregate(budget, rows, Metrics.COUNT)
    with pytest.raises(Refused, match="lifetime"):
        budget.compute_budgets()
    assert budget.grant is None
    assert not budget.finalized
    for spec in budget.mechanism_specs:
        with pytest.raises(AssertionError, match="not calculated yet"):
            _ = spec.eps
    with pytest.raises(AssertionError, match="not calculated yet"):
        list(lazy)
    with pytest.raises(Refused):
        budget.compute_budgets()
    assert counts(served, ledger.population) == (0, 0, 0, 2)


def test_data_are_not_read_before_the_grant(ledger: Client) -> None:
    """Asking reads no row."""
    rows = Visits()
    with accountant(ledger) as budget:
        lazy = aggregate(budget, rows, Metrics.COUNT)
        budget.compute_budgets()
        assert rows.read == 0
        list(lazy)
        assert rows.read == 1


def test_without_an_answer_nothing_can_run(served: Running) -> None:
    """A service that cannot be reached stops it as a refusal does."""
    away = Client("http://127.0.0.1:9", "acct_none", "nowhere", attempts=1)
    with away:
        budget = accountant(away)
        aggregate(budget, Visits(), Metrics.COUNT)
        with pytest.raises(Unreachable):
            budget.compute_budgets()
    assert not budget.finalized


def test_an_exception_after_the_grant_is_charged(served: Running, ledger: Client) -> None:
    """Noise may have been drawn by then."""

    def work() -> None:
        with accountant(ledger) as budget:
            aggregate(budget, Visits(), Metrics.COUNT)
            budget.compute_budgets()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert counts(served, ledger.population) == (1, 1, 0, 0)


def test_it_is_not_seen_whether_the_pipeline_ran(served: Running, ledger: Client) -> None:
    """As the first line says: a block that computes nothing is committed like any other."""
    rows = Visits()
    with accountant(ledger) as budget:
        aggregate(budget, rows, Metrics.COUNT)
        budget.compute_budgets()
    assert rows.read == 0
    assert counts(served, ledger.population) == (1, 1, 0, 0)


def test_a_pipeline_that_runs_elsewhere_commits_or_releases(
    served: Running, ledger: Client
) -> None:
    """Without a block the grant stays open until it is settled; what asked for nothing has
    nothing to settle.
    """
    budget = accountant(ledger, 0.25)
    budget.commit()
    budget.release("nothing was asked")
    aggregate(budget, Visits(), Metrics.COUNT)
    budget.compute_budgets()
    assert counts(served, ledger.population) == (1, 0, 0, 0)
    budget.commit()
    budget.commit()
    assert counts(served, ledger.population) == (1, 1, 0, 0)
    other = accountant(ledger, 0.25)
    aggregate(other, Visits(), Metrics.COUNT)
    other.compute_budgets()
    other.release("the cluster is down")
    assert counts(served, ledger.population) == (2, 1, 1, 0)
    with accountant(ledger) as empty:
        empty.compute_budgets()
    assert counts(served, ledger.population) == (2, 1, 1, 0)


def test_an_earlier_runs_grant_is_not_used(served: Running, ledger: Client) -> None:
    """Under a named key a second run learns that the first may have drawn, and leaves its grant
    alone.
    """
    for error in (None, MayHaveRun):
        budget = accountant(ledger, 0.25, idempotency_key="nightly", ttl_seconds=600)
        aggregate(budget, Visits(), Metrics.COUNT)
        if error is None:
            budget.compute_budgets()
        else:
            with pytest.raises(error):
                budget.compute_budgets()
            assert not budget.finalized
    assert counts(served, ledger.population) == (1, 0, 0, 0)


@pytest.mark.parametrize("noise", [NoiseKind.LAPLACE, NoiseKind.GAUSSIAN])
def test_every_metric_is_stated(served: Running, noise: Any) -> None:
    """A mean draws two noises and a variance three, each at its part of the budget; quantiles and
    partitions are declared. The scale is that with which PipelineDP draws, and the service books no
    less than PipelineDP's budget.
    """
    with served.client(served.population(ROOMY, "add_or_remove_one")) as client:
        for metrics, drawn, declared in (
            ([Metrics.MEAN, Metrics.PRIVACY_ID_COUNT], [1, 1, 1], 1),
            ([Metrics.VARIANCE], [3], 1),
            ([Metrics.PERCENTILE(50), Metrics.COUNT], [1], 2),
        ):
            budget = accountant(client, 0.9, 1e-5)
            aggregate(budget, Visits(), *metrics, noise=noise)
            budget.compute_budgets()
            stated = asked(served, client.population)[-1]
            kind = "laplace" if noise is NoiseKind.LAPLACE else "gaussian"
            noises = [each for each in stated if each["kind"] == kind]
            assert [each.get("count", 1) for each in noises] == drawn
            assert len(stated) - len(noises) == declared
            epsilon = 0.9 / (len(drawn) + declared) / max(drawn)
            for each in noises:
                assert float(each["claimed"]["epsilon"]) == pytest.approx(epsilon)
                if kind == "laplace":
                    assert float(each["scale"]) == pytest.approx(1 / epsilon)
            booked = charge(client, stated)
            assert booked["epsilon"] >= Decimal("0.9") - Decimal("1e-15")
            assert booked["delta"] >= Decimal("1e-5") - Decimal("1e-20")
            budget.commit()


def test_custom_mechanisms_are_declared(served: Running, ledger: Client) -> None:
    """What a combiner of the user's own does with its budget is not known."""
    budget = accountant(ledger, 0.75)
    budget.request_budget(MechanismType.LAPLACE, name="Mine", count=2)
    budget.request_budget(MechanismType.GENERIC, name="Count")
    budget.compute_budgets()
    budget.commit()
    mine, generic = asked(served, ledger.population)[0]
    assert (mine["kind"], mine["count"], mine["epsilon"]) == ("declared", 2, "0.25")
    assert (generic["kind"], generic["delta"]) == ("declared", "0.000001")


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.floats(min_value=0.01, max_value=8),
    st.floats(min_value=1e-9, max_value=1e-3),
    st.sampled_from([NoiseKind.LAPLACE, NoiseKind.GAUSSIAN]),
)
def test_the_charge_is_never_below_the_librarys(
    served: Running, epsilon: float, delta: float, noise: Any
) -> None:
    """For every budget and noise the sum that is booked is the whole of it."""
    with served.client(served.population(ROOMY, "add_or_remove_one")) as client:
        budget = accountant(client, epsilon, delta)
        aggregate(budget, Visits(), Metrics.MEAN, Metrics.VARIANCE, noise=noise)
        aggregate(budget, Visits(), Metrics.SUM, noise=noise)
        budget.compute_budgets()
        budget.commit()
        [committed] = events(served, client.population, "grant.committed")
    booked = {name: int(units) for name, units in committed["charge"].items()}
    assert booked["epsilon"] >= Decimal(epsilon) * 10**9 * (1 - Decimal("1e-12"))
    assert booked["delta"] >= Decimal(delta) * 10**15 * (1 - Decimal("1e-12"))
