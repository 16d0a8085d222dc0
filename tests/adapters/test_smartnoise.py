"""SmartNoise SQL runs only queries that were granted, and the ledger holds the noise they drew."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from ledger import committed, last
from pages import code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service import Running

snsql = pytest.importorskip("snsql", reason="smartnoise-sql is not installed")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from snsql import Privacy, from_df  # noqa: E402
from snsql.sql._mechanisms import Gaussian, Laplace, Mechanism  # noqa: E402
from snsql.sql.privacy import Stat  # noqa: E402

from accountant.adapters.smartnoise import charge  # noqa: E402
from accountant.client import Client, Refused  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # pandas and OpenDP warn of themselves
POLICY = """
policy: sql
rules:
  - {id: lifetime, limit: {epsilon: 4, delta: 1e-3}}
"""
PEOPLE = 500
DRAWN: list[int] = []
COUNT = "SELECT COUNT(*) AS n FROM v.visits"
BY_SEX = "SELECT sex, COUNT(*) AS n, SUM(age) AS total FROM v.visits GROUP BY sex"
AVERAGE = "SELECT AVG(score) AS mean FROM v.visits"


class Counted(Laplace):
    """SmartNoise's Laplace noise, counted."""

    def release(self, vals: Any) -> Any:
        """Draws, and says so."""
        DRAWN.append(len(vals))
        return super().release(vals)


class CountedGaussian(Gaussian):
    """SmartNoise's normal noise, counted."""

    def release(self, vals: Any) -> Any:
        """Draws, and says so."""
        DRAWN.append(len(vals))
        return super().release(vals)


def frame() -> Any:
    """Two records of each person."""
    numbers = np.random.default_rng(7)
    rows = 2 * PEOPLE
    return pd.DataFrame(
        {
            "pid": np.arange(rows) // 2,
            "sex": numbers.integers(0, 2, rows),
            "age": numbers.integers(0, 100, rows),
            "score": numbers.uniform(-1, 5, rows),
            "note": numbers.uniform(0, 1, rows),
        }
    )


def reader_of(ledger: Client, kind: Any = Mechanism.laplace, **change: Any) -> Any:
    """A charged reader of the frame, with epsilon 0.5 a column."""
    public = change.pop("public_groups", False)
    table = {
        "row_privacy": False,
        "max_ids": 2,
        "pid": {"type": "int", "private_id": True},
        "sex": {"type": "int", "lower": 0, "upper": 1},
        "age": {"type": "int", "lower": 0, "upper": 100},
        "score": {"type": "float", "lower": -1, "upper": 5},
        "note": {"type": "float"},
    } | change
    privacy = Privacy(epsilon=0.5, delta=1e-5)
    privacy.mechanisms.classes = dict.fromkeys(Mechanism, Counted)
    privacy.mechanisms.classes[Mechanism.gaussian] = CountedGaussian
    privacy.mechanisms.map = dict.fromkeys(Stat, kind)
    metadata = {"": {"v": {"visits": table}}}
    reader = from_df(frame(), privacy=privacy, metadata=metadata)
    return charge(reader, ledger, "visits", purpose="test", public_groups=public)


@pytest.fixture
def population(served: Running) -> str:
    """Add-or-remove-one, with a limit for some queries."""
    return served.population(POLICY, "add_or_remove_one")


@pytest.fixture
def ledger(served: Running, population: str) -> Iterator[Client]:
    """A pipeline's client of that population."""
    DRAWN.clear()
    with served.client(population) as client:
        yield client


def ratio(mechanism: dict[str, Any]) -> Fraction:
    """The epsilon of a Laplace mechanism."""
    return Fraction(mechanism["sensitivity"]["l1"]) / Fraction(mechanism["scale"])


def test_each_column_s_noise_is_recorded(served: Running, population: str, ledger: Client) -> None:
    """A count by sex and a sum of ages: three columns with their sensitivities, and the delta."""
    reader = reader_of(ledger)
    rows = reader.execute(BY_SEX)
    assert len(rows) == 3
    *noise, groups = committed(served, population)
    assert [each["sensitivity"] for each in noise] == [{"l1": "2"}, {"l1": "2"}, {"l1": "200"}]
    assert all(abs(ratio(each) - Fraction(1, 2)) < 1e-6 for each in noise)
    assert groups["kind"] == "declared"
    assert (groups["epsilon"], groups["delta"]) == ("0", "0.00001")
    assert len(DRAWN) == 6  # three columns of two groups
    subquery = reader._rewrite(BY_SEX)[0]
    drawn = [s.mechanism.scale for s in subquery._select_symbols if s.mechanism is not None]
    assert [float(each["scale"]) for each in noise] == drawn


def test_an_average_is_a_sum_and_a_count(served: Running, population: str, ledger: Client) -> None:
    """An average over everybody draws for its sum, its count and the key count; no groups."""
    reader_of(ledger).execute(AVERAGE)
    found = committed(served, population)
    assert [each["sensitivity"] for each in found] == [{"l1": "2"}, {"l1": "10"}, {"l1": "2"}]
    assert len(DRAWN) == 3


def test_normal_noise_is_recorded_as_such(served: Running, population: str, ledger: Client) -> None:
    """With Gaussian mechanisms the ledger gets their deviation, sensitivity and delta."""
    reader_of(ledger, Mechanism.gaussian).execute(AVERAGE)
    found = committed(served, population)
    assert [(each["kind"], each["sensitivity"], each["delta"]) for each in found] == [
        ("gaussian", {"l2": "2"}, "0.00001"),
        ("gaussian", {"l2": "10"}, "0.00001"),
        ("gaussian", {"l2": "2"}, "0.00001"),
    ]
    assert float(found[0]["scale"]) == pytest.approx(15.334, abs=0.01)


def test_a_refusal_draws_nothing(served: Running, population: str, ledger: Client) -> None:
    """The query that no longer fits is refused before the database is asked."""
    reader = reader_of(ledger)
    reader.execute(BY_SEX)
    reader.execute(BY_SEX)
    drawn, spent = len(DRAWN), reader.odometer.spent
    asked: list[Any] = []
    run = reader.reader._execute_ast
    reader.reader._execute_ast = lambda query: asked.append(query) or run(query)
    with pytest.raises(Refused, match="lifetime"):
        reader.execute(BY_SEX)
    assert (len(DRAWN), reader.odometer.spent, asked) == (drawn, spent, [])
    assert last(served, population) == "grant.refused.v1"


def test_a_query_that_fails_before_its_noise_costs_nothing(
    served: Running, population: str, ledger: Client
) -> None:
    """A database that fails has drawn nothing: the grant is released."""
    reader = reader_of(ledger)

    def broken(_: Any) -> Any:
        raise ConnectionError("the database is away")

    reader.reader._execute_ast = broken
    with pytest.raises(ConnectionError):
        reader.execute(COUNT)
    assert DRAWN == []
    assert last(served, population) == "grant.released.v1"


def test_a_query_that_fails_after_its_noise_is_charged(
    served: Running, population: str, ledger: Client
) -> None:
    """An exception while noise is drawn commits the query."""
    reader = reader_of(ledger)

    def broken(_: Any) -> Any:
        return [["keycount", "count_star"], [1, 2], ["no number", 3]]

    reader.reader._execute_ast = broken
    with pytest.raises(ValueError, match="no number"):
        reader.execute(COUNT)
    assert DRAWN
    assert len(committed(served, population)) == 2


def test_a_lazy_result_is_charged_before_it_is_drawn(
    served: Running, population: str, ledger: Client
) -> None:
    """With postprocess=False rows are drawn when they are read; they are paid for by then."""
    rows = reader_of(ledger).execute(COUNT, postprocess=False)
    assert DRAWN == []
    assert len(committed(served, population)) == 2
    assert len(list(rows)) == 1
    assert len(DRAWN) == 2


def test_exact_answers_from_elsewhere_are_charged(
    served: Running, population: str, ledger: Client
) -> None:
    """Aggregates that were made elsewhere get their noise here, and are charged like others."""
    table = [["keycount", "count_star"], [500, 1000]]
    reader_of(ledger).execute(COUNT, pre_aggregated=table)
    assert len(committed(served, population)) == 2


def test_frames_are_charged_too(served: Running, population: str, ledger: Client) -> None:
    """``execute_df`` asks like ``execute``, once."""
    assert len(reader_of(ledger).execute_df(COUNT)) == 1
    assert len(committed(served, population)) == 2


def test_groups_that_are_shown_exactly_are_refused(
    served: Running, population: str, ledger: Client
) -> None:
    """Without ``censor_dims`` a query shows every group there is, unless groups are no secret."""
    before = len(served.events(population))
    with pytest.raises(ValueError, match="public_groups"):
        reader_of(ledger, censor_dims=False).execute(BY_SEX)
    assert (len(served.events(population)), DRAWN) == (before, [])
    reader_of(ledger, censor_dims=False, public_groups=True).execute(BY_SEX)
    assert [each["sensitivity"] for each in committed(served, population)] == [
        {"l1": "2"},
        {"l1": "200"},
    ]


def test_columns_without_bounds_are_not_asked_for(
    served: Running, population: str, ledger: Client
) -> None:
    """A sum without bounds has no sensitivity: it is an error before anything is asked."""
    before = len(served.events(population))
    with pytest.raises(ValueError, match="no bounds"):
        reader_of(ledger, clamp_columns=False).execute("SELECT SUM(note) AS s FROM v.visits")
    assert (len(served.events(population)), DRAWN) == (before, [])


def test_looking_for_groups_is_refused(served: Running, population: str, ledger: Client) -> None:
    """DPSU spends an epsilon of 1 that the library's own cost leaves out."""
    reader = reader_of(ledger, use_dpsu=True)
    assert reader.get_privacy_cost(BY_SEX)[0] == pytest.approx(1.5)
    before = len(served.events(population))
    with pytest.raises(ValueError, match="use_dpsu"):
        reader.execute(BY_SEX)
    assert (len(served.events(population)), DRAWN) == (before, [])


def test_a_syntax_error_is_not_asked_for(served: Running, population: str, ledger: Client) -> None:
    """What SmartNoise cannot rewrite never reaches the ledger."""
    before = len(served.events(population))
    with pytest.raises(ValueError, match="MAX"):
        reader_of(ledger).execute("SELECT MAX(age) AS m FROM v.visits")
    assert len(served.events(population)) == before


def test_the_documented_query_pays(served: Running) -> None:
    """The example of the page, on a table of visits by country."""
    population = served.population(POLICY, "add_or_remove_one")
    rows = pd.DataFrame({"pid": np.arange(PEOPLE), "country": np.repeat(["JP", "KR"], PEOPLE // 2)})
    columns = {"pid": {"type": "int", "private_id": True}, "country": {"type": "string"}}
    with served.client(population) as ledger:
        names: dict[str, Any] = {
            "ledger": ledger,
            "frame": rows,
            "from_df": from_df,
            "Privacy": Privacy,
            "metadata": {"": {"v": {"visits": {"max_ids": 1} | columns}}},
        }
        [block] = code("adapters-sql.md", "SmartNoise SQL")
        exec(compile(block, "adapters-sql.md", "exec"), names)  # noqa: S102 our own page
    assert [row[0] for row in names["rows"]] == ["country", "JP", "KR"]
    assert last(served, population) == "grant.committed.v1"
