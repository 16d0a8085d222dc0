"""The rule kind that CONTRIBUTING.md shows works as it stands there, wherever rules are asked."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import SECOND, Book, hospital, laplace, make

from accountant.budget.evaluate import evaluate
from accountant.budget.request import prepare
from accountant.budget.rules import KINDS
from accountant.budget.rules.base import Rule, View

PAGE = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
[CODE] = re.findall(r"^```python\n(.+?)^```", PAGE, re.DOTALL | re.MULTILINE)
[RULES] = re.findall(r"^```yaml\n(.+?)^```", PAGE, re.DOTALL | re.MULTILINE)
ALLOWED = 3
"""Grants that the example's policy allows a client within an hour."""


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> type[Rule]:
    """The example, registered as a line in ``KINDS`` would."""
    module = ModuleType("rate_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(CODE, "CONTRIBUTING.md", "exec"), vars(module))  # noqa: S102 our own page
    [found] = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Rule) and value is not Rule
    ]
    monkeypatch.setitem(KINDS, found.field, found)
    return found


@pytest.fixture
def book(kind: type[Rule]) -> Book:
    """A ledger under the example's policy."""
    return hospital(RULES)


def ask(book: Book, by: str = "pipe") -> str:
    """Asks for a grant; the event's type."""
    event = book.ask(make("ask_grant", dataset="d", mechanisms=[laplace("0.01")]), by)[-1]
    return str(event.type)


def test_the_rule_blocks_live(book: Book) -> None:
    """A client gets as many grants as the rule allows, then none until time has passed; another
    client has a rate of its own.
    """
    assert [ask(book) for _ in range(5)] == ["grant.reserved.v1"] * ALLOWED + [
        "grant.refused.v1"
    ] * 2
    assert ask(book, "other") == "grant.reserved.v1"
    book.now += 3_600 * SECOND
    assert ask(book) == "grant.reserved.v1"


def test_the_refusal_is_explained(book: Book, kind: type[Rule]) -> None:
    """The words of the decision are made from what the event keeps."""
    for _ in range(ALLOWED + 1):
        event = book.grant(laplace("0.01"))
    assert event.body["fired"] == [["rate", kind.code]]
    assert event.body["rules"]["rate"] == {"lately": ALLOWED}
    [told] = [rule for rule in book.decision(event)["rules"] if rule["rule"] == "rate"]
    assert told["text"] == "client pipe had 3 of 3 grants in 3600 s"


def test_the_rule_blocks_in_a_batch(book: Book) -> None:
    """Items count one after another: a batch that fits goes, one that does not goes nowhere, and
    the rule remembers nothing of it.
    """
    one = make("ask_grant", dataset="d", mechanisms=[laplace("0.01")])
    assert book.batch(one, one)[0].type == "batch.opened.v1"
    before = book.state.memories
    [refused] = book.batch(one, one)
    assert (refused.type, refused.body["item"]) == ("batch.refused.v1", 1)
    assert book.state.memories == before
    assert ask(book) == "grant.reserved.v1"
    assert ask(book) == "grant.refused.v1"


def test_replay_asks_the_rule(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay comes to the same events and the same memory; a ledger that did not ask the rule has
    findings.
    """
    for _ in range(5):
        ask(book)
    replayed = book.replayed()
    assert replayed.findings == []
    assert replayed.state.memories == book.state.memories
    careless = hospital(RULES)
    with monkeypatch.context() as patch:
        patch.setattr(KINDS["grants"], "compare", lambda *_: None)
        for _ in range(5):
            ask(careless)
    assert len(careless.replayed().findings) == 5


def test_the_rule_reads_what_it_declares(
    book: Book, kind: type[Rule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``compare`` looks at no other part of the view than ``reads`` names."""
    command = make("ask_grant", dataset="d", mechanisms=[laplace("0.01")])
    request = prepare(book.state, "pipe", command, book.now)
    looked: set[str] = set()

    class Watched:
        def __init__(self, view: View) -> None:
            self._view = view

        def __getattr__(self, name: str) -> Any:
            looked.add(name)
            return getattr(self._view, name)

    compare = kind.compare
    monkeypatch.setattr(kind, "compare", lambda rule, view: compare(rule, Watched(view)))
    evaluate(book.state, request)
    assert looked == kind.reads
