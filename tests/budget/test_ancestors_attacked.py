"""Registrations in any order among everything else: all who add a ledger up agree on it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    SECOND,
    Book,
    gaussian,
    laplace,
    make,
    snapshot,
    sparse_vector,
    sums_agree,
)

from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem
from accountant.budget.outcome import REGISTRATIONS as REGISTERED
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.publishing.fleet.changes import ChargeSums, applied

POLICY = """
  - {{id: a, limit: {{epsilon: {limit}, delta: 1e-3}}, gate: {gate}}}
  - {{id: some, datasets: "[xyd]", limit: {{epsilon: 4, delta: 1e-3}}}}
  - {{id: clinic, owners: [clinic], limit: {{epsilon: 2}}}}
  - {{id: all, across: datasets, labels: {{risk: high}}, limit: {{epsilon: 3, delta: 1e-3}}}}
  - {{id: few, datasets: "[xeh]", across: datasets, owners: [clinic], limit: {{epsilon: 3}}}}
  - {{id: w, window: 1h, limit: {{epsilon: 2, delta: 1e-3}}}}
  - {{id: wx, window: 2h, datasets: "[xy]", limit: {{epsilon: 2, delta: 1e-3}}, action: flag}}
  - {{id: today, refresh: daily, limit: {{epsilon: 2, delta: 1e-3}}, action: flag}}
  - {{id: slow, limit: {{epsilon: 5, delta: 1e-4}}, unlock: {{over: 2h}}, action: flag}}
  - {{id: fair, refresh: weekly, datasets: "[xef]", limit: {{epsilon: 3, delta: 1e-4}},
     unlock: {{per_request: 1/9}}, action: flag}}
  - {{id: mine, per: client, limit: {{epsilon: 3, delta: 1e-3}}}}
  - {{id: why, per: purpose, limit: {{epsilon: 3, delta: 1e-4}}, action: flag}}
  - {{id: base, gate: basic, limit: {{epsilon: 4, delta: 1e-3}}}}
  - {{id: part, part_of: base, limit: {{epsilon: 1, delta: 1e-5}}, clients: [pipe]}}
  - {{id: girls, subjects: {{sex: f}}, limit: {{epsilon: 2, delta: 1e-4}}, action: flag}}
  - {{id: known, purposes: [study], action: flag}}
  - {{id: u, unit: day, limit: {{epsilon: 6, delta: 1e-3}}, action: flag}}
  - {{id: ux, unit: day, datasets: "[xy]", limit: {{epsilon: 6, delta: 1e-3}}, action: flag}}
  - {{id: house, unit: house, datasets: "[xyef]", limit: {{epsilon: 6}}, action: flag}}
"""
UNITS = {
    "day": {"part_of": "person", "at_most": 2},
    "house": {"group_of": "person", "at_most": 3},
}
PEOPLE = [
    {"neighbouring": "add_or_remove_one"},
    {"neighbouring": "replace_one"},
    {"neighbouring": "replace_one", "membership": "private"},
]
MADE = {"d": [], "e": ["n/x"], "f": ["e", "n/y"], "g": ["d", "n/x"], "h": []}
DATA = "defghxy"
COSTS = st.sampled_from(
    [laplace("0.1"), laplace("0.05", 3), gaussian("0.1"), gaussian("0.2", "1e-6"), laplace("0.9")]
)
GROUPS = st.sampled_from(
    [None, None, {"sex": ["f"]}, {"age": ["17"]}, [{"sex": ["f"]}, {"age": ["22"]}]]
)
NAMES = st.lists(st.sampled_from(DATA), min_size=1, max_size=3, unique=True)
REGISTRATIONS = st.tuples(
    st.just("register"),
    st.sampled_from(f"xyxy{DATA}"),
    st.lists(st.sampled_from([*DATA, *(f"n/{name}" for name in DATA)]), max_size=3, unique=True),
    st.sampled_from([None, "clinic"]),
    st.sampled_from([None, {}, {"risk": "high"}]),
    st.sampled_from(["officer", "officer", None]),
)
ASKED = st.fixed_dictionaries(
    {
        "dataset": NAMES,
        "subjects": GROUPS,
        "by": st.sampled_from(["pipe", "other"]),
        "purpose": st.sampled_from([None, "study", "free text"]),
    }
)
WAITS = st.sampled_from([{}, {}, {"wait": 90_000}, {"allotment": "part"}])
STEPS = st.one_of(
    REGISTRATIONS,
    REGISTRATIONS,
    st.tuples(st.just("ask"), ASKED, COSTS, WAITS),
    st.tuples(st.just("record"), ASKED, COSTS),
    st.tuples(st.just("batch"), st.lists(st.tuples(NAMES, COSTS, GROUPS), min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["commit", "part", "release"]), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([100, 1_900, 40_000])),
    st.tuples(st.just("extend"), st.booleans()),
    st.tuples(st.just("policy"), st.sampled_from(["zcdp", "renyi", "basic"]), st.integers(2, 9)),
    st.tuples(st.sampled_from(["expire", "open", "count", "close", "recover", "carry"])),
)


def take(  # noqa: C901 (a case each)
    book: Book, people: dict[str, Any], what: str, *more: Any
) -> None:
    """Takes one step, as far as it is possible."""
    with suppress(Problem):  # which leaves no event
        match what, more:
            case "register", (name, parents, owner, labels, second):
                fields = {"id": name, "namespace": "n", "name": name, "parents": parents}
                closes = ["some", "clinic", "all", "few", "wx", "ux", "house", "fair"]
                asked = make(
                    "register_dataset", **fields, owner=owner, labels=labels, closes=closes
                )
                book.ask(asked, "admin", confirmed_by=second)
            case "ask", (about, costs, rest):
                about = about | {"dataset": known(book, about["dataset"])}
                book.grant(costs, ttl_seconds=1_000, **about, **rest)
            case "record", (about, costs):
                book.record(costs, **about | {"dataset": known(book, about["dataset"])})
            case "batch", (items,):
                batch(book, items)
            case "wait", (seconds,):
                book.now += seconds * SECOND
            case "extend", (new,):
                extend(book, people, new=new)
            case "policy", (gate, limit):
                book.policy(POLICY.format(gate=gate, limit=limit), "officer", True)
            case "recover", ():
                book.do("recover", "officer", reason="put back", lost=[])
            case "carry", ():
                carry(book)
            case (("commit" | "part" | "release"), (place,)):
                end(book, what, place)
            case _:
                other(book, what)


def known(book: Book, names: list[str]) -> list[str]:
    """Those that are registered; ``e`` if none is."""
    return [name for name in names if name in book.state.datasets] or ["e"]


def batch(book: Book, items: list[Any]) -> None:
    """One of commits and requests."""
    held = [g for g in book.state.grants.in_order() if g.by == "pipe" and not g.session][:1]
    commits = [make("commit_grant", grant=grant.id) for grant in held]
    asks = [
        make("ask_grant", dataset=known(book, names), subjects=group, mechanisms=[costs])
        for names, costs, group in items
    ]
    book.batch(*commits, *asks)


def extend(book: Book, people: dict[str, Any], *, new: bool) -> None:
    """Adds an age, up to five."""
    ages = [*dict(book.state.people().dimensions)["age"], str(book.state.sequence)]
    if len(ages) <= 5:
        dimensions = {"age": ages, "sex": ["f", "m"]}
        book.register(dimensions, attested_new=new, units=UNITS, **people)


def carry(book: Book) -> None:
    """Carries over what ``e`` had used at least."""
    used = {"epsilon": "70000000", "delta": "7"}
    one = {"dataset": "e", "client": "", "used": used}
    epochs = [("", 0), ("a", book.state.last_epoch["a"])]
    accounts = [one | {"rule": rule, "epoch": number} for rule, number in epochs]
    book.do("carry_over", "officer", accounts=accounts)


def end(book: Book, what: str, place: int) -> None:
    """Ends an open grant."""
    opened = [grant for grant in book.state.grants.in_order() if not grant.session]
    if opened:
        grant = opened[place % len(opened)]
        kind = "release_grant" if what == "release" else "commit_grant"
        fields: dict[str, Any] = {"reason": "not run"} if what == "release" else {}
        if what == "part":
            fields["mechanisms"] = [grant.document["mechanisms"][0] | {"count": 1}]
        book.do(kind, grant.by, grant=grant.id, **fields)


def other(book: Book, what: str) -> None:
    """Expires what is due, or goes on with a session."""
    if what == "open":
        book.do("open_sparse_vector", dataset="e", mechanism=sparse_vector())
    for grant in [*book.state.grants.in_order()]:
        if what == "expire" and grant.due(book.now):
            book.do("expire_grant", SYSTEM, grant=grant.id)
        elif what == "count" and grant.session:
            book.do("count_answers", grant=grant.id, positives=1, negatives=2)
        elif what == "close" and grant.session:
            book.do("close_sparse_vector", grant=grant.id)


def test_all_agree_however_datasets_are_registered() -> None:
    """Replay and the small verifier find nothing, and hold in each cell what the service holds; the
    changes of a fleet's tables add up to it; and who starts from a snapshot writes the same events.
    """
    met = Counter[str]()

    @settings(max_examples=examples(60))
    @given(st.sampled_from(PEOPLE), st.lists(STEPS, min_size=12, max_size=35), st.integers(0, 30))
    def law(people: dict[str, Any], steps: list[Any], stop: int) -> None:
        book = all_agree(people, steps, stop)
        met.update(Event.from_bytes(data).type for data in book.stored)

    law()
    assert all(met[kind] for kind in REGISTERED), met


def all_agree(people: dict[str, Any], steps: list[Any], stop: int) -> Book:
    """A ledger that all agree on."""
    book = Book()
    book.register({"age": ["17", "22"], "sex": ["f", "m"]}, units=UNITS, **people)
    for name, parents in MADE.items():
        fields = {"id": name, "namespace": "n", "name": name, "parents": parents}
        book.do("register_dataset", "admin", **fields)
    book.policy(POLICY.format(gate="zcdp", limit=3))
    book.record(laplace("0.1"), dataset="e", subjects={"sex": ["f"]})
    book.grant(gaussian("0.1"), dataset=["f", "g"])
    again = None
    for place, step in enumerate(steps):
        if place == stop:
            state = load(book.name, b"".join(dump(book.state)))
            again = Book(book.name, book.now, stored=[*book.stored], keys=book.keys)
            again.state = state
        for one in filter(None, (book, again)):
            take(one, people, *step)
    assert again is None or again.stored == book.stored
    assert snapshot(load(book.name, b"".join(dump(book.state)))) == snapshot(book.state)
    assert book.replayed().findings == []
    sums_agree(book)
    state, sums = State(book.name), ChargeSums()
    for data in book.stored:
        for change in applied(state, Event.from_bytes(data)):
            sums.add(change)
    sums.agree(state)
    return book
