"""A charge to everyone reaches those who were there: people who are attested to be new owe nothing
for what has ended, and everything that may still run on them.
"""

from __future__ import annotations

from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SECOND, Book, hospital, laplace, make

from accountant.budget.apply import drop_journal, keep_journal, rollback
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem
from accountant.budget.snapshot import dump, load

LIMIT = "  - {id: a, limit: {epsilon: 1}}\n"
WIDE = "  - {id: a, limit: {epsilon: 1000}}\n"
QUARTER, TENTH = 250_000_000, 100_000_000
HOUR = 3_600 * SECOND


def wave(*names: str) -> dict[str, list[str]]:
    """The waves in which people joined, which they never leave."""
    return {"wave": list(names)}


def spent(book: Book, rule: str = "a", **more: Any) -> list[int]:
    """Units of epsilon used per cell."""
    return [cell[0] for cell in book.used(rule, **more)]


def spend(book: Book, epsilon: str, **more: Any) -> bool:
    """Asks and commits at once, if it is granted."""
    asked = book.grant(laplace(epsilon), **more)
    if asked.type != "grant.reserved.v1":
        return False
    book.do("commit_grant", grant=f"g{asked.sequence}")
    return True


def join(book: Book, *, attested: bool = True, **more: Any) -> str:
    """A wave of people joins; its name is returned."""
    known = dict(book.state.people().dimensions)["wave"]
    name = f"w{len(known) + 1}"
    book.register(wave(*known, name), attested_new=attested, **more)
    return name


# -- a weekly dashboard ----------------------------------------------------------------------


def test_a_dashboard_goes_on_for_those_who_join() -> None:
    """What one week asks fills a quarter of a lifetime. About everyone it is granted for four
    weeks, until the first members have spent theirs; but those who join owe nothing of that, and
    about the last four waves it is granted in each of 52 weeks.
    """
    book = hospital(LIMIT, wave("w1"))
    for week in range(4):
        if week:
            join(book)
        assert spend(book, "0.25")
    assert spent(book) == [4 * QUARTER, 3 * QUARTER, 2 * QUARTER, QUARTER]
    for week in range(5, 53):
        name = join(book)
        refused = book.grant(laplace("0.25"))
        assert refused.type == "grant.refused.v1"
        assert refused.body["rules"]["a"]["cell"] == [0]  # who has paid four times
        assert spend(book, "0.25", subjects={"wave": {"from": f"w{week - 3}", "to": name}})
    assert spent(book) == [4 * QUARTER] * 49 + [3 * QUARTER, 2 * QUARTER, QUARTER]
    assert book.replayed().findings == []


def test_nobody_owes_for_those_who_left_nothing() -> None:
    """Each week about that week's wave alone, and once a year about everyone: a year's wave owes
    nothing for the years before it.
    """
    book = hospital(LIMIT, wave("w1"))
    for _ in range(3):
        assert spend(book, "0.25")
    for _ in range(49):
        assert spend(book, "0.5", subjects={"wave": [join(book)]})
    assert spend(book, "0.25")
    assert spent(book) == [4 * QUARTER] + [3 * QUARTER] * 49


def test_with_people_who_may_have_been_there_it_still_stops() -> None:
    """Values that nobody attests begin with what those beside them have used."""
    book = hospital(LIMIT, wave("w1"))
    for _ in range(4):
        assert spend(book, "0.25")
    name = join(book, attested=False)
    assert not spend(book, "0.25", subjects={"wave": [name]})
    assert spent(book) == [4 * QUARTER] * 2


def test_private_membership_under_replace_one_owes_as_before() -> None:
    """There a neighbour may have somebody of an old cell in a new member's place. In all other
    populations new members owe nothing.
    """
    for neighbouring in ("replace_one", "add_or_remove_one", "zero_out"):
        for membership in ("public", "private"):
            book = Book()
            kind = {"neighbouring": neighbouring, "membership": membership}
            book.register(wave("w1"), **kind)
            book.dataset("d")
            book.policy(WIDE)
            assert spend(book, "0.1")
            join(book, **kind)
            owed = (neighbouring, membership) == ("replace_one", "private")
            assert spent(book) == [TENTH, TENTH * owed]
            assert book.replayed().findings == []


# -- what may still run ----------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["commit", "part", "release", "expire", "recover"])
def test_an_open_grant_reaches_those_who_join(ending: str) -> None:
    """It is reserved on them, and spent or given back there. If it expires, or is open at a
    recovery, nobody knows whether it runs on: then it reaches those who join later, too.
    """
    book = hospital(WIDE, wave("w1"))
    assert spend(book, "0.1")
    name = f"g{book.grant(laplace('0.1', 3), ttl_seconds=3_600).sequence}"
    join(book)
    assert spent(book) == [4 * TENTH, 3 * TENTH]
    if ending == "commit":
        book.do("commit_grant", grant=name)
    elif ending == "part":
        book.do("commit_grant", grant=name, mechanisms=[laplace("0.1", 2)])
    elif ending == "release":
        book.do("release_grant", grant=name, reason="never run")
    elif ending == "expire":
        book.now += HOUR
        book.do("expire_grant", SYSTEM, grant=name)
    else:
        book.do("recover", "officer", reason="put back", lost=[])
    left = {"part": 2, "release": 0}.get(ending, 3)
    assert spent(book) == [(1 + left) * TENTH, left * TENTH]
    join(book)
    later = 3 if ending in ("expire", "recover") else 0
    assert spent(book) == [(1 + left) * TENTH, left * TENTH, later * TENTH]
    assert book.replayed().findings == []


def test_an_expiry_that_is_taken_back_lasts_for_nobody() -> None:
    """After a commit that failed the grant is open again, and all is as it was."""
    book = hospital(WIDE + "  - {id: w, window: 12h, limit: {epsilon: 1000}}\n", wave("w1"))
    name = f"g{book.grant(laplace('0.1'), ttl_seconds=60).sequence}"
    before, size = book.state.frozen().accounts, len(book.stored)
    keep_journal(book.state)
    book.now += HOUR
    book.do("expire_grant", SYSTEM, grant=name)
    assert book.account("a").lasting
    assert rollback(book.state)
    drop_journal(book.state)
    del book.stored[size:]
    book.now -= HOUR
    assert book.state.frozen().accounts == before
    book.do("release_grant", grant=name, reason="never run")
    join(book)
    assert spent(book) == spent(book, "w") == [0, 0]


def test_what_is_recorded_later_reaches_those_who_are_there_by_then() -> None:
    """Nobody says whether it ran before they joined."""
    book = hospital(WIDE, wave("w1"))
    join(book)
    book.record(laplace("0.1"))
    join(book)
    assert spent(book) == [TENTH, TENTH, 0]


@pytest.mark.parametrize("expired", [False, True])
def test_a_revaluation_reaches_those_who_are_there_by_then(expired: bool) -> None:
    """It is an upper bound for those who joined after the event; of a grant that has expired it
    reaches those who join later, too.
    """
    book = hospital(WIDE, wave("w1"))
    name = f"g{book.grant(laplace('0.3'), ttl_seconds=60).sequence}"
    if expired:
        book.now += HOUR
        book.do("expire_grant", SYSTEM, grant=name)
    else:
        book.do("commit_grant", grant=name)
    join(book)
    facts = {"by": "pipe", "dataset": "d", "subjects": None, "mechanisms": [laplace("0.3")]}
    booked = {"epsilon": str(2 * TENTH), "delta": "0"}
    book.ask(make("revalue", event=int(name[1:]), booked=booked, reason="wrong", **facts), "o")
    join(book)
    first = 3 * TENTH * expired
    more = spent(book)[0] - 3 * TENTH
    assert more > 0
    assert spent(book) == [3 * TENTH + more, first + more, (first + more) * expired]


def lift(book: Book, rule: str, epsilon: int) -> None:
    """A recovery: some account had used at least so much."""
    key = {"rule": rule, "epoch": book.state.last_epoch.get(rule, 0), "dataset": "d", "client": ""}
    used = {"epsilon": str(epsilon), "delta": "0"}
    book.do("carry_over", "officer", accounts=[key | {"used": used}])


def test_after_a_recovery_new_cells_begin_at_its_floor() -> None:
    """The cells that are appended may be ones that were lost, and charged before that."""
    book = hospital(WIDE, wave("w1"))
    assert spend(book, "0.1")
    join(book)
    assert spend(book, "0.2")
    lift(book, "a", 7 * TENTH)
    assert spend(book, "0.1")
    join(book)
    assert spent(book) == [8 * TENTH, 8 * TENTH, 7 * TENTH]
    assert spent(book, "") == [4 * TENTH, 3 * TENTH, 0]  # of which no event was lost


@pytest.mark.parametrize("rule", ["of all data", "at the gate"])
def test_an_epoch_that_begins_with_an_open_grant_keeps_it_for_all(rule: str) -> None:
    """A rule that is adopted while a grant is open counts it as spent, and so on all who join."""
    book = hospital("  - {id: a, limit: {epsilon: 100, delta: 1e-6}, gate: basic}\n", wave("w1"))
    assert spend(book, "0.1")
    name = f"g{book.grant(laplace('0.2')).sequence}"
    other = "  - {id: a, limit: {epsilon: 100, delta: 1e-6}, gate: zcdp}\n"
    if rule == "of all data":
        other = other.replace("id: a,", "id: b,")
    book.policy(other, confirmed_by="officer", closes=True)
    join(book)
    mine = "b" if rule == "of all data" else "a"
    assert spent(book, mine) == [3 * TENTH, 2 * TENTH]
    book.do("release_grant", grant=name, reason="never run")
    join(book)
    assert spent(book, mine) == [3 * TENTH, 2 * TENTH, 2 * TENTH]
    assert spent(book, "") == [TENTH, 0, 0]
    assert book.replayed().findings == []


def test_accounts_that_are_one_part_if_their_grants_differ() -> None:
    """Two datasets have used the same, one of it reserved on everyone and the other on a group:
    equal sums, and not the same for those who join.
    """
    book = hospital(WIDE, wave("w1"))
    book.dataset("e")
    for dataset, wide, narrow in (("d", "grant", "record"), ("e", "record", "grant")):
        ask = {"dataset": dataset}
        getattr(book, wide)(laplace("0.1"), **ask)
        getattr(book, narrow)(laplace("0.1"), subjects=wave("w1"), **ask)
    book.state.accounts.share()
    assert book.account("a", "d") is book.account("a", "e")
    join(book)
    assert spent(book, dataset="d") == [2 * TENTH, TENTH]
    assert spent(book, dataset="e") == [2 * TENTH, 0]
    assert book.replayed().findings == []


# -- as time passes --------------------------------------------------------------------------

WINDOW = "  - {id: w, window: 12h, limit: {epsilon: 1000}}\n"


def at(book: Book, now: int) -> list[int]:
    """What counts in the window at a stamp."""
    account = book.state.frozen(now).seen(book.key("w"))
    return [int(cell) for cell in account.used.cells()[0].reshape(-1)]


def test_what_passes_is_taken_off_those_who_have_it() -> None:
    """A charge to everyone from before an extension leaves the window on the cells that were there;
    one from after it on all; one that expired on all, and the floor of a recovery.
    """
    book = hospital(WINDOW, wave("w1"))
    first = book.now
    assert spend(book, "0.1")
    book.now += HOUR
    name = f"g{book.grant(laplace('0.2'), ttl_seconds=60).sequence}"
    book.now += HOUR
    book.do("expire_grant", SYSTEM, grant=name)
    join(book)
    book.now += HOUR
    assert spend(book, "0.3")
    book.now += HOUR
    lift(book, "w", 8 * TENTH)
    join(book)
    assert at(book, book.now) == [8 * TENTH] * 3
    assert at(book, first + 12 * HOUR) == [7 * TENTH, 8 * TENTH, 8 * TENTH]
    assert at(book, first + 14 * HOUR) == [5 * TENTH, 6 * TENTH, 6 * TENTH]
    assert at(book, first + 15 * HOUR) == [2 * TENTH, 3 * TENTH, 3 * TENTH]
    assert at(book, first + 16 * HOUR) == [0, 0, 0]


what = st.one_of(
    st.tuples(st.sampled_from(["ask", "record"]), st.sampled_from([None, {"sex": ["f"]}])),
    st.tuples(st.sampled_from(["commit", "part", "release", "expire"]), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([1, 20_000, 43_200])),
    st.tuples(st.just("join"), st.booleans()),
    st.tuples(st.just("lift"), st.integers(1, 9)),
)


def do(book: Book, kind: str, how: Any) -> None:
    """One step; what is refused as a problem leaves no event."""
    grants = list(book.state.grants.in_order())
    try:
        if kind == "ask":
            book.grant(laplace("0.1", 2), subjects=how, ttl_seconds=86_400)
        elif kind == "record":
            book.record(laplace("0.1"), subjects=how)
        elif kind == "wait":
            book.now += how * SECOND
        elif kind == "join":
            values = {k: list(v) for k, v in book.state.people().dimensions}
            values["age"].append(f"{len(values['age'])}")
            book.register(values, attested_new=how)
        elif kind == "lift":
            lift(book, ("a", "w")[how % 2], how * TENTH)
        elif grants:
            grant = grants[how % len(grants)]
            if kind == "expire":
                book.now = max(book.now, grant.expires)
                book.do("expire_grant", SYSTEM, grant=grant.id)
            elif kind == "release":
                book.do("release_grant", grant=grant.id, reason="never run")
            else:
                ran = {"mechanisms": [laplace("0.1")]} if kind == "part" else {}
                book.do("commit_grant", grant=grant.id, **ran)
    except Problem:
        return


@settings(max_examples=examples(60))
@given(st.lists(what, min_size=3, max_size=30), st.integers(1, 5))
def test_an_extension_moves_no_sum(steps: list[tuple[str, Any]], every: int) -> None:
    """Old cells keep their sums to the unit. New ones hold no less than open grants hold, and, as
    long as no recovery took grants out of an account, no more than the most of the old ones beside
    them. No cell ever has less than nothing. A restart from a snapshot comes to the same.
    """
    book, twin = Book(), Book()
    for one in (book, twin):
        one.register({"age": ["0"], "sex": ["f", "m"]})
        one.dataset("d")
        one.policy(WIDE + WINDOW)
    for number, (kind, how) in enumerate(steps):
        if number % every == 0:
            twin.state = load(twin.name, b"".join(dump(twin.state)))
        before = {rule: book.state.frozen(book.now).seen(book.key(rule)).used for rule in "aw"}
        do(book, kind, how)
        do(twin, kind, how)
        for rule in "aw":
            held = book.held(rule).stacked()
            for now in (book.now, book.now + 12 * HOUR, book.now + 400 * HOUR):
                account = book.state.frozen(now).seen(book.key(rule))
                sums = account.used.stacked()
                assert (sums >= held).all()
                assert all(m <= b for m, b in zip(account.used.most(), account.bound, strict=True))
            if kind == "join":
                after = book.state.frozen(book.now).seen(book.key(rule)).used.stacked()
                old = before[rule].stacked()
                assert (after[:, : old.shape[1]] == old).all()
                most = old.max(axis=1, keepdims=True)
                lifted = "lift" in dict(steps[:number])
                assert lifted or (after[:, old.shape[1] :] <= most).all()
    assert twin.stored == book.stored
    assert b"".join(dump(twin.state)) == b"".join(dump(book.state))
    assert book.replayed().findings == []
