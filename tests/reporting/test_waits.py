"""The report's sections on who waits, on contexts, and on what quotas leave."""

from __future__ import annotations

import json
from typing import Any

from support import Book, hospital, laplace

from accountant.budget.facts import grant_in
from accountant.privacy.units import Charge
from accountant.reporting.files import rendered
from accountant.reporting.model import build_report
from accountant.reporting.schema import Report
from accountant.reporting.waits import MOST_RELAXED, MOST_WAITS, Relaxing
from accountant.store.ledgers import Stored

WHEN = '{when: {purposes: [alarm]}, epsilon: 3, why: "an outbreak"}'
LIMIT = f"  - {{id: all, limit: {{epsilon: 2}}, relaxed: [{WHEN}]}}\n"
EACH = "  - {id: each, per: purpose, limit: {epsilon: 1}, action: block}\n"


def ask(book: Book, epsilon: str, by: str = "pipe", **more: Any) -> Any:
    """The answer to a request."""
    return book.do("ask_grant", by, dataset="d", mechanisms=[laplace(epsilon)], **more)


def reported(book: Book) -> Report:
    """The report of a ledger in memory."""
    rows = [Stored(sequence, body, b"") for sequence, body in enumerate(book.stored)]
    return build_report(book.name, rows)


def test_who_waits_is_listed_with_what_holds_it_up() -> None:
    """Who, what for, since when, until when, and by which rules in words."""
    book = hospital(LIMIT, {"age": ["17", "22"]})
    ask(book, "1.5")
    ask(book, "1", "other", wait=3_600, subjects={"age": ["22"]}, purpose="alarm!")
    report = reported(book)
    [one] = report.waits.listed
    assert (report.waits.total, one.client, one.dataset, one.subjects) == (
        1,
        "other",
        "d",
        "age: 22",
    )
    assert (one.epsilon, one.rules, one.since[:10]) == ("1", ("all",), "2026-09-21")
    assert one.until > one.since
    assert one.held_up_by.startswith("epsilon 1.5 used + 1 asked = 2.5 is more than the limit 2")
    page = rendered(report, "html")
    assert "Who waits: 1" in page
    assert one.held_up_by.split(" (")[0] in page


def test_no_more_than_some_are_listed() -> None:
    """All that wait are counted."""
    book = hospital(LIMIT)
    ask(book, "2")
    for _ in range(MOST_WAITS + 2):
        ask(book, "0.1", wait=3_600)
    report = reported(book)
    assert (report.waits.total, len(report.waits.listed)) == (MOST_WAITS + 2, MOST_WAITS)
    assert f"The first {MOST_WAITS} of {MOST_WAITS + 2} are listed" in rendered(report, "html")


def test_who_does_not_wait_any_more_is_not_listed() -> None:
    """Admitted, cancelled or timed out."""
    book = hospital(LIMIT)
    first = grant_in(ask(book, "2"))
    ask(book, "1", wait=3_600)
    book.do("release_grant", grant=first, reason="not run")
    report = reported(book)
    assert report.waits.total == 0
    assert "Who waits" not in rendered(report, "html")


def test_what_a_context_let_in_is_counted_by_client() -> None:
    """With the amount that was asked for; what fitted the usual amount is not."""
    book = hospital(LIMIT)
    ask(book, "2", purpose="alarm")
    ask(book, "0.25", purpose="alarm")
    ask(book, "0.5", "other", purpose="alarm")
    ask(book, "9", "other", purpose="alarm")
    report = reported(book)
    rows = [(one.rule, one.client, one.requests, one.epsilon) for one in report.relaxed]
    assert rows == [("all", "other", 1, "0.5"), ("all", "pipe", 1, "0.25")]
    flagged = next(seen for seen in report.notable if seen.sort == "flagged")
    assert flagged.total == 2
    page = rendered(report, "html")
    assert "Let in by a context" in page
    assert report.limits[0].meaning.limit == build_meaning("3")


def build_meaning(epsilon: str) -> str:
    """What a limit of so much promises, in words."""
    book = hospital(f"  - {{id: all, limit: {{epsilon: {epsilon}}}}}\n")
    return reported(book).limits[0].meaning.limit


def test_clients_beyond_a_number_share_a_row() -> None:
    """The table has a bound."""
    relaxing, cost = Relaxing(), Charge.from_json({"epsilon": "1", "delta": "0"})
    for number in range(MOST_RELAXED + 5):
        relaxing.take([("a", "limit-relaxed"), ("b", "other")], f"c{number:04}", cost)
    rows = relaxing.facts()
    assert len(rows) == MOST_RELAXED + 1
    assert (rows[0].client, rows[0].requests) == ("", 5)


def test_the_policy_says_what_quotas_leave_and_who_may_use_more() -> None:
    """The bound on depletion and the contexts, in words and as JSON."""
    report = reported(hospital(LIMIT + EACH))
    assert report.policy is not None
    assert report.policy.depletion == (
        "each: each listed purpose, like all other requests together, can use up at most 50 % "
        "of limit all on "
        "each cell, and the 2 of them 100 % together",
    )
    assert report.policy.relaxed == (
        "all: Requests for the purpose “alarm” may bring it to epsilon 3 instead of epsilon 2 (an "
        "outbreak); then all others are refused until the limit is raised",
    )
    document = json.loads(rendered(report, "json"))
    assert document["policy"]["relaxed"] == list(report.policy.relaxed)
    page = rendered(report, "html")
    assert "How much of a limit can be used up" in page
    assert "Who may use more" in page
