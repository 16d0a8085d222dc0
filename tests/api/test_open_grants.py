"""Grants that are open, page by page: all of them, once, and to whom they may be shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Book, Clock, World, ask, hospital, laplace, sparse_vector

from accountant.budget.apply import apply, drop_journal, keep_journal, rollback
from accountant.budget.commands import Envelope
from accountant.budget.decide import decide
from accountant.budget.facts import grant_in
from accountant.budget.snapshot import Copied, load


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service with two pipelines and two datasets; the grants g5 to g14 are of pipeline's and
    other's by turns, on d and e by threes.
    """
    made = world(Clock()).hospital("  - {id: a, limit: {epsilon: 9}}\n")
    made.secrets["other"] = made.service.credentials.create("other", "pipeline", "test")
    made.put("/datasets/e", {"namespace": "n", "name": "e"})
    for n in range(10):
        body = ask(laplace("0.1"), dataset="e" if n % 3 == 0 else "d", ttl_seconds=60 + n)
        assert made.post("/grants", body, who="other" if n % 2 else "pipeline").status_code == 201
    return made


def listed(made: World, query: str = "", **more: Any) -> list[str]:
    """The names on a page."""
    page = made.get(f"/grants{query}", **more).json()
    names = [grant["id"] for grant in page["grants"]]
    assert not names or names[-1] == f"g{page['last']}"
    return names


@pytest.mark.parametrize("who", ["admin", "officer", "auditor"])
def test_who_oversees_sees_all_of_them(made: World, who: str) -> None:
    """All, or those of one client or dataset, in the order in which they were reserved."""
    everything = [f"g{n}" for n in range(5, 15)]
    assert listed(made, who=who) == listed(made, "?state=open", who=who) == everything
    assert listed(made, "?client=other", who=who) == everything[1::2]
    assert listed(made, "?dataset=e", who=who) == everything[::3]
    assert listed(made, "?dataset=e&client=other", who=who) == ["g8", "g14"]
    assert listed(made, "?client=me", who=who) == listed(made, "?client=nobody", who=who) == []


def test_a_pipeline_sees_its_own(made: World) -> None:
    """Whether it says so, gives its name, or says nothing; another's are none of its business."""
    own = ["g6", "g8", "g10", "g12", "g14"]
    for query in ("", "?client=me", "?client=other"):
        assert listed(made, query, who="other") == own
    for client in ("pipeline", "nobody", "*", ""):
        answer = made.get(f"/grants?client={client}", who="other")
        assert (answer.status_code, answer.json()["type"].rsplit(":", 1)[1]) == (
            403,
            "not-your-grant",
        )


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_pages_follow_each_other(made: World, size: int) -> None:
    """``after`` continues where a page has ended, also while grants end and begin meanwhile."""
    seen, last = [], -1
    while page := made.get(f"/grants?limit={size}&after={last}").json()["grants"]:
        seen += [grant["id"] for grant in page]
        last = page[-1]["sequence"]
        for grant in page:
            who = grant["client"]
            made.post(f"/grants/{grant['id']}/release", {"reason": "x"}, who=who)
        if len(seen) <= 10:
            made.post("/grants", ask(laplace("0.01")))
    assert seen[:10] == [f"g{n}" for n in range(5, 15)]
    assert len(seen) == len(set(seen)) > 10
    assert listed(made) == []


def test_a_grant_is_listed_as_it_is_shown(made: World) -> None:
    """The list agrees with the call on each grant; a grant past its time is expired."""
    session = {"dataset": "d", "mechanism": sparse_vector()}
    opened = made.post("/sparse-vector", session).json()["id"]
    made.post(f"/sparse-vector/{opened}/answers", {"positives": 1, "negatives": 2})
    made.service._clock._clock.forward(61)  # type: ignore[attr-defined]
    grants = made.get("/grants").json()["grants"]
    assert [grant["state"] for grant in grants] == ["expired"] * 2 + ["reserved"] * 9
    for grant in grants:
        shown = made.get(f"/grants/{grant['id']}").json()
        assert grant == {name: shown[name] for name in grant}
        assert shown.keys() - grant.keys() == {"request", "charged"}
    made.service.expire_due()
    assert listed(made)[0] == "g7"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?state=all", "invalid-request"),
        ("?limit=0", "invalid-request"),
        ("?limit=1001", "invalid-request"),
        ("?after=-2", "invalid-request"),
        ("?after=x", "invalid-request"),
        ("?dataset=nowhere", "unknown-dataset"),
        ("?clients=me", "unknown-parameter"),
    ],
)
def test_what_cannot_be_listed_is_told(made: World, query: str, code: str) -> None:
    """A misspelt filter never shows everything."""
    answer = made.get(f"/grants{query}")
    assert (answer.status_code, answer.json()["type"].rsplit(":", 1)[1]) == (422, code)


def open_of(book: Book, client: str | None, dataset: str | None) -> list[str]:
    """The open grants by looking at every one."""
    return [
        grant.id
        for grant in sorted(book.state.open.values(), key=lambda grant: grant.sequence)
        if client in (None, grant.by) and dataset in (None, *grant.on.named)
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "undone", "end", "end undone", "look", "load"]),
            st.sampled_from(["x", "y"]),
            st.sampled_from(["d", "e"]),
            st.integers(0, 9),
        ),
        max_size=60,
    )
)
def test_pages_are_what_looking_at_every_grant_gives(
    steps: list[tuple[str, str, str, int]],
) -> None:
    """After any grants were opened, ended or rolled back, and the list was read at any time."""
    book = hospital("  - {id: a, limit: {epsilon: 9}}\n")
    book.dataset("e")
    for what, by, dataset, n in steps:
        state = book.state
        opened = list(state.open)
        if what == "look":
            for wanted in ((None, None), (by, None), (None, dataset), (by, dataset)):
                found = [grant.id for grant in state.grants.page(*wanted, -1, 1000)]
                assert found == open_of(book, *wanted)
                assert [g.id for g in state.grants.page(*wanted, n, 2)] == [
                    name for name in found if int(name[1:]) > n
                ][:2]
        elif what == "load":
            book.state = load(book.name, b"".join(Copied.of(state).dump(lambda: None)))
        elif what == "ask":
            book.grant(laplace("0.01"), dataset=dataset, by=by)
        elif what == "undone":
            trial(book, "ask_grant", by, dataset=dataset, mechanisms=[laplace("0.01")])
        elif opened:
            grant = state.open[opened[n % len(opened)]]
            if what == "end":
                book.do("commit_grant", grant.by, grant=grant.id)
            else:
                trial(book, "commit_grant", grant.by, grant=grant.id)


def trial(book: Book, kind: str, by: str, **fields: Any) -> None:
    """A command that is folded in and taken back, as after a commit that failed; in between
    somebody looks.
    """
    from support import make  # noqa: PLC0415

    keep_journal(book.state)
    [one] = decide(book.state, Envelope(by, make(kind, **fields), "k"), book.now)  # type: ignore[misc]
    apply(book.state, one)
    book.state.grants.page(None, None, -1, 1000)
    assert rollback(book.state)
    drop_journal(book.state)


def test_what_has_ended_is_not_kept() -> None:
    """The list does not grow with grants that have come and gone."""
    book = hospital("  - {id: a, limit: {epsilon: 9}}\n")
    book.grant(laplace("0.0001"))
    assert len(book.state.grants.page(None, None, -1, 9)) == 1
    longest = 0
    for _ in range(3_000):
        book.do("release_grant", grant=grant_in(book.grant(laplace("0.0001"))), reason="x")
        longest = max(longest, len(book.state.grants.listing or ()))
    assert longest < 1_100
    assert len(book.state.grants.page(None, None, -1, 9)) == 1
