"""Densities, functions and choices of data sets: their charge, their sensitivity, and bad input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from catalogue import Rows, dataset, people, without_first
from empirical import refuted

from accountant.client import Client
from accountant.queries import Dataset, Query
from accountant.queries.bernstein import function
from accountant.queries.densities import (
    histogram_density,
    series_density,
)
from accountant.queries.kernel import kernel_density
from accountant.queries.steps import DiscreteGaussian
from accountant.queries.synthetic import nearest

Make = Callable[..., Query]


def below(x: Any, t: float) -> Any:
    """Whether a value is at most t: a summand of the distribution function."""
    return (x <= t) * 1.0


@dataclass(frozen=True)
class Kind:
    """A kind of query, and data on which the first record changes the draws the most."""

    make: Make
    rows: Rows
    budget: dict[str, Any]
    delta: float = 0.0
    epsilon: float = 3.0
    """What the budget is worth at the delta."""
    broken: int = 2
    relation: str = "comes_and_goes"


def with_x(*x: float) -> Rows:
    """People with these values of x."""
    return people(len(x)) | {"x": np.array(x)}


RHO, DELTA = 0.5, 0.01
AT_DELTA = RHO + 2 * math.sqrt(RHO * math.log(1 / DELTA))
"""The epsilon of that rho at that delta (Bun and Steinke 2016, Proposition 1.3)."""
NORMAL: dict[str, Any] = {"budget": {"rho": RHO}, "delta": DELTA, "epsilon": AT_DELTA, "broken": 4}
PURE: dict[str, Any] = {"budget": {"epsilon": 3}}
SPREAD = PURE | {"broken": 4}
"""Noise on many entries, each of which moves a little: no event shows all of the loss."""
CANDIDATES = [[10.0]] + [[0.0]] * 20

KINDS: dict[str, Kind] = {
    "histogram": Kind(
        lambda data, **budget: histogram_density(data, "x", 5, **budget),
        with_x(10, 3, 7), **PURE,
    ),
    "histogram with rho": Kind(
        lambda data, **budget: histogram_density(data, "x", 5, **budget),
        with_x(10, 3, 7), **NORMAL,
    ),
    "series": Kind(
        lambda data, **budget: series_density(data, "x", 6, **budget),
        with_x(0, 3, 7), **SPREAD,  # at the lower end all cosines are largest at once
    ),
    "series with rho": Kind(
        lambda data, **budget: series_density(data, "x", 6, **budget),
        with_x(0, 3, 7), **NORMAL,
    ),
    "kernel": Kind(
        lambda data, **budget: kernel_density(data, "x", 3, points=16, **budget),
        with_x(5, 3, 7), **NORMAL,
    ),
    "function": Kind(
        lambda data, **budget: function(
            data, ["x"], below, (0, 1), [(0, 10)], degree=8, **budget
        ),
        with_x(-1, 3, 7), **SPREAD,  # at or below every point of the grid
    ),
    "function with rho": Kind(
        lambda data, **budget: function(
            data, ["x"], below, (0, 1), [(0, 10)], degree=8, **budget
        ),
        with_x(-1, 3, 7), **NORMAL,
    ),
    "nearest": Kind(
        lambda data, **budget: nearest(data, "x", CANDIDATES, **budget),
        # Exchanged for 10 the first record moves the rare candidate up by 1, the others down by 1.
        with_x(0, *[0] * 4, *[10] * 4), budget={"epsilon": 2}, epsilon=2.0, relation="replaces",
    ),
}  # fmt: skip


def pair(kind: Kind, ledgers: dict[str, Client]) -> tuple[Query, Query]:
    """The query on neighbours: without the first record, or with another in its place."""
    ledger, rows = ledgers[kind.relation], kind.rows
    other = without_first(rows)
    if kind.relation == "replaces":
        other = rows | {"x": np.r_[10.0, rows["x"][1:]]}
    one, two = (kind.make(dataset(ledger, each), **kind.budget) for each in (rows, other))
    return one, two


@pytest.fixture(scope="module")
def ledgers(comes_and_goes: Client, replaces: Client) -> dict[str, Client]:
    """A ledger of each relation."""
    return {"comes_and_goes": comes_and_goes, "replaces": replaces}


@pytest.mark.parametrize("name", KINDS)
def test_no_event_refutes_the_charge(name: str, ledgers: dict[str, Client]) -> None:
    """What thousands of draws on neighbours refute is below what is charged."""
    kind = KINDS[name]
    one, other = pair(kind, ledgers)
    assert one.steps == other.steps, "what runs must not depend on the data"
    assert refuted(one.steps, one, other, 3000, kind.delta) < kind.epsilon


@pytest.mark.parametrize("name", KINDS)
def test_too_little_noise_is_found_out(name: str, ledgers: dict[str, Client]) -> None:
    """The same test refutes the charge where the noise has half its scale (or less, see Kind)."""
    kind = KINDS[name]
    one, other = pair(kind, ledgers)
    weak = [replace(step, scale=step.scale / kind.broken) for step in one.steps]
    assert refuted(weak, one, other, 6000, kind.delta) > kind.epsilon


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_what_is_previewed_is_charged(
    name: str, relation: str, opened: Callable[..., Client]
) -> None:
    """A release costs what the preview says: hardly less than the budget, and never more."""
    kind, ledger = KINDS[name], opened(relation)
    [(currency, amount)] = kind.budget.items()
    query = kind.make(dataset(ledger, people(60)), **kind.budget)
    preview = query.cost(purpose="test")
    answer = query.release(purpose="test")
    charge = answer.receipt.charge
    assert charge == preview.charge
    assert float(amount) * (1 - 1e-6) < float(charge[currency]) <= amount
    assert ledger.grant_state(answer.receipt.grant).charged == charge
    assert answer.error.amount > 0
    [step] = query.steps
    assert [step.mechanism] == list(answer.mechanisms)


def moved(one: Query, other: Query) -> tuple[float, float]:
    """By how much the exact values of two queries differ, in L1 and L2."""
    [first], [second] = one.values(), other.values()
    apart = np.array([float(a - b) for a, b in zip(first, second, strict=True)])
    return float(np.abs(apart).sum()), float(np.sqrt((apart**2).sum()))


NOISY = [name for name in KINDS if name != "nearest"]


@pytest.mark.parametrize("name", NOISY)
@pytest.mark.parametrize("relation", ["comes_and_goes", "replaces"])
@pytest.mark.parametrize("records", [None, 2])
def test_no_neighbours_differ_by_more_than_is_stated(
    name: str, relation: str, records: int | None, ledgers: dict[str, Client]
) -> None:
    """On random neighbours, with records at the ends and beyond them, the values move by at most
    the sensitivity in the norm of the noise; on the worst neighbours that come or go, by it.
    """
    kind, draws, ledger = KINDS[name], np.random.default_rng(5), ledgers[relation]
    most = 0.0
    unit = {} if records is None else {"unit": "unit", "records_per_unit": records}
    for x in [*draws.uniform(-2, 12, 12), 0.0, 10.0, -1.0, 5.0]:
        rows = with_x(*draws.uniform(0, 10, 5), *[x] * (records or 1))
        rows |= {"unit": np.r_[np.arange(5), [5] * (records or 1)]}
        last = {
            key: column[: 5 if relation == "comes_and_goes" else None]
            for key, column in rows.items()
        }
        if relation == "replaces":
            last |= {"x": np.r_[rows["x"][:5], [draws.choice([0.0, 10.0, 5.0])] * (records or 1)]}
        one, other = (
            kind.make(dataset(ledger, each, **unit), **kind.budget) for each in (rows, last)
        )
        assert one.steps == other.steps
        [step] = one.steps
        l1, l2 = moved(one, other)
        reach = l2 if isinstance(step, DiscreteGaussian) else l1
        lattice = step.lattice or 1  # type: ignore[attr-defined]
        stated = step.sensitivity
        if isinstance(step, DiscreteGaussian):
            stated = stated * lattice
        assert reach <= float(stated) * (1 + 1e-12)
        most = max(most, reach / float(stated))
    assert most > 0.99 or relation == "replaces"
    assert most > 0.5


# -- refusals --------------------------------------------------------------------------------------


def broken(ledger: Client, value: float) -> Dataset:
    """People with an x that is no number."""
    x = people(20)["x"].copy()
    x[3] = value
    return dataset(ledger, people(20) | {"x": x})


def plain(ledger: Client) -> Dataset:
    """Some people."""
    return dataset(ledger, people(20) | {"weight": np.ones(20)})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda ledger: histogram_density(plain(ledger), "weight", 5, 1), "has no bounds"),
        (lambda ledger: series_density(plain(ledger), "weight", 5, 1), "has no bounds"),
        (lambda ledger: kernel_density(plain(ledger), "weight", 1, 1), "has no bounds"),
        (lambda ledger: histogram_density(broken(ledger, math.nan), "x", 5, 1), "are missing"),
        (lambda ledger: series_density(broken(ledger, math.nan), "x", 5, 1), "are missing"),
        (lambda ledger: kernel_density(broken(ledger, math.nan), "x", 1, 1), "are missing"),
        (lambda ledger: histogram_density(plain(ledger), "colour", 5, 1), "has no bounds"),
        (lambda ledger: histogram_density(plain(ledger), "x", 5, 0), "more than 0"),
        (lambda ledger: histogram_density(plain(ledger), "x", 5), "either epsilon"),
        (lambda ledger: histogram_density(plain(ledger), "x", 0, 1), "bins is a whole"),
        (lambda ledger: histogram_density(plain(ledger), "x", 2.5, 1), "bins is a whole"),
        (lambda ledger: series_density(plain(ledger), "x", 0, 1), "terms is a whole"),
        (lambda ledger: series_density(plain(ledger), "x", 9, 1, points=9), "points is a whole"),
        (lambda ledger: series_density(plain(ledger), "x", 9, -1), "more than 0"),
        (lambda ledger: kernel_density(plain(ledger), "x", 0, 1), "bandwidth must be"),
        (lambda ledger: kernel_density(plain(ledger), "x", 1, 0), "rho must be"),
        (lambda ledger: kernel_density(plain(ledger), "x", 1, 1, points=5), "width of a cell"),
        (lambda ledger: kernel_density(plain(ledger), "x", 1, 1, points=10**4), "points is a"),
        (lambda ledger: ask(ledger, within=(1, 0)), "first has to be below"),
        (lambda ledger: ask(ledger, within=3), "are a pair"),
        (lambda ledger: ask(ledger, axes=[]), "at least one axis"),
        (lambda ledger: ask(ledger, axes=[(0, 1)] * 9), "more than 65536"),
        (lambda ledger: ask(ledger, degree=0), "degree is a whole"),
        (lambda ledger: ask(ledger, order=0), "order is a whole"),
        (lambda ledger: ask(ledger, epsilon=0), "more than 0"),
        (lambda ledger: ask(ledger, columns=[]), "at least one column"),
        (lambda ledger: ask(ledger, summand=lambda x, t: x * math.nan).values(), "not a number"),
        (lambda ledger: ask(ledger, summand=lambda x, t: 1.0).values(), "one number each"),
        (lambda ledger: series_density(plain(ledger), "x", 5, 1).error(), "say for how many"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(
    make: Callable[[Client], Any], words: str, comes_and_goes: Client
) -> None:
    """Missing bounds, NaN, no budget, and numbers that do not fit are refused with the reason."""
    with pytest.raises(ValueError, match=words):
        make(comes_and_goes)


def ask(ledger: Client, **changed: Any) -> Query:
    """A function of which something is changed."""
    given = {
        "columns": ["x"], "summand": below, "within": (0, 1), "axes": [(0, 10)], "degree": 4,
        "epsilon": 1,
    }  # fmt: skip
    return function(plain(ledger), **(given | changed))


def test_several_rows_and_no_rows_are_refused(replaces: Client) -> None:
    """A person with several rows is refused unless it is said how many count; so is a group of
    which it is public that nobody is in it.
    """
    rows = people(20) | {"unit": np.repeat(np.arange(10), 2)}
    with pytest.raises(ValueError, match="has up to 2 rows"):
        dataset(replaces, rows, unit="unit")
    empty = dataset(replaces, people(20) | {"country": np.full(20, "CH")}).where(country="JP")
    for make in (
        lambda: histogram_density(empty, "x", 5, 1),
        lambda: series_density(empty, "x", 5, 1),
        lambda: kernel_density(empty, "x", 1, 1),
    ):
        with pytest.raises(ValueError, match="has no records"):
            make()
