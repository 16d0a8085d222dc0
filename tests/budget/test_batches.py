"""Batches: all or nothing, as if each item had come alone, and never a half of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SECOND, Book, hospital, laplace, make, snapshot

from accountant.budget.apply import fold
from accountant.budget.commands import (
    BatchRequest,
    Command,
    Envelope,
    batch_of,
    decided_in,
    digest_of,
)
from accountant.budget.decide import Repeated, decide
from accountant.budget.errors import Conflict, Forbidden, Invalid, NotFound
from accountant.budget.facts import grant_in
from accountant.budget.replay import replay
from accountant.ledger.events import MAX_BYTES, Event, canonical

SEXES = {"sex": ["f", "m"], "age": ["1", "2", "3"]}
GROUPS: list[Any] = [None, {"sex": ["f"]}, {"age": ["1", "3"]}, [{"sex": ["m"]}, {"age": ["2"]}]]
RULES = (
    "  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n"
    "  - {id: person, across: datasets, limit: {epsilon: 1.5}}\n"
    "  - {id: each, per: client, limit: {epsilon: 0.9}}\n"
)


def ledger() -> Book:
    """A ledger with six cells, two datasets, and some open grants of two clients."""
    book = hospital(RULES, SEXES)
    book.dataset("e")
    for number in range(4):
        group = GROUPS[number]
        book.grant(laplace("0.1", 2), subjects=group, by="pipe" if number else "other")
    return book


def asking(epsilon: str = "0.1", dataset: str = "d", kind: str = "ask_grant", **more: Any) -> Any:
    """A request for one Laplace mechanism."""
    return make(kind, dataset=dataset, mechanisms=[laplace(epsilon)], **more)


def commit(grant: str, **more: Any) -> Command:
    """The commit of a grant."""
    return make("commit_grant", grant=grant, **more)


def release(grant: str) -> Command:
    """The release of a grant."""
    return make("release_grant", grant=grant, reason="never run")


def types(book: Book) -> list[str]:
    """The types of all events."""
    return [json.loads(body)["type"] for body in book.stored]


def settled(book: Book) -> Any:
    """Accounts, and grants without their names."""
    grants = book.state.grants
    opened = [(g.by, g.on, g.selection, g.total, g.bookings) for g in grants.in_order()]
    ended = [(g.by, g.on, g.status) for g in grants.settled()]
    return snapshot(book.state)["accounts"], opened, ended


epsilons = st.sampled_from(["0.01", "0.1", "0.3", "0.45"])
asks = st.builds(
    asking,
    epsilons,
    st.sampled_from(["d", "e"]),
    subjects=st.sampled_from(GROUPS),
)
pasts = st.builds(
    asking,
    epsilons,
    st.sampled_from(["d", "e"]),
    st.just("record_invocations"),
    subjects=st.sampled_from(GROUPS),
)
mine = st.sampled_from(["g6", "g7", "g8"])
ends = st.dictionaries(mine, st.sampled_from(["commit", "part", "release"])).map(
    lambda chosen: [
        release(name)
        if how == "release"
        else commit(name, **({"mechanisms": [laplace("0.1")]} if how == "part" else {}))
        for name, how in chosen.items()
    ]
)
spending = st.builds(
    lambda first, then: [*first, *then], ends, st.lists(asks, min_size=1, max_size=5)
)
batches = spending | st.lists(pasts, min_size=1, max_size=5)


@given(st.lists(batches, min_size=1, max_size=3))
def test_a_batch_is_its_items_one_after_the_other(todo: list[list[Command]]) -> None:
    """Where all are admitted, accounts and grants are as if each had come alone; where one is not,
    nothing changes but that its key is answered; and deciding changes nothing in any case.
    """
    together, apart = ledger(), ledger()
    for items in todo:
        before = snapshot(together.state)
        asked = Envelope("pipe", batch_of(items), "k", tuple(items))
        try:
            decide(together.state, asked, together.now)
        except (Conflict, NotFound):  # a grant that an earlier batch has ended
            assert snapshot(together.state) == before
            return
        assert snapshot(together.state) == before
        events = together.batch(*items)
        if events[-1].type == "batch.refused.v1":
            assert len(events) == 1
            after = snapshot(together.state)
            for name in ("accounts", "grants", "open"):
                assert after[name] == before[name]
            continue
        places = [event.sequence - before["sequence"] for event in events]
        assert places == list(range(len(items) + 1))
        kinds = [event.type for event in events[1:]]
        assert kinds == [apart.ask(item)[-1].type for item in items]
        assert [e[:4] for e in settled(together)[1]] == [e[:4] for e in settled(apart)[1]]
        assert settled(together)[0] == settled(apart)[0]
        assert settled(together)[2] == settled(apart)[2]
    result = list(replay("fair", together.stored))[-1]
    assert result.findings == []
    assert snapshot(result.state) == snapshot(together.state)
    again = fold("fair", map(Event.from_bytes, together.stored))
    assert snapshot(again) == snapshot(together.state)


def ordered(listed: list[Command]) -> list[Command]:
    """The commands of a batch that lists these, in the order in which they are decided."""
    items = BatchRequest.model_validate({"items": [item.to_json() for item in listed]}).commands()
    return [items[place] for place in decided_in(items)]


@given(spending, st.randoms(use_true_random=False))
def test_the_order_of_items_bears_on_nothing(items: list[Command], random: Any) -> None:
    """Whether a batch is admitted does not depend on the order in which its items are listed."""

    def admitted(listed: list[Command]) -> bool:
        book = ledger()
        return bool(book.batch(*ordered(listed))[-1].type != "batch.refused.v1")

    shuffled = list(items)
    random.shuffle(shuffled)
    assert admitted(items) == admitted(shuffled)


def test_what_gives_back_counts_first() -> None:
    """A release makes room for a grant that is listed before it."""
    book = hospital("  - {id: a, limit: {epsilon: 1}}\n")
    held = grant_in(book.grant(laplace("0.9")))
    listed = [asking("0.8"), release(held)]
    assert ordered(listed) == listed[::-1]
    assert [e.type for e in book.batch(*ordered(listed))[1:]] == [
        "grant.released.v1",
        "grant.reserved.v1",
    ]


def test_a_refused_batch_quotes_the_item_after_those_before_it() -> None:
    """One event says which item did not go, and what was used with those before it."""
    book = hospital("  - {id: a, limit: {epsilon: 1}}\n")
    items = [asking("0.6"), asking("0.3"), asking("0.2"), asking("0.05")]
    [event] = book.batch(*items)
    assert (event.type, event.body["item"]) == ("batch.refused.v1", 2)
    assert book.decision(event)["rules"][0]["spent_before"] == "0.9"
    assert event.body["items"] == [item.to_json() for item in items]
    assert not book.state.open


def test_a_key_answers_the_whole_batch() -> None:
    """The same key and items give the first answer; other items, or their order, do not."""
    book = ledger()
    items = [asking("0.01"), asking("0.02")]
    first = book.batch(*items, key="k")[0]
    assert book.batch(*items, key="k") == Repeated(first.sequence)
    refused = book.batch(asking("5"), key="r")[0]
    assert book.batch(asking("5"), key="r") == Repeated(refused.sequence)
    for others in (items[::-1], items[:1], [*items, items[0]]):
        with pytest.raises(Invalid, match="was used for another request"):
            book.batch(*others, key="k")


def test_an_item_that_cannot_be_answered_leaves_nothing() -> None:
    """The first item that has a problem names its place; nothing is recorded, no key used up."""
    book = ledger()
    size = len(book.stored)
    bad: list[tuple[Command, type[Exception]]] = [
        (commit("g99"), NotFound),
        (commit("g5"), Forbidden),
        (asking("0.1", "nowhere"), Invalid),
        (asking("0.1", subjects={"sex": ["x"]}), Invalid),
        (commit("g7", mechanisms=[laplace("0.3")]), Invalid),
    ]
    for item, kind in bad:
        with pytest.raises(kind) as problem:
            book.batch(commit("g6"), item, asking("0.01"), key="k")
        assert problem.value.numbers["item"] == 1  # type: ignore[attr-defined]
    with pytest.raises(Conflict):
        book.batch(commit("g7"), release("g7"))
    assert len(book.stored) == size
    assert book.batch(commit("g6"), key="k")[0].type == "batch.opened.v1"


def test_a_late_commit_in_a_batch_is_a_note() -> None:
    """A grant past its time is expired before the batch begins, so each item is one event; one that
    was to be released is no item that can be answered.
    """
    book = ledger()
    late = grant_in(book.grant(laplace("0.01"), ttl_seconds=5))
    book.now += 9 * SECOND
    with pytest.raises(Conflict, match="expired"):
        book.batch(release(late))
    book.batch(commit("g6"), commit(late), asking("0.01"))
    assert types(book)[-5:] == [
        "grant.expired.v1",
        "batch.opened.v1",
        "grant.committed.v1",
        "grant.noted.v1",
        "grant.reserved.v1",
    ]
    refused = grant_in(book.grant(laplace("0.01"), ttl_seconds=5))
    book.now += 9 * SECOND
    book.batch(commit(refused), asking("5"))
    assert types(book)[-2:] == ["grant.expired.v1", "batch.refused.v1"]
    assert book.replayed().findings == []


def test_a_batch_that_only_settles_may_be_long() -> None:
    """Each item has an event of its own, whatever all of them take."""
    book = ledger()
    grants = [commit(f"g{number}") for number in range(10_000, 14_000)]
    with pytest.raises(NotFound):  # and not that they take too many bytes
        book.batch(*grants)


@pytest.mark.parametrize(
    "items",
    [
        [],
        [asking()] * 4_001,
        [asking(), asking(kind="record_invocations")],
        [asking(kind="record_invocations"), commit("g5")],
        [make("count_answers", grant="g5", positives=1, negatives=0)],
    ],
    ids=["none", "too many", "mixed", "mixed too", "another command"],
)
def test_what_cannot_be_a_batch_says_so(items: list[Command]) -> None:
    """A batch is of one sort, and has an end."""
    with pytest.raises(Invalid):
        batch_of(items)


def test_a_refusal_of_48_kib_is_one_event() -> None:
    """As many items as leave room for the decision stand in the refusal itself."""
    book = hospital()
    book.seals = False
    almost = [asking(purpose="x" * 1_900)] * 24
    [refused] = book.batch(*almost)
    assert refused.type == "batch.refused.v1"
    assert refused.body.keys().isdisjoint(("first", "parts"))
    assert len(refused.to_bytes()) < MAX_BYTES


def test_the_digest_is_of_the_commands_as_the_ledger_holds_them() -> None:
    """SHA-256 of the canonical array of the items' commands."""
    book = ledger()
    header, *items = book.batch(asking("0.01"), asking("0.02"))
    commands = [item.body["command"] for item in items]
    assert header.body["command"]["digest"] == digest_of([canonical(c) for c in commands])
    assert header.body["command"]["digest"] == sha256(canonical(commands)).hexdigest()


# -- tampering -------------------------------------------------------------------------------


def example() -> Book:
    """A ledger whose last events are a batch, a refused one, and another batch."""
    book = ledger()
    book.batch(commit("g6"), release("g7"), asking("0.02"), asking("0.03"))
    book.batch(asking("0.01"), asking("7"))
    book.batch(asking("0.2", kind="record_invocations"), asking("5", kind="record_invocations"))
    book.grant(laplace("0.01"))
    return book


Events = list[dict[str, Any]]
OPENED, REFUSED = "batch.opened.v1", "batch.refused.v1"


def place(events: Events, kind: str = OPENED) -> int:
    """Where the first event of a type is."""
    return next(i for i, event in enumerate(events) if event["type"] == kind)


def redigest(events: Events, header: int, size: int) -> None:
    """Makes the header agree with what follows it."""
    commands = [event["command"] for event in events[header + 1 : header + 1 + size]]
    events[header]["command"] |= {"size": size, "digest": digest_of(list(map(canonical, commands)))}


def renumbered(events: Events) -> None:
    """Closes gaps, and names headers by their new places."""
    headers: dict[int, int] = {}
    for number, event in enumerate(events):
        headers[event["sequence"]] = number
        if "batch" in event:
            event["batch"] = headers.get(event["batch"], event["batch"])
        event["sequence"] = number


def drop(events: Events) -> None:
    """Takes an item out."""
    del events[place(events) + 4]


def swap(events: Events) -> None:
    """Exchanges two items."""
    at = place(events) + 3
    events[at], events[at + 1] = events[at + 1], events[at]


def digest(events: Events) -> None:
    """Names other items."""
    events[place(events)]["command"]["digest"] = "0" * 64


def size(events: Events) -> None:
    """Says that one more follows."""
    events[place(events)]["command"]["size"] += 1


def shorter(events: Events) -> None:
    """Says that one fewer follows, so that the last one is outside."""
    redigest(events, place(events), 3)


def other_header(events: Events) -> None:
    """An item names another header."""
    events[place(events) + 2]["batch"] -= 1


def no_header(events: Events) -> None:
    """An item names no header."""
    del events[place(events) + 2]["batch"]


def headless(events: Events) -> None:
    """The header is gone."""
    del events[place(events)]


def outside(events: Events) -> None:
    """An event that came alone claims to be an item."""
    events[-1]["batch"] = place(events)


def somebody(events: Events) -> None:
    """An item is somebody else's."""
    events[place(events) + 4]["by"] = "other"


def later(events: Events) -> None:
    """An item has another stamp."""
    at = place(events) + 4
    for event in events[at:]:
        event["time"] = event["time"][:10] + "T23:59:59.000000Z"


def keyed(events: Events) -> None:
    """An item has a key of its own."""
    events[place(events) + 4]["key"] = "own"


def granted(events: Events) -> None:
    """A refused batch is said to have gone."""
    at = place(events, REFUSED)
    events[at]["type"] = OPENED
    for name in ("items", "item", "fired", "policy", "rules", "total"):
        del events[at][name]


def blames_another(events: Events) -> None:
    """A refused batch names another item."""
    events[place(events, REFUSED)]["item"] = 0


def smaller(events: Events) -> None:
    """A refused batch holds another item than was decided."""
    events[place(events, REFUSED)]["items"][1]["mechanisms"] = [laplace("0.001")]


def refusal_inside(events: Events) -> None:
    """An item says that it was refused, and the batch goes on."""
    at = place(events) + 4
    events[at]["type"] = "grant.refused.v1"


def cut(events: Events) -> None:
    """The ledger ends inside the batch."""
    del events[place(events) + 4 :]


def only_header(events: Events) -> None:
    """The ledger ends with a header."""
    del events[place(events) + 1 :]


def another_between(events: Events) -> None:
    """An event that came alone stands between the items."""
    events.insert(place(events) + 3, events.pop())


TAMPERINGS: list[Callable[[Events], None]] = [
    drop,
    swap,
    digest,
    size,
    shorter,
    other_header,
    no_header,
    headless,
    outside,
    somebody,
    later,
    keyed,
    granted,
    blames_another,
    smaller,
    refusal_inside,
    cut,
    only_header,
    another_between,
]


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_a_tampered_batch_is_found(tamper: Callable[[Events], None]) -> None:
    """However the rest is made to agree, no batch can lose, gain or exchange an item."""
    events = [json.loads(body) for body in example().stored]
    tamper(events)
    renumbered(events)
    result = list(replay("fair", map(canonical, events)))[-1]
    assert result.findings


def test_a_smaller_batch_that_could_have_been_is_none_of_it() -> None:
    """The tampering above is found for what it is: a batch that is renumbered and redigested whole
    is a ledger that could have been, and only the signed tree tells.
    """
    book = ledger()
    book.batch(asking("0.02"), asking("0.03"))
    events = [json.loads(body) for body in book.stored]
    del events[-1]
    redigest(events, place(events), 1)
    assert book.replayed().findings == []
    result = list(replay("fair", map(canonical, events)))[-1]
    assert result.findings == []
