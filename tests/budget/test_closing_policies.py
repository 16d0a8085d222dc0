"""Policies under which a limit would never admit anything again, and what kept orders cost."""

from __future__ import annotations

from typing import Any

import pytest
from support import NON_PRIVATE, Book, gaussian, hospital, laplace

from accountant.budget.errors import Conflict
from accountant.budget.typical import kept_orders
from accountant.privacy.mechanisms import Relation


def limit(gate: str = "renyi", epsilon: str = "4", **more: str) -> str:
    """A rule called a."""
    rest = "".join(f", {name}: {value}" for name, value in more.items())
    return f"  - {{id: a, gate: {gate}, limit: {{epsilon: {epsilon}, delta: 1e-6}}{rest}}}\n"


def refused(book: Book, rules: str, **more: Any) -> list[dict[str, Any]]:
    """What the refusal of a policy says would close."""
    before = book.state.sequence
    with pytest.raises(Conflict) as caught:
        book.policy(rules, confirmed_by="officer", **more)
    assert caught.value.code == "policy-closes-limit"
    assert book.state.sequence == before
    found: list[dict[str, Any]] = caught.value.numbers["closes"]
    assert all(one["rule"] in caught.value.detail for one in found)
    return found


@pytest.mark.parametrize("gate", ["basic", "advanced", "zcdp", "gdp"])
def test_another_gate_that_would_close_is_asked_about(gate: str) -> None:
    """One Gaussian without a delta has no epsilon, with which the new gate would begin."""
    book = hospital(limit())
    book.record(laplace("0.1"))
    book.record(gaussian("0.1"))
    [closed] = refused(book, limit(gate))
    assert (closed["rule"], closed["dataset"], closed["gate"]) == ("a", "d", gate)
    assert (closed["currency"], closed["infinite"]) == ("epsilon", 1)
    [event] = book.policy(limit(gate), confirmed_by="officer", closes=["a"])
    assert event.body["command"]["closes"] == ["a"]
    assert book.grant(laplace("0.000001")).type == "grant.refused.v1"
    assert book.replayed().findings == []


@pytest.mark.parametrize(
    "rules",
    [
        limit(epsilon="5"),
        limit("basic", carry="none"),
        limit() + "  - {id: b, window: 30d, limit: {epsilon: 1}}\n",
        limit() + "  - {id: b, per: client, limit: {epsilon: 1}}\n",
    ],
    ids=["a larger limit", "a reset", "a window", "a part of each client"],
)
def test_what_closes_nothing_is_adopted(rules: str) -> None:
    """What goes on in its currency, or begins at zero, has room."""
    book = hospital(limit())
    book.record(gaussian("0.1"))
    assert book.policy(rules, confirmed_by="officer")


def test_a_new_limit_on_used_data_is_asked_about() -> None:
    """Each limit that would begin closed has to be named, and only those."""
    book = hospital(limit())
    book.dataset("e")
    book.record(gaussian("0.1"))
    book.record(NON_PRIVATE, dataset="e")
    rules = limit() + "  - {id: b, limit: {epsilon: 9}}\n"
    found = refused(book, rules, closes=["a"])
    assert [(one["rule"], one["dataset"]) for one in found] == [("b", "d"), ("b", "e")]
    assert (
        refused(book, rules + "  - {id: c, limit: {epsilon: 9}}\n", closes=["b"])[0]["rule"] == "c"
    )
    assert book.policy(rules, closes=["b"])


def test_gates_change_freely_where_everything_has_an_epsilon() -> None:
    """A sum of finite epsilons closes nothing."""
    book = hospital(limit())
    book.record(gaussian("0.1", "1e-9"))
    assert book.policy(limit("gdp"), confirmed_by="officer")


def test_kept_orders_are_told_with_what_they_cost() -> None:
    """A limit that goes on keeps its orders; afresh, more typical work would fit."""
    book = hospital(limit(epsilon="8"))
    book.record(laplace("0.1"))
    [event] = book.policy(limit(epsilon="0.5"))
    [told] = kept_orders(event, Relation.REPLACE_ONE)
    assert told["rule"] == "a"
    assert told["orders"] == [c.removeprefix("tau_") for c in sorted_orders(book)]
    assert told["orders"] != told["afresh"]
    assert all(one["fits"] <= one["afresh"] for one in told["work"][1:])
    assert any(one["fits"] < one["afresh"] for one in told["work"])
    [same] = book.policy(limit(epsilon="0.5") + "  - {id: b, limit: {epsilon: 9}}\n")
    assert kept_orders(same, Relation.REPLACE_ONE) == []


def sorted_orders(book: Book) -> list[str]:
    """The Renyi currencies of the rule, in the order of its lines."""
    assert book.state.adopted is not None
    return list(map(str, book.state.adopted.epochs["a"].capacity.currencies))


def test_orders_that_nothing_was_booked_on_are_not_kept() -> None:
    """A changed limit in whose epoch nothing was ever booked chooses afresh, and says nothing."""
    book = hospital(limit(epsilon="8"))
    [event] = book.policy(limit(epsilon="0.5"))
    assert kept_orders(event, Relation.REPLACE_ONE) == []
