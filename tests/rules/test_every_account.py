"""A refusal names every account in which the charge does not fit."""

from __future__ import annotations

from typing import Any

from oracle import Oracle
from support import Book, laplace, make

from accountant.budget.rules.comparing import MOST_BESIDE

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
