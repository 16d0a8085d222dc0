"""How much is taken on one client's word, and that a second person has to confirm more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import (
    SECOND,
    Book,
    World,
    ask,
    gaussian,
    hospital,
    laplace,
    make,
    proposed,
    snapshot,
    sparse_vector,
)

from accountant.budget.apply import keep_journal, rollback
from accountant.budget.errors import Forbidden
from accountant.budget.facts import grant_in
from accountant.budget.snapshot import dump, load

RULES = "  - {id: a, limit: {epsilon: 9, delta: 1e-6}}\n"
WORD = RULES + "  - {id: word, trusted: {epsilon: 0.5}}\n"
FLAG = RULES + "  - {id: word, trusted: {epsilon: 0.5}, action: flag}\n"


def release(book: Book, epsilon: str, by: str = "pipe", **more: Any) -> Any:
    """Reserves, and gives all of it back; the event."""
    grant = book.do("ask_grant", by, dataset="d", mechanisms=[laplace(epsilon)])
    return book.do("release_grant", by, grant=grant_in(grant), reason="it never ran", **more)


def test_more_than_the_amount_is_proposed() -> None:
    """What one client gives back in all; the grant stays open, and another client has its own."""
    book = hospital(WORD)
    release(book, "0.3")
    release(book, "0.2")
    event = proposed(release(book, "0.000000001"), "epsilon 0.000000001 .* by word")
    assert event.body["effect"] == {"rules": ["word"], "back": "0.000000001"}
    assert len(book.state.open) == 1
    release(book, "0.5", by="other")
    assert book.replayed().findings == []


def test_what_a_second_person_confirms_does_not_count() -> None:
    """It is nobody's word alone; the client itself confirms nothing."""
    book = hospital(WORD)
    release(book, "0.5")
    for _ in range(3):
        event = release(book, "0.4", confirmed_by="officer")
        assert (event.by, event.type) == ("officer", "grant.released.v1")
        assert event.body["command"]["confirms"]["proposer"] == "pipe"
    with pytest.raises(Forbidden, match="pipe proposed this"):
        release(book, "0.1", confirmed_by="pipe")
    assert book.state.memories == {"word": {"pipe": 500_000_000}}
    assert book.replayed().findings == []


def test_parts_and_positives_count_too() -> None:
    """What was reserved and not run, and positives that a session never counted."""
    book = hospital(WORD)
    grant = grant_in(book.grant(laplace("0.1", 6)))
    book.do("commit_grant", grant=grant, mechanisms=[laplace("0.1", 2)])
    session = grant_in(book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector()))
    book.do("close_sparse_vector", grant=session)
    assert book.state.memories == {"word": {"pipe": 500_000_000}}
    grant = grant_in(book.grant(laplace("0.1", 6)))
    proposed(book.do("commit_grant", grant=grant, mechanisms=[laplace("0.1", 2)]))
    book.do("commit_grant", grant=grant)


def test_what_expires_gives_nothing_back() -> None:
    """It is charged in full."""
    book = hospital(WORD)
    grant = grant_in(book.grant(laplace("0.9"), ttl_seconds=60))
    book.now += 61 * SECOND
    book.do("expire_grant", ":accountant", grant=grant)
    assert book.state.memories["word"] is None


def test_a_flag_lets_it_through_and_marks_it() -> None:
    """The event names the rule; the next ones are marked too."""
    book = hospital(FLAG)
    assert "fired" not in release(book, "0.5").body
    for _ in range(2):
        assert release(book, "0.1").body["fired"] == [["word", "approval-needed"]]
    assert book.replayed().findings == []


def test_no_finite_epsilon_is_more_than_any() -> None:
    """Gaussian noise without a delta needs an approval; flagged, so does everything after it."""
    book = hospital(FLAG)
    grant = grant_in(book.grant(gaussian("0.1")))
    event = book.do("release_grant", grant=grant, reason="it never ran")
    assert event.body["fired"] == [["word", "approval-needed"]]
    assert release(book, "0.000001").body["fired"]


def test_a_changed_amount_counts_on() -> None:
    """What was given back stays given back, under another amount and another action."""
    book = hospital(WORD)
    release(book, "0.4")
    book.policy(FLAG.replace("0.5", "0.45"), confirmed_by="officer")
    assert release(book, "0.1").body["fired"]


def test_an_item_of_a_batch_needs_one_alone() -> None:
    """A batch carries no approval: nothing of it happens, and the amount is as it was."""
    book = hospital(WORD)
    held = [grant_in(book.grant(laplace("0.3"))) for _ in range(2)]
    before = snapshot(book.state), book.state.memories
    items = [make("release_grant", grant=one, reason="never run") for one in held]
    with pytest.raises(Forbidden):
        book.batch(*items)
    assert (snapshot(book.state), book.state.memories) == before
    book.batch(items[0])
    assert book.state.memories == {"word": {"pipe": 300_000_000}}


@given(st.lists(st.tuples(st.sampled_from(["pipe", "one"]), st.integers(1, 400)), max_size=12))
def test_no_client_gives_back_more_than_the_amount(todo: list[tuple[str, int]]) -> None:
    """Whatever is tried: what went through is the longest prefix that fits, by client."""
    book, given_back = hospital(WORD), {"pipe": 0, "one": 0}
    for by, thousandths in todo:
        fits = given_back[by] + thousandths <= 500
        released = release(book, f"0.{thousandths:03}", by).type == "grant.released.v1"
        assert released == fits
        given_back[by] += thousandths * fits
    assert book.replayed().findings == []
    assert load("fair", b"".join(dump(book.state))).memories == book.state.memories


def test_a_release_that_is_rolled_back_is_forgotten() -> None:
    """A failed commit leaves the amount as it was."""
    book = hospital(WORD)
    release(book, "0.1")
    keep_journal(book.state)
    memories = book.state.memories
    release(book, "0.2")
    assert rollback(book.state)
    assert book.state.memories == memories


def test_it_is_confirmed_in_a_request_of_its_own(world: Callable[..., World]) -> None:
    """The client is told of the proposal; another officer's key confirms it."""
    made = world().hospital(WORD)
    grant = made.post("/grants", ask(laplace("0.8"))).json()["id"]
    path, body = f"/grants/{grant}/release", {"reason": "it never ran"}
    answer = made.post(path, body)
    assert (answer.status_code, answer.json()["effect"]["back"]) == (202, "0.8")
    assert made.post(path, body | {"confirms": {}}).status_code == 422
    assert made.confirm(answer, who="officer").status_code == 200
    shown = made.get(f"/grants/{grant}").json()
    assert shown["state"] == "released"


def test_a_flag_stands_in_the_answer(world: Callable[..., World]) -> None:
    """As in the answer to a request."""
    made = world().hospital(FLAG)
    grant = made.post("/grants", ask(laplace("0.8"))).json()["id"]
    answer = made.post(f"/grants/{grant}/release", {"reason": "it never ran"}).json()
    assert answer["flags"] == [{"rule": "word", "code": "approval-needed"}]
