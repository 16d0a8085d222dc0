"""What callers give is read in one way, and refused in words before anything is spent."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from catalogue import dataset, people

from accountant import queries
from accountant.client import Client
from accountant.queries import Dataset
from accountant.queries.arguments import confidence, pair, rational, real, whole_number
from accountant.queries.points import Points
from accountant.queries.sessions import sparse_vector
from accountant.queries.steps import DiscreteGaussian

WHOLE: dict[str, Callable[[Dataset, Any], Any]] = {
    "parts": lambda data, it: data.correlation("x", "y", epsilon=1, parts=it),
    "bins": lambda data, it: data.histogram_density("x", bins=it, epsilon=1),
    "terms": lambda data, it: data.series_density("x", terms=it, epsilon=1),
    "points": lambda data, it: data.kernel_density("x", bandwidth=9, rho=1, points=it),
    "degree": lambda data, it: data.function(
        ["x"], lambda x, t: x * t, within=(0, 10), axes=[(0, 1)], degree=it, epsilon=1
    ),
    "blocks": lambda data, it: data.subsample(
        lambda rows: rows["x"].mean(), ["x"], (0, 10), epsilon=1, blocks=it
    ),
    "positives": lambda data, it: data.sparse_vector(threshold=1, epsilon=1, positives=it),
    "updates": lambda data, it: data.online_weights(
        {"country": None}, records=40, epsilon=1, updates=it
    ),
    "rounds": lambda data, it: data.mwem(
        {"country": None}, [[1, 0, 0], [0, 1, 0]], records=40, epsilon=1, rounds=it
    ),
    "records": lambda data, it: data.mwem(
        {"country": None}, [[1, 0, 0], [0, 1, 0]], records=it, epsilon=1, rounds=5
    ),
    "budget": lambda data, it: data.reusable_holdout(
        people(9), ["x"], threshold="0.5", epsilon=1, budget=it, records=40
    ),
}


def survey(ledger: Client) -> Dataset:
    """People with a unit's name each."""
    return dataset(ledger, people(40) | {"who": np.arange(40)}, unit="who")


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_those_of_any_type(name: str, comes_and_goes: Client) -> None:
    """A whole number is one whatever its type is, and nothing else is: no truth value, no text, no
    infinity.
    """
    data = survey(comes_and_goes)
    for value in (3, np.int64(3), np.uint8(3), 3.0, Fraction(3), Decimal(3)):
        assert WHOLE[name](data, value)
    for value in (True, np.True_, "3", 2.5, 0, -3, None, float("nan"), float("inf"), 10**30):
        with pytest.raises(ValueError, match=f"{name} is a whole number from"):
            WHOLE[name](data, value)


PAIRS: dict[str, Callable[[Client, Any], Any]] = {
    "dataset": lambda ledger, it: queries.dataset(ledger, "visits", people(9), bounds={"x": it}),
    "subsample": lambda ledger, it: survey(ledger).subsample(len, ["x"], it, epsilon=1, blocks=2),
    "within": lambda ledger, it: survey(ledger).function(
        ["x"], lambda x, t: x * t, within=it, axes=[(0, 1)], degree=2, epsilon=1
    ),
    "axes": lambda ledger, it: survey(ledger).function(
        ["x"], lambda x, t: x * t, within=(0, 1), axes=[it], degree=2, epsilon=1
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_bounds_are_a_pair_of_numbers(name: str, comes_and_goes: Client) -> None:
    """A text of two digits is no pair, nor is one number, nor are two without an order."""
    for value in ((0, 9), [0, "9"], np.array([0, 9])):
        assert PAIRS[name](comes_and_goes, value)
    for value in ("09", b"09", 5, None, (1,), (0, 5, 9), {0, 9}, {0: 1, 9: 2}):
        with pytest.raises(ValueError, match=r"a pair \(least, largest\), not"):
            PAIRS[name](comes_and_goes, value)
    for value, why in (
        ((9, 0), "has to be below"),
        ((0, float("inf")), "not a finite number"),
        ((1, 1 + Fraction(1, 10**50)), "too close together"),
        ((0, Fraction(1, 10**400)), "too small"),
        ((0, 10**400), "too large"),
    ):
        with pytest.raises(ValueError, match=why):
            PAIRS[name](comes_and_goes, value)


@pytest.mark.parametrize("sure", [0, 1, 1 - 1e-16, 1e-300, 95, "0.95", float("nan"), None])
def test_a_confidence_leaves_something_to_chance(sure: Any, comes_and_goes: Client) -> None:
    """What a float can hardly tell from 0 or from 1 is refused wherever an error is asked for."""
    data = survey(comes_and_goes)
    asked: list[Callable[..., Any]] = [
        data.sum("x", rho=1).error,
        data.sum("x", epsilon=1).error,
        partial(data.sparse_vector(threshold=1, epsilon=1, positives=1).error, questions=1),
        data.sparse_vector(threshold=1, epsilon=1, positives=1, numbers=True).numbers,
        partial(WHOLE["updates"](data, 3).error, questions=1),
        partial(WHOLE["budget"](data, 3).error, questions=1),
    ]
    for ask in asked:
        with pytest.raises(ValueError, match="a confidence is between 0 and 1"):
            ask(sure)
        assert ask(1e-6).amount <= ask(Decimal("0.95")).amount <= ask(1 - 1e-12).amount


def test_the_quantile_of_many_entries_is_found(comes_and_goes: Client) -> None:
    """An error of very many entries at once has an end at the highest confidence."""
    step = DiscreteGaussian.costing(Fraction(1, 2), Fraction(1), None, 2**20, whole=True)
    assert 8 < step.within(1e-12) < 20


@pytest.mark.parametrize("records", [float("nan"), -5, 0, "9", True, 2.5])
def test_an_error_is_stated_for_a_number_of_records(records: Any, comes_and_goes: Client) -> None:
    """A number of records that cannot be is refused."""
    query = survey(comes_and_goes).mean("x", epsilon=1)
    assert query.error(records=np.int64(50)).amount == query.error(records=50).amount
    with pytest.raises(ValueError, match="records is a whole number from"):
        query.error(records=records)


@pytest.mark.parametrize("amount", ["1e400", 10**400, "1e13"])
def test_an_amount_that_hides_nothing_is_refused(amount: Any, comes_and_goes: Client) -> None:
    """An epsilon or a rho beyond all reason is refused for all kinds of queries."""
    data = survey(comes_and_goes)
    for ask in (
        lambda: data.median("x", epsilon=amount),
        lambda: data.count(epsilon=amount),
        lambda: data.count(rho=amount),
        lambda: sparse_vector(data, threshold=1, epsilon=amount, positives=1),
    ):
        with pytest.raises(ValueError, match=r"hides nothing|too large"):
            ask()
    query = data.median("x", epsilon=10**12)
    draw = query.steps[0].ready(query.values()[0])()
    assert query.finish([draw]) == pytest.approx(5, abs=2)


CELLS: Any = {"country": None}
ASKED = [[1, 0, 0], [0, 1, 0]]
AMOUNTS: dict[str, Callable[[Dataset, Any], Any]] = {
    "sensitivity": lambda data, it: data.choose(
        [1, 2], lambda rows, candidate: 1, sensitivity=it, epsilon=1
    ),
    "of answers": lambda data, it: data.sparse_vector(
        threshold=1, epsilon=1, positives=1, sensitivity=it
    ),
    "step": lambda data, it: data.median("x", epsilon=1, step=it),
    "bandwidth": lambda data, it: data.kernel_density("x", bandwidth=it, rho=1),
    "threshold": lambda data, it: data.sparse_vector(threshold=it, epsilon=1, positives=1),
    "of a holdout": lambda data, it: data.reusable_holdout(
        people(9), ["x"], threshold=it, epsilon=1, budget=1, records=40
    ),
    "of weights": lambda data, it: data.online_weights(
        CELLS, records=40, epsilon=1, updates=1, threshold=it
    ),
    "fine": lambda data, it: data.boosting(
        CELLS, ASKED, records=40, epsilon=1, rounds=9, draws=2, fine=it
    ),
    "bound": lambda data, it: data.propose_test_release("x", bound=it, epsilon=1, delta="1e-6"),
    "delta": lambda data, it: data.propose_test_release("x", bound=1, epsilon=1, delta=it),
    "bounds": lambda data, it: data.subsample(len, ["x"], (0, it), epsilon=1, blocks=2),
}


@pytest.mark.parametrize("name", AMOUNTS)
@pytest.mark.parametrize("size", ["large", "small"])
def test_an_amount_that_no_float_holds_is_refused(
    name: str, size: str, comes_and_goes: Client
) -> None:
    """Amounts are of a size of which floats hold the squares and products."""
    for amount in (10**400, "1e400", 1e308) if size == "large" else ("1e-400", 1e-320):
        with pytest.raises(ValueError, match=f"too {size}: amounts are"):
            AMOUNTS[name](survey(comes_and_goes), amount)


def test_what_is_no_number_or_no_key_is_refused(comes_and_goes: Client, replaces: Client) -> None:
    """Weights, candidates, probabilities and keys of the wrong kind are refused; a number in a
    column that is larger than any float counts as its bound.
    """
    data = survey(comes_and_goes)
    for wrong in ("x", 1 + 2j, object(), 10**400):
        with pytest.raises(ValueError, match="weights"):
            data.mwem(CELLS, [[1, 0, wrong], [0, 1, 0]], records=40, epsilon=1, rounds=2)
        with pytest.raises(ValueError, match="a candidate is a list of finite numbers"):
            data.nearest("x", [[1], [wrong]], epsilon=1)
        with pytest.raises(ValueError, match="the key is made of bytes"):
            data.subsample(len, ["x"], (0, 9), epsilon=1, blocks=2, key=wrong)  # type: ignore[arg-type]
    local = dataset(replaces, people(40))
    with pytest.raises(ValueError, match="truth_probability is too small"):
        local.response("country", truth_probability="1e-400")
    rows = {"x": np.array([10**400, -(10**400), 1], dtype=object)}
    large = queries.dataset(comes_and_goes, "visits", rows, bounds={"x": (0, 10)})
    assert large.sum("x", epsilon=1).values() == [11]


def test_a_text_is_no_answer(comes_and_goes: Client) -> None:
    """A function that returns a text has made a mistake, also where it could be read as a number;
    so has one that returns several numbers.
    """
    data = survey(comes_and_goes)
    made = data.sparse_vector(threshold=1, epsilon=1, positives=2, sensitivity=1)
    with made.open(purpose="test") as session:
        for wrong in ("12", np.str_("12"), np.array([1, 2]), None):
            with pytest.raises(ValueError, match="an answer has to be a finite number"):
                session.ask(lambda rows, it=wrong: it)
            with pytest.raises(ValueError, match="an answer has to be a number"):
                data.subsample(lambda rows, it=wrong: it, ["x"], (0, 9), epsilon=1, blocks=2)
            query = data.choose([1, 2], lambda rows, _, it=wrong: it, sensitivity=1, epsilon=1)
            with pytest.raises(ValueError, match="an answer has to be a number"):
                query.release(purpose="test")
        assert (session.positives, session.negatives) == (0, 0)
    assert rational(np.float32(0.5)) == rational(np.array([0.5])) == Fraction(1, 2)
    assert [real(10**400), real(-(10**400))] == [float("inf"), -float("inf")]


def test_points_lie_between_the_bounds() -> None:
    """Points begin at the least value and do not pass the largest; a value's point is the next one,
    and a line of one point, or of too many, is refused.
    """
    points = Points.of(Fraction(1), Fraction(2), "0.3")
    assert [points.at(place) for place in range(points.count)] == [
        1, Fraction("1.3"), Fraction("1.6"), Fraction("1.9"),
    ]  # fmt: skip
    assert points.nearest(np.array([-5, 1.14, 1.16, 1.9, 99.0])).tolist() == [0, 0, 1, 3, 3]
    assert Points.of(Fraction(0), Fraction(9), None, whole=True).count == 10
    assert Points.of(Fraction(0), Fraction(9), None).count == 2**20 + 1
    for step, why in (
        (2, "larger than the distance"),
        ("1e-50", r"more than 2\^32"),
        (0, "than 0"),
    ):
        with pytest.raises(ValueError, match=why):
            Points.of(Fraction(1), Fraction(2), step)
    with pytest.raises(ValueError, match="too close together"):
        Points.of(Fraction(0), Fraction(5e-324), None)


def test_arguments_are_exact() -> None:
    """What is accepted is returned as it is."""
    assert whole_number("it", Decimal(2**62 + 1), 0, 2**63) == 2**62 + 1
    assert pair("they", ("0.1", 1)) == (Fraction(1, 10), 1)
    assert confidence(Fraction(1, 2)) == 0.5
