"""Requests that wait, against a plain scheduler: lists of charges, summed afresh at every question.

The scheduler knows the rules and not the code. Of every history that hypothesis makes, the real
``decide`` must have written the same admissions, after the same events, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from typing import Any

import orjson
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SECOND, START, Book, audited, laplace, snapshot

from accountant.budget.apply import fold, keep_journal, rollback
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem
from accountant.budget.replay import replay
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.ledger.events import Event

HOUR = 3_600 * SECOND
ORDERS = ("arrival", "dominant_share", "efficiency")
AGES = ("17", "22", "27")
GROUPS: tuple[tuple[str, ...] | None, ...] = (None, ("17",), ("22", "27"), ("27",))
LIMITS = {"a": Fraction(3), "w": Fraction(2), "t": Fraction(4)}
"""Of each dataset, of each dataset in twelve hours, and of both datasets together."""
BIG, MUCH = Fraction(2), Fraction(5, 2)
"""In one request, and of each dataset: what is more a person has to approve."""
RULES = """
  - {{id: a, limit: {{epsilon: {a}}}}}
  - {{id: w, limit: {{epsilon: 2}}, window: 12h}}
  - {{id: t, across: datasets, limit: {{epsilon: 4}}}}
  - {{id: nearly, of: a, at: 80%}}
  - {{id: big, action: approve, at_most: {{epsilon: 2}}}}
  - {{id: much, action: approve, limit: {{epsilon: 2.5}}}}
order: {order}
"""


@dataclass
class Wish:
    """A request, and what became of it."""

    number: int
    dataset: str
    cells: frozenset[str]
    each: Fraction
    count: int
    least: int
    until: int


@dataclass
class Charge:
    """What is held, or was spent, of some cells of a dataset."""

    dataset: str
    cells: frozenset[str]
    amount: Fraction
    each: Fraction
    spent: int | None = None
    """When; None while it is held."""


@dataclass
class Scheduler:
    """A queue in the order of its policy, and all charges."""

    order: str
    limits: dict[str, Fraction] = field(default_factory=lambda: dict(LIMITS))
    charges: dict[int, Charge] = field(default_factory=dict)
    waiting: list[Wish] = field(default_factory=list)

    def fits(self, wish: Wish, count: int, now: int) -> bool:
        """Whether so much of a request fits on all its cells, under all limits."""
        for cell in wish.cells:
            used = dict.fromkeys(LIMITS, Fraction())
            for one in self.charges.values():
                if cell not in one.cells:
                    continue
                used["t"] += one.amount
                if one.dataset == wish.dataset:
                    used["a"] += one.amount
                    counts = one.spent is None or now < one.spent + 12 * HOUR
                    used["w"] += one.amount if counts else 0
            if any(used[rule] + count * wish.each > self.limits[rule] for rule in LIMITS):
                return False
        return True

    def free(self, wish: Wish, count: int) -> bool:
        """Whether no person has to approve so much of a request."""
        used = dict.fromkeys(wish.cells, Fraction())
        for one in self.charges.values():
            for cell in one.cells & wish.cells if one.dataset == wish.dataset else ():
                used[cell] += one.amount
        asked = count * wish.each
        return asked <= BIG and all(sums + asked <= MUCH for sums in used.values())

    def most(self, wish: Wish, now: int) -> int:
        """The largest count that is accepted, fits, and needs nobody; 0 if there is none."""
        counts = range(wish.count, wish.least - 1, -1)
        fit = (n for n in counts if self.fits(wish, n, now) and self.free(wish, n))
        return next(fit, 0)

    def place(self, wish: Wish) -> tuple[Fraction, int]:
        """Its place in the order."""
        shares = [wish.count * wish.each / most for most in self.limits.values()]
        if self.order == "dominant_share":
            return max(shares), wish.number
        if self.order == "efficiency":
            return sum(shares, Fraction()) * len(wish.cells), wish.number
        return Fraction(), wish.number

    def run(self, now: int, number: int) -> Iterator[tuple[int, int]]:
        """Admit all that fits, in order, from grant ``number`` on. Yield who, and how much."""
        for wish in sorted(self.waiting, key=self.place):
            if now < wish.until and (count := self.most(wish, now)):
                self.waiting.remove(wish)
                amount = count * wish.each
                self.charges[number] = Charge(wish.dataset, wish.cells, amount, wish.each)
                yield wish.number, count
                number += 1


step = st.one_of(
    st.tuples(
        st.just("ask"),
        st.sampled_from("de"),
        st.sampled_from(GROUPS),
        st.sampled_from(["0.5", "1", "1.5"]),
        st.integers(1, 3),
        st.integers(0, 2),
        st.sampled_from([None, 3_600, 86_400]),
    ),
    st.tuples(st.just("settle"), st.integers(0, 5), st.sampled_from(["commit", "release", "part"])),
    st.tuples(st.just("pass"), st.sampled_from([1, 5, 12, 13])),
    st.tuples(st.just("record"), st.sampled_from("de"), st.sampled_from(GROUPS)),
    st.tuples(st.just("limit"), st.sampled_from([3, 5]), st.sampled_from([None, *ORDERS])),
    st.tuples(st.just("cancel"), st.integers(0, 3)),
    st.tuples(st.just("approve"), st.integers(0, 5)),
    st.tuples(st.just("decline"), st.integers(0, 5)),
    st.just(("times out",)),
    st.just(("admit",)),
)


def subjects(group: tuple[str, ...] | None) -> dict[str, Any]:
    """The fields of a request on a group."""
    return {} if group is None else {"subjects": {"age": list(group)}}


class History:
    """The real ledger, and the plain scheduler beside it."""

    def __init__(self, order: str) -> None:
        self.book, self.plain, self.order = Book(), Scheduler(order), order
        self.book.register({"age": list(AGES)})
        self.book.dataset("d")
        self.book.dataset("e")
        self.policy(3)

    def policy(self, most: int) -> None:
        """Adopts the policy with another limit."""
        self.book.policy(RULES.format(a=most, order=self.order), confirmed_by="other")

    def expect(self, seen: int, *, own: int = 0) -> list[bytes]:
        """Compares the events from ``seen`` on with what the scheduler admits before an event of
        its own, ``own`` of them. Returns the events from that one on.
        """
        book = self.book
        for who, count in list(self.plain.run(book.now, seen)):
            self.compare(book.stored[seen], who, count)
            seen += 1
        for entry in book.stored[seen : seen + own]:
            assert Event.from_bytes(entry).type != "grant.admitted.v1"
        return book.stored[seen:]

    def compare(self, entry: bytes, who: int, count: int) -> None:
        """The event admits ``count`` of what the event at ``who`` asked for."""
        event = Event.from_bytes(entry)
        assert event.type == "grant.admitted.v1"
        command = event.body["command"]
        assert command["grant"] == f"g{who}"
        assert command["request"]["mechanisms"][0].get("count", 1) == count
        assert event.time == self.book.now

    def after(self, rest: list[bytes]) -> None:
        """What comes behind an event are the admissions that it makes possible, and no others."""
        first = len(self.book.stored) - len(rest)
        admitted = list(self.plain.run(self.book.now, first))
        assert len(admitted) == len(rest)
        for entry, (who, count) in zip(rest, admitted, strict=True):
            self.compare(entry, who, count)

    def do(self, step: tuple[Any, ...]) -> None:
        """Takes one step with both."""
        kind, *more = step
        taken = {
            "pass": self.passes,
            "admit": self.admit,
            "times out": self.times_out,
            "limit": self.limit,
            "ask": self.ask,
            "record": self.record,
            "cancel": self.cancel,
            "approve": self.approve,
            "decline": self.decline,
            "settle": self.settle,
        }
        taken[kind](*more)

    def passes(self, hours: int) -> None:
        """Lets time pass."""
        self.book.now += hours * HOUR

    def admit(self) -> None:
        """Admits what time alone lets in."""
        seen = len(self.book.stored)
        self.book.admit()
        assert self.expect(seen) == []

    def times_out(self) -> None:
        """Ends the waits whose time has passed."""
        book, plain = self.book, self.plain
        for one in book.state.waiting.due(book.now, 10**6):
            seen = len(book.stored)
            book.ask(one.timing_out(), by=SYSTEM)
            rest = self.expect(seen, own=1)
            [gone] = [wish for wish in plain.waiting if f"g{wish.number}" == one.id]
            assert gone.until <= book.now
            plain.waiting.remove(gone)
            self.after(rest[1:])

    def limit(self, most: int, order: str | None) -> None:
        """Adopts another limit, and perhaps another order."""
        seen = len(self.book.stored)
        self.order = order or self.order
        self.policy(most)
        kinds = [Event.from_bytes(entry).type for entry in self.book.stored[seen:]]
        own = 1 + kinds.count("change.proposed.v1")
        rest = self.expect(seen, own=own)
        self.plain.limits["a"], self.plain.order = Fraction(most), self.order
        self.after(rest[own:])

    def record(self, dataset: str, group: tuple[str, ...] | None) -> None:
        """Records what ran without a grant."""
        seen, half = len(self.book.stored), Fraction(1, 2)
        self.book.record(laplace("0.5"), dataset=dataset, **subjects(group))
        rest = self.expect(seen, own=1)
        cells = frozenset(AGES if group is None else group)
        number = len(self.book.stored) - len(rest)
        self.plain.charges[number] = Charge(dataset, cells, half, half, self.book.now)
        self.after(rest[1:])

    def cancel(self, which: int) -> None:
        """Cancels a wait, unless time has just let it in."""
        seen = len(self.book.stored)
        alive = [wish for wish in self.plain.waiting if self.book.now < wish.until]
        if not alive:
            return
        wish = alive[which % len(alive)]
        try:
            self.book.do("release_grant", grant=f"g{wish.number}", reason="not needed")
        except Problem as problem:
            assert problem.code == "grant-settled"  # noqa: PT017
            assert self.expect(seen) == []
            return
        rest = self.expect(seen, own=1)
        self.plain.waiting.remove(wish)
        self.after(rest[1:])

    def approve(self, which: int) -> None:
        """A person approves a request, which is granted if a person is what it needs."""
        if (found := self.by_a_person(which, "approve_grant")) is None:
            return
        wish, number = found
        amount = wish.count * wish.each
        self.plain.charges[number] = Charge(wish.dataset, wish.cells, amount, wish.each)
        self.after(self.book.stored[number + 1 :])

    def decline(self, which: int) -> None:
        """A person declines a request, which ends it if a person is what it needs."""
        if (found := self.by_a_person(which, "decline_grant")) is not None:
            self.after(self.book.stored[found[1] + 1 :])

    def by_a_person(self, which: int, kind: str) -> tuple[Wish, int] | None:
        """The request that a person decided about, and the event that says so; None if it could
        not be decided about.
        """
        book, plain, seen = self.book, self.plain, len(self.book.stored)
        if not plain.waiting:
            return None
        wish = plain.waiting[which % len(plain.waiting)]
        digest = sha256(book.stored[wish.number]).hexdigest()
        more = {"reason": "no"} if kind == "decline_grant" else {}
        try:
            event = book.do(kind, "officer", grant=f"g{wish.number}", digest=digest, **more)
        except Problem as problem:
            self.expect(seen)
            over = wish in plain.waiting and book.now >= wish.until
            fits, free = (
                plain.fits(wish, wish.count, book.now),
                plain.free(wish, wish.count),
            )
            alone = wish not in plain.waiting or free
            code = "no-approval-needed" if alone else "approval-blocked"
            assert problem.code == ("wait-is-over" if over else code)  # noqa: PT017
            assert over or alone or not fits
            return None
        for who, count in list(plain.run(book.now, seen)):
            self.compare(book.stored[seen], who, count)
            seen += 1
        assert event.sequence == seen
        assert wish in plain.waiting
        assert not plain.free(wish, wish.count)
        assert kind == "decline_grant" or plain.fits(wish, wish.count, book.now)
        assert event.type == ("grant.declined.v1" if more else "grant.admitted.v1")
        plain.waiting.remove(wish)
        return wish, event.sequence

    def ask(
        self,
        dataset: str,
        group: tuple[str, ...] | None,
        each: str,
        count: int,
        least: int,
        wait: int | None,
    ) -> None:
        """Asks for a grant, which may wait."""
        book, plain, seen = self.book, self.plain, len(self.book.stored)
        waits: dict[str, Any] = {} if wait is None else {"wait": wait}
        if wait is not None and 0 < least < count:
            waits["at_least"] = least
        more = {"ttl_seconds": 86_400 * 30, **subjects(group), **waits}
        book.grant(laplace(each, count), dataset=dataset, **more)
        rest = self.expect(seen, own=1)
        number = len(book.stored) - len(rest)
        cells = frozenset(AGES if group is None else group)
        few = waits.get("at_least", count)
        until = book.now + (wait or 7 * 86_400) * SECOND
        wish = Wish(number, dataset, cells, Fraction(each), count, few, until)
        outcome = Event.from_bytes(rest[0]).type
        fits = plain.fits(wish, count, book.now)
        if fits and not plain.free(wish, count):
            assert outcome == "grant.waiting.v1"
            plain.waiting.append(wish)
        elif fits:
            assert outcome == "grant.reserved.v1"
            plain.charges[number] = Charge(dataset, cells, count * wish.each, wish.each)
        elif wait is None or any(few * wish.each > most for most in plain.limits.values()):
            assert outcome == "grant.refused.v1"
            assert ("never" in Event.from_bytes(rest[0]).body) == (wait is not None)
        else:
            assert outcome == "grant.waiting.v1"
            plain.waiting.append(wish)
        self.after(rest[1:])

    def settle(self, which: int, how: str) -> None:
        """Ends a grant, of which all, one invocation, or nothing was run."""
        held = [n for n, one in self.plain.charges.items() if one.spent is None]
        if not held:
            return
        number, seen = held[which % len(held)], len(self.book.stored)
        book, charge = self.book, self.plain.charges[number]
        if how == "release":
            book.do("release_grant", grant=f"g{number}", reason="not run")
        elif how == "commit":
            book.do("commit_grant", grant=f"g{number}")
        else:
            ran = [laplace(f"{float(charge.each):g}")]
            book.do("commit_grant", grant=f"g{number}", mechanisms=ran)
        rest = self.expect(seen, own=1)
        if how == "release":
            del self.plain.charges[number]
        else:
            charge.spent = book.now
            charge.amount = charge.amount if how == "commit" else charge.each
        self.after(rest[1:])

    def check(self) -> None:
        """The ledger replays without a finding, and a snapshot goes on alike."""
        book = self.book
        waiting = sorted(f"g{wish.number}" for wish in self.plain.waiting)
        assert sorted(book.state.waiting.requests) == waiting
        *_, found = replay(book.name, book.stored)
        assert found.findings == []
        assert snapshot(found.state) == snapshot(book.state)
        assert snapshot(_copy(book.state)) == snapshot(book.state)
        assert audited(book).findings == []


@pytest.mark.parametrize("order", ORDERS)
@given(steps=st.lists(step, max_size=24))
def test_admissions_are_those_of_a_plain_scheduler(order: str, steps: list[Any]) -> None:
    """Who is admitted, after which event and how much of it, is what the order says."""
    history = History(order)
    for one in steps:
        history.do(one)
    history.check()


@settings(max_examples=examples(20))
@given(steps=st.lists(step, min_size=6, max_size=24), cut=st.integers(1, 30))
def test_a_state_read_back_goes_on_alike(steps: list[Any], cut: int) -> None:
    """A process that starts in the middle, from events or from a snapshot, admits the same."""
    history = History("dominant_share")
    for at, one in enumerate(steps):
        history.do(one)
        if at % (1 + cut % 5) == 0:
            read = fold(history.book.name, map(Event.from_bytes, history.book.stored))
            assert snapshot(read) == snapshot(history.book.state)
            history.book.state = read if cut % 2 else _copy(read)
    history.check()


@settings(max_examples=examples(20))
@given(steps=st.lists(step, min_size=4, max_size=16), back=st.lists(step, max_size=6))
def test_what_is_rolled_back_was_never_admitted(steps: list[Any], back: list[Any]) -> None:
    """After a rollback those wait who waited before, and the same are admitted next."""
    history = History("arrival")
    for one in steps:
        history.do(one)
    book = history.book
    before, stored, now = _copy(book.state), len(book.stored), book.now
    keep_journal(book.state)
    tried = [one for one in back if one[0] not in ("limit",)]
    for one in tried:
        try:
            _blindly(book, one)
        except Problem:
            continue
    assert rollback(book.state)
    book.state.journal = None
    del book.stored[stored:]
    book.now = now
    assert snapshot(book.state) == snapshot(before)
    for one in steps:
        history.do(one)
    history.check()


def _copy(state: State) -> State:
    return load("fair", b"".join(dump(state)))


def _blindly(book: Book, step: tuple[Any, ...]) -> None:
    kind, *more = step
    opened = sorted(book.state.open)
    if kind == "ask":
        dataset, group, each, count, _, wait = more
        waits = {} if wait is None else {"wait": wait}
        book.grant(laplace(each, count), dataset=dataset, **subjects(group), **waits)
    elif kind == "settle" and opened:
        book.do("release_grant", grant=opened[more[0] % len(opened)], reason="not run")
    elif kind == "pass":
        book.now += more[0] * HOUR
    elif kind == "record":
        book.record(laplace("0.5"), dataset=more[0], **subjects(more[1]))


def history_with_a_wait() -> Book:
    """A ledger in which g3 and g4 waited, and were admitted when g2 was released."""
    book = Book()
    book.register()
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 2}}\n")
    first = book.grant(laplace(2))
    book.grant(laplace(1), wait="7d", by="one")
    book.grant(laplace("0.5"), wait="7d", by="two")
    book.do("release_grant", grant=f"g{first.sequence}", reason="not run")
    assert [Event.from_bytes(e).type for e in book.stored[-2:]] == ["grant.admitted.v1"] * 2
    return book


def renumbered(bodies: list[bytes]) -> list[bytes]:
    """The events with sequences from 0 on."""
    documents = map(orjson.loads, bodies)
    return [
        orjson.dumps({**one, "sequence": at}, option=orjson.OPT_SORT_KEYS)
        for at, one in enumerate(documents)
    ]


def findings(bodies: list[bytes]) -> list[str]:
    """What replay finds."""
    *_, found = replay("fair", bodies)
    return [one.reason for one in found.findings]


def test_a_skipped_admission_is_found() -> None:
    """A ledger that goes on before it has admitted who fits does not replay."""
    book = history_with_a_wait()
    book.now = START + 1
    book.record(laplace("0.1"))
    whole = book.stored
    assert findings(whole) == []
    assert findings(renumbered([*whole[:-2], whole[-1]]))
    assert findings(whole[:-2]) == ["the ledger ends before g6 is admitted, which fits"]


def test_an_admission_out_of_order_is_found() -> None:
    """A ledger in which a later request was admitted first does not replay."""
    *before, one, two = history_with_a_wait().stored
    assert findings(renumbered([*before, two, one]))


def test_an_admission_that_is_repeated_is_found() -> None:
    """A ledger in which a request was admitted twice does not replay."""
    *before, one, two = history_with_a_wait().stored
    assert findings(renumbered([*before, one, two, two]))


def test_a_late_admission_is_found() -> None:
    """A ledger in which a request was admitted later than it could be does not replay."""
    *before, one, two = history_with_a_wait().stored
    document = orjson.loads(two)
    late = {**document, "time": document["time"].replace("20.000000Z", "21.000000Z")}
    assert findings([*before, one, orjson.dumps(late, option=orjson.OPT_SORT_KEYS)])
    assert START  # the ledger's first stamp ends in 20 seconds
