"""What a wait leaves in evidence: the second verifier, the fleet's tables, backtests, words."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from support import SECOND, START, Book, audited, laplace, make

from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Conflict, Forbidden, Invalid
from accountant.budget.facts import grant_in
from accountant.budget.policy_file import parse_policy
from accountant.budget.state import State
from accountant.budget.trials.backtest import Backtest
from accountant.budget.waiting import queue
from accountant.ledger.events import Event
from accountant.publishing.fleet.changes import ChargeSums, applied


def book_of(most: int = 2) -> Book:
    """A ledger with one dataset under one limit."""
    book = Book()
    book.register()
    book.dataset("d")
    book.policy(f"  - {{id: a, limit: {{epsilon: {most}}}}}\n")
    return book


def waited() -> Book:
    """A ledger in which one request was admitted in part, one times out, and one is cancelled."""
    book = book_of()
    first = grant_in(book.grant(laplace(2)))
    book.grant(laplace("0.5", 6), wait="7d", at_least=2, purpose="to see", by="one")
    book.grant(laplace(1), wait=60, by="two")
    gone = book.grant(laplace(1), wait="2h", by="three")
    book.do("release_grant", grant=grant_in(gone), reason="not needed", by="three")
    book.do("release_grant", grant=first, reason="not run")
    book.now += 61 * SECOND
    [late] = book.state.waiting.due(book.now, 9)
    book.ask(late.timing_out(), by=SYSTEM)
    return book


def tampered(book: Book, kind: str, **changes: Any) -> list[str]:
    """What the second verifier says once the command of the event of ``kind`` says otherwise."""
    for at, entry in enumerate(book.stored):
        document = orjson.loads(entry)
        if document["type"] == kind:
            document["command"] |= changes
            book.stored[at] = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    return [one["reason"] for one in audited(book).findings]


def test_the_second_verifier_follows_a_wait() -> None:
    """It takes what was admitted in part, timed out or cancelled without a finding."""
    book = waited()
    kinds = [Event.from_bytes(entry).type for entry in book.stored]
    assert kinds[-4:] == [
        "grant.cancelled.v1",
        "grant.released.v1",
        "grant.admitted.v1",
        "grant.timed_out.v1",
    ]
    assert audited(book).findings == []


@pytest.mark.parametrize(
    "changes",
    [
        {"grant": "g6"},
        {"client": "two"},
        {"request": {"dataset": "d", "mechanisms": [laplace("0.5", 7)], "type": "ask_grant"}},
        {"request": {"dataset": "d", "mechanisms": [laplace("0.4", 4)], "type": "ask_grant"}},
    ],
)
def test_the_second_verifier_finds_another_admission(changes: dict[str, Any]) -> None:
    """It finds who was admitted for another, and more, or something else, than was asked for."""
    assert tampered(waited(), "grant.admitted.v1", **changes)


def test_the_second_verifier_finds_a_wait_that_ends_twice() -> None:
    """It finds a request that was admitted again."""
    book = waited()
    [admitted] = [e for e in book.stored if b'"grant.admitted.v1"' in e]
    document = orjson.loads(admitted) | {"sequence": len(book.stored)}
    document["time"] = orjson.loads(book.stored[-1])["time"]
    book.stored.append(orjson.dumps(document, option=orjson.OPT_SORT_KEYS))
    assert [one for one in audited(book).findings if "g5" in one["reason"]]


def test_the_second_verifier_finds_who_overtook_an_equal() -> None:
    """Of two equal requests of one client the first is admitted first, whatever the order."""
    book = book_of()
    first = grant_in(book.grant(laplace(2)))
    one, two = (grant_in(book.grant(laplace(2), wait="7d")) for _ in range(2))
    book.do("release_grant", grant=first, reason="not run")
    assert audited(book).findings == []
    assert book.state.waiting.requests.keys() == {two}
    assert "it overtakes an equal" in tampered(book, "grant.admitted.v1", grant=two)[0]
    assert one


def test_the_fleets_charges_add_up() -> None:
    """The rows of an admission are those of a grant, and a wait has none."""
    book, sums = waited(), ChargeSums()
    state = State(book.name)
    for entry in book.stored:
        changes = applied(state, Event.from_bytes(entry))
        assert changes or b'"grant.admitted.v1"' not in entry
        assert not changes or b'"grant.waiting.v1"' not in entry
        for change in changes:
            sums.add(change)
    sums.agree(state)


def test_a_decision_on_a_wait_is_told() -> None:
    """A wait, an admission and a time-out are told as the decisions on a request that they are."""
    book = waited()
    told = {}
    for entry in book.stored:
        event = Event.from_bytes(entry)
        if event.type in ("grant.waiting.v1", "grant.admitted.v1", "grant.timed_out.v1"):
            told[event.type] = book.decision(event)
    assert told["grant.waiting.v1"]["outcome"] == "block"
    assert told["grant.admitted.v1"]["outcome"] == "allow"
    [rule] = [one for one in told["grant.timed_out.v1"]["rules"] if one["fired"]]
    assert rule["spent_before"] == "2"
    assert rule["spent_after"] == "3"


def test_a_backtest_asks_what_waited_once() -> None:
    """Under another policy a request is asked when its wait ended, and waits no longer."""
    book = waited()
    other, _ = parse_policy("policy: p\nrules:\n  - {id: a, limit: {epsilon: 9}}\n")
    events = [Event.from_bytes(entry) for entry in book.stored]
    state = State(book.name)
    trial = Backtest(state)
    for event in events[:3]:
        applied(state, event)
    trial.adopt(other, START)
    found = list(trial.compare(events[3:]))
    assert [(one.by, one.then.outcome, one.now.outcome) for one in found] == [
        ("pipe", "allow", "allow"),
        ("one", "allow", "allow"),
        ("two", "block", "allow"),
    ]


def test_nothing_runs_on_a_wait() -> None:
    """A request that waits cannot be committed, and only its client can cancel it."""
    book = book_of()
    book.grant(laplace(2))
    name = grant_in(book.grant(laplace(1), wait="1d"))
    with pytest.raises(Conflict, match="waits until"):
        book.do("commit_grant", grant=name)
    with pytest.raises(Forbidden):
        book.do("release_grant", grant=name, reason="not mine", by="other")
    book.now += 86_400 * SECOND
    with pytest.raises(Conflict, match="is refused"):
        book.do("release_grant", grant=name, reason="too late")


def test_what_was_admitted_is_settled_by_its_own_name() -> None:
    """A request that was admitted says which grant it became."""
    book = book_of()
    first = grant_in(book.grant(laplace(2)))
    name = grant_in(book.grant(laplace(1), wait="1d"))
    book.do("release_grant", grant=first, reason="not run")
    grant = grant_in(Event.from_bytes(book.stored[-1]))
    with pytest.raises(Conflict, match=f"admitted as grant {grant}"):
        book.do("commit_grant", grant=name)
    assert book.do("commit_grant", grant=grant).type == "grant.committed.v1"


@pytest.mark.parametrize(
    "more",
    [
        {"wait": 0},
        {"wait": "31d"},
        {"wait": "soon"},
        {"at_least": 1},
        {"wait": 5, "at_least": 3},
        {"wait": 5, "at_least": 0},
    ],
)
def test_a_wait_has_bounds(more: dict[str, Any]) -> None:
    """A wait is a second to thirty days long; at_least is below the count of one mechanism."""
    with pytest.raises(ValueError, match="validation error"):
        book_of().grant(laplace("0.5", 3), **more)


def test_an_item_of_a_batch_does_not_wait() -> None:
    """A batch is answered as a whole and at once."""
    book = book_of()
    item = make("ask_grant", dataset="d", mechanisms=[laplace(1)], wait=60)
    with pytest.raises(Invalid, match="no item of it waits"):
        book.batch(item)


def test_what_a_wait_cannot_cure_is_refused_at_once() -> None:
    """A request that another rule than a limit blocks, or that never fits, does not wait."""
    book = book_of()
    book.policy("  - {id: a, limit: {epsilon: 2}}\n  - {id: no, mechanisms: [laplace]}\n")
    assert book.grant(laplace(1), wait=60).type == "grant.refused.v1"
    book = book_of()
    never = book.grant(laplace(3), wait=60)
    assert (never.type, never.body["never"]) == ("grant.refused.v1", ["a"])


def test_too_many_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many requests of one client wait, and so many in all; one more is told why."""
    monkeypatch.setattr(queue, "MOST_OF_ONE", 2)
    monkeypatch.setattr(queue, "MOST", 3)
    book = book_of()
    book.grant(laplace(2))
    for _ in range(2):
        book.grant(laplace(1), wait=60)
    with pytest.raises(Conflict, match="most of pipe is 2"):
        book.grant(laplace(1), wait=60)
    book.grant(laplace(1), wait=60, by="other")
    with pytest.raises(Conflict, match="most of this population is 3"):
        book.grant(laplace(1), wait=60, by="third")
    book.do("release_grant", grant=min(book.state.waiting.requests), reason="not needed")
    assert book.grant(laplace(1), wait=60, by="third").type == "grant.waiting.v1"


def test_what_could_not_be_admitted_for_its_size_does_not_wait() -> None:
    """A request whose admission might not fit in an event is told so."""
    book = book_of()
    book.grant(laplace(2))
    with pytest.raises(Invalid, match="bytes of an event"):
        book.grant(*[laplace("0.01")] * 30, wait=60)
