"""An answer of a committed grant may be published again at no charge; nothing else may."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bundles import canonical
from support import SECOND, Book, audited, hospital, laplace, make, snapshot, sparse_vector

from accountant.budget.commands import Envelope
from accountant.budget.decide import decide
from accountant.budget.errors import Conflict, Forbidden, Invalid, NotFound
from accountant.budget.idempotency import IdempotencyIndex
from accountant.budget.snapshot import dump, load

ANSWER = "a591a6d40bf420404a011733cfb7b190d62c65bf0bcda32b57b277d9ad9f146e"
RULES = "  - {id: a, limit: {epsilon: 1}}\n"


def republish(book: Book, grant: Any, dataset: Any = "d", by: str = "pipe") -> Any:
    """The event."""
    asked = make("republish_answer", grant=f"g{grant.sequence}", dataset=dataset, answer=ANSWER)
    return book.ask(asked, by)[-1]


@pytest.fixture
def book() -> Book:
    """A ledger with two datasets."""
    made = hospital(RULES)
    made.dataset("e")
    return made


def commit(book: Book, grant: Any, **more: Any) -> None:
    """Commit a grant."""
    book.do("commit_grant", grant=f"g{grant.sequence}", **more)


def sums(book: Book) -> dict[Any, Any]:
    """All that any account holds."""
    return {key: account.used.stacked().tolist() for key, account in book.state.accounts.items()}


def test_it_costs_nothing_however_often(book: Book) -> None:
    """No account changes, even where the budget is used up; both verifiers find nothing wrong."""
    grant = book.grant(laplace("0.5", 2), dataset=["d", "e"])
    commit(book, grant, mechanisms=[laplace("0.5")])
    book.record(laplace("0.5"))
    before = sums(book)
    for _ in range(3):
        event = republish(book, grant, ["e", "d"])
        assert event.type == "answer.republished.v1"
        assert set(event.body) == {"command", "key"}
        assert event.body["command"]["answer"] == ANSWER
    assert sums(book) == before
    assert book.grant(laplace("0.1")).type == "grant.refused.v1"
    assert audited(book).findings == book.replayed().findings == []
    assert snapshot(load(book.name, b"".join(dump(book.state)))) == snapshot(book.state)
    assert isinstance(book.state.idempotency, IdempotencyIndex)


def test_a_closed_session_has_answers_too(book: Book) -> None:
    """A session that was closed is committed."""
    session = book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector())
    with pytest.raises(Conflict):
        republish(book, session)
    book.do("close_sparse_vector", grant=f"g{session.sequence}")
    republish(book, session)
    assert audited(book).findings == []


@pytest.mark.parametrize("ending", ["open", "released", "expired"])
def test_only_a_committed_grant_has_an_answer(book: Book, ending: str) -> None:
    """One that is open may still be released, nothing of one that was released ran, and of one that
    expired nobody knows.
    """
    grant = book.grant(laplace("0.5"))
    if ending == "released":
        book.do("release_grant", grant=f"g{grant.sequence}", reason="never run")
    if ending == "expired":
        book.now += 4_000 * SECOND
        book.do("expire_grant", ":accountant", grant=f"g{grant.sequence}")
    with pytest.raises(Conflict) as refusal:
        republish(book, grant)
    assert refusal.value.code == "not-committed"


def test_it_is_the_same_client_on_the_same_data(book: Book) -> None:
    """Of another's grant, or on other datasets, it is no answer that was paid for."""
    grant = book.grant(laplace("0.5"))
    commit(book, grant)
    with pytest.raises(Forbidden):
        republish(book, grant, by="other")
    for others in ("e", ["d", "e"]):
        with pytest.raises(Conflict) as refusal:
            republish(book, grant, others)
        assert refusal.value.code == "other-datasets"
    with pytest.raises(NotFound):
        book.do("republish_answer", grant="g99", dataset="d", answer=ANSWER)
    asked = make("republish_answer", grant=f"g{grant.sequence}", dataset="d", answer=ANSWER)
    with pytest.raises(Invalid):  # without a key
        decide(book.state, Envelope("pipe", asked), book.now)
    with pytest.raises(ValueError, match="answer"):
        make("republish_answer", grant="g3", dataset="d", answer="no digest")


FORGED = {
    "a grant that is open": {"grant": "g6"},
    "a grant that there is not": {"grant": "g77"},
    "other data": {"dataset": "e"},
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_neither_verifier_believes_another(book: Book, change: dict[str, str]) -> None:
    """What the service would have refused is a finding."""
    grant = book.grant(laplace("0.1"))
    opened = book.grant(laplace("0.1"))
    assert (grant.sequence, opened.sequence) == (5, 6)
    commit(book, grant)
    republish(book, grant)
    event = json.loads(book.stored[-1])
    event["command"] |= change
    book.stored[-1] = canonical(event)
    assert [each["where"] for each in audited(book).findings] == [len(book.stored) - 1]
    assert [found.sequence for found in book.replayed().findings][:1] == [len(book.stored) - 1]
