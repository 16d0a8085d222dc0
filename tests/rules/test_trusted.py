"""How much is taken on one client's word, and that a second person has to approve of more."""

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


def test_more_than_the_amount_needs_an_approval() -> None:
    """What one client gives back in all; the grant stays open, and another client has its own."""
    book = hospital(WORD)
    release(book, "0.3")
    release(book, "0.2")
    with pytest.raises(Forbidden) as caught:
        release(book, "0.000000001")
    assert caught.value.code == "approval-needed"
    assert caught.value.numbers == {"rules": ["word"], "back": "0.000000001"}
    assert "pipe has given back 0.5 on its word" in caught.value.detail
    assert len(book.state.open) == 1
    release(book, "0.5", by="other")
    assert book.replayed().findings == []


def test_what_a_second_person_approves_does_not_count() -> None:
    """It is nobody's word alone; one's own name approves nothing."""
    book = hospital(WORD)
    for _ in range(3):
        event = release(book, "0.4", approved_by="officer")
        assert event.body["command"]["approved_by"] == "officer"
    release(book, "0.5")
    with pytest.raises(Forbidden):
        release(book, "0.1", approved_by="pipe")
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
    with pytest.raises(Forbidden):
        book.do("commit_grant", grant=grant, mechanisms=[laplace("0.1", 2)])
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
    assert "fired" not in release(book, "0.1", approved_by="officer").body
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
    book.policy(FLAG.replace("0.5", "0.45"), approved_by="officer")
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
        try:
            release(book, f"0.{thousandths:03}", by)
        except Forbidden:
            assert not fits
        else:
            assert fits
            given_back[by] += thousandths
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


def test_the_second_key_is_sent_in_a_header(world: Callable[..., World]) -> None:
    """A name in the body is refused; the key of another officer is what approves."""
    made = world().hospital(WORD)
    grant = made.post("/grants", ask(laplace("0.8"))).json()["id"]
    path, body = f"/grants/{grant}/release", {"reason": "it never ran"}
    answer = made.post(path, body)
    assert answer.status_code == 403
    assert answer.json()["type"].endswith(":approval-needed")
    named = made.post(path, body | {"approved_by": "officer"})
    assert named.status_code == 422
    assert "Accountant-Approver" in named.text
    headers = {"Accountant-Approver": made.auth("officer")["Authorization"]}
    approved = made.post(path, body, headers=headers)
    assert (approved.status_code, approved.json()["state"]) == (200, "released")
    event = made.get(f"/events/{approved.json()['sequence']}", who="officer").json()
    assert event["command"]["approved_by"] != event["by"]


def test_a_flag_stands_in_the_answer(world: Callable[..., World]) -> None:
    """As in the answer to a request."""
    made = world().hospital(FLAG)
    grant = made.post("/grants", ask(laplace("0.8"))).json()["id"]
    answer = made.post(f"/grants/{grant}/release", {"reason": "it never ran"}).json()
    assert answer["flags"] == [{"rule": "word", "code": "approval-needed"}]
