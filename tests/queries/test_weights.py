"""Multiplicative weights, online and offline: right within their theorems, and never cheaper than
they are charged.
"""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from catalogue import COLOURS, dataset, people, without_first
from empirical import lower_bound
from opening import Opens
from priced import epsilon_of
from scipy.special import logsumexp

from accountant import queries
from accountant.client import Client
from accountant.queries.multiplicative import Synthetic
from accountant.queries.mwem import Mwem, mwem
from accountant.queries.sparse import SessionOver, fresh
from accountant.queries.universe import PARTS, Universe, exactly
from accountant.queries.weights import Learner, OnlineWeights, online_weights

SMALL = {"colour": COLOURS, "country": None}


def skewed(size: int) -> Any:
    """People of whom most are red and Swiss."""
    rows = people(size)
    most = np.arange(size) < size * 0.8
    return rows | {
        "colour": np.where(most, "red", rows["colour"]),
        "country": np.where(most, "CH", rows["country"]),
    }


# -- the universe ----------------------------------------------------------------------------------


def test_counts_are_those_of_the_records(comes_and_goes: Client) -> None:
    """Each record counts in its cell, one with a value that is not listed in none, and questions
    add up what they say.
    """
    rows = people(300)
    survey = dataset(comes_and_goes, rows)
    universe = Universe.of(survey, {"colour": ["red", "blue"], "age": range(50)})
    counts = universe.counts(survey)
    inside = (rows["colour"] != "green") & (rows["age"] < 50)
    assert counts.sum() == inside.sum()
    asked = universe.where(colour="blue", age=[3, 7, 20])
    expected = np.sum((rows["colour"] == "blue") & np.isin(rows["age"], [3, 7, 20]))
    assert asked.of(counts) == expected * PARTS
    weights = np.random.default_rng(1).random(universe.size)
    real = universe.linear(weights)
    assert float(exactly(real.of(counts))) == pytest.approx(counts @ weights, abs=0.001)
    assert real.on(counts.astype(float)) == real.of(counts)


def test_cells_of_times_and_short_floats_are_found(comes_and_goes: Client) -> None:
    """Categories are compared as those of a histogram are: a time in nanoseconds with a day, and a
    float of 32 bits with a number as it is written.
    """
    times = np.array(["2026-01-01", "2026-01-02", "2026-01-02"], dtype="datetime64[ns]")
    rows = {"time": times, "short": np.array([0.1, 0.2, 7], dtype=np.float32)}
    survey = dataset_of(comes_and_goes, rows)
    for name, categories in (
        ("time", [np.datetime64("2026-01-01"), np.datetime64("2026-01-02")]),
        ("short", [0.1, 0.2]),
    ):
        counts = Universe.of(survey, {name: categories}).counts(survey)
        assert counts.tolist() == survey.histogram(name, categories, epsilon=1).values()[0]
        assert counts.sum() >= 2


def test_questions_that_make_no_sense_are_refused(comes_and_goes: Client) -> None:
    """Weights outside 0 to 1, of another size, and unlisted values are refused."""
    survey = dataset(comes_and_goes, people(30))
    universe = Universe.of(survey, SMALL)
    for wrong in (np.ones(4), np.full(9, 1.1), np.full(9, -0.1), np.full(9, np.nan)):
        with pytest.raises(ValueError, match="weights"):
            universe.linear(wrong)
    with pytest.raises(ValueError, match="no listed category"):
        universe.where(colour="pink")
    with pytest.raises(ValueError, match="no column"):
        universe.where(size=1)
    with pytest.raises(ValueError, match="not known"):
        Universe.of(survey, {"colour": None})
    for wrong_numbers, why in (
        ({"records": 0}, "records is a whole number"),
        ({"updates": 0}, "updates is a whole number"),
        ({"epsilon": -1}, "epsilon must be more than 0"),
        ({"threshold": 0}, "the threshold must be more than 0"),
    ):
        with pytest.raises(ValueError, match=why):
            online_weights(
                survey, SMALL, **{"records": 30, "epsilon": 1, "updates": 5} | wrong_numbers
            )
    with pytest.raises(ValueError, match="at least two questions"):
        mwem(survey, SMALL, [universe.where()], records=30, epsilon=1, rounds=2)


# -- online ----------------------------------------------------------------------------------------


def test_online_answers_keep_the_theorem(comes_and_goes: Client) -> None:
    """With the threshold of the theorem, all answers to 200 questions are within the stated error
    and the updates suffice.
    """
    rows, questions = skewed(20_000), 200
    survey = dataset(comes_and_goes, rows)
    what = online_weights(
        survey, SMALL, records=20_000, epsilon=10, updates=60, questions=questions
    )
    error = what.error(questions=questions)
    assert "suffice" in error.how
    masks = np.random.default_rng(2).random((questions, 9)) < 0.5
    with what.open(purpose="test") as session:
        answers = session.ask_all(list(masks))
        assert len(answers) == questions
    truth = masks @ what.counts
    off = max(abs(a.value - t) for a, t in zip(answers, truth, strict=True))
    assert off <= error.amount


def test_the_error_falls_with_the_updates(comes_and_goes: Client) -> None:
    """Four times as many updates halve the error that exact updates would leave; what the noise
    adds grows with the updates, as in the theorem.
    """
    survey = dataset(comes_and_goes, skewed(100))
    asked = {"records": 10**9, "epsilon": 10}
    errors = [
        online_weights(survey, SMALL, updates=updates, **asked).error(questions=1000).amount
        for updates in (100, 400)
    ]
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.001)


def test_a_thousand_questions_on_a_large_universe_take_seconds(comes_and_goes: Client) -> None:
    """1,000 questions on 100,000 cells are answered in seconds, most of them for free; the rest
    comes back in a session.
    """
    numbers = np.random.default_rng(4)
    rows = {"place": numbers.geometric(0.002, 200_000).clip(1, 1000) - 1} | {
        "kind": numbers.geometric(0.05, 200_000).clip(1, 100) - 1
    }
    survey = dataset_of(comes_and_goes, rows)
    what = online_weights(
        survey,
        {"place": range(1000), "kind": range(100)},
        records=200_000,
        epsilon=5,
        updates=300,
        threshold=12_000,
    )
    assert what.universe.size == 100_000
    questions = []
    for _ in range(1000):
        mask = np.zeros((1000, 100), dtype=bool)
        place, kind = numbers.integers(0, 900), numbers.integers(0, 90)
        mask[place : place + 400, kind : kind + 40] = True
        questions.append(mask.reshape(-1))
    began = time.monotonic()
    with what.open(give_back=True, purpose="test") as session:
        answers = session.ask_all(questions)
    assert time.monotonic() - began < 20
    assert len(answers) == 1000
    assert 3 < sum(a.updated for a in answers) < 250
    true = np.array([mask @ what.counts for mask in questions])
    off = np.abs(np.array([a.value for a in answers]) - true)
    assert off.max() <= what.error(questions=1000).amount
    uniform = Synthetic.uniform(100_000, 200_000)
    guessed = [uniform.answer(what.universe.linear(mask)) for mask in questions]
    least = np.abs(np.array(guessed) - true)
    assert off.mean() < np.mean(least) / 2
    assert session.receipt.charge["epsilon"] < Decimal("4.5")


def dataset_of(ledger: Client, rows: Any) -> Any:
    """Rows without bounds, as a dataset."""
    return queries.dataset(ledger, "visits", rows)


def test_the_charge_is_one_session(comes_and_goes: Client, opened: Opens) -> None:
    """The service derives what was asked for, whole as multiplicative_weights and by answer as a
    session; also where a private group is charged.
    """
    survey = dataset(comes_and_goes, people(40))
    what = online_weights(survey, SMALL, records=40, epsilon="0.7", updates=3)
    [told] = what.mechanisms
    assert told["kind"] == "multiplicative_weights"
    assert Fraction("0.699999") < epsilon_of(told) <= Fraction("0.7")
    assert epsilon_of(told) == epsilon_of(what.what.mechanism)
    with what.open(purpose="test") as session:
        session.ask(what.universe.where(colour="red"))
    assert session.receipt.charge["epsilon"] == what.cost(purpose="test").charge["epsilon"]
    private = dataset(opened("replace_one", "private"), people(40)).where(country="CH")
    half = online_weights(private, {"colour": COLOURS}, records=40, epsilon="0.7", updates=3)
    assert half.cost(purpose="test").charge["epsilon"] <= Decimal("0.7")
    with half.open(give_back=True, purpose="test") as session:
        assert session.receipt.charge["epsilon"] <= Decimal("0.7")


def test_a_session_without_questions_is_released(opened: Opens) -> None:
    """Where nothing was asked nothing is charged; after an exception all that was asked for is."""
    ledger = opened()
    what = online_weights(dataset(ledger, people(40)), SMALL, records=40, epsilon=1, updates=3)
    with what.open(purpose="test") as session:
        pass
    assert ledger.grant_state(session.receipt.grant).state == "released"
    session = what.open(purpose="test")
    with pytest.raises(ValueError, match="weights"), session:
        session.ask([1] * round(session.ask(what.universe.where(colour="red")).value + 100))
    assert ledger.grant_state(session.receipt.grant).state == "committed"


def test_it_ends_with_the_last_update(comes_and_goes: Client) -> None:
    """After the last update the session answers nothing more, and the synthetic data still do."""
    survey = dataset(comes_and_goes, skewed(2000))
    what = online_weights(
        survey, SMALL, records=2000, epsilon=20, updates=1, threshold=200, questions=10
    )
    red = what.universe.where(colour="red")
    with what.open(purpose="test") as session:
        assert session.ask(red).updated
        with pytest.raises(SessionOver):
            session.ask(red)
        assert session.synthetic.answer(red) > 2000 / 3 + 100


def test_updates_are_counted_before_they_are_shown(comes_and_goes: Client) -> None:
    """Where updates that are not made come back, the service has counted each answer that was
    given, and the charge is that of the updates.
    """
    survey = dataset(comes_and_goes, skewed(2000))
    what = online_weights(survey, SMALL, records=2000, epsilon=20, updates=4, threshold=200)
    red, nobody = what.universe.where(colour="red"), np.zeros(what.universe.size)
    with what.open(purpose="test", give_back=True) as session:
        whole = session.receipt.charge["epsilon"]
        for times in (1, 2):
            updated = [estimate.updated for estimate in session.ask_all([nobody, nobody])]
            assert updated == [False, False]
            shown = comes_and_goes.grant_state(session.receipt.grant).body
            assert (shown["positives"], shown["negatives"]) == (0, 2 * times)
        assert session.ask(red).updated
        assert comes_and_goes.grant_state(session.receipt.grant).body["positives"] == 1
    assert session.receipt.charge["epsilon"] < whole * 3 / 4


EPSILON = 1.5
TIMES = 1500


def updates(what: OnlineWeights, times: int, weak: int = 1) -> Any:
    """The noisy answer to one question in many sessions; -1000 if there is none."""
    level = fresh(what.what.noise(what.what.threshold_scale))
    base = what.what.begin(what.threshold)
    scale = what.what.answer_scale
    assert scale is not None
    numeric = fresh(what.what.noise(scale / weak))
    place = what.what.place(what.threshold, up=True)
    red, found = what.universe.where(colour="red"), []
    for _ in range(times):
        running = replace(base, threshold=place + level(), numeric=numeric)
        answer = Learner(what, running).ask(red)
        found.append(answer.value if answer.updated else -1000.0)
    return np.array(found)


def test_online_no_event_refutes_the_epsilon(comes_and_goes: Client) -> None:
    """Thousands of sessions on neighbours refute no more than the charge; with an eighth of the
    noise on the numbers they do.
    """
    rows = people(30)
    both = [
        online_weights(
            dataset(comes_and_goes, each), SMALL, records=30, epsilon=EPSILON, updates=1,
            threshold="0.01",
        )
        for each in (rows, without_first(rows))
    ]  # fmt: skip
    assert both[0].what == both[1].what
    assert lower_bound(*[updates(each, 4000) for each in both]) < EPSILON
    assert lower_bound(*[updates(each, 4000, weak=8) for each in both]) > EPSILON


# -- offline ---------------------------------------------------------------------------------------


def questions_of(universe: Universe) -> list[Any]:
    """Each category, and some weights."""
    numbers = np.random.default_rng(5)
    masks = [universe.where(colour=each) for each in COLOURS]
    return [*masks, *[numbers.random(universe.size) for _ in range(20)]]


def test_offline_data_keep_the_theorem(comes_and_goes: Client) -> None:
    """The synthetic data answer all questions within the stated error, and far better than uniform
    data do.
    """
    survey = dataset(comes_and_goes, skewed(20_000))
    universe = Universe.of(survey, SMALL)
    asked = [universe.linear(each) for each in questions_of(universe)]
    query = mwem(survey, SMALL, asked, records=20_000, epsilon=5, rounds=100)
    answer = query.release(purpose="test")
    counts = universe.counts(survey)
    truth = [float(exactly(each.of(counts))) for each in asked]
    off = max(abs(answer.value.answer(q) - t) for q, t in zip(asked, truth, strict=True))
    uniform = Synthetic.uniform(universe.size, 20_000)
    least = max(abs(uniform.answer(q) - t) for q, t in zip(asked, truth, strict=True))
    assert off <= answer.error.amount
    assert off < least / 3
    assert len(answer.value.measured) == 100
    wide = mwem(survey, SMALL, asked, records=10**9, epsilon=5, rounds=120)
    narrow = mwem(survey, SMALL, asked, records=10**9, epsilon=5, rounds=30)
    assert narrow.error().amount / wide.error().amount == pytest.approx(2, rel=0.01)


def test_offline_the_charge_is_all_rounds(comes_and_goes: Client, opened: Opens) -> None:
    """The service derives what was asked for, of which each round has its part."""
    for ledger, where in (
        (comes_and_goes, {}),
        (opened("replace_one", "private"), {"country": "CH"}),
    ):
        survey = dataset(ledger, people(40)).where(**where)
        universe = Universe.of(survey, {"colour": COLOURS})
        asked = [universe.where(colour=each) for each in COLOURS]
        query = mwem(survey, {"colour": COLOURS}, asked, records=40, epsilon="0.7", rounds=7)
        charge = query.cost(purpose="test").charge["epsilon"]
        assert Decimal("0.699999") < charge <= Decimal("0.7")


def rounds(step: Mwem, stated: Mwem, values: Any, pair: Any, times: int) -> Any:
    """The privacy loss of one round, as the stated step has it: of the choice and the number."""
    draw, start = step.ready(values), Synthetic.uniform(values.size, step.records)
    logs, true = [], []
    for counts in pair:
        exact = [q.of(counts) for q in step.questions]
        scores = np.array(stated._scores(exact, start)) / float(stated.selection.scale)
        logs.append(scores - logsumexp(scores))
        true.append(np.array(exact) / PARTS)
    found = []
    for _ in range(times):
        [(chosen, number)] = draw().measured
        far = [abs(number - each[chosen]) / float(stated.measurement.scale) for each in true]
        found.append(logs[0][chosen] - logs[1][chosen] + far[1] - far[0])
    return np.array(found)


@pytest.mark.parametrize("weak", [1, 4])
def test_offline_no_event_refutes_the_epsilon(weak: int, comes_and_goes: Client) -> None:
    """Many rounds on neighbours refute no more than the charge; with a quarter of the noise
    they do.
    """
    rows = people(12) | {"colour": np.array(["red"] + ["blue"] * 11)}
    both = []
    for each in (rows, without_first(rows)):
        survey = dataset(comes_and_goes, each)
        universe = Universe.of(survey, {"colour": COLOURS})
        asked = [universe.where(colour=name) for name in COLOURS[:2]]
        both.append(mwem(survey, universe.columns, asked, records=12, epsilon=EPSILON, rounds=1))
    [stated] = both[0].steps
    assert isinstance(stated, Mwem)
    [counts] = both[0].values()
    [other] = both[1].values()
    step = replace(
        stated,
        selection=replace(stated.selection, scale=stated.selection.scale / weak),
        measurement=replace(stated.measurement, scale=stated.measurement.scale / weak),
    )
    found = [rounds(step, stated, each, (counts, other), TIMES) for each in (counts, other)]
    assert (lower_bound(*found) > EPSILON) == (weak > 1)
