"""A refusal names every account in which the charge does not fit."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from oracle import Oracle
from support import Book, laplace, make

from accountant.budget import exhausted
from accountant.budget.policy import MAX_RULES
from accountant.budget.rules.comparing import MOST_BESIDE
from accountant.ledger.events import canonical

RULES = """
  - {id: each, limit: {epsilon: 1}}
  - {id: all, across: datasets, limit: {epsilon: 100}}
"""


def joined(used: dict[str, str], rules: str = RULES, ages: bool = False) -> Book:
    """A ledger in which each dataset has been used as told."""
    book = Book()
    book.register({"age": ["young", "old"]} if ages else None)
    for name in used:
        book.dataset(name)
    book.policy(rules)
    for name, epsilon in used.items():
        if epsilon != "0":
            book.record(laplace(epsilon), dataset=name)
    return book


def refused(book: Book, datasets: list[str], **more: Any) -> Any:
    """The event of a refused request for epsilon 0.5 on several datasets."""
    asked = make("ask_grant", dataset=datasets, mechanisms=[laplace("0.5")], purpose="p", **more)
    [event] = book.ask(asked)
    assert event.type == "grant.refused.v1"
    return event


def rule_of(book: Book, event: Any, name: str = "each") -> dict[str, Any]:
    """The finding of a rule."""
    [found] = [one for one in book.decision(event)["rules"] if one["rule"] == name]
    return dict(found)


def test_all_exhausted_accounts_are_listed_the_fullest_first() -> None:
    """Beside the account that decides stand the others in which the charge does not fit; one in
    which it fits does not.
    """
    book = joined({"a": "0.6", "b": "0.9", "c": "0.1", "d": "0.8"})
    found = rule_of(book, refused(book, ["a", "b", "c", "d"]))
    assert found["dataset"] == "b"
    assert [one["dataset"] for one in found["beside"]] == ["d", "a"]
    assert [one["spent_before"] for one in found["beside"]] == ["0.8", "0.6"]
    assert "more" not in found
    assert found["text"] == (
        "epsilon 0.9 used + 0.5 asked = 1.4 is more than the limit 1 (dataset b); "
        "epsilon 0.8 used + 0.5 asked = 1.3 is more than the limit 1 (dataset d); "
        "epsilon 0.6 used + 0.5 asked = 1.1 is more than the limit 1 (dataset a)"
    )


def test_what_fits_is_not_listed() -> None:
    """A rule that does not fire lists no account beside the fullest."""
    book = joined({"a": "0.1", "b": "0.2"})
    asked = make("ask_grant", dataset=["a", "b"], mechanisms=[laplace("0.5")], purpose="p")
    [event] = book.ask(asked)
    assert event.type == "grant.reserved.v1"
    assert event.body["rules"]["each"] == {"used": ["200000000", "0"], "dataset": "b"}


def test_a_refusal_lists_ten_accounts_and_counts_the_others() -> None:
    """An event has a size: of one limit ten accounts are told, and how many more there are."""
    names = [f"d{number:02}" for number in range(13)]
    book = joined({name: f"0.{60 + place}" for place, name in enumerate(names)})
    found = rule_of(book, refused(book, names))
    assert [found["dataset"], *(one["dataset"] for one in found["beside"])] == names[:2:-1]
    assert len(found["beside"]) == MOST_BESIDE
    assert found["more"] == 3
    assert found["text"].endswith("; nor does it fit in 3 more accounts")


def test_several_limits_share_the_list() -> None:
    """All limits of a decision together list nine accounts beside those that decide, in the order
    of the policy; the next limits only count theirs.
    """
    names = [f"d{number:02}" for number in range(8)]
    ids = "one", "two", "six"
    rules = "".join(f"  - {{id: {name}, limit: {{epsilon: 1}}}}\n" for name in ids)
    book = joined(dict.fromkeys(names, "0.7"), rules)
    event = refused(book, names)
    each = [rule_of(book, event, name) for name in ids]
    assert [len(one.get("beside", ())) for one in each] == [7, 2, 0]
    assert [one.get("more", 0) for one in each] == [0, 5, 7]
    assert each[2]["text"].endswith("(dataset d00); nor does it fit in 7 other accounts")


def test_the_oracle_lists_the_same() -> None:
    """Plain Python comes to the same list, cell by cell."""
    book, oracle = joined({"a": "0.6", "b": "0.9", "c": "0.8"}, ages=True), Oracle()
    book.record(laplace("0.05"), dataset="a", subjects={"age": ["old"]})
    event = refused(book, ["a", "b", "c"], subjects={"age": ["young", "old"]})
    for stored in book.stored:
        found = oracle.see(type(event).from_bytes(stored), book.state.adopted)
    assert found is not None
    seen, expected = event.body["rules"]["each"], found.rules["each"]
    assert [one["dataset"] for one in seen["beside"]] == ["c", "a"]
    assert seen["beside"][1]["cell"] == [1]
    assert [one["used"] for one in seen["beside"]] == [one["used"] for one in expected["beside"]]


def listed(book: Book, event: Any) -> dict[tuple[str, str], list[dict[str, Any]] | None]:
    """What a refusal lists: by rule and dataset the terms of the cells, None for all."""
    found = book.explained(event).exhausted
    return {(one.rule, name): one.subjects for one in found for name in one.datasets}


def test_a_plain_refusal_lists_its_account_in_a_few_bytes() -> None:
    """What is all is left out: limits, datasets and cells."""
    book = joined({"a": "0.6"})
    event = refused(book, ["a"])
    assert event.body["exhausted"] == [{}]
    assert listed(book, event) == {("each", "a"): None}


def test_the_list_has_all_accounts_of_all_rules() -> None:
    """Beyond the ten that are quoted, too: accounts with the same cells are one entry, under all
    rules of which that is so.
    """
    names = [f"d{number:02}" for number in range(13)]
    rules = RULES + "  - {id: more, limit: {epsilon: 1}}\n  - {id: tight, limit: {epsilon: 0.9}}\n"
    used = {name: f"0.{10 + 5 * place}" for place, name in enumerate(names)}  # 0.1 to 0.7
    book = joined(used, rules)
    event = refused(book, names)
    assert len(event.body["exhausted"]) == 2
    accounts = [("each", name) for name in names if float(used[name]) > 0.5]
    accounts += [("more", name) for name in names if float(used[name]) > 0.5]
    accounts += [("tight", name) for name in names if float(used[name]) > 0.4]
    assert listed(book, event) == dict.fromkeys(accounts)


def test_the_list_says_in_which_cells() -> None:
    """An account that is exhausted in part has the cells, as a group within the request's."""
    book = joined({"a": "0", "b": "0.6"}, ages=True)
    book.record(laplace("0.6"), dataset="a", subjects={"age": ["old"]})
    event = refused(book, ["a", "b"])
    assert event.body["exhausted"] == [
        {"datasets": {"bits": "AQ"}, "subjects": [{"age": ["old"]}]},
        {"datasets": {"bits": "Ag"}},
    ]
    only = refused(book, ["a", "b"], subjects={"age": ["old"]})
    assert only.body["exhausted"] == [{}]


def test_two_hundred_rules_have_a_whole_list() -> None:
    """A policy with as many limits as there may be, each about other datasets, of which some are
    exhausted: the event quotes one of each limit, and lists every account of every limit.
    """
    dice = Random("many rules")  # noqa: S311 (it has to come again)
    names = [f"d{number:02}" for number in range(20)]
    about = {f"r{place}": dice.sample(names, 8) for place in range(MAX_RULES - 1)}
    rules = "  - {id: each, limit: {epsilon: 1}}\n" + "".join(
        f"  - {{id: {rule}, limit: {{epsilon: 1}}, datasets: [{', '.join(few)}]}}\n"
        for rule, few in about.items()
    )
    book = joined({name: dice.choice(["0", "0.7"]) for name in names}, rules)
    event = refused(book, names)
    full = {account.dataset for account in book.state.accounts if account.rule == "each"}
    accounts = {(rule, name) for rule, few in about.items() for name in few if name in full}
    assert listed(book, event).keys() == accounts | {("each", name) for name in full}
    assert len({frozenset(full & {*few}) for few in about.values()}) > 120
    assert len(accounts) > 500
    assert len(canonical(event.body["exhausted"])) < 12_000


def scattered(cells: int, seed: str) -> tuple[Book, list[str], list[list[str]]]:
    """A ledger over so many cells with two datasets, and half of the values, chosen by lot, on
    which each has been used up.
    """
    dice = Random(seed)  # noqa: S311 (it has to come again)
    names = [f"v{number:06}" for number in range(cells)]
    book = Book()
    book.register({"age": names})
    halves = []
    for dataset in ("a", "b"):
        book.dataset(dataset)
    book.policy(RULES)
    for dataset in ("a", "b"):
        half = sorted(dice.sample(names, cells // 2))
        book.record(laplace("0.8"), dataset=dataset, subjects={"age": half})
        halves.append(half)
    return book, names, halves


def test_scattered_cells_are_listed_as_positions() -> None:
    """Of 10^5 cells half are exhausted: the list names each of them, in 17 kB."""
    book, _, (half, _) = scattered(100_000, "cells")
    event = refused(book, ["a"])
    [(_, [term])] = listed(book, event).items()
    assert term == {"age": half}
    assert len(canonical(event.body["exhausted"])) < 17_000


def test_a_list_without_room_says_that_cells_are_left_out() -> None:
    """A list has a size: accounts are always there, cells as long as there is room."""
    book, _, (half, _) = scattered(100_000, "cells")
    event = refused(book, ["a", "b"])
    first, second = book.explained(event).exhausted
    assert (first.datasets, first.subjects, first.part) == (("a",), [{"age": half}], False)
    assert (second.datasets, second.subjects, second.part) == (("b",), None, True)
    assert len(canonical(event.body["exhausted"])) < exhausted.MOST_BYTES
    assert not book.replayed().findings


def test_an_event_without_room_has_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that many rules leave no room is recorded as it is; such an event is long."""
    names = [f"d{number:02}" for number in range(13)]
    monkeypatch.setattr(exhausted, "MAX_BYTES", 3_000)
    book = joined({name: f"0.{60 + place}" for place, name in enumerate(names)})
    event = refused(book, names)
    assert "exhausted" not in event.body
    assert book.explained(event).exhausted == ()
