"""Polars queries of OpenDP pay before they are released, one mechanism for each noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

pl = pytest.importorskip("polars", reason="Polars is not installed")
dp = pytest.importorskip("opendp.prelude", reason="OpenDP is not installed")
pytest.importorskip("hypothesis", reason="hypothesis is not installed")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from ledger import ROOMY, asked, charge, counts  # noqa: E402

from accountant.adapters.opendp import WrongMap, mechanisms_of, paying, strict  # noqa: E402
from accountant.client import Client, Refused  # noqa: E402

if TYPE_CHECKING:
    from service import Running

dp.enable_features("contrib", "honest-but-curious")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")

LEN = dp.len(signed=True)
KEYS = ["red", "green", "blue"]
FRAME = pl.LazyFrame(
    {
        "id": [i // 3 for i in range(60)],
        "colour": [KEYS[i % 3] for i in range(60)],
        "visits": [i % 7 for i in range(60)],
        "spent": [float(i % 5) for i in range(60)],
    }
)
VISITS = pl.col("visits").fill_null(0)
SPENT = pl.col("spent").fill_null(0.0).fill_nan(0.0)
GROUPED = dp.polars.Margin(by=["colour"], max_length=10_000, max_groups=100)
ADDED = {"neighbouring": "add_or_remove_one"}


def context(unit: Any = None, **loss: float) -> Any:
    """A context of the frame."""
    return dp.Context.compositor(
        data=FRAME,
        privacy_unit=unit or dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(**(loss or {"epsilon": 9.0, "delta": 0.1})),
        margins=[dp.polars.Margin(max_length=10_000, max_groups=1), GROUPED],
    )


def stated(query: Any, d_in: Any = 1, **how: Any) -> list[dict[str, Any]]:
    """The mechanisms of a query, without their samplers."""
    found = mechanisms_of(query.resolve(), d_in, **how)
    return [{name: value for name, value in each.items() if name != "sampler"} for each in found]


@pytest.fixture(scope="module")
def people(served: Running) -> Iterator[Client]:
    """A population in which units are there or not."""
    with served.client(served.population(ROOMY, "add_or_remove_one")) as client:
        yield client


def dear_enough(client: Client, query: Any, d_in: Any = 1) -> None:
    """Asserts that the service books at least what OpenDP's map says."""
    measurement = query.resolve()
    main, delta = measurement.map(d_in)
    booked = charge(client, mechanisms_of(measurement, d_in))
    currency = "rho" if "ZeroConcentrated" in str(measurement.output_measure) else "epsilon"
    assert booked[currency] >= Decimal(repr(main)) - Decimal(8 * math.ulp(main))
    assert booked["delta"] >= Decimal(repr(delta))


def test_each_noise_has_its_sensitivity() -> None:
    """Sums, counts, means and quantiles of one query come apart, and each gets back the sensitivity
    that its bounds say.
    """
    query = (
        context()
        .query(epsilon=1.0, delta=0.0)
        .select(
            VISITS.dp.sum((0, 6)),
            LEN.alias("rows"),
            SPENT.dp.mean((0, 5)),
            VISITS.dp.quantile(0.5, [1, 2, 3]).alias("middle"),
        )
    )
    found = stated(query)
    kinds = ["discrete_laplace"] * 2 + ["laplace", "discrete_laplace", "permute_and_flip"]
    assert [each["kind"] for each in found] == kinds
    assert [each["sensitivity"] for each in found[:2]] == ["6", "1"]
    assert 5 < float(found[2]["sensitivity"]) < 5.001  # a sum of floats is rounded
    assert found[3]["sensitivity"] == "1"
    scales = [row["scale"] for row in query.summarize().to_dicts()]
    assert [float(each["scale"]) for each in found] == pytest.approx(scales, rel=1e-15)
    assert all(each["neighbouring"] == "add_or_remove_one" for each in found)


def test_the_parts_add_up_to_the_whole() -> None:
    """Of epsilons: no less than the map of the whole, and no more than rounding above."""
    query = context().query(epsilon=1.0, delta=0.0).select(VISITS.dp.sum((0, 6)), LEN)
    whole = Fraction(query.resolve().map(1)[0])
    total = sum(Fraction(each["claimed"]["epsilon"]) for each in stated(query))
    assert whole <= total <= whole * (1 + Fraction(1, 10**12))


def test_groups_are_vectors_and_their_keys_cost_a_delta() -> None:
    """A unit of three rows changes up to three groups; the threshold's delta is OpenDP's own, for
    Polars publishes only counts above it.
    """
    three = context(dp.unit_of(contributions=3))
    query = (
        three.query(epsilon=1.0, delta=1e-4)
        .group_by("colour")
        .agg(LEN.alias("rows"), VISITS.dp.sum((0, 6)))
    )
    rows, total, keys = stated(query, 3)
    assert (rows["kind"], rows["sensitivity"]) == ("discrete_laplace", {"l1": "3"})
    assert (total["kind"], total["sensitivity"]) == ("discrete_laplace", {"l1": "18"})
    delta = query.resolve().map(3)[1]
    assert (
        keys == {"kind": "declared", "epsilon": "0", "delta": f"{Decimal(repr(delta)):f}"} | ADDED
    )


def test_the_least_published_count_is_above_the_threshold() -> None:
    """So that the tail from the next count on is the truth here."""
    users = pl.LazyFrame({"user": [str(i) for i in range(20_000)]})
    many = dp.Context.compositor(
        data=users,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0, delta=1e-2),
        split_evenly_over=1,
        margins=[dp.polars.Margin(max_length=100_000)],
    )
    query = many.query().group_by("user").agg(LEN)
    [row] = query.summarize().to_dicts()
    delta = query.resolve().map(1)[1]
    found = query.release().collect()
    assert found["len"].min() == row["threshold"] + 1
    assert abs(len(found) / 20_000 - delta) < 6 * math.sqrt(delta / 20_000)


def test_gaussian_noise_and_gumbel_choices_under_zcdp() -> None:
    """Under a rho the same query has Gaussian noise and the exponential mechanism; in groups, where
    several choices may change, these are declared.
    """
    zcdp = context(rho=9.0, delta=0.1)
    aggregates = (
        VISITS.dp.sum((0, 6)),
        LEN.alias("rows"),
        VISITS.dp.quantile(0.5, [1, 2, 3]).alias("middle"),
    )
    total, rows, middle = stated(zcdp.query(rho=0.5, delta=0.0).select(*aggregates), delta=1e-9)
    assert (total["kind"], total["sensitivity"]) == ("discrete_gaussian", "6")
    assert (rows["delta"], middle["kind"]) == ("0.000000001", "exponential")
    grouped = zcdp.query(rho=0.5, delta=1e-4).group_by("colour").agg(*aggregates)
    found = stated(grouped)
    assert [each["kind"] for each in found] == [
        "discrete_gaussian", "discrete_gaussian", "declared", "declared",
    ]  # fmt: skip
    assert [each["sensitivity"] for each in found[:2]] == [{"l2": "1"}, {"l2": "6"}]
    assert "rho" in found[2]


def test_public_keys_cost_nothing() -> None:
    """A join with known keys has no threshold, and no delta."""
    keys = pl.LazyFrame({"colour": KEYS})
    query = context().query(epsilon=1.0, delta=0.0).group_by("colour").agg(LEN).with_keys(keys)
    [rows] = stated(query)
    assert (rows["kind"], rows["sensitivity"]) == ("discrete_laplace", {"l1": "1"})


def test_identifiers_count_persons() -> None:
    """Truncated rows of one identifier are one unit."""
    persons = context(dp.unit_of(contributions=1, identifier=pl.col("id")))
    query = persons.query(epsilon=1.0, delta=0.0).truncate_per_group(2).select(LEN)
    [rows] = stated(query)
    assert (rows["sensitivity"], rows["neighbouring"]) == ("2", "add_or_remove_one")


def test_a_query_that_cannot_be_taken_apart_is_declared() -> None:
    """A ratio of the user's own costs what the map of the whole says."""
    query = context().query(epsilon=1.0, delta=0.0).select(VISITS.dp.sum((0, 6)) / LEN)
    [found] = stated(query)
    whole = query.resolve().map(1)[0]
    assert (found["kind"], Decimal(found["epsilon"])) == ("declared", Decimal(repr(whole)))


@pytest.mark.parametrize(("kept", "longest", "wrong"), [(5, 3, True), (3, 3, False)])
def test_groups_shorter_than_contributions_are_refused(
    kept: int, longest: int, wrong: bool
) -> None:
    """OpenDP counts a group of at most so many rows as one in which no more than that many differ,
    whether rows or persons are the units.
    """
    margin = dp.polars.Margin(by=["colour"], max_length=longest, max_groups=3)
    persons = dp.Context.compositor(
        data=FRAME,
        privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("id")),
        privacy_loss=dp.loss_of(epsilon=1.0, delta=1e-4),
        split_evenly_over=1,
        margins=[margin],
    )
    by = ["colour"]
    query = persons.query().truncate_per_group(kept, by=by).truncate_num_groups(2, by=by)
    asked_of_persons = query.group_by("colour").agg(LEN)
    domain = dp.with_margin(
        dp.lazyframe_domain([
            dp.series_domain("colour", dp.atom_domain(T=str)),
            dp.series_domain("visits", dp.atom_domain(T=int)),
        ]),
        dp.polars.Margin(by=["colour"], max_length=longest, max_groups=1, invariant="keys"),
    )  # fmt: skip
    plan = pl.LazyFrame(schema={"colour": pl.String, "visits": pl.Int32})
    aggregate = plan.group_by("colour").agg(pl.col("visits").dp.sum((-10, 10), scale=30.0))
    of_rows = dp.m.make_private_lazyframe(
        domain, dp.symmetric_distance(), dp.max_divergence(), aggregate
    )
    if wrong:
        assert of_rows.map(2 * longest) == of_rows.map(longest)  # though all rows may have changed
        with pytest.raises(WrongMap, match="max_length"):
            mechanisms_of(of_rows, kept)
        with pytest.raises(WrongMap, match="max_length"):
            stated(asked_of_persons)
    else:
        [found] = mechanisms_of(of_rows, kept)
        assert found["sensitivity"] == {"l1": "30"}
        assert stated(asked_of_persons)[0]["sensitivity"] == {"l1": "6"}


def test_a_release_asks_first(served: Running) -> None:
    """The grant is asked for the mechanisms of the query, and committed; a refused query leaves
    OpenDP's budget as it was and returns no frame. Strict mode lets both through.
    """
    population = served.population(
        "policy: p\nrules:\n  - {id: lifetime, limit: {epsilon: 1.5, delta: 0}}\n",
        "add_or_remove_one",
    )
    frame = context()
    with served.client(population) as ledger, strict():
        paying(frame, ledger, "visits")
        query = frame.query(epsilon=1.0, delta=0.0).select(VISITS.dp.sum((0, 6)), LEN)
        released = query.release().collect()
        assert released.shape == (1, 2)
        before = frame.remaining_privacy_loss()
        with pytest.raises(Refused, match="lifetime"):
            frame.query(epsilon=1.0, delta=0.0).select(LEN).release()
        assert frame.remaining_privacy_loss() == before
        rest = frame.query(epsilon=0.25, delta=0.0).select(LEN).release()
        assert rest.collect().shape == (1, 1)
    first, [second] = asked(served, population)
    assert [each["sensitivity"] for each in first] == ["6", "1"]
    assert float(second["scale"]) == pytest.approx(4)
    assert counts(served, population) == (2, 2, 0, 1)


@settings(max_examples=8)
@given(
    st.integers(min_value=1, max_value=4),
    st.floats(min_value=0.05, max_value=2),
    st.integers(min_value=1, max_value=50),
    st.booleans(),
    st.booleans(),
)
def test_queries_never_cost_less_than_their_map(
    people: Client, rows: int, loss: float, bound: int, grouped: bool, zcdp: bool
) -> None:
    """For every number of rows, loss and bound, with groups and without, in either measure."""
    unit = dp.unit_of(contributions=rows)
    name = "rho" if zcdp else "epsilon"
    frame = context(unit, **{name: 99.0, "delta": 0.1})
    query = frame.query(**{name: loss, "delta": 1e-6})
    aggregates = (
        LEN.alias("rows"),
        VISITS.dp.sum((0, bound)),
        VISITS.dp.mean((0, bound)).alias("m"),
    )
    whole = query.group_by("colour").agg(*aggregates) if grouped else query.select(*aggregates)
    dear_enough(people, whole, rows)


def test_plans_hold_no_data() -> None:
    """What is written out and read again to take a query apart has the columns, and no rows."""
    query = context().query(epsilon=1.0, delta=0.0).select(LEN)
    plan = query.resolve().__opendp_dict__["__kwargs__"]["lazyframe"]
    assert b"red" in FRAME.serialize()
    assert b"red" not in plan.serialize()
