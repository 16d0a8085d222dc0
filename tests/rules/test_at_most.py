"""A cap per request: what one request may cost, whatever is left of a limit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support import (
    NON_PRIVATE,
    Book,
    declared,
    gaussian,
    hospital,
    laplace,
    make,
    proposed,
    sparse_vector,
)

from accountant.budget.rules.at_most import AtMostRule
from accountant.budget.snapshot import dump, load
from accountant.ledger.events import Event

WIDE = "  - {id: wide, limit: {epsilon: 1000, delta: 1e-3}}\n"
RULES = WIDE + "  - {id: cap, at_most: {epsilon: 0.5, delta: 1e-6}}\n"


def fired(event: Event) -> list[list[str]]:
    """The rules that fired, with their codes."""
    found: list[list[str]] = event.body.get("fired", [])
    return found


@pytest.mark.parametrize(
    ("mechanisms", "admitted"),
    [
        ([laplace("0.5")], True),
        ([laplace("0.500000001")], False),
        ([laplace("0.25"), laplace("0.25")], True),
        ([laplace("0.25"), laplace("0.250000001")], False),
        ([laplace("0.05", 10)], True),
        ([laplace("0.05", 11)], False),
        ([declared("0.1", "0.000001")], True),
        ([declared("0.1", "0.000001000000001")], False),
        ([gaussian("0.01")], False),
        ([gaussian("0.01", "1e-9")], True),
        ([NON_PRIVATE], False),
    ],
)
def test_a_request_as_a_whole_is_capped(mechanisms: list[dict[str, Any]], admitted: bool) -> None:
    """The plain sums of its epsilons and deltas reach the cap, and no unit more."""
    event = hospital(RULES).grant(*mechanisms)
    assert (event.type == "grant.reserved.v1") == admitted
    assert (["cap", "request-too-costly"] in fired(event)) == (not admitted)


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_it_compares_to_the_unit(cap: int, cost: int) -> None:
    """In billionths of epsilon, whatever they are."""
    most, asked = Decimal(cap).scaleb(-9), Decimal(cost).scaleb(-9)
    rules = WIDE + f"  - {{id: cap, at_most: {{epsilon: {most:f}}}}}\n"
    event = hospital(rules).grant(laplace(format(asked, "f")))
    assert bool(fired(event)) == (cost > cap)


def test_it_looks_at_one_request_only() -> None:
    """However much was used before, and however many come: each that is small enough passes."""
    book = hospital(RULES)
    for _ in range(20):
        assert book.grant(laplace("0.5")).type == "grant.reserved.v1"
    assert book.replayed().findings == []


def test_a_cap_of_one_sum_leaves_the_other_alone() -> None:
    """Without a delta in the cap, deltas are not capped; without an epsilon, epsilons are not."""
    book = hospital(WIDE + "  - {id: cap, at_most: {epsilon: 0.5}}\n")
    assert fired(book.grant(declared("0.1", "0.00009"))) == [
        ["built-in:unverifiable-claim", "unverifiable-claim"]
    ]
    book = hospital(WIDE + "  - {id: cap, at_most: {delta: 0}}\n")
    assert not fired(book.grant(laplace("400")))
    assert ["cap", "request-too-costly"] in fired(book.grant(gaussian("0.1", "1e-9")))


def test_it_covers_the_datasets_that_match() -> None:
    """Elsewhere it says nothing."""
    book = Book()
    book.register()
    for name in ("d", "e"):
        book.dataset(name)
    book.policy(WIDE + "  - {id: cap, datasets: 'e*', at_most: {epsilon: 0.5}}\n")
    assert not fired(book.grant(laplace("1")))
    assert fired(book.grant(laplace("1"), dataset="e")) == [["cap", "request-too-costly"]]


def test_it_can_flag_only() -> None:
    """Then the request is granted, and marked."""
    book = hospital(WIDE + "  - {id: cap, at_most: {epsilon: 0.5}, action: flag}\n")
    event = book.grant(laplace("1"))
    assert event.type == "grant.reserved.v1"
    assert fired(event) == [["cap", "request-too-costly"]]


def test_what_has_run_is_recorded_above_it() -> None:
    """An invocation that has already run is recorded, with the rule that it breaks."""
    event = hospital(RULES).record(laplace("1"))
    assert event.type == "invocation.recorded.v1"
    assert fired(event) == [["cap", "request-too-costly"]]


def test_a_session_is_capped_by_all_that_it_reserves() -> None:
    """A sparse vector session costs what it may cost at most, when it is opened."""
    for epsilon, admitted in (("0.2", True), ("0.199999999", False)):
        book = hospital(WIDE + f"  - {{id: cap, at_most: {{epsilon: {epsilon}}}}}\n")
        event = book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector())
        assert (event.type == "grant.reserved.v1") == admitted


def test_each_item_of_a_batch_is_a_request() -> None:
    """A batch passes if each of its requests does, and is refused as a whole if one does not."""
    ask = [make("ask_grant", dataset="d", mechanisms=[laplace(e)]) for e in ("0.5", "0.4", "0.6")]
    book = hospital(RULES)
    assert [event.type for event in book.batch(*ask[:2])][1:] == ["grant.reserved.v1"] * 2
    [refused] = book.batch(*ask)
    assert refused.type == "batch.refused.v1"
    assert fired(refused) == [["cap", "request-too-costly"]]
    assert book.replayed().findings == []


def test_words_name_both_sides() -> None:
    """A refusal says what the request costs and what it may cost in each sum that is too large, and
    what to do.
    """
    book = hospital(RULES)
    [said] = [r for r in book.decision(book.grant(laplace("0.6")))["rules"] if r["rule"] == "cap"]
    assert "epsilon 0.6 of at most 0.5: ask for less" in said["text"]
    assert "delta" not in said["text"]
    [said] = [r for r in book.decision(book.grant(laplace("0.4")))["rules"] if r["rule"] == "cap"]
    assert "ask for less" not in said["text"]
    assert "epsilon 0.4 of at most 0.5, delta 0 of at most 0.000001" in said["text"]


def test_words_on_a_cost_without_a_bound_do_not_advise_several_requests() -> None:
    """No smaller request of it would fit; Gaussian noise is told to name a delta."""
    book = hospital(RULES)
    [said] = [r for r in book.decision(book.grant(gaussian("0.01")))["rules"] if r["rule"] == "cap"]
    assert "epsilon infinite of at most 0.5" in said["text"]
    assert "several requests" not in said["text"]
    assert "add a delta" in said["text"]


def test_its_sentence_names_the_cap() -> None:
    """A report says what a single request may cost."""
    rule = AtMostRule.model_validate({"id": "cap", "at_most": {"epsilon": "0.5", "delta": "1e-6"}})
    said = "On all datasets, a single request that costs more than epsilon 0.5 or delta 0.000001"
    assert rule.sentence("a person") == said


@pytest.mark.parametrize(
    "cap", [{}, {"epsilon": "0"}, {"epsilon": "-1"}, {"delta": "1"}, {"epsilon": "NaN"}, {"rho": 1}]
)
def test_a_cap_that_means_nothing_is_refused(cap: dict[str, Any]) -> None:
    """It has an epsilon above zero, a delta below one, or both, and nothing else."""
    with pytest.raises(ValidationError):
        AtMostRule.model_validate({"id": "cap", "at_most": cap})


def test_loosening_it_takes_two_names() -> None:
    """So does removing it; adding one does not."""
    book = hospital(WIDE)
    book.policy(RULES)
    for rules in (WIDE, RULES.replace("0.5", "0.6")):
        proposed(book.policy(rules), "cap is")
    book.policy(WIDE, confirmed_by="officer")


def test_it_alone_guards_nothing() -> None:
    """A policy with a cap and no limit admits nothing: caps do not add up to a bound."""
    book = hospital("  - {id: cap, at_most: {epsilon: 0.5}}\n")
    assert ["built-in:no-limit", "no-limit"] in fired(book.grant(laplace("0.1")))


def test_live_replay_and_a_restart_are_one() -> None:
    """The rule keeps nothing: decided again the ledger is the same, from a snapshot too."""
    book = hospital(RULES)
    for number in range(12):
        if number == 6:
            book.state = load(book.name, b"".join(dump(book.state)))
        book.grant(laplace(f"0.{number + 1}"))
    assert book.replayed().findings == []
    assert dump(book.replayed().state) == dump(book.state)
