"""The express way of a replay finds what the way at length finds, and leads to the same state."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import CLIENTS, Ops, ledger, ops
from support import Book, declared, laplace, snapshot

from accountant.budget.express import Express
from accountant.budget.express.holding import Holding
from accountant.budget.express.running import Running
from accountant.budget.express.stamps import LENGTH, Stamps
from accountant.budget.replay import Replay, replay
from accountant.budget.state import State
from accountant.ledger.events import Event, canonical, microseconds, rfc3339
from accountant.privacy.filters import GATES


def both(book: str, bodies: list[Any]) -> tuple[Replay, Replay]:
    """The replay by both ways."""
    [*_, quick] = replay(book, bodies, express=True)
    [*_, slow] = replay(book, bodies, express=False)
    return quick, slow


def outcomes(book: str, bodies: list[Any]) -> tuple[Any, Any]:
    """What the express way finds and comes to, and what the way at length does."""
    quick, slow = ((one.findings, snapshot(one.state)) for one in both(book, bodies))
    return quick, slow


@settings(max_examples=100)
@given(st.sampled_from(sorted(GATES)), st.booleans(), ops)
def test_a_sound_ledger(gate: str, wide: bool, todo: Ops) -> None:
    """Whatever clients did, both ways find nothing and come to the state that was kept."""
    book = ledger(gate, wide, todo)
    quick, slow = outcomes(book.name, book.stored)
    assert quick == slow == ([], snapshot(book.state))


@st.composite
def forgeries(draw: st.DrawFn, bodies: list[bytes]) -> list[bytes]:
    """The ledger with something changed, mostly near its end, where all has come before."""
    forged = list(bodies)
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(forged) - 2) | st.integers(len(forged) // 2, len(forged) - 2))
        how = draw(st.sampled_from(["byte", "digits", "leaf", "drop", "double", "swap", "move"]))
        body = forged[at]
        if how == "byte":
            place = draw(st.integers(0, len(body) - 1))
            value = bytes([draw(st.integers(0, 255))])
            forged[at] = body[:place] + value + body[place + 1 :]
        elif how == "digits":
            places = [i for i, byte in enumerate(body) if chr(byte).isdigit()]
            for place in draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)):
                digit = b"%d" % draw(st.integers(0, 9))
                body = body[:place] + digit + body[place + 1 :]
            forged[at] = body
        elif how == "leaf":
            forged[at] = draw(other_leaf(body))
        elif how == "drop":
            forged = forged[:at] + renumbered(forged[at + 1 :], -1, draw(st.booleans()))
        elif how == "double":
            forged = forged[: at + 1] + renumbered(forged[at:], 1, draw(st.booleans()))
        elif how == "swap":
            forged[at], forged[at + 1] = forged[at + 1], forged[at]
        else:
            other = forged[draw(st.integers(0, len(forged) - 1))]
            forged[at] = renumbered([other], None, True, at)[0]
    return forged


def renumbered(bodies: list[bytes], by: int | None, do: bool, at: int = 0) -> list[bytes]:
    """The events under other sequences; what is no event stays as it is."""
    found = []
    for body in bodies if do else ():
        try:
            document = json.loads(body)
            number = at if by is None else document["sequence"] + by
            found.append(canonical(document | {"sequence": number}))
        except (ValueError, TypeError, KeyError):
            found.append(body)
    return found if do else bodies


@st.composite
def other_leaf(draw: st.DrawFn, body: bytes) -> bytes:
    """The event with another value somewhere, in canonical form."""
    try:
        document = json.loads(body)
    except ValueError:
        return body
    at, value = document, document
    while isinstance(value, dict | list) and value:
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        at, key = value, draw(st.sampled_from(list(keys)))
        value = at[key]
    others = ["0", "1", "", "allow", "infinite", "g3", True, False, 0, 1, [], {}, None]
    if isinstance(value, bool):
        others = [not value]
    elif isinstance(value, str) and value.isdigit():
        others += [str(int(value) + 1), str(max(0, int(value) - 1))]
    if at is not document or at:
        at[key] = draw(st.sampled_from(others))
    try:
        return canonical(document)
    except ValueError:
        return body


LEDGERS = [
    ledger(
        gate,
        wide=True,
        todo=[
            op
            for i in range(14)
            for op in [
                (
                    "ask",
                    CLIENTS[i % 2],
                    "d",
                    i % 3,
                    (0, 2, 3)[i // 2 % 3],
                    ("free text", None)[i % 2],
                ),
                ("record", "one", "e", 0, 0, "free text"),
                ("ask", "two", "e", 0, 0, "study"),
                ("commit", 0),
                ("ask", "two", "d", 4, 0, None),
                ("keyed", 0),
                ("part" if i % 3 else "release", 0),
            ]
        ]
        + [("wait", 4000), ("expire",), ("ask", "one", "d", 0, 0, None)],
    )
    for gate in ("renyi", "basic", "gdp")
]


@settings(max_examples=200)
@given(st.data())
def test_a_forged_ledger(data: st.DataObject) -> None:
    """Whatever is changed in a ledger in which nearly all is taken the express way, both ways find
    the same.
    """
    book = data.draw(st.sampled_from(LEDGERS))
    quick, slow = outcomes(book.name, data.draw(forgeries(book.stored)))
    assert quick == slow


@settings(max_examples=60)
@given(st.sampled_from(sorted(GATES)), st.booleans(), ops, st.data())
def test_any_forged_ledger(gate: str, wide: bool, todo: Ops, data: st.DataObject) -> None:
    """The same for ledgers of any kind."""
    book = ledger(gate, wide, todo)
    quick, slow = outcomes(book.name, data.draw(forgeries(book.stored)))
    assert quick == slow


@pytest.mark.parametrize("book", LEDGERS, ids=lambda book: book.stored[0][-9:])
def test_most_goes_the_express_way(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes again is not decided at length again, or nothing here would be tested."""
    taken = []
    take = Express.take
    monkeypatch.setattr(
        Express, "take", lambda self, data: taken.append(take(self, data)) or taken[-1]
    )
    quick, slow = outcomes(book.name, book.stored)
    assert quick == slow == ([], snapshot(book.state))
    assert sum(taken) > len(taken) / 3


def test_what_wraps_is_infinite() -> None:
    """Sums near 2**62 are booked as infinite, after as many express events as there is room for."""
    book = Book()
    book.register()
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 1}}\n")
    for _ in range(14):
        book.record(declared("1000000", count=1000))
    quick, slow = outcomes(book.name, book.stored)
    assert quick == slow == ([], snapshot(book.state))
    assert book.used("")[0][2] > 0


@given(st.integers(-(10**16), 250_000_000_000_000_000))
def test_stamps_are_written_and_read_as_in_events(time: int) -> None:
    """The stamps' short cuts agree with the functions that define them."""
    stamps = Stamps()
    text = rfc3339(time).encode()
    for _ in range(2):  # worked out, then remembered
        assert stamps.write(time) == text
        assert stamps.read(text) == (microseconds(text.decode()) if len(text) == LENGTH else None)


@given(st.integers(0, 26), st.integers(0, 255))
def test_what_is_no_stamp_is_not_read(place: int, byte: int) -> None:
    """Only what ``rfc3339`` writes is a stamp."""
    text = bytearray(b"2026-11-21T11:38:28.500000Z")
    text[place] = byte
    try:
        time = microseconds(text.decode())
        same = rfc3339(time).encode() == text
    except ValueError:
        same = False
    assert Stamps().read(bytes(text)) == (time if same else None)


def test_the_state_is_whole_in_the_end() -> None:
    """What the caller gets last is what events lead to, and says how many there were."""
    book = LEDGERS[0]
    [*_, last] = replay(book.name, book.stored, express=True)
    assert last.events == len(book.stored) == last.state.sequence
    again = [Event.from_bytes(body) for body in book.stored]
    assert [event.sequence for event in again] == list(range(last.events))


def test_many_open_grants_cost_no_more_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many grants are open, an event goes through the list of them a few times at most."""
    monkeypatch.setattr("accountant.budget.express.running._MOST_UNWRITTEN", 10)
    looked: Counter[str] = Counter()
    begin = Running.__init__

    class Counting(Holding):
        def __contains__(self, number: object) -> bool:
            looked["up"] += 1
            return super().__contains__(number)

    def begun(running: Running, state: State) -> None:
        begin(running, state)
        running.held = Counting()

    monkeypatch.setattr(Running, "__init__", begun)
    book = ledger("basic", False, [])
    for _ in range(500):
        book.grant(laplace("0.0001"))
    [*_, done] = replay(book.name, book.stored, express=True)
    assert (done.findings, snapshot(done.state)) == ([], snapshot(book.state))
    assert 100 < looked["up"] < 4 * 500
