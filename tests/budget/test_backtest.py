"""What another policy would have said: every later request decided again, nothing assumed twice."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support import Book, gaussian, hospital, make

from accountant.budget.apply import fold
from accountant.budget.policy_file import parse_policy
from accountant.budget.trials.backtest import Answer, Backtest, Compared, tally
from accountant.ledger.events import Event

TENTH = {"kind": "laplace", "sensitivity": "1", "scale": "10"}
HALF = {"kind": "laplace", "sensitivity": "1", "scale": "2"}
LIMIT = "  - {{id: a, limit: {{epsilon: {0}}}}}\n"
ALLOW, BLOCK = Answer("allow"), Answer("block", "a")


def under(book: Book, rules: str, start: int) -> tuple[Backtest, list[Compared]]:
    """The events of ``book`` from ``start`` on, under a policy of ``rules``."""
    policy, _ = parse_policy("policy: other\nrules:\n" + rules)
    events = list(map(Event.from_bytes, book.stored))
    found = Backtest(fold(book.name, events[:start]))
    found.adopt(policy, book.now)
    return found, list(found.compare(events[start:]))


def answers(compared: list[Compared]) -> list[tuple[Answer, Answer]]:
    """What each request was told, and would be told."""
    return [(one.then, one.now) for one in compared]


def test_a_tighter_limit_refuses_what_no_longer_fits() -> None:
    """Ten grants of 0.1 under limit 1 are three under limit 0.3, with what ran before counted."""
    book = hospital(LIMIT.format(1))
    start = len(book.stored)
    for _ in range(10):
        grant = book.grant(TENTH)
        book.do("commit_grant", grant=f"g{grant.sequence}")
    found, compared = under(book, LIMIT.format("0.3"), start)
    assert answers(compared) == [(ALLOW, ALLOW)] * 3 + [(ALLOW, BLOCK)] * 7
    assert found.most_used() == {"a": "0.3"}
    middle = start + 4  # two of them ran before
    assert answers(under(book, LIMIT.format("0.3"), middle)[1])[:2] == [
        (ALLOW, ALLOW),
        (ALLOW, BLOCK),
    ]


def test_what_would_be_granted_runs_in_full() -> None:
    """Two refusals under limit 1 fit limit 2 and are charged there, so a third does not fit."""
    book = hospital(LIMIT.format(1))
    start = len(book.stored)
    for _ in range(5):
        grant = book.grant(HALF)
        if grant.type == "grant.reserved.v1":
            book.do("commit_grant", grant=f"g{grant.sequence}")
    _, compared = under(book, LIMIT.format(2), start)
    assert answers(compared) == [(ALLOW, ALLOW)] * 2 + [(BLOCK, ALLOW)] * 2 + [(BLOCK, BLOCK)]


def test_what_was_used_is_told_by_the_gate_of_each_limit() -> None:
    """Ten times normal noise of mu 0.1, which has no epsilon of its own, are less than 1 by rho."""
    limit = "  - {{id: a, gate: {}, limit: {{epsilon: {}, delta: 1e-6}}}}\n"
    book = hospital(limit.format("zcdp", 3))
    start = len(book.stored)
    for _ in range(10):
        book.record(gaussian("0.1"))
    found, compared = under(book, limit.format("zcdp", 4), start)
    assert len(answers(compared)) == 10
    assert 1 < float(found.most_used()["a"]) < 3
    found, _ = under(book, limit.format("renyi", 4), start)
    assert 1 < float(found.most_used()["a"]) < 3


def test_what_is_given_back_is_given_back_here_too() -> None:
    """A released grant and the part of a grant that did not run cost nothing in either ledger."""
    book = hospital(LIMIT.format(1))
    start = len(book.stored)
    for _ in range(3):
        grant = book.grant(TENTH, TENTH)
        book.do("commit_grant", grant=f"g{grant.sequence}", mechanisms=[TENTH])
        grant = book.grant(HALF)
        book.do("release_grant", grant=f"g{grant.sequence}", reason="nothing ran")
    found, compared = under(book, LIMIT.format("0.8"), start)
    assert [one.now for one in compared] == [ALLOW] * 6
    assert found.most_used() == {"a": "0.3"}


def test_a_batch_stays_all_or_nothing() -> None:
    """A batch of three that does not fit whole is refused whole, and its commits are left out."""
    book = hospital(LIMIT.format(1))
    start = len(book.stored)
    asked = make("ask_grant", dataset="d", mechanisms=[TENTH])
    book.batch(asked, asked, asked)
    open_ = [f"g{one.sequence}" for one in map(Event.from_bytes, book.stored[start + 1 :])]
    book.batch(*(make("commit_grant", grant=name) for name in open_), asked)
    found, compared = under(book, LIMIT.format("0.2"), start)
    assert answers(compared) == [(ALLOW, BLOCK)] * 3 + [(ALLOW, ALLOW)]
    assert found.most_used() == {"a": "0.1"}
    _, compared = under(book, LIMIT.format("0.4"), start)
    assert [one.now for one in compared] == [ALLOW] * 4


def test_other_rules_and_records_are_compared() -> None:
    """A record is never refused; a rule on kinds refuses what it denies; all is counted."""
    book = hospital(LIMIT.format(1))
    start = len(book.stored)
    book.record(TENTH)
    book.grant(HALF)
    book.policy(LIMIT.format("0.5"))  # adopted later, and left out here
    rules = LIMIT.format("0.05") + "  - {id: no, mechanisms: [laplace], action: block}\n"
    _, compared = under(book, rules, start)
    assert [one.now.outcome for one in compared] == ["flag", "block"]
    total, changed = tally(compared)
    assert (total.requests, len(changed)) == (2, 2)
    assert total.clients == {("pipe", "flag"): 1, ("pipe", "block"): 1}


step = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from([TENTH, HALF])),
    st.tuples(st.sampled_from(["commit", "release", "late"]), st.integers(0, 5)),
    st.tuples(st.just("record"), st.sampled_from([TENTH, HALF])),
)


def play(book: Book, todo: list[Any]) -> None:
    """Grants, their ends, and records."""
    granted: list[str] = []
    for kind, what in todo:
        book.now += 1_000_000
        if kind == "ask":
            event = book.grant(what, ttl_seconds=60)
            granted += [f"g{event.sequence}"] if event.type == "grant.reserved.v1" else []
        elif kind == "record":
            book.record(what)
        elif granted:
            name = granted.pop(what % len(granted))
            if kind == "commit":
                book.do("commit_grant", grant=name)
            elif kind == "release" and not book.state.open[name].due(book.now):
                book.do("release_grant", grant=name, reason="nothing ran")
            else:
                book.now += 61_000_000
                book.do("expire_grant", "service:clock", grant=name)


@given(st.lists(step, max_size=25), st.integers(0, 30))
def test_the_same_policy_says_the_same(todo: list[Any], cut: int) -> None:
    """Under the policy in force every answer is what it was, and the sums are those of the ledger,
    wherever the period begins.
    """
    rules = LIMIT.format(1) + "  - {id: half, of: a, at: 50%}\n"
    book = hospital(rules)
    start = len(book.stored)
    play(book, todo)
    found, compared = under(book, rules, min(start + cut, len(book.stored)))
    assert all(one.then == one.now for one in compared)
    assert found.state.account(book.key()).used == book.account().used
