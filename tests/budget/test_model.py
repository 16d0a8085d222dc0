"""A whole ledger against a naive model: exact fractions in dictionaries, one rule after another.

The model knows the theory, not the code: it keeps, for every cell of every dataset, a list of what
was charged, and sums it afresh whenever it is asked.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import ceil
from typing import Any

import mpmath
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from support import SECOND, Book, declared, laplace, make, snapshot, sparse_vector

from accountant.budget.decide import SYSTEM, Repeated
from accountant.budget.errors import Problem
from accountant.budget.folding import fold
from accountant.ledger.events import Event

DATASETS = ("d", "e")
CLIENTS = ("one", "two")
AGES = ["17", "22", "27"]
SEXES = ["f", "m"]
LIMITS = {
    # rule: (epsilon, delta, own delta, what it counts)
    "a": (Fraction(2), Fraction(1, 10), Fraction(1, 100), "dataset"),
    "person": (Fraction(3), Fraction(0), Fraction(0), "person"),
    "each": (Fraction(3, 2), Fraction(0), Fraction(0), "client"),
}
POLICY = (
    "  - {id: a, limit: {epsilon: 2, delta: 0.1, own_delta: 0.01}}\n"
    "  - {id: person, across: datasets, limit: {epsilon: 3}}\n"
    "  - {id: each, per: client, limit: {epsilon: 1.5}}\n"
    "  - {id: nearly, of: a, at: 80%}\n"
)

Cell = tuple[str, str]
Units = tuple[int, int, int]


@dataclass
class Held:
    """What the model knows of one grant or invocation."""

    dataset: str
    client: str
    cells: frozenset[Cell]
    parts: list[dict[str, Any]]
    expires: int | None = None
    open: bool = True
    charge: list[Units] = field(default_factory=list)
    overrun: bool = False


def price(part: dict[str, Any]) -> Units:
    """(epsilon, its square, delta) of all invocations, in units rounded up once per invocation."""
    if part["kind"] == "sparse_vector":
        epsilon, delta = Fraction(1, 5), Fraction(0)
    else:
        epsilon = Fraction(part.get("epsilon") or part["sensitivity"])
        delta = Fraction(part.get("delta", 0))
    count = part.get("count", 1)
    return (
        count * ceil(epsilon * 10**9),
        count * ceil(epsilon**2 * 10**15),
        count * ceil(delta * 10**15),
    )


def second_gate(epsilon: Fraction, delta: Fraction) -> Fraction:
    """V of Whitehouse et al. 2023, Theorem 1."""
    with mpmath.workdps(50):
        log = mpmath.log(1 / (mpmath.mpf(delta.numerator) / delta.denominator))
        e = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        v = (mpmath.sqrt(2 * log + 2 * e) - mpmath.sqrt(2 * log)) ** 2
        return Fraction(int(v * 10**30), 10**30)


SQUARES = {
    name: second_gate(epsilon, delta - own) if delta > own else None
    for name, (epsilon, delta, own, _) in LIMITS.items()
}

ages = st.lists(st.sampled_from(AGES), min_size=1, max_size=2, unique=True)
sexes = st.lists(st.sampled_from(SEXES), min_size=1, max_size=1)
term = st.fixed_dictionaries({}, optional={"age": ages, "sex": sexes})
subjects = st.none() | term | st.lists(term, min_size=1, max_size=3)
thousandths = st.integers(1, 900).map(lambda n: f"{n / 1000:.3f}")
small = st.sampled_from(["0.01", "0.1", "0.05", "0.0000000001", "0.333"])
parts = st.lists(
    st.builds(laplace, thousandths | small, st.integers(1, 3))
    | st.builds(declared, small, st.sampled_from(["0", "0.001", "0.004"]), st.integers(1, 2)),
    min_size=1,
    max_size=2,
)


class Ledger(RuleBasedStateMachine):
    """Anything that clients may do, in any order, beside a model that adds up fractions."""

    grants = Bundle("grants")
    sessions = Bundle("sessions")

    @initialize()
    def begin(self) -> None:
        """A population with six cells, two datasets and three limits."""
        self.book = Book()
        self.book.register({"age": AGES, "sex": SEXES})
        for name in DATASETS:
            self.book.dataset(name)
        self.book.policy(POLICY)
        self.ages = list(AGES)
        self.held: dict[str, Held] = {}
        self.answered: list[tuple[str, str, Any, Event]] = []
        self.keys = 0

    # -- the model ---------------------------------------------------------------------------

    def cells(self, asked: Any) -> frozenset[Cell]:
        """The cells of a selection."""
        terms = [{}] if asked is None else asked if isinstance(asked, list) else [asked]
        return frozenset(
            cell
            for cell in product(self.ages, SEXES)
            for each in terms
            if cell[0] in each.get("age", self.ages) and cell[1] in each.get("sex", SEXES)
        )

    def scope(self, name: str, held: Held) -> str:
        """The account of a rule that a charge counts in."""
        return {"dataset": held.dataset, "person": "*", "client": f"{held.dataset}/{held.client}"}[
            LIMITS[name][3]
        ]

    def totals(self) -> dict[tuple[str, str, Cell], list[int]]:
        """(epsilon, square, delta) by rule, account and cell: everything added up afresh."""
        sums: dict[tuple[str, str, Cell], list[int]] = defaultdict(lambda: [0, 0, 0])
        for held in self.held.values():
            charge = [sum(c[i] for c in held.charge) for i in range(3)]
            for name in LIMITS:
                scope = self.scope(name, held)
                for cell in held.cells:
                    total = sums[name, scope, cell]
                    for i in range(3):
                        total[i] += charge[i]
        return sums

    def within(self, name: str, total: list[int]) -> bool:
        """Own deltas fit, and epsilon fits or the squares fit."""
        epsilon, _, own, _ = LIMITS[name]
        square = SQUARES[name]
        return total[2] <= own * 10**15 and (
            total[0] <= epsilon * 10**9 or (square is not None and total[1] <= square * 10**15)
        )

    def admits(self, held: Held) -> bool:
        """Whether every rule has room in every cell."""
        totals = self.totals()
        extra = [sum(price(p)[i] for p in held.parts) for i in range(3)]
        return all(
            self.within(
                name,
                [
                    a + b
                    for a, b in zip(totals[name, self.scope(name, held), cell], extra, strict=True)
                ],
            )
            for name in LIMITS
            for cell in held.cells
        )

    # -- what clients do ---------------------------------------------------------------------

    def key(self) -> str:
        """A fresh idempotency key."""
        self.keys += 1
        return f"k{self.keys}"

    def answer(self, client: str, key: str, command: Any) -> Event:
        """Asks and remembers the answer, to ask again later."""
        event = self.book.ask(command, client, key)[-1]
        self.answered.append((client, key, command, event))
        return event

    @rule(
        target=grants,
        client=st.sampled_from(CLIENTS),
        dataset=st.sampled_from(DATASETS),
        subjects=subjects,
        parts=parts,
        ttl=st.sampled_from([1, 60, 3600]),
    )
    def ask(self, client: str, dataset: str, subjects: Any, parts: list[Any], ttl: int) -> Any:
        """A grant is admitted exactly when the model says so."""
        command = make(
            "ask_grant", dataset=dataset, subjects=subjects, mechanisms=parts, ttl_seconds=ttl
        )
        held = Held(dataset, client, self.cells(subjects), parts)
        expected = self.admits(held)
        event = self.answer(client, self.key(), command)
        assert (event.type == "grant.reserved.v1") == expected
        if not expected:
            return multiple()
        held.charge = [price(part) for part in parts]
        held.expires = self.book.now + ttl * SECOND
        self.held[event.body["grant"]] = held
        return event.body["grant"]

    @rule(target=sessions, client=st.sampled_from(CLIENTS), subjects=subjects)
    def open_session(self, client: str, subjects: Any) -> Any:
        """A session reserves its whole cost."""
        mechanism = sparse_vector()
        command = make("open_sparse_vector", dataset="d", subjects=subjects, mechanism=mechanism)
        held = Held("d", client, self.cells(subjects), [mechanism])
        expected = self.admits(held)
        event = self.answer(client, self.key(), command)
        assert (event.type == "grant.reserved.v1") == expected
        if not expected:
            return multiple()
        held.charge = [price(mechanism)]
        held.expires = self.book.now + 3600 * SECOND
        self.held[event.body["grant"]] = held
        return event.body["grant"]

    def live(self, grant: str) -> bool:
        """Open and not past its time."""
        held = self.held[grant]
        return held.open and held.expires is not None and self.book.now < held.expires

    def settle(self, grant: str, command: Any) -> None:
        """Settles a grant if it can be; else that is refused, or only noted."""
        held = self.held[grant]
        try:
            event = self.answer(held.client, self.key(), command)
        except Problem:
            assert not self.live(grant) or command.command == "release_grant"
            return
        if event.type == "grant.noted.v1":
            assert not self.live(grant)
        held.open = False

    @rule(grant=consumes(grants) | grants)
    def commit(self, grant: str) -> None:
        """Committing all keeps the charge."""
        self.settle(grant, make("commit_grant", grant=grant))

    @rule(grant=consumes(grants), data=st.data())
    def commit_part(self, grant: str, data: st.DataObject) -> None:
        """Committing a part charges that part, if it comes in time."""
        held = self.held[grant]
        listed = [data.draw(st.sampled_from(held.parts))]
        listed[0] = listed[0] | {"count": data.draw(st.integers(1, listed[0]["count"]))}
        if self.live(grant):
            held.charge = [price(part) for part in listed]
        self.settle(grant, make("commit_grant", grant=grant, mechanisms=listed))

    @rule(grant=consumes(grants))
    def release(self, grant: str) -> None:
        """Releasing in time takes the charge away."""
        if self.live(grant):
            self.held[grant].charge = []
        self.settle(grant, make("release_grant", grant=grant, reason="never run"))

    @rule(session=sessions, positives=st.integers(0, 3), negatives=st.integers(0, 3))
    def count(self, session: str, positives: int, negatives: int) -> None:
        """Counting answers changes no account."""
        command = make("count_answers", grant=session, positives=positives, negatives=negatives)
        try:
            self.answer(self.held[session].client, self.key(), command)
        except Problem:
            return
        assert self.live(session)

    @rule(session=consumes(sessions))
    def close(self, session: str) -> None:
        """Closing gives back epsilon for unused positives, and only epsilon."""
        held = self.held[session]
        if self.live(session):
            unused = 5 - self.book.state.grants[session].positives
            [(epsilon, square, delta)] = held.charge
            held.charge = [(epsilon - unused * 20_000_000, square, delta)]
        self.settle(session, make("close_sparse_vector", grant=session))

    @rule(
        client=st.sampled_from(CLIENTS),
        dataset=st.sampled_from(DATASETS),
        subjects=subjects,
        parts=parts,
    )
    def record(self, client: str, dataset: str, subjects: Any, parts: list[Any]) -> None:
        """An invocation is always booked, and flagged exactly when the model has no room."""
        command = make("record_invocations", dataset=dataset, subjects=subjects, mechanisms=parts)
        held = Held(dataset, client, self.cells(subjects), parts, open=False)
        fits = self.admits(held)
        event = self.answer(client, self.key(), command)
        assert event.body["overrun"] == (not fits)
        held.charge = [price(part) for part in parts]
        self.held[f"i{event.sequence}"] = held
        held.overrun = not fits

    @rule(seconds=st.sampled_from([1, 30, 3600]))
    def wait(self, seconds: int) -> None:
        """Time passes; grants come due whether or not anybody notices."""
        self.book.now += seconds * SECOND

    @rule()
    def expire(self) -> None:
        """Due grants are written off, at their full charge."""
        for name, grant in list(self.book.state.open.items()):
            if grant.due(self.book.now):
                self.book.do("expire_grant", SYSTEM, grant=name)
                self.held[name].open = False

    @precondition(lambda self: self.answered)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """The same key gives the first answer for ever, refusals too, and changes nothing."""
        client, key, command, event = data.draw(st.sampled_from(self.answered))
        before = self.book.state.sequence
        assert self.book.ask(command, client, key) == Repeated(event.sequence)
        assert self.book.state.sequence == before

    @precondition(lambda self: len(self.ages) < 5)
    @rule(attested=st.booleans())
    def extend(self, attested: bool) -> None:
        """New cells inherit the most that the cells beside them have lost, in each account; the
        model keeps to attested ones, which start with what was charged to everyone, and with
        what open grants hold that name no age.
        """
        if not attested:
            return
        self.ages.append(f"{len(self.ages)}")
        self.book.register({"age": self.ages, "sex": SEXES}, attested_new=True)
        for name, held in self.held.items():
            event = Event.from_bytes(self.book.stored[int(name[1:])][0])
            asked = event.body["command"].get("subjects")
            everyone = asked in (None, {}) or (isinstance(asked, list) and {} in asked)
            if held.open or everyone:
                held.cells = self.cells(asked)

    # -- what always holds -------------------------------------------------------------------

    @invariant()
    def accounts_are_the_models(self) -> None:
        """Every account holds, cell by cell, what the model adds up."""
        if not hasattr(self, "book"):
            return
        totals = self.totals()
        for name, (_, _, _, what) in LIMITS.items():
            for dataset, client in product(DATASETS, CLIENTS):
                key = (dataset, client) if what == "client" else (dataset, "")
                key = ("*", "") if what == "person" else key
                scope = self.scope(name, Held(dataset, client, frozenset(), []))
                expected = []
                for cell in product(self.ages, SEXES):
                    epsilon, square, delta = totals[name, scope, cell]
                    expected.append((epsilon, delta, square, 0, 0, 0))
                assert self.book.used(name, *key) == expected

    @invariant()
    def nothing_is_over(self) -> None:
        """No cell is over a limit unless an invocation that already happened took it there."""
        if not hasattr(self, "book"):
            return
        excused = {
            (name, self.scope(name, held), cell)
            for held in self.held.values()
            if held.overrun
            for name in LIMITS
            for cell in held.cells
        }
        for at, total in self.totals().items():
            assert at in excused or self.within(at[0], total)

    def teardown(self) -> None:
        """The ledger replays without a finding, and its bytes alone lead to the same state."""
        if not hasattr(self, "book"):
            return
        result = self.book.replayed()
        assert result.findings == []
        again = fold(self.book.name, (Event.from_bytes(body) for body, _ in self.book.stored))
        assert snapshot(result.state) == snapshot(again) == snapshot(self.book.state)


TestLedger = Ledger.TestCase
TestLedger.settings = settings(
    settings.get_profile("default"), max_examples=80, stateful_step_count=40
)
