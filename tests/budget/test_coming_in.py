"""Open grants, when their dataset comes into the scope of a limit across datasets over a span."""

from __future__ import annotations

from typing import Any

import pytest
from support import SECOND, Book, hospital, laplace, make, sums_agree

from accountant.budget.commands import Envelope
from accountant.budget.facts import grant_in
from accountant.budget.outcome import CHARGING, REGISTERED
from accountant.ledger.events import Event

HOUR = 3_600 * SECOND
RULES = """
  - {id: wide, limit: {epsilon: 10}}
  - {id: lately, window: 4h, across: datasets, labels: {risk: high}, limit: {epsilon: 2}}
  - {id: today, refresh: daily, across: datasets, labels: {risk: high}, limit: {epsilon: 2}}
"""


def labelled(risk: str) -> Any:
    """The registration of d with this label."""
    return make("register_dataset", id="d", namespace="n", name="d", labels={"risk": risk})


def opened() -> tuple[Book, str]:
    """A grant of 0.5 on d, which is in the scope of no total; and 0.25 that ran."""
    book = hospital(RULES, {"sex": ["f", "m"]})
    book.record(laplace("0.25"), subjects={"sex": ["f"]})
    return book, grant_in(book.grant(laplace("0.5"), ttl_seconds=172_800))


def used(book: Book, rule: str) -> list[int]:
    """Hundredths of epsilon that the total of a rule has now, by cell."""
    account = book.state.seen(book.key(rule, "*"))
    account.at(book.now)
    return [cell[0] // 10**7 for cell in book.used(rule, "*")]


@pytest.mark.parametrize(("rule", "hours", "after"), [("lately", 4, 2), ("today", 24, 12)])
def test_what_is_spent_after_its_dataset_came_in_counts_from_then_on(
    rule: str, hours: int, after: int
) -> None:
    """A grant that was open when its dataset came into a total over a span is held in it for as
    long as it is open, and counts there from when it is spent: not from when the dataset came in.
    """
    book, grant = opened()
    [event] = book.ask(labelled("high"), "admin")
    assert (event.type, event.body["moved"]) == (CHARGING, ["lately", "today"])
    assert used(book, rule) == [75, 50]
    book.now += hours * HOUR
    assert used(book, rule) == [50, 50]
    book.do("commit_grant", grant=grant)
    book.now += after * HOUR // 2
    assert used(book, rule) == [50, 50]
    book.now += hours * HOUR
    assert used(book, rule) == [0, 0]
    sums_agree(book)
    assert book.replayed().findings == []


def test_what_such_a_grant_gives_back_is_given_back() -> None:
    """A grant that holds something in the total gives it back there."""
    book, grant = opened()
    book.ask(labelled("high"), "admin")
    book.do("release_grant", grant=grant, reason="not run")
    assert used(book, "lately") == used(book, "today") == [25, 0]
    sums_agree(book)
    assert book.replayed().findings == []


def test_an_event_of_before_counts_as_it_did() -> None:
    """Where a version before 0.3 let the dataset come in, open grants count as spent then."""
    book, grant = opened()
    [event] = book._take(Envelope("admin", labelled("high"), charges=False))
    assert event.type == REGISTERED
    book.now += 4 * HOUR
    book.do("commit_grant", grant=grant)
    assert used(book, "lately") == [0, 0]
    sums_agree(book)
    assert book.replayed().findings == []


def test_without_open_grants_the_event_is_as_it_was() -> None:
    """A registration that moves no reservation into a total over a span is of the first type."""
    book, grant = opened()
    book.do("commit_grant", grant=grant)
    assert book.ask(labelled("high"), "admin")[0].type == REGISTERED
    assert Event.from_bytes(book.stored[-1]).body.keys() == {"command"}


def test_a_window_counts_what_is_asked_for_since_it_was_adopted() -> None:
    """A grant that was open when a window was adopted is not among what it counts, as the page of
    rules says, also when it runs later; the lifetime has it.
    """
    book = hospital("  - {id: wide, limit: {epsilon: 10}}\n")
    grant = grant_in(book.grant(laplace("0.5")))
    book.policy(
        "  - {id: wide, limit: {epsilon: 10}}\n  - {id: new, window: 4h, limit: {epsilon: 2}}\n"
    )
    book.do("commit_grant", grant=grant)
    assert used_of(book, "new") == [0]
    assert used_of(book, "wide") == [50]
    assert book.replayed().findings == []


def used_of(book: Book, rule: str) -> list[int]:
    """Hundredths of epsilon that a rule counts on d, by cell."""
    return [cell[0] // 10**7 for cell in book.used(rule, "d")]
