"""Replay: a sound ledger replays without a finding, a tampered one never does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    NON_PRIVATE,
    SECOND,
    Book,
    hospital,
    laplace,
    last_replay,
    make,
    snapshot,
    sparse_vector,
)

from accountant.budget.apply import fold
from accountant.budget.facts import grant_in
from accountant.budget.replay import Discrepancy, Replay
from accountant.ledger.events import Event, canonical


def example() -> Book:
    """A ledger with every type of event in it."""
    book = hospital(
        "  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n  - {id: t, of: a, at: 50%}\n",
        {"sex": ["f", "m"]},
    )
    book.dataset("e")
    first = grant_in(book.grant(laplace("0.3", 2), subjects={"sex": ["f"]}))
    book.do("commit_grant", grant=first, mechanisms=[laplace("0.3")], key="commit")
    second = grant_in(book.grant(laplace("0.1"), purpose="x"))
    book.do("release_grant", grant=second, reason="never run")
    late = grant_in(book.grant(laplace("0.05"), ttl_seconds=5))
    book.now += 9 * SECOND
    book.do("commit_grant", grant=late)
    book.grant(laplace("5"))
    session = grant_in(book.do("open_sparse_vector", dataset="e", mechanism=sparse_vector()))
    book.do("count_answers", grant=session, positives=2, negatives=3)
    book.do("close_sparse_vector", grant=session)
    book.policy("  - {id: a, limit: {epsilon: 2, delta: 1e-6}}\n", confirmed_by="officer")
    book.register({"sex": ["f", "m", "x"]})
    book.record(laplace("0.2"), subjects=[{"sex": ["x"]}, {"sex": ["f"]}])
    book.record(NON_PRIVATE, dataset="e")
    small = make("ask_grant", dataset="d", mechanisms=[laplace("0.01")])
    book.batch(small, small)
    book.batch(small, make("ask_grant", dataset="d", mechanisms=[laplace("9")]))
    past = make("record_invocations", dataset="e", mechanisms=[laplace("0.3")])
    book.batch(past, past)
    book.grant(laplace("0.2"))
    return book


BOOK = example()
STORED = list(BOOK.stored)


def findings(stored: list[Any]) -> list[Discrepancy]:
    """All findings; every one has a place and a reason."""
    found = last_replay(BOOK.name, stored).findings
    assert all(0 <= f.sequence < len(stored) and f.reason for f in found)
    return found


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) of everything in a document."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from paths(item, (*path, key))
    else:
        yield path, value


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the document with another leaf."""
    copy = json.loads(json.dumps(document))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copy


def test_the_example_has_every_type_of_event() -> None:
    """What is tampered with below covers the whole vocabulary."""
    assert len({json.loads(body)["type"] for body in STORED}) == 16


def test_a_sound_ledger_has_no_finding() -> None:
    """Replay takes every decision again and comes to the same state."""
    result = BOOK.replayed()
    assert (result.findings, result.events) == ([], len(STORED))
    assert snapshot(result.state) == snapshot(BOOK.state)


def test_the_fold_of_the_bytes_is_the_state() -> None:
    """State is nothing but the fold of what is stored."""
    state = fold(BOOK.name, map(Event.from_bytes, STORED))
    assert snapshot(state) == snapshot(BOOK.state)


FREE = {"time", "by", "key", "purpose", "justification", "owner", "source_digest", "proposer"}
"""What nothing in a ledger decides or repeats: who asked, when, and words that no rule reads. A
forger can change these; whoever holds a signed head sees it.
"""


@settings(max_examples=examples(300))
@given(st.data())
def test_any_changed_value_is_found(data: st.DataObject) -> None:
    """Numbers, decisions and charges cannot be changed."""
    at = data.draw(st.integers(0, len(STORED) - 1))
    document = json.loads(STORED[at])
    inside = [
        (path, leaf)
        for path, leaf in paths(document)
        if path[0] != "command" and path[0] not in FREE
    ]
    path, leaf = data.draw(st.sampled_from(inside))
    other: Any = data.draw(
        st.sampled_from(["0", "1", "", "-1", "allow", "g0", None, True, 0, 10**9])
    )
    if isinstance(leaf, str) and leaf.isdigit():
        other = data.draw(
            st.sampled_from([other, str(int(leaf) + 1), str(int(leaf) - 1), "9" * 30])
        )
    if other == leaf and type(other) is type(leaf):
        other = "something else"
    bodies = list(STORED)
    bodies[at] = canonical(changed(document, path, other))
    assert findings(bodies)


@settings(max_examples=examples(200))
@given(st.data())
def test_changed_commands_never_crash_the_replay(data: st.DataObject) -> None:
    """Whatever a forged command says, of whatever type, the replay answers with findings or, where
    the forgery is a ledger that could have been, with its state.
    """
    at = data.draw(st.integers(0, len(STORED) - 1))
    document = json.loads(STORED[at])
    path, _ = data.draw(st.sampled_from(list(paths(document))))
    values = [
        None,
        True,
        -1,
        2**53 - 1,
        "",
        "9999-12-31T23:59:59.999999Z",
        [],
        {},
        [[]],
        "\ud7ff" * 9,
    ]
    bodies = list(STORED)
    bodies[at] = canonical(changed(document, path, data.draw(st.sampled_from(values))))
    result = last_replay(BOOK.name, bodies)
    assert isinstance(result, Replay)
    assert all(f.reason for f in result.findings)


@settings(max_examples=examples(100))
@given(
    st.sets(st.integers(0, len(STORED) - 1), min_size=1, max_size=3),
    st.binary(max_size=80),
)
def test_garbage_is_found(places: set[int], garbage: bytes) -> None:
    """Bytes that are no event are a finding wherever they stand; what is sound between them is
    checked for its bytes and order, and says nothing.
    """
    bodies = [garbage if at in places else body for at, body in enumerate(STORED)]
    assert {f.sequence for f in findings(bodies)} == places


@pytest.mark.parametrize("value", [None, "text", 5], ids=str)
def test_rows_of_other_types_are_found(value: Any) -> None:
    """SQLite columns hold anything; what is no bytes is a finding."""
    assert findings([*STORED[:4], value, *STORED[5:]])


NESTED = [b"[" * n + b"]" * n for n in (1, 60, 300, 900, 100_000)]


@pytest.mark.parametrize("value", NESTED, ids=len)
def test_nested_garbage_is_found(value: bytes) -> None:
    """No depth of nesting crashes the verifier."""
    fields = (
        b'"by":"x","ledger":"fair","sequence":0,"time":"2026-11-21T11:38:28.500000Z","type":"t"'
    )
    assert findings([b'{"a":' + value + b"," + fields + b"}"])


@pytest.mark.parametrize("at", range(len(STORED) - 1))
def test_a_dropped_event_is_found(at: int) -> None:
    """No event can be taken out of the middle."""
    assert findings(STORED[:at] + STORED[at + 1 :])


@pytest.mark.parametrize("at", range(len(STORED)))
def test_a_doubled_event_is_found(at: int) -> None:
    """No event can stand twice."""
    assert findings(STORED[: at + 1] + STORED[at:])


@pytest.mark.parametrize("at", range(len(STORED) - 1))
def test_swapped_events_are_found(at: int) -> None:
    """Neighbouring events cannot change places."""
    assert findings([*STORED[:at], STORED[at + 1], STORED[at], *STORED[at + 2 :]])


def test_a_dropped_event_with_renumbered_rest_is_found() -> None:
    """Renumbering what follows a dropped charge does not hide it: later decisions differ."""
    at = next(i for i, b in enumerate(STORED) if json.loads(b)["type"] == "grant.reserved.v1")
    bodies = list(STORED[:at])
    for body in STORED[at + 1 :]:
        document = json.loads(body)
        bodies.append(canonical(document | {"sequence": document["sequence"] - 1}))
    assert findings(bodies)


def forge(**body: Any) -> list[bytes]:
    """The ledger with one more event at its end."""
    fields = {"ledger": BOOK.name, "sequence": len(STORED), "by": "pipe"}
    stamp = {"time": json.loads(STORED[-1])["time"]}
    return [*STORED, canonical(fields | stamp | body)]


def test_a_forged_grant_is_found() -> None:
    """A grant that the rules refuse cannot be slipped in, whatever it says about itself."""
    twin = next(
        json.loads(b) for b in reversed(STORED) if json.loads(b)["type"] == "grant.reserved.v1"
    )
    own = {"ledger", "sequence", "by", "time"}
    body = {k: v for k, v in twin.items() if k not in own}
    body |= {"key": "forged"}
    for epsilon in ("0.1", "50"):
        command = body["command"] | {"mechanisms": [laplace(epsilon)]}
        assert findings(forge(**body | {"command": command}))


FORGED: list[tuple[str, dict[str, Any]]] = [
    ("no command", {"type": "grant.released.v1"}),
    ("an unknown type", {"type": "budget.given.v1", "command": {"type": "ask_grant"}}),
    ("an unknown command", {"type": "grant.released.v1", "command": {"type": "steal"}}),
    ("a command that is a list", {"type": "grant.released.v1", "command": [1]}),
    ("a command that is a word", {"type": "grant.released.v1", "command": "ask_grant"}),
    ("a command of no kind", {"type": "grant.released.v1", "command": {"type": {}}}),
    (
        "a release of what is settled",
        {
            "type": "grant.released.v1",
            "command": {"type": "release_grant", "grant": "g4", "reason": "x"},
        },
    ),
    (
        "a policy of nonsense",
        {
            "type": "policy.adopted.v1",
            "command": {"type": "adopt_policy", "policy": {"rules": 1}, "source_digest": "x"},
        },
    ),
    (
        "a key that is a list",
        {"type": "grant.refused.v1", "key": [1], "command": {"type": "ask_grant"}},
    ),
]


@pytest.mark.parametrize("body", [r[1] for r in FORGED], ids=[r[0] for r in FORGED])
def test_forged_events_are_found(body: dict[str, Any]) -> None:
    """Nothing that the service would not have written passes."""
    assert findings(forge(**body))


def test_a_grant_at_the_end_of_time_is_found() -> None:
    """A stamp so late that its expiry has no date is a finding, no crash."""
    document = json.loads(STORED[-1]) | {"time": "9999-12-31T23:59:59.000000Z"}
    bodies = [*STORED[:-1], canonical(document)]
    assert findings(bodies)


def test_a_retry_in_the_ledger_is_found() -> None:
    """A key may be answered once: the same command and key at a new place is a finding."""
    document = json.loads(next(b for b in STORED if b'"grant.reserved.v1"' in b))
    assert findings(forge(**{k: document[k] for k in ("command", "key", "type")}))


def test_events_of_another_ledger_are_found() -> None:
    """A ledger cannot be passed off as another one."""
    assert last_replay("other", STORED).findings


def test_an_empty_ledger_is_sound() -> None:
    """No events, no findings."""
    assert last_replay("fair", []).findings == []


def test_batches_of_one_command_replay() -> None:
    """A command that led to two events (an expiry and a note) replays as two."""
    book = hospital()
    grant = grant_in(book.grant(laplace("0.1"), ttl_seconds=1))
    book.now += SECOND
    assert len(book.ask(make("commit_grant", grant=grant))) == 2
    assert book.replayed().findings == []
