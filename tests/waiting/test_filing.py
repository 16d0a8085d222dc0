"""What waits is filed so that few are asked: against asking all, in order, after every event."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SECOND, Book, gaussian, laplace, make

from accountant.budget.apply import apply
from accountant.budget.decide import admission
from accountant.budget.errors import Problem
from accountant.budget.request import Request, prepare
from accountant.budget.rules.base import View
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.budget.waiting.asked import Waiting
from accountant.budget.waiting.due import due
from accountant.budget.waiting.looking import look_at
from accountant.budget.waiting.prices import prices_of
from accountant.ledger.events import Event
from accountant.privacy.units import Currency

HOUR = 3_600 * SECOND
POLICIES = (
    "  - {id: a, limit: {epsilon: 2}}\n  - {id: big, action: approve, at_most: {epsilon: 1.5}}\n",
    "  - {id: a, limit: {epsilon: 2}}\n"
    "  - {id: some, subjects: {age: ['17']}, limit: {epsilon: 1}}\n"
    "  - {id: t, across: datasets, labels: {kind: [raw]}, limit: {epsilon: 3}}\n"
    "  - {id: much, action: approve, limit: {epsilon: 1.75}}\n"
    "order: dominant_share\n",
    "  - {id: a, limit: {epsilon: 2, delta: 1e-4}, gate: zcdp}\n"
    "  - {id: w, limit: {epsilon: 1.25, delta: 1e-5, own_delta: 1e-6}, window: 6h}\n"
    "order: efficiency\n",
    "  - {id: a, limit: {epsilon: 2, delta: 1e-4}, gate: renyi, orders: [8, 24]}\n"
    "  - {id: why, purposes: [study, urgent], action: approve}\n"
    "order: dominant_share\n",
    "  - {id: a, limit: {epsilon: 2, delta: 1e-4}, gate: renyi, orders: [16],\n"
    "     relaxed: [{when: {purposes: [urgent]}, epsilon: 2.5, why: haste}]}\n"
    "  - {id: each, per: client, limit: {epsilon: 1.5, delta: 1e-4}}\n",
    "  - {id: a, limit: {epsilon: 2, delta: 1e-4}, unlock: {over: 8h}, refresh: daily}\n"
    "order: efficiency\n",
    "  - {id: a, limit: {epsilon: 2}}\n"
    "  - {id: part, part_of: a, limit: {epsilon: 1}, clients: [one]}\n",
    "  - {id: a, datasets: d, limit: {epsilon: 2}}\n",
    "  - {id: a, limit: {epsilon: 2, delta: 1e-5}}\n"
    "  - {id: each, per: client, limit: {epsilon: 1.5, delta: 1e-6, own_delta: 1e-6}}\n"
    "  - {id: some, subjects: {age: ['17', '27']}, limit: {epsilon: 1, delta: 1e-5}}\n"
    "order: efficiency\n",
    "  - {id: a, limit: {epsilon: 2, delta: 1e-5}, unlock: {per_request: 1/4}}\n",
)
GROUPS: tuple[dict[str, Any], ...] = (
    {},
    {"subjects": {"age": ["17"]}},
    {"subjects": {"age": ["22", "27"]}},
    {"subjects": [{"sex": ["f"], "age": ["17"]}, {"sex": ["m"], "age": ["27"]}]},
)
AGES, SEXES = ("17", "22", "27"), ("f", "m")


@st.composite
def terms(draw: st.DrawFn) -> dict[str, Any]:
    """A term of a group of one's own: some ages, listed or from one to another, or of one sex."""
    ages = sorted(draw(st.sets(st.sampled_from(AGES), min_size=1)))
    ranged = {"from": ages[0], "to": ages[-1]}
    term: dict[str, Any] = {"age": ranged if draw(st.booleans()) else ages}
    return term | draw(st.sampled_from([{}, *({"sex": [sex]} for sex in SEXES)]))


OWN = st.one_of(terms(), st.lists(terms(), min_size=1, max_size=3))
MECHANISMS = (
    [laplace("0.3")],
    [laplace("0.6")],
    [laplace("1.2")],
    [laplace("0.25", 4)],
    [laplace("0.5", 3)],
    [gaussian("0.2", "1e-7")],
    [gaussian("0.4", "1e-6"), laplace("0.1")],
    [gaussian("0.5")],
)
REASONS: tuple[dict[str, Any], ...] = (
    {},
    {"purpose": "study"},
    {"purpose": "urgent"},
    {"purpose": "free text"},
    {"allotment": "part"},
)

STEPS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "ask": st.tuples(
        st.just("ask"),
        st.sampled_from([*"ddddddef", ["d", "e"]]),
        st.sampled_from(MECHANISMS),
        st.one_of(
            st.sampled_from([*[{}] * 4, *GROUPS]), OWN.map(lambda group: {"subjects": group})
        ),
        st.sampled_from([*[{}] * 10, *REASONS]),
        st.sampled_from(["one", "one", "one", "two"]),
        st.sampled_from([None, 2]),
    ),
    "end": st.tuples(st.just("end"), st.integers(0, 7), st.booleans()),
    "pass": st.tuples(st.just("pass"), st.sampled_from([1, 5, 7, 25])),
    "policy": st.tuples(st.just("policy"), st.sampled_from(POLICIES), st.sampled_from("235")),
    "label": st.tuples(st.just("label"), st.sampled_from("de"), st.sampled_from(["raw", "other"])),
    "parent": st.tuples(st.just("parent"), st.sampled_from([[], ["d"], ["e"]])),
    "grow": st.tuples(st.just("grow"), st.sampled_from(["32", "37"])),
    "start": st.just(("start",)),
}
OFTEN = (*["ask"] * 11, "end", "end", "pass", *["policy"] * 3, "label", "parent", "grow", "start")
step = st.sampled_from(OFTEN).flatmap(STEPS.__getitem__)


def place(state: State, one: Waiting) -> tuple[Fraction, int]:
    """Where a request stands in the policy's order, by the exact shares of what it costs now."""
    assert state.adopted is not None
    order = state.adopted.policy.order
    try:
        request = prepare(state, one.by, one.asks(), state.time)
    except Problem:
        return Fraction(10**100), one.sequence
    shares = [share(used) for used in blocking(state, request)]
    if order == "dominant_share":
        return max(shares, default=Fraction()), one.sequence
    if order == "efficiency":
        cells = cells_of(state, request)
        return sum(shares, Fraction()) * cells, one.sequence
    return Fraction(), one.sequence


def blocking(state: State, request: Request) -> list[Any]:
    """What a request meets of each limit that blocks."""
    assert state.adopted is not None
    view = View(state, request)
    limits = [rule for rule in state.adopted.policy.limits if rule.action == "block"]
    return [used for rule in limits for used in view.used(rule.id)]


def share(used: Any) -> Fraction:
    """The share of a limit that a charge is: of its delta, or the smallest of the others."""
    charge, parts = used.charge.on(used.reading.account.axis), {}
    for currency, most in used.epoch.capacity.sides:
        units = charge.units(currency)
        endless = units is None or (units and not most)
        parts[currency] = Fraction(10**60) if endless else Fraction(units or 0, most or 1)
    own = parts.pop(Currency.DELTA)
    return max(own, min(parts.values()))


def cells_of(state: State, request: Request) -> int:
    """How many cells a request is about."""
    shape = state.people().shape
    if request.selection.everyone:
        return shape[0] * shape[1]
    return int(request.selection.mask(shape).sum())


class AllAsked(Book):
    """A ledger that compares who is due with the first that the evaluator admits of all."""

    patience = 256
    """After how many who were asked in vain all are filed anew."""

    def admit(self, now: int | None = None) -> list[Event]:
        """Admits who waits and fits; each of them is whom asking all finds."""
        state, found = self.state, []
        now = max(self.now if now is None else now, state.time)
        while True:
            state.waiting.patience = self.patience
            expected, found_now = self.naive(now), due(state, now)
            got = None
            if found_now is not None:
                one, stamp = found_now
                got = one.waiting.id, one.asks.mechanisms[0].count, stamp
            assert got == expected
            if (outcome := admission(state, now)) is None:
                return found
            apply(state, outcome)
            self.stored.append(outcome.entry.body)
            found.append(outcome.event())

    def naive(self, now: int) -> tuple[str, int, int] | None:
        """Who is admitted next, how much of it, and at which stamp: by asking all."""
        state = self.state
        if not state.waiting.requests:
            return None
        in_order = sorted(state.waiting.requests.values(), key=lambda one: place(state, one))
        for stamp in (state.time, now):
            for one in in_order:
                admitted = None if one.due(stamp) else look_at(state, one, stamp)[0]
                if admitted is not None:
                    return one.id, admitted.asks.mechanisms[0].count, stamp
        return None

    def take(self, number: int, kind: str, *more: Any) -> None:
        """Takes one step; what is refused as a whole changes nothing."""
        with suppress(Problem):
            getattr(self, f"do_{kind}")(number, *more)

    def do_ask(
        self, number: int, dataset: Any, stated: Any, group: Any, why: Any, by: str, least: Any
    ) -> None:
        """Asks for a grant that may wait."""
        count = stated[0].get("count", 1)
        partly = {"at_least": least} if least and count > least and len(stated) == 1 else {}
        fields = {"dataset": dataset, "mechanisms": stated, "wait": 40 * 3_600}
        self.do(
            "ask_grant", by, f"k{number}", ttl_seconds=10**6, **fields, **group, **why, **partly
        )

    def do_end(self, number: int, which: int, runs: bool) -> None:
        """Releases a grant, or commits all of it."""
        if grants := sorted(self.state.open.values(), key=lambda one: one.sequence):
            grant = grants[which % len(grants)]
            if runs:
                mechanisms = grant.document["mechanisms"]
                self.do("commit_grant", grant.by, grant=grant.id, mechanisms=mechanisms)
            else:
                self.do("release_grant", grant.by, grant=grant.id, reason="not run")

    def do_pass(self, number: int, hours: int) -> None:
        """Lets time pass; then what it lets in is admitted."""
        self.now += hours * HOUR
        self.admit()

    def do_policy(self, number: int, rules: str, most: str) -> None:
        """Adopts another policy, with more or less of its first limit."""
        self.policy(rules.replace("epsilon: 2", f"epsilon: {most}"), confirmed_by="other")

    def do_label(self, number: int, name: str, kind: str) -> None:
        """Brings a dataset into the scope of a limit, or out of it."""
        about = {"id": name, "namespace": "n", "name": name, "labels": {"kind": kind}}
        self.ask(make("register_dataset", **about), "admin", confirmed_by="other")

    def do_parent(self, number: int, parents: list[str]) -> None:
        """States what the third dataset was made from."""
        about = {"id": "f", "namespace": "n", "name": "f", "parents": parents}
        self.ask(make("register_dataset", **about), "admin", confirmed_by="other")

    def do_grow(self, number: int, value: str) -> None:
        """Appends a value to a dimension."""
        (_, age), (_, sex) = self.state.people().dimensions
        ages = [*age, *([] if value in age else [value])]
        self.register({"age": ages, "sex": list(sex)})

    def do_start(self, number: int) -> None:
        """Starts again from a snapshot."""
        self.state = load(self.name, b"".join(dump(self.state)))


@settings(max_examples=examples(20), deadline=None)
@given(
    steps=st.lists(step, min_size=25, max_size=50),
    first=st.sampled_from(POLICIES),
    patience=st.sampled_from([1, 256]),
)
def test_who_is_due_is_whom_asking_all_in_order_finds(
    steps: list[tuple[Any, ...]], first: str, patience: int
) -> None:
    """Whatever policies, datasets and populations become meanwhile, the next admission is of the
    first in order that the evaluator admits, and there is none if it admits none.
    """
    book = AllAsked()
    book.patience = patience
    book.register({"age": ["17", "22", "27"], "sex": ["f", "m"]})
    for name in "def":
        book.dataset(name)
    book.policy(first, confirmed_by="other")
    for name in "ddee":  # so that most requests wait
        book.grant(laplace("0.9"), dataset=name, ttl_seconds=10**6)
    for number, one in enumerate(steps):
        book.take(number, *one)
    assert not book.replayed().findings


def test_who_is_due_at_a_later_stamp_is_found_again() -> None:
    """Until a request is admitted that time has let in, it is due, however often that is asked."""
    book = Book()
    book.register()
    book.dataset("d")
    book.policy("  - {id: w, limit: {epsilon: 1}, window: 6h}\n", confirmed_by="other")
    book.record(laplace("1"))
    book.grant(laplace("1"), wait=86_400)
    later = book.now + 7 * HOUR
    first, again = due(book.state, later), due(book.state, later)
    assert first is not None
    assert again is not None
    assert (first[0].waiting, first[1]) == (again[0].waiting, again[1])


def test_a_policy_lets_in_what_fits_beside_what_does_not() -> None:
    """Of requests that are about the same, a larger limit lets in those that fit, in order."""
    book = AllAsked()
    book.register()
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 2}}\n", confirmed_by="other")
    book.grant(laplace("1.8"))
    waiting = [
        book.grant(laplace(each), wait=86_400) for each in ("1.5", "0.7", "1.4", "0.6", "0.3")
    ]
    seen = len(book.stored)
    book.policy("  - {id: a, limit: {epsilon: 3.1}}\n", confirmed_by="other")
    events = map(Event.from_bytes, book.stored[seen:])
    admitted = [one.body["command"]["grant"] for one in events if one.type == "grant.admitted.v1"]
    assert admitted == [f"g{waiting[at].sequence}" for at in (1, 3)]


def term(draws: Random, side: int) -> dict[str, Any]:
    """Values of both dimensions, from one to another or a few of them."""
    ends = sorted(draws.sample(range(side), 2))
    few = sorted(draws.sample(range(side), 3))
    found: dict[str, Any] = {"one": {"from": f"v{ends[0]}", "to": f"v{ends[1]}"}}
    return found | draws.choice([{}, {"two": [f"v{at}" for at in few]}])


def group(draws: Random, side: int) -> dict[str, Any]:
    """A group of one's own: a term, a union of two, or everyone."""
    one, two = term(draws, side), term(draws, side)
    return draws.choice([{}, {"subjects": one}, {"subjects": one}, {"subjects": [one, two]}])


@pytest.mark.parametrize(
    ("side", "order"), [(6, "efficiency"), (300, "arrival"), (1_001, "arrival")]
)
def test_requests_with_groups_of_their_own_come_in_order(side: int, order: str) -> None:
    """However the sums of cells are kept, and under whatever limits, those that wait on groups of
    their own are admitted as asking all would.
    """
    book, draws = AllAsked(), Random(side)  # noqa: S311 no secret
    book.register({name: [f"v{at}" for at in range(side)] for name in ("one", "two")})
    book.dataset("d")
    limits = "  - {id: a, limit: {epsilon: %s, delta: %s}}\n"
    some = "  - {id: b, subjects: {one: [v1, v3, v4]}, limit: {epsilon: 1.2}}\n"
    book.policy(limits % (2, 0) + f"order: {order}\n", confirmed_by="other")
    for _ in range(8):
        book.grant(laplace("0.8"), ttl_seconds=10**6, **group(draws, side))
    for number in range(12):
        stated = draws.choice([[laplace("0.7")], [laplace("0.3", 4)], [gaussian("0.4", "1e-6")]])
        fields = {"dataset": "d", "mechanisms": stated, "wait": 86_400}
        book.do(
            "ask_grant", draws.choice(["one", "two"]), f"k{number}", **fields, **group(draws, side)
        )
    waited = len(book.state.waiting)
    assert waited > 5
    for rules in (limits % (2, "1e-5"), some + limits % ("2.5", "1e-5"), limits % (3, "1e-6")):
        book.policy(rules + f"order: {order}\n", confirmed_by="other")
        for grant in sorted(book.state.open)[:2]:
            book.do("release_grant", book.state.open[grant].by, grant=grant, reason="not run")
    assert len(book.state.waiting) < waited
    assert not book.replayed().findings


@pytest.mark.parametrize("order", ["arrival", "dominant_share"])
def test_a_price_is_worked_out_where_it_may_let_a_request_in(order: str) -> None:
    """At other orders a request is priced only once what is known of it does not hold it up; then
    it is admitted by what it costs.
    """
    book = AllAsked()
    book.register()
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 2}, unlock: {over: 8h}}\n", confirmed_by="other")
    book.record(laplace("0.3"))
    waits = [book.grant(laplace("0.001", count), wait=86_400) for count in (500, 1_999, 1_998)]
    limit = "limit: {epsilon: 2, delta: 1e-3}, gate: renyi, orders: [8]"
    rule = f"  - {{id: a, {limit}, unlock: {{over: 8h}}}}\n"
    book.policy(f"{rule}order: {order}\n", confirmed_by="other")
    prices, requests = prices_of(book.state), book.state.waiting.requests
    names = [f"g{one.sequence}" for one in waits]
    assert [prices.known(requests[name]) for name in names] == [None] * 3
    book.now += 9 * HOUR
    assert sorted(one.body["command"]["grant"] for one in book.admit()) == names
