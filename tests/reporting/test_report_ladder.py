"""The ladder: the same charges under every gate, side by side."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import mpmath
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Book, hospital

from accountant.privacy.filters import FILTERS
from accountant.reporting.statement import lifetime_totals, statement

RULES = "  - {id: a, limit: {epsilon: 3, delta: 1e-5}}\n"


def ladder(book: Book) -> dict[str, str]:
    """What each gate shows as used under rule ``a``."""
    [line] = statement(book.state, "d")
    return {rung["gate"]: rung["used"] for rung in line.ladder}


def laplace(count: int, scale: str = "100") -> dict[str, Any]:
    """So many Laplace answers."""
    return {"kind": "laplace", "sensitivity": "1", "scale": scale, "count": count}


def test_every_gate_reads_the_same_charges() -> None:
    """200 Laplace answers of epsilon 0.01: 2 as a plain sum, less under each better gate, and the
    limit's own number is among them.
    """
    book = hospital(RULES)
    book.record(laplace(200))
    found = ladder(book)
    assert list(found) == list(FILTERS)
    [line] = statement(book.state, "d")
    assert found[line.gate] == line.total.spent
    spent = {gate: Decimal(amount) for gate, amount in found.items()}
    assert spent["basic"] == 2
    assert spent["renyi"] < spent["zcdp"] < spent["advanced"] < spent["basic"]


def test_the_numbers_are_those_of_the_formulas() -> None:
    """renyi: tau + c at its better order, with that order's seven tenths of delta'."""
    book = hospital(RULES)
    book.record(laplace(200))
    with mpmath.workdps(30):
        e, a, d = mpmath.mpf("0.01"), 8, mpmath.mpf("9e-6") * 7 / 10
        adopted = book.state.adopted
        assert adopted is not None
        assert adopted.orders == (5, a)
        tau = mpmath.log(
            a / mpmath.mpf(2 * a - 1) * mpmath.exp((a - 1) * e)
            + (a - 1) / mpmath.mpf(2 * a - 1) * mpmath.exp(-a * e)
        ) / (a - 1)
        c = mpmath.log1p(-mpmath.mpf(1) / a) - mpmath.log(a * d) / (a - 1)
        exact = 200 * tau + c
    assert 0 <= float(Decimal(ladder(book)["renyi"])) - float(exact) < 2e-9


def test_a_limit_without_a_delta_has_one_rung() -> None:
    """Only the plain sum means anything without a delta."""
    book = hospital("  - {id: a, limit: {epsilon: 3}}\n")
    book.record(laplace(5))
    assert ladder(book) == {"basic": "0.05"}


def test_gaussian_noise_has_no_rung_where_it_has_no_epsilon() -> None:
    """Without a delta of its own it is infinite as a plain sum, and finite where rho, tau or mu
    are added up.
    """
    book = hospital(RULES)
    book.record({"kind": "gaussian", "sensitivity": "1", "scale": "20", "count": 3})
    found = ladder(book)
    assert found["basic"] == found["advanced"] == "infinite"
    assert all(Decimal(found[gate]) < 3 for gate in ("zcdp", "renyi", "gdp"))


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=6))
def test_no_rung_is_above_the_plain_sum(counts: list[int]) -> None:
    """Whatever was booked, every gate's number is at most the sum of epsilons, which is implied."""
    book = hospital(RULES)
    for count in counts:
        book.record(laplace(count, "300"))
    found = ladder(book)
    assert all(Decimal(amount) <= Decimal(found["basic"]) for amount in found.values())


def test_a_lifetime_over_all_datasets_adds_up_what_each_has() -> None:
    """Where plain sums have no bound, the total of a person is the sum of the datasets' numbers,
    their deltas included; a dataset without any number leaves it without one.
    """
    book = hospital(RULES)
    book.dataset("e")
    noise = {"kind": "gaussian", "sensitivity": "1", "scale": "20"}
    book.record(noise)
    book.record(noise | {"count": 4}, dataset="e")
    totals = {row["dataset"]: row for row in lifetime_totals(book.state)}
    for name in ("epsilon", "delta"):
        each = [Decimal(totals[dataset][name]) for dataset in ("d", "e")]
        assert Decimal(totals["*"][name]) == sum(each)
        assert sum(each) > 0
    book.record({"kind": "non_private"}, dataset="e")
    totals = {row["dataset"]: row for row in lifetime_totals(book.state)}
    assert totals["*"]["epsilon"] == "infinite"
    assert totals["d"]["epsilon"] != "infinite"


def test_a_lifetime_does_not_rest_on_a_promise_that_is_void() -> None:
    """Over its limit a rule says nothing, so what has no plain sum has no lifetime number."""
    book = hospital(RULES)
    book.record({"kind": "gaussian", "sensitivity": "1", "scale": "1", "count": 50})
    assert {row["epsilon"] for row in lifetime_totals(book.state)} == {"infinite"}
