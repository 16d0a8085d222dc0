"""What was decided by the express way and is taken back never was: nothing later tells of it."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import EACH
from support import NON_PRIVATE, SECOND, Book, cells_of, gaussian, laplace, make, snapshot

from accountant.budget import answers
from accountant.budget.answers import Answers
from accountant.budget.commands import Asked, batch_of
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem
from accountant.budget.express import runs
from accountant.budget.keeper import Keeper
from accountant.budget.raw import Take
from accountant.budget.sealing import seal
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.privacy.units import LARGEST

RULES = (
    "  - {{id: a, limit: {{epsilon: {limit}, delta: 1e-3, own_delta: 1e-5}}, gate: {gate}}}\n"
    "  - {{id: nearly, of: a, at: 60%}}\n"
    "  - {{id: known, purposes: [study], action: flag}}\n"
)
HOUR = 3_600 * SECOND
ALL = 1_000_000
WOMEN, UNION = {"sex": ["f"]}, [{"sex": ["f"]}, {"age": ["22"]}]
POOL: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("one", "ask_grant", {"mechanisms": [laplace("0.001", 5)]}),
    ("two", "ask_grant", {"mechanisms": [laplace("0.001", 2), gaussian("0.02", "1e-9")]}),
    ("one", "ask_grant", {"mechanisms": [laplace("0.001", 3)], "subjects": WOMEN}),
    ("two", "ask_grant", {"mechanisms": [laplace("0.02", 2)], "purpose": "free text"}),
    ("one", "record_invocations", {"mechanisms": [laplace("0.001")], "subjects": UNION}),
    ("two", "record_invocations", {"mechanisms": [NON_PRIVATE], "dataset": "e"}),
)
HOW = ("whole", "part", "release", "expire", "keyed")
Op = tuple[Any, ...]

which = st.integers(0, len(POOL) - 1)
op = st.one_of(
    st.tuples(st.just("ask"), which),
    st.tuples(st.just("crowd"), st.lists(which, min_size=1, max_size=3), st.integers(1, 30)),
    st.tuples(st.just("batch"), st.lists(st.integers(0, 3), min_size=1, max_size=4)),
    *[st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(HOW))] * 2,
    st.sampled_from([("wait", 1), ("wait", 4000), ("write",)]),
)
ops = st.lists(op, max_size=12)


class AtLength(Exception):
    """Something would have to be decided at length."""


def at_length() -> None:
    """Nothing is."""
    raise AtLength


class Told:
    """A keeper that has followed a ledger, and goes on; it was asked each request of the pool."""

    def __init__(self, stored: tuple[bytes, ...], *, warm: bool = True) -> None:
        self.keeper = Keeper(State("fair"))
        for body in stored:
            self.keeper.follow(body)
        self.now = self.keeper.state.time
        self.number = 0
        for one in [("ask", at) for at in range(len(POOL))] + [("batch", [0, 1, 2, 3])]:
            if warm:
                self.do(one)

    def do(self, op: Op, *, express: bool = False) -> list[Any]:
        """What is told in one step; nothing of what has to be decided at length, if it is to go
        the ``express`` way.
        """
        key = f"k{self.number}"
        self.number += 1
        match op:
            case ("ask", at):
                return self._put(asked(at, key), express)
            case ("crowd", pool, size):
                crowd = [asked(at, f"{key}.{n}.{at}") for n in range(size) for at in {*pool}]
                entries, _ = self.keeper.decide_run(crowd, self.now, lambda: b"s" * 32)
                left = () if express else crowd[len(entries) :]
                return [e.body for e in entries] + [e for one in left for e in self._put(one)]
            case ("batch", pool):
                items = tuple(asked(at, key).command for at in pool)
                return self._put(Asked("one", batch_of(items), key, items), express)
            case ("end", at, how):
                return self._end(at, how, key, express)
            case ("wait", seconds):
                self.now += seconds * SECOND
            case ("write",):
                self.keeper.whole()
        return []

    def _put(self, one: Asked, express: bool = False) -> list[Any]:
        one, _ = seal(self.keeper.state, one, lambda: b"s" * 32)
        try:
            entries = self.keeper.decide(one, self.now, at_length if express else lambda: None)
        except Problem as problem:
            return [(problem.code, problem.detail)]
        except AtLength:
            return []
        return [entry.body for entry in entries] if isinstance(entries, list) else [entries]

    def _end(self, at: int, how: str, key: str, express: bool) -> list[Any]:
        grants = sorted(
            (int(name[1:]), name) for name in self.keeper.due(self.now + 99 * HOUR, ALL)
        )
        if not grants:
            return []
        number, name = grants[at % len(grants)]
        held = self.keeper._express._running.held.get(number)
        grant = held.form.grant(number, held) if held else self.keeper.state.open[name]
        if how == "expire":
            self.now += HOUR
            return self._put(Asked(SYSTEM, make("expire_grant", grant=name)), express)
        kind, fields = "commit_grant", dict[str, Any]()
        if how == "release":
            kind, fields = "release_grant", {"reason": "never run"}
        elif how != "whole":
            fields = {"mechanisms": [grant.command["mechanisms"][0] | {"count": 1}]}
        command = make(kind, grant=name, **fields)
        return self._put(Asked(grant.by, command, key if how == "keyed" else None), express)

    def seen(self) -> Any:
        """What anybody sees of the state, written or not."""
        state = self.keeper.state
        keys = [f"k{n}" for n in range(self.number + 1)]
        found = [state.answers.get(by, key) for by in ("one", "two") for key in keys]
        due = [sorted(self.keeper.due(self.now + wait, ALL)) for wait in (0, HOUR, 99 * HOUR)]
        return state.sequence, state.time, len(state.answers), found, due

    def whole(self) -> Any:
        """All that stands in the state, which comes back from its snapshot."""
        state = self.keeper.whole()
        assert load("fair", b"".join(dump(state))) == state
        reserved = {
            key: (cells_of(account.used), cells_of(account.reserved), account.bound, account.held)
            for key, account in state.accounts.items()
        }
        return snapshot(state), reserved, list(state.grants.settled())


def asked(at: int, key: str) -> Asked:
    """A request of the pool."""
    by, kind, fields = POOL[at]
    return Asked(by, make(kind, **{"dataset": "d"} | fields), key)


@cache
def taught(gate: str, wide: bool) -> tuple[bytes, ...]:
    """A ledger in which all that is asked here was asked, and ended, in every way."""
    book = Book()
    book.register({"age": ["17", "22"], "sex": ["f", "m"]}, neighbouring="add_or_remove_one")
    for name in ("d", "e"):
        book.dataset(name)
    book.policy(RULES.format(gate=gate, limit=50 if wide else 1) + EACH * (not wide))
    told = Told(tuple(book.stored), warm=False)
    told.now, told.number = book.now, 10**6
    stored = list(book.stored)
    for at in range(4):
        stored += told.do(("ask", at)) + told.do(("batch", [at]))
        stored += told.do(("end", -1, "whole")) + told.do(("end", -1, "whole"))
        for how in HOW:
            stored += told.do(("ask", at)) + told.do(("end", -1, how))
    return tuple(one for one in stored if isinstance(one, bytes))


@settings(max_examples=60)
@given(
    st.sampled_from(["advanced", "basic", "renyi"]),
    st.booleans(),
    st.sampled_from([3, runs.FEWEST]),
    st.lists(st.tuples(ops, ops, ops, ops), min_size=1, max_size=2),
)
def test_what_is_taken_back_never_was(
    gate: str, wide: bool, fewest: int, turns: list[tuple[list[Op], ...]]
) -> None:
    """Whatever was decided, written and taken back, wholly or in part, the keeper goes on, to the
    byte and to the unit, as one that was never asked.
    """
    one, other = Told(taught(gate, wide)), Told(taught(gate, wide))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "FEWEST", fewest)
        for before, kept, inner, after in turns:
            assert [one.do(op) for op in before] == [other.do(op) for op in before]
            was = one.now, one.number
            with one.keeper.noted() as mark:
                for op in kept:
                    one.do(op, express=True)
                middle, now = one.seen(), (one.now, one.number)
                with one.keeper.noted() as within:
                    for op in inner:
                        one.do(op, express=True)
                one.now, one.number = now
                one.keeper.take_back(within)
                assert one.seen() == middle
                for op in inner[:3]:
                    one.do(op, express=True)
                one.keeper.take_back(mark)
            one.now, one.number = was
            assert one.seen() == other.seen()
            assert [one.do(op) for op in after] == [other.do(op) for op in after]
    assert one.seen() == other.seen()
    assert one.whole() == other.whole()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("written", [False, True])
def test_a_grant_is_open_again(how: str, written: bool) -> None:
    """Who ended a grant, and takes that back, finds it as it was, and can end it again; wherever it
    stood, in the state or beside it.
    """
    one, other = Told(taught("basic", wide=True)), Told(taught("basic", wide=True))
    for told in (one, other):
        told.do(("ask", 0))
    name = f"g{one.keeper.sequence - 1}"
    if written:
        one.keeper.whole()
    with one.keeper.noted() as mark:
        assert one.do(("end", -1, how), express=True)
        one.keeper.whole()
        assert one.seen() != other.seen()
        one.keeper.take_back(mark)
    assert (name in one.keeper.state.open) == written
    assert one.keeper.whole().grants == other.keeper.whole().grants
    one.now, one.number = other.now, other.number
    assert one.do(("end", -1, how)) == other.do(("end", -1, how))
    assert one.whole() == other.whole()


def test_what_is_given_back_and_taken_again_takes_room() -> None:
    """A grant that is open again takes the room that others may not: sums that could pass 2^62
    units are infinite, as ever.
    """
    book = Book()
    book.register()
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 1000000, delta: 1e-6}, gate: advanced}\n")
    large, part = laplace("1", 1000), laplace("1")
    ask = make("ask_grant", dataset="d", mechanisms=[large])
    one, other = (Told(tuple(book.stored), warm=False) for _ in range(2))

    def some(told: Told, *, express: bool = False) -> list[Any]:
        return told._put(Asked("pipe", ask, f"k{next(keys)}"), express)

    def give_back(told: Told, at: int, *, express: bool = False) -> list[Any]:
        commit = make("commit_grant", grant=f"g{at}", mechanisms=[part])
        return told._put(Asked("pipe", commit, None), express)

    for told in (one, other):
        told.now, keys = book.now, count()
        for at in range(3, 9, 2):
            some(told)
            give_back(told, at)
        for _ in range(4):
            some(told)
    with one.keeper.noted() as mark:
        for at in (9, 10, 11):
            assert give_back(one, at, express=True)
        assert some(one, express=True)
        one.keeper.take_back(mark)
    keys = count(100)
    told_one = [some(one) for _ in range(3)]
    keys = count(100)
    assert told_one == [some(other) for _ in range(3)]
    assert one.whole() == other.whole()
    assert all(max(account.bound) <= LARGEST for account in one.keeper.whole().accounts.values())


def test_only_what_is_noted_is_taken_back() -> None:
    """Before and after it is noted nothing can be taken back, however it ended."""
    told = Told(taught("basic", wide=True))
    with told.keeper.noted() as mark:
        told.keeper.take_back(mark)
    with pytest.raises(ValueError, match="nobody has noted"):
        told.keeper.take_back(mark)
    with pytest.raises(AtLength), told.keeper.noted():
        raise AtLength
    with pytest.raises(ValueError, match="nobody has noted"):
        told.keeper.take_back(mark)


def test_who_is_asked_at_length_may_refuse() -> None:
    """What has no form is announced before anything has changed, and what has one is not."""
    one, other = Told(taught("basic", wide=True)), Told(taught("basic", wide=True))
    assert one.do(("ask", 0), express=True) == other.do(("ask", 0))
    new = Asked("one", make("ask_grant", dataset="d", mechanisms=[laplace("0.017")]), "new")
    items = (asked(0, "x").command, asked(1, "x").command, new.command)
    for refused in (new, Asked("one", batch_of(items), "batch", items)):
        with pytest.raises(AtLength):
            one.keeper.decide(refused, one.now + HOUR, at_length)
        assert one.seen() == other.seen()
    assert one.whole() == other.whole()


def low(by: str, key: str) -> bytes:
    """A name whose first place is one of a few at the end of every small table."""
    place = 0xFF - len(key) % 3
    return bytes([place]) * 8 + sha256(f"{by}{key}".encode()).digest()[:8]


step = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 60)),
    st.tuples(st.just("add"), st.sets(st.integers(0, 60), min_size=9, max_size=20)),
    st.tuples(st.just("back"), st.integers(0, 9) | st.integers(0, 60)),
    st.tuples(st.just("load"), st.just(0)),
)


@settings(max_examples=250)
@given(st.lists(step, max_size=25))
def test_forgotten_answers_are_gone_and_all_others_found(steps: list[tuple[str, Any]]) -> None:
    """However the names fall on one another: a table finds the first answers that were given and
    no other, and is one that a snapshot may hold.
    """
    known: dict[str, tuple[bytes, int]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "_name", low)
        table = Answers()
        for number, (what, which) in enumerate(steps):
            wanted = {which} if what == "put" else which if what == "add" else set()
            new = {key for n in wanted if (key := "k" * n) and key not in known}
            prints = [b"%16d" % (number + len(key)) for key in new]
            if what == "add":
                table.add([low("u", key) for key in new], prints, number)
            for at, (key, fingerprint) in enumerate(zip(new, prints, strict=True)):
                if what == "put":
                    table.put("u", key, fingerprint, number)
                known[key] = fingerprint, number + at
            if what == "back":
                left = max(0, len(known) - which)
                table.take_back(left)
                known = dict(list(known.items())[:left])
            table = loaded(table)[1] if what == "load" else table
            assert loaded(table) == (len(known), table)
            found = {key: table.get("u", key) for key in map("k".__mul__, range(1, 61))}
            assert {key: answer for key, answer in found.items() if answer} == known


def loaded(table: Answers) -> tuple[int, Answers]:
    """The table from its dump, and how many it holds."""
    data = b"".join(table.dump())
    parts = iter_of(data)
    found = Answers.load(parts, len(table))
    assert not parts(len(data))
    return len(found), found


def iter_of(data: bytes) -> Take:
    """Pieces of ``data``, one after another."""
    left = [memoryview(data)]

    def take(size: int) -> memoryview:
        piece, left[0] = left[0][:size], left[0][size:]
        return piece

    return take
