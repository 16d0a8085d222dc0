"""Refused batches that one event has no room for: parts hold the items, and the refusal follows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Book, audited, hospital, laplace, make, snapshot
from test_batches import GROUPS, SEXES, asking, commit, release

from accountant.budget.apply import apply, drop_journal, fold, keep_journal, rollback
from accountant.budget.batches import as_single, refused_items
from accountant.budget.commands import Command, Envelope, batch_of, digest_of
from accountant.budget.decide import Repeated, batching, decide
from accountant.budget.errors import Conflict, Invalid
from accountant.budget.facts import grant_in
from accountant.budget.replay import replay
from accountant.budget.trials.backtest import Backtest
from accountant.ledger.events import MAX_BYTES, Event, canonical

PART, REFUSED = "batch.part.v1", "batch.refused.v1"
ROOM = "  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n"
RULES = ROOM + (
    "  - {id: slow, across: datasets, limit: {epsilon: 2}, unlock: {per_request: 1/40}}\n"
    "  - {id: word, trusted: {epsilon: 9}, action: flag}\n"
)
LONG = [{"kind": "laplace", "sensitivity": "1", "scale": "1." + "3" * 38}] * 170
"""As a request these take 15 KB; the charge of each, which a refusal holds beside, 22 KB."""


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """An event of a refused batch holds so many bytes of items: small batches have parts, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "MOST_BYTES", size)
        yield


def ledger() -> Book:
    """A ledger with six cells, two datasets, and two open grants."""
    book = hospital(RULES, SEXES)
    book.dataset("e")
    for group in GROUPS[:2]:
        book.grant(laplace("0.01", 2), subjects=group)
    return book


def many(count: int, epsilon: str = "0.001") -> list[Command]:
    """Requests with texts, on all of the groups."""
    return [
        asking(epsilon, subjects=GROUPS[number % 4], purpose=f"number {number}")
        for number in range(count)
    ]


asks = st.builds(
    asking,
    st.sampled_from(["0.01", "0.1", "0.45"]),
    st.sampled_from(["d", "e"]),
    subjects=st.sampled_from(GROUPS),
    purpose=st.sampled_from([None, "x" * 80]),
)
ends = st.sampled_from([[], [commit("g5")], [release("g6")], [release("g5"), commit("g6")]])


@given(ends, st.lists(asks, min_size=1, max_size=24), st.sampled_from([150, 400, 1_500]))
def test_a_refused_batch_of_any_size_replays(
    first: list[Command], then: list[Command], room: int
) -> None:
    """It is decided again to the same bytes behind its parts, and folded to the same state; nothing
    but its key is used up, and the other verifier has no objection. What rules say of the refused
    item is what they say where no parts are needed, and where it comes alone after the others.
    """
    items = [*first, *then]
    roomy = ledger()
    whole = roomy.batch(*items, key="k")[-1]
    with room_for(room):
        book = ledger()
        before = snapshot(book.state)
        events = book.batch(*items, key="k")
        assert events[-1].type == whole.type
        result = book.replayed()
        assert result.findings == []
        again = fold("fair", map(Event.from_bytes, book.stored))
        assert snapshot(result.state) == snapshot(book.state) == snapshot(again)
        answered = events[-1] if whole.type == REFUSED else events[0]
        assert book.batch(*items, key="k") == Repeated(answered.sequence)
    assert audited(book).findings == []
    if whole.type != REFUSED:
        assert book.stored == roomy.stored
        return
    *parts, refused = events
    after = snapshot(book.state)
    assert [after[name] == before[name] for name in ("accounts", "grants", "open")] == [True] * 3
    told = ("total", "fired", "rules", "policy", "by")
    assert [refused.body.get(n) for n in told] == [whole.body.get(n) for n in told]
    assert as_single(refused).body["command"] == as_single(whole).body["command"]
    listed = [command for command, *_ in refused_items(events)]
    assert listed == whole.body["items"]
    assert refused.body.get("first", 0) + refused.body["item"] == whole.body["item"]
    assert refused.body.get("parts", 0) == len(parts)
    assert {event.type for event in parts} <= {PART}


@given(st.lists(asks, min_size=1, max_size=24))
def test_a_large_batch_is_decided_as_its_items_alone(items: list[Command]) -> None:
    """The first item that is refused when all come one after the other is that of the batch."""
    alone = ledger()
    place = next(
        (at for at, item in enumerate(items) if alone.ask(item)[-1].type == "grant.refused.v1"),
        None,
    )
    with room_for(150):
        last = ledger().batch(*items)[-1]
    found = last.body.get("first", 0) + last.body["item"] if last.type == REFUSED else None
    assert found == place


def test_parts_hold_all_but_the_item_that_did_not_go() -> None:
    """They come directly before the refusal; and its key is used up for any other batch."""
    book = hospital(ROOM, SEXES)
    listed = many(1_200, "0.0000001")
    listed[900] = asking("9", purpose="too much")
    before = book.state.sequence
    *parts, refused = book.batch(*listed, key="no")
    assert len(parts) == refused.body["parts"] > 4
    assert [event.type for event in parts] == [PART] * len(parts)
    assert (refused.type, refused.sequence) == (REFUSED, before + len(parts))
    assert (refused.body["first"], refused.body["item"]) == (900, 0)
    assert all(len(event.to_bytes()) < MAX_BYTES for event in parts)
    assert book.batch(*listed, key="no") == Repeated(refused.sequence)
    with pytest.raises(Invalid, match="was used for another request"):
        book.batch(*listed[1:], key="no")
    assert book.replayed().findings == []


def test_a_long_decision_moves_the_items_into_parts() -> None:
    """Items of less than 48 KiB are parted, too, if beside them is no room for the decision."""
    book = hospital(RULES, SEXES)
    large = make("ask_grant", dataset="d", mechanisms=LONG)
    *parts, refused = book.batch(large, large, large)
    assert [event.type for event in parts] == [PART]
    assert refused.body["items"] == [large.to_json()]
    assert book.replayed().findings == []
    assert audited(book).findings == []


def test_parts_are_taken_back() -> None:
    """A commit that fails leaves the state as it was, parts and refusal alike."""
    book = ledger()
    before, items = snapshot(book.state), tuple(many(700, "0.4"))
    outcomes = decide(book.state, Envelope("pipe", batch_of(items), "k", items), book.now)
    assert isinstance(outcomes, list)
    assert len(outcomes) > 2
    for count in (1, len(outcomes)):
        keep_journal(book.state)
        for one in outcomes[:count]:
            apply(book.state, one)
        assert (book.state.batch is None) == (count == len(outcomes))
        assert rollback(book.state)
        drop_journal(book.state)
        assert book.state.batch is None
        assert snapshot(book.state) == before


def test_a_backtest_asks_for_all_items() -> None:
    """Under another policy the whole batch is asked for, and compared as one request."""
    book = ledger()
    then = book.state.sequence
    with room_for(150):
        book.batch(*many(9, "0.2"))
        test = Backtest(fold("fair", map(Event.from_bytes, book.stored[:then])))
        test.adopt(ledger().state.adopted.policy, book.now)  # type: ignore[union-attr]
        [one] = test.compare(map(Event.from_bytes, book.stored[then:]))
    assert (one.then, one.sequence) == (one.now, book.state.last)
    assert one.then.outcome == "block"


# -- tampering -------------------------------------------------------------------------------


def example() -> list[dict[str, Any]]:
    """The events of a ledger with a refused batch in four parts: two before its item, two behind;
    a grant comes before and after.
    """
    book = ledger()
    items = [asking("0.001", purpose=f"number {number}") for number in range(9)]
    items[4] = asking("9")
    book.batch(*items, key="k")
    book.grant(laplace("0.01"))
    events = [json.loads(body) for body in book.stored]
    assert [event["type"] for event in events[FIRST : FIRST + 5]] == [PART] * 4 + [REFUSED]
    return events


FIRST = 7
"""The sequence of the first part."""
Events = list[dict[str, Any]]


def moved(events: Events, at: int, to: int) -> None:
    """Puts an event elsewhere."""
    events.insert(to, events.pop(at))


def edit(place: int, **fields: Any) -> Callable[[Events], None]:
    """A change of fields of one of the events, counted from the first part on."""
    return lambda events: events[FIRST + place].update(fields)


def asks_else(place: int, **fields: Any) -> Callable[[Events], None]:
    """A change of fields of what one of the events answers."""
    return lambda events: events[FIRST + place]["command"].update(fields)


def exchange(events: Events) -> None:
    """Exchanges two items of a part."""
    events[FIRST]["items"].reverse()


def hand_on(events: Events) -> None:
    """Moves an item into the next part."""
    events[FIRST + 1]["items"].insert(0, events[FIRST]["items"].pop())
    events[FIRST + 1]["command"]["first"] -= 1


def united(events: Events) -> None:
    """Makes one part of two that follow each other."""
    events[FIRST]["items"] += events.pop(FIRST + 1)["items"]
    events[FIRST + 3]["parts"] -= 1


def shorter(events: Events) -> None:
    """Leaves the last part out, and says so everywhere."""
    gone = events.pop(FIRST + 3)
    commands = [one for event in events[FIRST : FIRST + 3] for one in event["items"]]
    commands[4:4] = events[FIRST + 3]["items"]
    whole = {"size": 9 - len(gone["items"]), "digest": digest_of(map(canonical, commands))}
    for event in events[FIRST : FIRST + 4]:
        event["command"] |= whole
    events[FIRST + 3]["parts"] = 2


def renumbered(events: Events) -> None:
    """Closes gaps."""
    for number, event in enumerate(events):
        event["sequence"] = number


TAMPERINGS: dict[str, Callable[[Events], Any]] = {
    "a part removed": lambda e: e.pop(FIRST + 1),
    "all parts removed": lambda e: e.__delitem__(slice(FIRST, FIRST + 4)),
    "a part doubled": lambda e: e.insert(FIRST, json.loads(json.dumps(e[FIRST]))),
    "parts exchanged": lambda e: moved(e, FIRST, FIRST + 1),
    "the refusal between its parts": lambda e: moved(e, FIRST + 4, FIRST + 2),
    "the refusal removed": lambda e: e.pop(FIRST + 4),
    "the end after the parts": lambda e: e.__delitem__(slice(FIRST + 4, None)),
    "the end after one part": lambda e: e.__delitem__(slice(FIRST + 1, None)),
    "an event between": lambda e: moved(e, FIRST + 5, FIRST + 4),
    "an event between parts": lambda e: moved(e, FIRST + 5, FIRST + 2),
    "another number of parts": edit(4, parts=3),
    "no number of parts": lambda e: e[FIRST + 4].pop("parts"),
    "another place of its items": edit(4, first=3),
    "another item": edit(4, item=1),
    "another item in a part": lambda e: e[FIRST]["items"].__setitem__(0, e[FIRST + 4]["items"][0]),
    "items exchanged": exchange,
    "an item in another part": hand_on,
    "an item removed": lambda e: e[FIRST + 1]["items"].pop(),
    "no items in a part": edit(1, items=[]),
    "another place of a part": asks_else(1, first=1),
    "another size": asks_else(1, size=10),
    "another digest": asks_else(2, digest="0" * 64),
    "a part of somebody else": edit(1, by="other"),
    "a part with a key": edit(0, key="own"),
    "a part with a header": edit(1, batch=FIRST),
    "a later part": edit(3, time="2026-12-31T00:00:00.000000Z"),
    "a part that is none": lambda e: e[FIRST + 2].update(type="batch.opened.v1"),
}


@pytest.mark.parametrize("tamper", TAMPERINGS.values(), ids=TAMPERINGS)
def test_tampered_parts_are_found(tamper: Callable[[Events], Any]) -> None:
    """By both verifiers: no part can be lost, added, moved or changed, and nothing can stand
    between the parts and their refusal, however the rest is made to agree.
    """
    with room_for(420):
        events = example()
        assert findings(events) == ([], [])
        tamper(events)
        renumbered(events)
        whole, minimal = findings(events)
    assert whole
    assert minimal or tamper in TRUSTED


TRUSTED = (TAMPERINGS["an item in another part"],)
"""The second verifier leaves to the first into how many parts the items go."""


def test_other_parts_would_be_another_ledger() -> None:
    """Fewer parts than the items need are found."""
    with room_for(420):
        events = example()
        united(events)
        renumbered(events)
        whole, _ = findings(events)
    assert whole


def findings(events: Events) -> tuple[list[Any], list[Any]]:
    """What both verifiers say of these events."""
    book = Book()
    book.stored = list(map(canonical, events))
    audit = audited(book)
    without_refusal = audit.parts  # which the end of a bundle makes a finding
    return list(replay("fair", book.stored))[-1].findings, audit.findings + without_refusal


def test_only_a_refusal_has_parts() -> None:
    """Behind parts nothing but their refusal is decided."""
    with room_for(420):
        events = example()
        state = fold("fair", (Event.from_bytes(canonical(one)) for one in events[: FIRST + 4]))
        asked = asking("0.001")
        for other in (
            Envelope("pipe", asked, "x"),
            Envelope("pipe", batch_of([asked]), "x", (asked,)),
        ):
            with pytest.raises(Conflict, match="only another part, or its refusal"):
                decide(state, other, state.time)


def test_a_grant_that_expires_comes_before_the_parts() -> None:
    """What a batch commits too late is expired first; then the parts and the refusal follow."""
    book = ledger()
    late = grant_in(book.grant(laplace("0.01"), ttl_seconds=5))
    book.now += 9_000_000
    with room_for(150):
        events = book.batch(commit(late), *many(4), asking("5"))
        assert [event.type for event in events][:2] == ["grant.expired.v1", PART]
        assert events[-1].type == REFUSED
        assert book.replayed().findings == []
