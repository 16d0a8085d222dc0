"""Renyi orders that a policy states, or that are taken for a workload, and when they may change."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from support import Book, gaussian, hospital, laplace, make, proposed

from accountant.budget.errors import Problem
from accountant.budget.evaluate import how_many
from accountant.budget.facts import grant_in
from accountant.budget.policy_file import parse_policy
from accountant.budget.request import prepare
from accountant.budget.snapshot import dump, load
from accountant.privacy.filters import parts_of

STEP = {"kind": "gaussian", "sensitivity": "1", "scale": "1.1", "sampling": {"poisson": "0.01"}}
"""One step of training."""


def training(lines: str, epsilon: str = "2") -> str:
    """A limit with a delta that states how its lines are drawn."""
    return f"  - {{id: a, limit: {{epsilon: {epsilon}, delta: 1e-6}}, {lines}}}\n"


WORKLOAD = 'workload: [{kind: gaussian, sensitivity: 1, scale: 1.1, sampling: {poisson: "0.01"}}]'


def orders(book: Book) -> list[str]:
    """The Renyi orders of rule a, with their parts of delta'."""
    assert book.state.adopted is not None
    return [f"{order}: {part}" for order, part in parts_of(book.state.adopted.epochs["a"].limit)]


def told(book: Book) -> dict[str, Any]:
    """What the last event, which adopted a policy, says of the epoch of rule a."""
    found: dict[str, Any] = json.loads(book.stored[-1])["epochs"]["a"]
    return found


def most(book: Book, mechanism: dict[str, Any]) -> int:
    """How many invocations are granted."""
    asked = prepare(
        book.state, "pipe", make("ask_grant", dataset="d", mechanisms=[mechanism]), book.now
    )
    return how_many(book.state, asked)


@pytest.mark.parametrize(
    ("lines", "admitted", "drawn"),
    [
        ("orders: [10]", 1_008, ["10: 1"]),
        (WORKLOAD, 1_008, ["10: 1"]),
        ("orders: [12, 8]", 587, ["12: 1/2", "8: 1/2"]),
        ("gate: renyi", 462, ["13: 7/10", "8: 3/10"]),
    ],
)
def test_training_fits_the_orders_that_are_stated(
    lines: str, admitted: int, drawn: list[str]
) -> None:
    """At (2, 1e-6) an order that is best for flat curves would admit 25 steps of training, order 10
    admits 1,008, and several orders share the delta. One step more is refused.
    """
    book = hospital(training(lines), neighbouring="add_or_remove_one")
    assert orders(book) == drawn
    assert most(book, STEP) == admitted
    assert book.grant(STEP | {"count": admitted}).type == "grant.reserved.v1"
    assert book.grant(STEP).type == "grant.refused.v1"
    assert book.replayed().findings == []


def test_a_workload_is_what_fits_most_often() -> None:
    """The order is the one at which most runs of the whole workload fit, and the event states it:
    no other order admits more.
    """
    several = WORKLOAD[:-1] + ", {kind: laplace, sensitivity: 1, scale: 20, count: 5}]"
    book = hospital(training(several), neighbouring="add_or_remove_one")
    [order] = told(book)["renyi"]
    both = [STEP, laplace("0.05", 5)]
    admitted = most_runs(book, both)
    for other in ("4", "6.5", "8", "9", "10", "11", "12", "13", "16"):
        if other != order:
            alone = hospital(training(f"orders: [{other}]"), neighbouring="add_or_remove_one")
            assert most_runs(alone, both) <= admitted


def most_runs(book: Book, mechanisms: list[dict[str, Any]]) -> int:
    """How many runs of several mechanisms are granted, one after the other."""
    found = 0
    while book.grant(*mechanisms).type == "grant.reserved.v1":
        found += 1
    return found


def test_orders_are_kept_while_the_limit_changes() -> None:
    """A changed limit goes on at the orders that the rule states; other orders on used data count
    what was used as a plain sum of epsilons.
    """
    book = hospital(training("orders: [10, 4]"))
    book.record(laplace("0.01", 20))
    book.policy(training("orders: [10, 4]", "3"), confirmed_by="officer")
    assert (told(book)["start"], orders(book)) == ("carried", ["10: 1/2", "4: 1/2"])
    book.policy(training("orders: [7]", "3"), confirmed_by="officer")
    assert (told(book)["start"], orders(book)) == ("converted", ["7: 1"])
    assert book.used()[0][4] == 20 * 10**13  # tau, which begins at the sum of epsilons
    assert book.replayed().findings == []
    again = load(book.state.ledger, b"".join(dump(book.state)))
    assert again.adopted is not None
    assert book.state.adopted is not None
    assert again.adopted.epochs == book.state.adopted.epochs


def test_an_epoch_without_any_charge_chooses_afresh() -> None:
    """A limit that is tightened before the first grant admits as much as if it had never been
    another; one reservation, even if it is given back, fixes the orders.
    """
    fresh = hospital(training("gate: renyi", "1"))
    book = hospital(training("gate: renyi", "3"))
    book.policy(training("gate: renyi", "1"))
    assert told(book)["start"] == "unused"
    assert told(book)["renyi"] == told(fresh)["renyi"] == ["23", "15"]
    assert most(book, laplace("0.01")) == most(fresh, laplace("0.01")) == 473
    book.do("release_grant", grant=grant_in(book.grant(laplace("0.01"))), reason="never run")
    book.policy(training("gate: renyi", "0.9"))
    assert told(book)["start"] == "carried"
    assert told(book)["chosen"] == ["1", "9/10000000"]
    assert book.replayed().findings == []


def test_orders_below_two_serve_large_limits() -> None:
    """Gaussian noise of mu 20 has an epsilon of 303.4 at a delta of 9e-7 by the best order; a limit
    of 304 admits it.
    """
    for epsilon, outcome in (("304", "grant.reserved.v1"), ("303", "grant.refused.v1")):
        book = hospital(training("gate: renyi", epsilon))
        assert [Fraction(order.split(":")[0]) < 2 for order in orders(book)] == [True]
        assert book.grant(gaussian("20")).type == outcome
        assert book.replayed().findings == []


MALFORMED = {
    "orders: [10], " + WORKLOAD: "not both",
    "gate: zcdp, orders: [10]": "its gate is zcdp",
    "gate: basic, " + WORKLOAD: "its gate is basic",
    "orders: [10, 10.0]": "stated twice",
    "orders: [1]": "greater than 1",
    "orders: []": "must not be empty",
    "orders: [2, 3, 4, 5, 6]": "at most 4",
    "orders: [2.00001]": "decimal places",
    "workload: []": "must not be empty",
    'workload: [{kind: laplace, sensitivity: "0", scale: "1"}]': "greater than 0",
}


@pytest.mark.parametrize("lines", MALFORMED)
def test_what_is_no_choice_of_orders_is_refused(lines: str) -> None:
    """Orders and workloads are for Renyi's gate only, and say in words what is wrong with them."""
    with pytest.raises(Problem) as error:
        parse_policy("policy: p\nrules:\n" + training(lines))
    assert MALFORMED[lines] in str(error.value)


def test_a_limit_without_a_delta_has_no_orders() -> None:
    """Where basic composition is all there is, a stated order would do nothing."""
    with pytest.raises(Problem, match="without a delta"):
        parse_policy("policy: p\nrules:\n  - {id: a, limit: {epsilon: 1}, orders: [10]}\n")


def test_other_orders_take_a_second_name() -> None:
    """Whoever changes the orders of a limit that blocks could make room by it."""
    book = hospital(training("orders: [10]"))
    proposed(book.policy(training("orders: [4]")), "a is raised or changed")


def test_a_workload_without_a_bound_is_refused() -> None:
    """No order fits work that has no finite divergence at any: the adoption says so."""
    nothing = "workload: [{kind: non_private}]"
    with pytest.raises(Problem, match="no finite Renyi divergence at any order") as refused:
        hospital(training(nothing), neighbouring="add_or_remove_one")
    assert refused.value.code == "malformed-policy"
