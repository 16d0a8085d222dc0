"""What a state keeps of answered keys and settled grants: what a dictionary would, in less room."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from support import laplace, make

from accountant.budget.commands import Envelope
from accountant.budget.grants import Grant, Grants, Settled
from accountant.budget.idempotency import DIGEST, IdempotencyIndex
from accountant.budget.population.selection import EVERYONE, Selection
from accountant.budget.reach import Reach
from accountant.privacy.units import NOTHING

names = st.sampled_from(["", "a", "b", "ab", "a:b", "1:a"])
few_keys = st.text(st.sampled_from("ab:1"), max_size=3)


@given(st.lists(st.tuples(names, few_keys, st.binary(min_size=32, max_size=32)), max_size=200))
def test_answers_are_a_dictionary(put: list[tuple[str, str, bytes]]) -> None:
    """Each (who, key) gives what was put last, and nothing before; growing loses nothing."""
    answers, model = IdempotencyIndex(), {}
    for sequence, (by, key, fingerprint) in enumerate(put):
        before = model.get((by, key))
        assert answers.get(by, key) == before
        answers.put(by, key, fingerprint, sequence)
        model[by, key] = (fingerprint[:DIGEST], sequence)
    assert len(answers) == len(model)
    assert all(answers.get(*name) == found for name, found in model.items())


def test_many_answers_take_little() -> None:
    """A hundred thousand keys are all found, in less than 70 bytes each."""
    answers = IdempotencyIndex()
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
        Envelope("a", make("ask_grant", dataset="d", mechanisms=[laplace(n)]))
        for n in range(1, 501)
    ]
    for asked in asks:
        assert asked.document  # is there
    tracemalloc.start()
    assert all(asked.canonical for asked in asks)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1_000 * len(asks)


def test_a_selection_is_kept_without_what_was_worked_out_of_it() -> None:
    """A grant that is kept holds the boxes of its cells alone, whichever of layouts and masks were
    made of them.
    """
    for make_some in (lambda s: s.layouts, lambda s: s.mask((4, 3)), lambda s: s.outside((4, 3))):
        for side in (range(1, 3), frozenset((0, 2))):
            selection = Selection(everyone=False, boxes=((side, range(3)),))
            assert selection.bare() is selection
            make_some(selection)
            kept = selection.bare()
            assert kept == selection
            assert kept._layouts is kept._mask is kept._outside is None
            assert selection.views == (side == range(1, 3))


def grant(sequence: int, *, session: bool = False) -> Grant:
    """An open grant."""
    return Grant(
        id=f"g{sequence}",
        by=f"c{sequence % 3}",
        on=Reach((f"d{sequence % 2}",), ("d0", "d1")),
        selection=EVERYONE,
        command=b"{}",
        total=NOTHING,
        opened=0,
        expires=10 * sequence,
        sequence=sequence,
        session=session,
    )


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3000),
            st.sampled_from(["committed", "released", "expired"]),
            st.booleans(),
        ),
        max_size=20,
        unique_by=lambda one: one[0],
    )
)
def test_settled_grants_are_kept(some: list[tuple[int, str, bool]]) -> None:
    """Of a settled grant everything comes back that decisions need; a taken back end is none."""
    grants = Grants()
    for sequence, ending, session in some:
        one = grant(sequence, session=session)
        grants.keep(one)
        assert grants.get(one.id) == grants.open[one.id] == one
        grants.settle(one, "expired", 7)
        grants.reopen(one)
        assert grants.get(one.id) == one
        grants.settle(one, ending, sequence + 1)  # type: ignore[arg-type]
        assert one.id not in grants.open
        if session:
            grants.note(one.id)
    for sequence, ending, session in some:
        found, one = grants.get(f"g{sequence}"), grant(sequence)
        assert isinstance(found, Settled)
        assert (found.id, found.by) == (f"g{sequence}", f"c{sequence % 3}")
        assert (found.on, found.sequence) == (one.on, sequence)
        assert (found.status, found.expires, found.settled) == (ending, 10 * sequence, sequence + 1)
        assert (found.session, found.late_note) == (session, session)
    for name in ("g3001", "g", "g-1", "g01", "x", "g99999999999999999999", "g٣"):
        assert grants.get(name) is None
    assert len(list(grants.settled())) == len(some)
