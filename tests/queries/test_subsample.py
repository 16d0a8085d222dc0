"""Subsample and aggregate: a unit changes one block, and only that is paid for."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from catalogue import dataset, people, without_first
from empirical import losses, lower_bound
from opening import Opens

from accountant.client import Client
from accountant.queries import Query
from accountant.queries.exact import exact_sum
from accountant.queries.subsample import Aggregate, assigned, subsample

BLOCKS = 20


def named(size: int, **more: Any) -> Any:
    """People with names."""
    return people(size) | {"who": np.array([f"person {i}" for i in range(size)])} | more


def spread(records: Any) -> float:
    """A function of which nobody knows the sensitivity."""
    return float(np.median(records["x"]) + np.std(records["x"]))


def asked(ledger: Client, rows: Any, aggregate: Any = "mean", **more: Any) -> Query:
    """The mean, or the median, of the spread over the blocks."""
    survey = dataset(ledger, rows, unit="who")
    fields = {"epsilon": 1, "blocks": BLOCKS, "aggregate": aggregate} | more
    return subsample(survey, spread, ["x"], (0, 10), **fields)


@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_the_aggregate_is_near_that_of_the_blocks(aggregate: Any, comes_and_goes: Client) -> None:
    """With a share of confidence the answer is within its error of the aggregate of the results,
    and twice as many blocks halve the noise of a mean.
    """
    query = asked(comes_and_goes, named(2000), aggregate)
    [step], [results] = query.steps, query.values()
    draw = step.ready(results)
    draws = np.array([draw() for _ in range(300)])
    if aggregate == "mean":
        off, bound = np.abs(draws - results.mean()), query.error(0.9).amount
        assert 0.03 < np.mean(off > bound) < 0.2
        twice = asked(comes_and_goes, named(2000), blocks=2 * BLOCKS)
        assert twice.error().amount == pytest.approx(query.error().amount / 2, rel=1e-6)
    else:
        ranks = [np.sum(results < d) - BLOCKS / 2 for d in draws]
        assert np.mean(np.abs(ranks) > query.error(0.9).amount + 1) < 0.2
    sharp = asked(comes_and_goes, named(2000), aggregate, epsilon=5)
    assert abs(sharp.release(purpose="test").value - spread(people(2000))) < 4


@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_the_charge_is_the_aggregators(
    aggregate: Any, opened: Opens, comes_and_goes: Client
) -> None:
    """It is what was asked for, also where a unit is replaced by one of another block, and where a
    private group is charged.
    """
    for ledger, where in (
        (comes_and_goes, {}),
        (opened("replace_one"), {}),
        (opened("replace_one", "private"), {"country": "CH"}),
    ):
        survey = dataset(ledger, named(200), unit="who").where(**where)
        query = subsample(
            survey, spread, ["x"], (0, 10), epsilon="0.3", blocks=9, aggregate=aggregate
        )
        charge = query.cost(purpose="test").charge["epsilon"]
        assert Decimal("0.299999") < charge <= Decimal("0.3")


def test_a_unit_lies_in_one_block_that_depends_on_nothing_else(comes_and_goes: Client) -> None:
    """Removing anybody moves nobody else to another block, and changes one result at most."""
    rows = named(100, who=np.array([f"person {i // 2}" for i in range(100)]))
    gone = {name: column[2:] for name, column in rows.items()}
    made = [dataset(comes_and_goes, each, unit="who", records_per_unit=2) for each in (rows, gone)]
    blocks = [assigned(each, BLOCKS, b"key") for each in made]
    assert np.array_equal(blocks[0][2:], blocks[1])
    assert np.array_equal(blocks[0][::2], blocks[0][1::2])
    assert not np.array_equal(blocks[0], assigned(made[0], BLOCKS, b"other key"))
    results = [
        subsample(each, spread, ["x"], (0, 10), epsilon=1, blocks=BLOCKS).values()[0]
        for each in made
    ]
    assert np.sum(results[0] != results[1]) == 1


def test_equal_names_are_one_unit(comes_and_goes: Client) -> None:
    """Rows whose names are equal as numbers are those of one unit, and lie in one block, however
    they are written; and a number names the same unit in a column of any type.
    """
    names = [1, 1.0, Decimal(1), 2, np.float32(2), 7]
    rows = named(6, who=np.array(names, dtype=object))
    survey = dataset(comes_and_goes, rows, unit="who", records_per_unit=3)
    blocks = assigned(survey, 10**6, b"key")
    assert len(set(blocks[:3])) == len(set(blocks[3:5])) == 1
    floats, ints = (
        assigned(dataset(comes_and_goes, named(6, who=np.array(who)), unit="who"), 10**6, b"key")
        for who in ([1.0, 2.0, 7.0, 8.5, 9.0, 10.0], [1, 2, 7, 8, 9, 10])
    )
    assert np.array_equal(floats != ints, np.arange(6) == 3)
    assert blocks[0] == ints[0]


def test_results_that_are_no_numbers_count_as_the_middle(comes_and_goes: Client) -> None:
    """Empty blocks and results that are not finite count as the middle; others are moved to the
    bounds.
    """
    query = asked(comes_and_goes, named(3), blocks=50)
    [results] = query.values()
    assert np.sum(results == 5) >= 47
    survey = dataset(comes_and_goes, named(100), unit="who")

    def wild(records: Any) -> float:
        return [float("nan"), float("inf"), 99.0, -99.0][len(records["x"]) % 4]

    [results] = subsample(survey, wild, ["x"], (0, 10), epsilon=1, blocks=8).values()
    assert set(results) <= {5.0, 10.0, 0.0}


EPSILON, TIMES = 2.0, 3000


def lopsided() -> Any:
    """People of whom the first alone decides the result of its block."""
    return named(60, x=np.array([10.0] + [0.0] * 59))


def least_or_most(records: Any) -> float:
    """A function that one record can change as much as any."""
    return float(records["x"].max())


def pair(ledger: Client, rows: Any, aggregate: Any) -> list[Query]:
    """The query on people, and without the first."""
    return [
        subsample(
            dataset(ledger, each, unit="who"), least_or_most, ["x"], (0, 10),
            epsilon=EPSILON, blocks=BLOCKS, aggregate=aggregate, step=1,
        )
        for each in (rows, without_first(rows))
    ]  # fmt: skip


@pytest.mark.parametrize("weak", [1, 3])
def test_no_event_refutes_the_epsilon(weak: int, comes_and_goes: Client) -> None:
    """Draws on neighbours refute no more than the charge; with a third of the noise they do."""
    one, other = pair(comes_and_goes, lopsided(), "mean")
    [step] = one.steps
    assert isinstance(step, Aggregate)
    assert one.steps == other.steps
    inner = step.aggregator
    noisy = replace(inner, scale=inner.scale / weak)
    ends = [float(np.mean(query.values()[0])) for query in (one, other)]
    found = [losses(inner, noisy.many(end, TIMES), *ends) for end in map(_exact, (one, other))]
    assert (lower_bound(*found) > EPSILON) == (weak > 1)


def _exact(query: Query) -> Any:
    return exact_sum(query.values()[0]) / BLOCKS


def test_a_median_is_covered(comes_and_goes: Client) -> None:
    """Draws of the median on neighbours refute no more than the charge."""
    rows = named(60, x=np.array([10.0] + [0.0] * 59))
    one, other = pair(comes_and_goes, rows, "median")
    [step] = one.steps
    found = []
    for query in (one, other):
        draw = step.ready(query.values()[0])
        found.append(np.array([draw() for _ in range(TIMES)]))
    assert lower_bound(*found) < EPSILON


def test_blocks_by_place_are_found_out(comes_and_goes: Client) -> None:
    """Where units come and go and blocks went by place, one unit would change many results: the
    same test then refutes the charge.
    """
    rows = named(60, x=np.array([0.0, 10.0] * 30))
    one, other = pair(comes_and_goes, rows, "mean")
    [step] = one.steps
    found = []
    for each in (rows["x"], rows["x"][1:]):
        places = np.arange(len(each)) % 2
        results = np.repeat([each[places == i].max() for i in (0, 1)], [1, BLOCKS - 1])
        draw = step.ready(results)
        found.append(np.array([draw() for _ in range(TIMES)]))
    assert lower_bound(*found) > EPSILON
    assert other.steps == one.steps


def test_bad_requests_are_refused(comes_and_goes: Client, replaces: Client) -> None:
    """Units without names, where they come and go, and what makes no sense is refused."""
    unnamed = dataset(comes_and_goes, named(40))
    with pytest.raises(ValueError, match="say by unit="):
        subsample(unnamed, spread, ["x"], (0, 10), epsilon=1, blocks=5)
    places = dataset(replaces, named(40))
    assert subsample(places, spread, ["x"], (0, 10), epsilon=1, blocks=5).values
    sound = {"function": spread, "columns": ["x"], "bounds": (0, 10), "epsilon": 1, "blocks": 5}
    survey = dataset(comes_and_goes, named(40), unit="who")
    for wrong, why in (
        ({"blocks": 0}, "blocks is a whole number"),
        ({"bounds": (3, 3)}, "has to be below"),
        ({"columns": []}, "what the function reads"),
        ({"aggregate": "mode"}, '"mean" or "median"'),
        ({"epsilon": 0}, "epsilon must be more than 0"),
        ({"aggregate": "median", "step": 20}, "larger than the distance"),
    ):
        with pytest.raises(ValueError, match=why):
            subsample(survey, **{**sound, **wrong})
    with pytest.raises(ZeroDivisionError):
        subsample(survey, **{**sound, "function": lambda records: 1 / 0})


def test_places_in_a_private_group_are_refused(opened: Opens) -> None:
    """Where it is private who is in a group, a table of the group alone has other places for all
    who come after one that leaves it: blocks go by name there.
    """
    rows = named(40)
    ledger = opened("replace_one", "private")
    unnamed = dataset(ledger, rows)
    with pytest.raises(ValueError, match="say by unit="):
        subsample(unnamed.where(country="CH"), spread, ["x"], (0, 10), epsilon=1, blocks=5)
    assert subsample(unnamed, spread, ["x"], (0, 10), epsilon=1, blocks=5).values
    there = rows["country"] == "CH"
    alone = {name: column[there] for name, column in rows.items()}
    found = [
        subsample(
            dataset(ledger, each, unit="who").where(country="CH"),
            spread, ["x"], (0, 10), epsilon=1, blocks=5,
        ).values()[0].tolist()
        for each in (rows, alone)
    ]  # fmt: skip
    assert found[0] == found[1]
    public = dataset(opened("replace_one"), rows).where(country="CH")
    assert subsample(public, spread, ["x"], (0, 10), epsilon=1, blocks=5).values
