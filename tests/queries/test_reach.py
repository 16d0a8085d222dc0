"""What is stated of one unit where many numbers, rounds or blocks depend on it, and who has noise.

The tests of epsilons look at whole sessions, in which half of a sensitivity need not show: no event
tells all of a loss that is spread over many draws. So the sensitivities are looked at themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from catalogue import BOUNDS, COLOURS, KINDS, people, without_first

from accountant import queries
from accountant.client import Client
from accountant.queries import Dataset, Query, order
from accountant.queries.boosting import Boosting, boosting
from accountant.queries.features import best_feature, features_above
from accountant.queries.holdout import Checker, reusable_holdout
from accountant.queries.multiplicative import Synthetic
from accountant.queries.mwem import Mwem, mwem
from accountant.queries.proposals import Proposal, interquartile_range, median
from accountant.queries.steps import DiscreteGaussian, DiscreteLaplace, Laplace
from accountant.queries.subsample import Mean, Median, subsample
from accountant.queries.universe import PARTS, Universe
from accountant.queries.weights import Learner, online_weights

CELLS = {"colour": COLOURS}
SIZE = 40


def several(ledger: Client, records: int, gone: bool = False) -> Dataset:
    """People of so many rows each, all of the first person's red; with ``gone`` without these."""
    rows = people(SIZE) | {"who": np.arange(SIZE) // records}
    rows["colour"][:records] = "red"
    for _ in range(records if gone else 0):
        rows = without_first(rows)
    more = {} if records == 1 else {"records_per_unit": records}
    return queries.dataset(ledger, "visits", rows, bounds=BOUNDS, unit="who", **more)


@pytest.mark.parametrize("records", [1, 2])
@pytest.mark.parametrize("relation", ["comes_and_goes", "replaces"])
def test_a_unit_is_worth_its_records(
    relation: str, records: int, request: pytest.FixtureRequest
) -> None:
    """A linear question, a score and a sum of numbers from 0 to 1 change by a unit's records, in
    every round and every draw of it.
    """
    data = several(request.getfixturevalue(relation), records)
    sizes: dict[str, Any] = {"records": SIZE, "epsilon": 1}
    assert online_weights(data, CELLS, updates=2, **sizes).what.sensitivity == records
    asked = [[1, 0, 0], [0, 1, 0]]
    [step] = mwem(data, CELLS, asked, rounds=3, **sizes).steps
    assert isinstance(step, Mwem)
    assert step.selection.sensitivity == step.measurement.sensitivity == records
    [step] = boosting(data, CELLS, asked, rounds=5, draws=7, **sizes).steps
    assert isinstance(step, Boosting)
    assert step.draw.sensitivity == 4 * records
    assert step.base.sensitivity == 7 * records
    holdout = reusable_holdout(data, people(9), ["x"], threshold=1, budget=2, **sizes)
    assert holdout.what.sensitivity == Fraction(records, SIZE)
    [step] = best_feature(data, ["x", "y"], "age", epsilon=1).steps
    assert step.sensitivity == records
    search = features_above(data, ["x", "y"], "age", threshold=1, epsilon=1)
    assert search.session.what.sensitivity == records


@pytest.mark.parametrize("records", [1, 2])
def test_a_unit_changes_a_linear_question_by_its_records(
    records: int, comes_and_goes: Client
) -> None:
    """By as many at most, whatever the weights, and by as many if all of its rows count."""
    universe = Universe.of(several(comes_and_goes, records), CELLS)
    one, other = (
        universe.counts(several(comes_and_goes, records, gone=gone)) for gone in (False, True)
    )
    assert universe.linear([1, 0, 0]).of(one - other) == records * PARTS
    for weights in np.random.default_rng(1).random((50, 3)):
        assert 0 <= universe.linear(weights).of(one - other) <= records * PARTS


def test_an_error_adds_no_more_to_a_weight_than_it_grows_by(comes_and_goes: Client) -> None:
    """A unit that changes the error of a synopsis by 1 changes the score of a question in boosting
    by 1 at most, in each round, wherever the error is; and somewhere by 1.
    """
    [step] = boosting(
        several(comes_and_goes, 1), CELLS, [[1, 0, 0], [0, 1, 0]],
        records=SIZE, epsilon=1, rounds=5, draws=1,
    ).steps  # fmt: skip
    assert isinstance(step, Boosting)
    ends = int((step.fine + step.width) * PARTS)
    errors = np.random.default_rng(2).integers(0, 2 * ends, 2000)
    grown = [step._beyond(int(e) + PARTS) - step._beyond(int(e)) for e in errors]
    assert min(grown) >= 0
    assert max(grown) == PARTS


@pytest.mark.parametrize("relation", ["comes_and_goes", "replaces"])
def test_a_unit_is_worth_one_block(relation: str, request: pytest.FixtureRequest) -> None:
    """One block's result changes the mean of all by its share of the bounds, and a rank by 1."""
    data = several(request.getfixturevalue(relation), 2)
    for aggregate, kind, reach in (("mean", Mean, Fraction(10, 8)), ("median", Median, 1)):
        query = subsample(
            data, lambda rows: rows["x"].mean(), ["x"], (0, 10), epsilon=1, blocks=8,
            aggregate=aggregate,  # type: ignore[arg-type]
        )  # fmt: skip
        [step] = query.steps
        assert isinstance(step, kind)
        assert step.aggregator.sensitivity == reach


def test_the_noise_of_a_release_is_that_of_its_step() -> None:
    """What a release draws has the stated scale in every entry, and the entries are not correlated,
    nor one draw with the next.
    """
    times, value = 4000, [Fraction(0), Fraction(100), Fraction(-7)]
    for step, off in (
        (Laplace.costing(Fraction(1, 9), Fraction(2), None, 3), 18),
        (DiscreteLaplace.costing(Fraction(1, 9), Fraction(2), None, 3), 18),
        (DiscreteGaussian.costing(Fraction(1, 50), Fraction(2), None, 3, whole=True), 10 * 0.798),
        (DiscreteGaussian.costing(Fraction(1, 50), Fraction(2), None, 3, whole=False), 10 * 0.798),
    ):
        draw = step.ready(value)
        draws = np.array([draw() for _ in range(times)], dtype=float) - [0, 100, -7]
        assert np.abs(draws).mean(axis=0) == pytest.approx([off] * 3, rel=0.12)
        assert np.abs(np.corrcoef(draws.T) - np.eye(3)).max() < 0.1
        assert abs(np.corrcoef(draws[1:, 0], draws[:-1, 0])[0, 1]) < 0.1


@pytest.mark.parametrize("ask", [median, interquartile_range])
def test_a_released_proposal_has_noise_for_its_bound(ask: Any, comes_and_goes: Client) -> None:
    """Half of the epsilon buys the noise on what is released, for all of the proposed bound, and
    that is the noise that is drawn.
    """
    rows = people(1000) | {"age": np.full(1000, 40)}
    data = queries.dataset(comes_and_goes, "visits", rows, bounds=BOUNDS)
    query = ask(data, "age", bound=8, epsilon=2, delta="0.01")
    [step], [places] = query.steps, query.values()
    assert isinstance(step, Proposal)
    assert step.noise.sensitivity == 8
    assert step.test.sensitivity == 1
    draw = step.ready(places)
    found = [draw() for _ in range(3000)]
    assert None not in found
    truth = 40 if ask is median else 0
    assert np.mean(np.abs(np.array(found) - truth)) == pytest.approx(8, rel=0.12)
    assert np.mean(np.array(step.test.many(0, 3000)) != 0) > 0.4


def test_data_that_break_a_proposal_are_released_as_rarely_as_stated(
    comes_and_goes: Client,
) -> None:
    """On data at distance 0 the noise of the test, of the stated scale, is above the threshold with
    probability q^(T + 1) / (1 + q), which is just below delta.
    """
    rows = people(20) | {"age": np.array([10] * 10 + [90] * 10)}
    data = queries.dataset(comes_and_goes, "visits", rows, bounds=BOUNDS)
    query = median(data, "age", bound=4, epsilon=1, delta="0.3")
    [step], [places] = query.steps, query.values()
    assert isinstance(step, Proposal)
    assert step.far(places) == 0
    assert (step.test.scale, step.threshold) == (2, 2)
    draw = step.ready(places)
    released = np.mean([draw() is not None for _ in range(4000)])
    q = np.exp(-0.5)
    assert released == pytest.approx(q**3 / (1 + q), abs=0.03)


@pytest.mark.parametrize("first", [10, 30])
def test_a_range_is_as_near_to_breaking_as_either_quartile(
    first: int, comes_and_goes: Client
) -> None:
    """A gap at the first quartile alone, or at the third, is enough."""
    rows = people(40) | {"age": np.array([10] * first + [90] * (40 - first))}
    data = queries.dataset(comes_and_goes, "visits", rows, bounds=BOUNDS)
    query = interquartile_range(data, "age", bound=8, epsilon=1, delta="0.01")
    [step], [places] = query.steps, query.values()
    assert isinstance(step, Proposal)
    assert step.far(places) == 0


def test_a_proposal_counts_the_moves_of_its_population(
    comes_and_goes: Client, replaces: Client
) -> None:
    """The distance is in exchanges where units are exchanged, else in units that come or go: here
    one exchange moves the median across the gap, for which two units would have to go.
    """
    found = []
    for ledger, how in ((comes_and_goes, order.to_add_or_remove), (replaces, order.to_replace)):
        rows = people(40) | {"age": np.array([10] * 22 + [90] * 18)}
        data = queries.dataset(ledger, "visits", rows, bounds=BOUNDS)
        query = median(data, "age", bound=8, epsilon=1, delta="0.01")
        [step], [places] = query.steps, query.values()
        assert isinstance(step, Proposal)
        assert step.far(places) == how(places, Fraction(1, 2), 8, 100)
        found.append(step.far(places))
    assert found[0] > found[1]


def test_the_noise_of_a_median_of_blocks_is_that_of_its_choice(comes_and_goes: Client) -> None:
    """Two points of which one falls short by a block have the odds that the scale says."""
    data = several(comes_and_goes, 1)
    query = subsample(
        data, lambda rows: rows["x"].mean(), ["x"], (0, 1), epsilon=2, blocks=3,
        aggregate="median", step=1,
    )  # fmt: skip
    [step] = query.steps
    draw = step.ready(np.array([0.0, 1.0, 1.0]))
    ones = np.mean([draw() for _ in range(6000)])
    # Of 0 the ranks are 0 to 1, of 1 they are 1 to 3; the median's is 1.5, half a block away.
    assert step.aggregator.scale == 1  # type: ignore[attr-defined]
    assert np.log(ones / (1 - ones)) == pytest.approx(0.5, abs=0.15)


def test_every_answer_of_a_holdout_draws_a_new_threshold(comes_and_goes: Client) -> None:
    """After an answer from the holdout the next comparisons are with another noisy threshold."""
    data = queries.dataset(comes_and_goes, "visits", people(50), bounds=BOUNDS)
    theirs = people(50) | {"x": np.zeros(50)}
    what = reusable_holdout(
        data, theirs, ["x"], threshold="0.01", epsilon=400, budget=5, records=50
    )
    checker, thresholds = Checker(what), []
    for _ in range(5):
        thresholds.append(checker.running.threshold)
        assert checker.ask(*checker.means(lambda rows: rows["x"] / 10)).overfitted
    assert len(set(thresholds)) == 5


def test_what_is_made_follows_from_what_was_published(comes_and_goes: Client) -> None:
    """Synthetic data and medians can be made again from the noisy numbers alone: the true ones have
    no part in them.
    """
    data, asked = several(comes_and_goes, 1), [[1, 0, 0], [0, 1, 0]]
    universe = Universe.of(data, CELLS)
    sizes: dict[str, Any] = {"records": SIZE, "epsilon": 5}
    what = online_weights(data, CELLS, updates=1, threshold="0.001", **sizes)
    learner, start = Learner(what, what.what.begin(Fraction(-(10**6)))), Synthetic.uniform(3, SIZE)
    question = universe.linear(asked[0])
    told = min(max(learner.ask(question).value, 0.0), SIZE)
    again = start.moved(question, (told - start.answer(question)) / (2 * SIZE))
    assert learner.synthetic.cells == pytest.approx(again.cells, abs=1e-4)
    [step] = boosting(data, CELLS, asked, rounds=5, draws=2, fine=0, **sizes).steps
    assert isinstance(step, Boosting)
    found = step.ready(universe.counts(data))()
    made = [step._synopsis(3, each.drawn, each.told) for each in found.rounds]
    assert found.answers == pytest.approx(np.median(made, axis=0) / PARTS)


def plain(value: Any) -> Any:
    """All numbers of an answer or an error."""
    if is_dataclass(value):
        return [plain(getattr(value, each.name)) for each in fields(value)]
    if isinstance(value, Mapping):
        return [plain(each) for each in value.values()]
    if isinstance(value, np.ndarray | list | tuple):
        return np.asarray(value).tolist() if isinstance(value, np.ndarray) else [*map(plain, value)]
    return value


@pytest.mark.parametrize("name", KINDS)
def test_an_answer_is_made_of_the_draws_alone(name: str, comes_and_goes: Client) -> None:
    """On neighbouring data, and on half of them, the same draws make the same answer with the same
    error: nothing else of the data goes into it, and not their number.
    """
    rows = people(SIZE) | {"who": np.arange(SIZE)}
    tables = [rows, without_first(rows), {name: each[: SIZE // 2] for name, each in rows.items()}]
    made = [
        KINDS[name](queries.dataset(comes_and_goes, "visits", table, bounds=BOUNDS, unit="who"))
        for table in tables
    ]
    if not isinstance(made[0], Query):  # a session
        return
    query = made[0]
    drawn = [step.ready(value)() for step, value in zip(query.steps, query.values(), strict=True)]
    told = [plain((each.finish(drawn), each.bounds(0.95, drawn, None))) for each in made]
    assert told[0] == told[1] == told[2]


WIDTHS: dict[str, Callable[[Dataset], Query]] = {
    "kernel, wide": lambda data: data.kernel_density("x", bandwidth=60, rho=1, points=16),
    "kernel, narrow": lambda data: data.kernel_density("x", bandwidth=1, rho=1, points=16),
    "histogram": lambda data: data.histogram_density("x", bins=4, epsilon=1),
    "series": lambda data: data.series_density("x", terms=4, epsilon=1),
    "function": lambda data: data.function(
        ["x"],
        lambda x, t: np.where(x < 5, -5, 5) + 0 * t,
        within=(-5, 5),
        axes=[(0, 1)],
        degree=3,
        epsilon=1,
    ),
}


@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize(
    ("relation", "most"), [("comes_and_goes", 2), ("replaces", 2), ("replaces", None)]
)
def test_a_unit_changes_densities_by_no_more_than_is_stated(
    relation: str, most: int | None, name: str, request: pytest.FixtureRequest
) -> None:
    """A unit of up to 2 records that goes, or is exchanged for one with others or with none, or one
    of a record for another, changes the sums of a density by what is stated at most; and some unit
    does by nearly that.
    """
    ledger, rest = request.getfixturevalue(relation), [1.0, 4.0, 7.5]

    def of(*own: float) -> Query:
        rows = {"x": np.array([*rest, *own]), "who": np.array([1, 2, 3, *[4 for _ in own]])}
        data = queries.dataset(
            ledger, "visits", rows, bounds={"x": (0, 10)}, unit="who", records_per_unit=most
        )
        return WIDTHS[name](data)

    units: list[tuple[float, ...]] = [(0.0,), (10.0,), (5.0,)]
    if most is not None:
        units = [(), *units, (0.0, 0.0), (10.0, 10.0), (0.0, 10.0), (5.0, 5.0)]
    made = [of(*own) for own in units]
    [step], values = made[0].steps, [each.values()[0] for each in made]
    norm = 2 if isinstance(step, DiscreteGaussian) else 1
    others = [0] if relation == "comes_and_goes" else range(len(units))
    changes = [
        float(np.linalg.norm([float(a - b) for a, b in zip(one, values[j], strict=True)], norm))
        for one in values
        for j in others
    ]
    # A unit of a series that is exchanged moves only some of the cosines from end to end.
    near = 0.4 if (name, relation) == ("series", "replaces") else 0.9
    assert float(step.sensitivity) * near < max(changes) <= float(step.sensitivity) * (1 + 1e-12)


def test_a_question_to_a_holdout_is_cut_to_its_range(comes_and_goes: Client) -> None:
    """One record counts from 0 to 1, whatever the question makes of it."""
    data = queries.dataset(comes_and_goes, "visits", people(50), bounds=BOUNDS)
    asked: dict[str, Any] = {"threshold": 1, "epsilon": 1, "budget": 1, "records": 50}
    checker = Checker(reusable_holdout(data, people(50), ["x"], **asked))
    assert checker.means(lambda rows: rows["x"] * 0 + 99) == (1, 1)
    assert checker.means(lambda rows: rows["x"] * 0 - 99) == (0, 0)
