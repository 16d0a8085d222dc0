"""What a state keeps of answered keys and settled grants: what a dictionary would, in less room."""

from __future__ import annotations

import tracemalloc
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import laplace, make

from accountant.budget.answers import DIGEST, Answers
from accountant.budget.commands import Asked
from accountant.budget.grants import Grant, Grants, Settled
from accountant.budget.selection import EVERYONE
from accountant.privacy.units import NOTHING

names = st.sampled_from(["", "a", "b", "ab", "a:b", "1:a"])
few_keys = st.text(st.sampled_from("ab:1"), max_size=3)


@given(st.lists(st.tuples(names, few_keys, st.binary(min_size=32, max_size=32)), max_size=200))
def test_answers_are_a_dictionary(put: list[tuple[str, str, bytes]]) -> None:
    """Each (who, key) gives what was put last, and nothing before; growing loses nothing."""
    answers, model = Answers(), {}
    for sequence, (by, key, fingerprint) in enumerate(put):
        before = model.get((by, key))
        assert answers.get(by, key) == before
        answers.put(by, key, fingerprint, sequence)
        model[by, key] = (fingerprint[:DIGEST], sequence)
    assert len(answers) == len(model)
    assert all(answers.get(*name) == found for name, found in model.items())


@given(st.lists(st.integers(0, 40), max_size=20))
def test_answers_are_added_together(sizes: list[int]) -> None:
    """Many new keys at once are what each by itself would be, also when they are read back."""
    alone, together, first = Answers(), Answers(), 0
    for size in sizes:
        new = range(first, first + size)
        for i in new:
            alone.put("a", f"k{i}", b"%032d" % i, i)
        keys = [Answers.name(b"a", b"k%d" % i) for i in new]
        assert together.new(keys) == len(keys)
        together.add(keys, [b"%032d" % i for i in new], first)
        first += size
    assert together == alone
    data = BytesIO(b"".join(together.dump()))
    read = Answers.load(data.read, first)
    for i in range(first + 1):
        assert alone.get("a", f"k{i}") == together.get("a", f"k{i}") == read.get("a", f"k{i}")
    with pytest.raises(ValueError, match="1 fingerprints for 2 names"):
        together.add([b"a" * DIGEST, b"b" * DIGEST], [b"f"], first)


few_or_many = st.sampled_from([0, 20]).flatmap(
    lambda least: st.lists(st.integers(0, 199), unique=True, min_size=least)
)


@given(st.sets(st.integers(0, 99)), few_or_many)
def test_the_first_known_key_is_found(known: set[int], asked: list[int]) -> None:
    """Of many keys it is told how many come before the first that was answered, also where others
    have taken the place where one is looked for first.
    """
    answers = Answers()
    for i in known:
        answers.put("a", f"k{i}", bytes(32), i)
    found = answers.new([Answers.name(b"a", b"k%d" % i) for i in asked])
    assert found == next((at for at, i in enumerate(asked) if i in known), len(asked))


def test_many_answers_take_little() -> None:
    """A hundred thousand keys are all found, in less than 70 bytes each."""
    answers = Answers()
    for i in range(100_000):
        answers.put("client", f"key-{i}", b"%032d" % i, i)
    for i in range(0, 100_000, 997):
        assert answers.get("client", f"key-{i}") == ((b"%032d" % i)[:DIGEST], i)
    assert answers.get("client", "key-100000") is None
    columns = (answers._names, answers._prints, answers._sequences, answers._places)
    assert sum(column.__sizeof__() for column in columns) < 70 * 100_000


def test_what_is_kept_of_commands_takes_what_it_needs() -> None:
    """A library's buffers of kilobytes do not live on in a few hundred bytes."""
    asks = [
        Asked("a", make("ask_grant", dataset="d", mechanisms=[laplace(n)])) for n in range(1, 501)
    ]
    for asked in asks:
        assert asked.document  # is there
    tracemalloc.start()
    assert all(asked.canonical for asked in asks)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1_000 * len(asks)


def grant(name: str, sequence: int, *, session: bool = False) -> Grant:
    """An open grant."""
    return Grant(
        id=name,
        by=f"c{sequence % 3}",
        dataset=f"d{sequence % 2}",
        selection=EVERYONE,
        command={},
        total=NOTHING,
        opened=0,
        expires=10 * sequence,
        sequence=sequence,
        bookings=(),
        session=session,
    )


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3000),
            st.sampled_from(["committed", "released", "expired"]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=20,
        unique_by=lambda one: one[0],
    )
)
def test_settled_grants_are_kept(some: list[tuple[int, str, bool, bool]]) -> None:
    """Of a settled grant everything comes back that decisions need, by whatever name it goes."""
    grants = Grants()
    for sequence, ending, odd, session in some:
        name = f"x{sequence}" if odd else f"g{sequence}"
        one = grant(name, sequence, session=session)
        grants.keep(one)
        assert grants[name] == grants.open[name] == one
        grants.settle(one, ending, sequence + 1)  # type: ignore[arg-type]
        assert name not in grants.open
        if session:
            grants.note(name)
    for sequence, ending, odd, session in some:
        name = f"x{sequence}" if odd else f"g{sequence}"
        found = grants[name]
        assert isinstance(found, Settled)
        assert (found.id, found.by, found.dataset) == (name, f"c{sequence % 3}", f"d{sequence % 2}")
        assert (found.status, found.expires, found.settled) == (ending, 10 * sequence, sequence + 1)
        assert (found.session, found.late_note) == (session, session)
    for name in ("g3001", "g", "g-1", "g01", "x", "g99999999999999999999", "g٣"):
        assert grants.get(name) is None
    assert len(list(grants.settled())) == len(some)
