"""Sparse vector sessions: reserved whole, counted, and closed for what the positives cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SECOND, Book, hospital, laplace, sparse_vector

from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem
from accountant.budget.facts import grant_in
from accountant.privacy.filters import BASIC, FILTERS

# 0.1 for the threshold, 0.02 for each of five positives: 0.2 in all.
WHOLE = (200_000_000, 0, 0, 0)
WIDE = "  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n"
"""A rule whose account keeps every currency."""


def opened(book: Book, **more: Any) -> str:
    """The id of a fresh session."""
    event = book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector(**more))
    assert event.type == "grant.reserved.v1"
    return str(grant_in(event))


def code(book: Book, kind: str, **fields: Any) -> str:
    """The code of the problem that asking leads to."""
    before = book.state.sequence
    with pytest.raises(Problem) as refusal:
        book.do(kind, **fields)
    assert book.state.sequence == before
    return refusal.value.code


def count(book: Book, session: str, positives: int, negatives: int = 0) -> None:
    """Counts answers."""
    book.do("count_answers", grant=session, positives=positives, negatives=negatives)


def test_the_whole_is_reserved() -> None:
    """Opening a session reserves the threshold and all its positives."""
    book = hospital()
    opened(book)
    assert book.used() == book.reserved() == [WHOLE]


@pytest.mark.parametrize("positives", range(6))
def test_closing_gives_back_epsilon_only(positives: int) -> None:
    """What positives were not used comes back in epsilon; every other currency keeps the whole."""
    book = hospital(WIDE)
    session = opened(book)
    [whole] = book.used()
    assert whole[:3] == (200_000_000, 0, 4 * 10**13)
    assert all(whole[2:7])
    if positives:
        count(book, session, positives, 7)
    book.do("close_sparse_vector", grant=session)
    assert book.used() == [(100_000_000 + positives * 20_000_000, *whole[1:])]
    assert book.reserved() == [(0,) * 14]
    assert book.replayed().findings == []


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 9), st.data())
def test_the_realised_loss_is_never_rounded_away(
    threshold: int, comparison: int, c: int, data: st.DataObject
) -> None:
    """After any number of positives the charge is at least the realised loss, within two units."""
    positives = data.draw(st.integers(0, c))
    book = hospital("  - {id: a, limit: {epsilon: 1000}}\n")
    scales = {"threshold_scale": str(threshold), "comparison_scale": str(comparison)}
    session = opened(book, max_positives=c, **scales)
    if positives:
        count(book, session, positives)
    book.do("close_sparse_vector", grant=session)
    truth = 10**9 * (comparison + positives * 2 * threshold)  # over threshold x comparison
    assert truth <= book.used()[0][0] * threshold * comparison <= truth + 2 * threshold * comparison


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=8))
def test_a_session_stops_at_its_cut_off(batches: list[tuple[int, int]]) -> None:
    """Answers are counted up to c positives; then nothing more, not even negatives."""
    book = hospital()
    session = opened(book)
    positives = negatives = 0
    for more, free in batches:
        fields = {"grant": session, "positives": more, "negatives": free}
        if not (more or free):
            assert code(book, "count_answers", **fields) == "nothing-counted"
        elif positives == 5 or positives + more > 5:
            assert code(book, "count_answers", **fields) == "session-exhausted"
        else:
            event = book.do("count_answers", **fields)
            positives, negatives = positives + more, negatives + free
            assert (event.body["positives"], event.body["negatives"]) == (positives, negatives)
    book.do("close_sparse_vector", grant=session)
    assert book.used()[0][0] == 100_000_000 + positives * 20_000_000


def test_negatives_are_free() -> None:
    """Any number of negatives costs nothing beyond the threshold."""
    book = hospital()
    session = opened(book)
    count(book, session, 0, 10**9)
    book.do("close_sparse_vector", grant=session)
    assert book.used()[0][0] == 100_000_000


@pytest.mark.parametrize(("positives", "negatives"), [(1, 0), (0, 1)])
def test_a_session_that_answered_cannot_be_released(positives: int, negatives: int) -> None:
    """One answer of either kind is an execution; before that, release gives everything back."""
    book = hospital()
    answered, fresh = opened(book), opened(book)
    count(book, answered, positives, negatives)
    problem = code(book, "release_grant", grant=answered, reason="x")
    assert problem == "session-has-answered"
    book.do("release_grant", grant=fresh, reason="never asked")
    assert book.used() == [WHOLE]


def test_an_expired_session_costs_the_whole() -> None:
    """A session that nobody closed in time is charged in full; closing it then is a note."""
    book = hospital()
    session = opened(book)
    count(book, session, 1)
    book.now += 3600 * SECOND
    fields = {"grant": session, "positives": 1, "negatives": 0}
    assert code(book, "count_answers", **fields) == "grant-expired"
    book.do("expire_grant", SYSTEM, grant=session)
    assert book.do("close_sparse_vector", grant=session).type == "grant.noted.v1"
    assert book.used() == [WHOLE]


def test_sessions_and_grants_are_not_confused() -> None:
    """A session is closed, a grant committed; neither takes the other's calls."""
    book = hospital()
    session, grant = opened(book), grant_in(book.grant(laplace("0.1")))
    assert code(book, "commit_grant", grant=session) == "is-a-session"
    assert code(book, "close_sparse_vector", grant=grant) == "not-a-session"
    fields = {"grant": grant, "positives": 1, "negatives": 0}
    assert code(book, "count_answers", **fields) == "not-a-session"


def test_a_closed_session_stays_closed() -> None:
    """After closing nothing more is counted, closed or given back."""
    book = hospital()
    session = opened(book)
    book.do("close_sparse_vector", grant=session)
    fields = {"grant": session, "positives": 1, "negatives": 0}
    assert code(book, "count_answers", **fields) == "grant-settled"
    assert code(book, "close_sparse_vector", grant=session) == "grant-settled"
    assert code(book, "release_grant", grant=session, reason="x") == "grant-settled"


def test_a_session_has_count_one() -> None:
    """Several sessions are opened one by one, since each is counted by itself."""
    problem = code(hospital(), "open_sparse_vector", dataset="d", mechanism=sparse_vector(count=2))
    assert problem == "one-session"


def test_a_claimed_surplus_is_kept() -> None:
    """Where a larger claim was booked, what comes back is the derived difference only."""
    book = hospital()
    session = opened(book, claimed={"epsilon": "0.5"})
    count(book, session, 1)
    book.do("close_sparse_vector", grant=session)
    assert book.used()[0][0] == 500_000_000 - 80_000_000


def test_a_broken_variant_is_refused() -> None:
    """A session whose comparisons have no noise is refused with the reason."""
    book = hospital()
    mechanism = sparse_vector(comparison_scale="0")
    event = book.do("open_sparse_vector", dataset="d", mechanism=mechanism)
    assert event.type == "grant.refused.v1"
    fired = [r["rule"] for r in book.decision(event)["rules"] if r["fired"]]
    assert "built-in:sparse-vector-broken" in fired


@pytest.mark.parametrize("gate", [name for name, gate in FILTERS.items() if gate is not BASIC])
def test_under_the_second_gate_nothing_comes_back(gate: str) -> None:
    """The ex-post bound is path-wise: in a gate's own currency a session stays whole, however few
    positives it had.
    """
    book = hospital(WIDE.replace("}}", "}, gate: " + gate + "}"))
    currency, *_ = FILTERS[gate].currencies(book.state.adopted.epochs["a"].limit)  # type: ignore[union-attr]
    whole = []
    for _ in range(20):
        session = opened(book)
        if not whole:
            whole = book.used_in(currency)
        book.do("close_sparse_vector", grant=session)
        if book.used()[0][0] > 800_000_000:
            break
    assert book.used()[0][0] == 900_000_000
    assert book.used_in(currency) == [9 * units for units in whole if units]
    event = book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector())
    assert event.type == "grant.refused.v1"
