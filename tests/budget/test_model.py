"""A whole ledger against a naive model: exact fractions in dictionaries, one rule after another.

The model knows the theory, not the code: it keeps, for every cell of every dataset, a list of what
was charged, and sums it afresh whenever it is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil
from operator import add
from typing import Any

import mpmath
import pytest
from effort import examples
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
    run_state_machine_as_test,
)
from support import SECOND, Book, declared, gaussian, laplace, make, snapshot, sparse_vector

from accountant.budget.apply import fold
from accountant.budget.decide import SYSTEM, Repeated
from accountant.budget.errors import Problem
from accountant.budget.facts import grant_in
from accountant.ledger.events import Event
from accountant.privacy.filters import FILTERS

DATASETS = ("d", "e")
CLIENTS = ("one", "two")
AGES = ["17", "22", "27"]
SEXES = ["f", "m"]
LIMITS = {
    # rule: (epsilon, own delta, what it counts)
    "a": (Fraction(2), Fraction(1, 100), "dataset"),
    "person": (Fraction(3), Fraction(0), "person"),
    "each": (Fraction(3, 2), Fraction(0), "client"),
}
EPSILON, GATE_DELTA = mpmath.mpf(2), mpmath.fraction(9, 100)
"""Of rule a."""
POLICY = (
    "  - {{id: a, limit: {{epsilon: 2, delta: 0.1, own_delta: 0.01}}, gate: {gate}}}\n"
    "  - {{id: person, across: datasets, limit: {{epsilon: 3}}}}\n"
    "  - {{id: each, per: client, limit: {{epsilon: 1.5}}}}\n"
    "  - {{id: nearly, of: a, at: 80%}}\n"
)

Cell = tuple[str, str]
Sums = list[int]
"""Units of epsilon, delta, its square, rho, tau at two orders and mu squared, then how many are
infinite."""
N = 7
NOTHING = [0] * 2 * N
MU_SQUARED = 6


@dataclass
class Held:
    """What the model knows of one grant or invocation."""

    dataset: str
    client: str
    cells: frozenset[Cell]
    parts: list[dict[str, Any]]
    expires: int | None = None
    open: bool = True
    charge: list[Sums] = field(default_factory=list)
    overrun: bool = False
    expired: bool = False


def room(order: Any, part: Any = 1) -> Any:
    """Epsilon less what is lost at none: ln(1 - 1/a) - ln(a part delta') / (a - 1)."""
    at_none = mpmath.log(1 - 1 / order) - mpmath.log(order * part * GATE_DELTA) / (order - 1)
    return EPSILON - at_none


def slope(order: Any) -> Any:
    """That of ``room(order) / order``, but for a positive factor."""
    return room(order) / order * (order - 1) ** 2 + mpmath.log(order * GATE_DELTA)


def gaussian_delta(mu: Any) -> Any:
    """Balle and Wang 2018, Theorem 8, at epsilon."""
    a = EPSILON / mu - mu / 2
    return mpmath.ncdf(-a) - mpmath.exp(EPSILON) * mpmath.ncdf(-a - mu)


ORDERS = [*range(2, 65), *(round(2 ** (i // 8) * (9 + i % 8) * 8) for i in range(64))]
PARTS = (mpmath.fraction(7, 10), mpmath.fraction(3, 10))
FIRST = max(ORDERS, key=lambda order: room(mpmath.mpf(order), PARTS[0]) / order)
PAIR = (FIRST, round(FIRST * 0.65))
"""The Renyi orders of rule a, which states none."""
assert 1 < PAIR[1] < PAIR[0]


def lines(gate: str) -> list[tuple[int, Fraction]]:
    """(place in the sums, capacity) of the gate's own currencies under rule a."""
    with mpmath.workdps(50):
        if gate == "advanced":  # V of Whitehouse et al. 2023, Theorem 1
            log = mpmath.log(1 / GATE_DELTA)
            most = (mpmath.sqrt(2 * log + 2 * EPSILON) - mpmath.sqrt(2 * log)) ** 2
            at = 2
        elif gate == "zcdp":  # the largest rho that some order leaves room for: its slope is 0
            order = mpmath.findroot(slope, (2, 8), "anderson")
            most, at = room(order) / order, 3
            assert all(room(order * by) / (order * by) < most for by in (0.99, 1.01))
        elif gate == "renyi":
            rooms = [room(mpmath.mpf(order), part) for order, part in zip(PAIR, PARTS, strict=True)]
            return [(4 + i, Fraction(int(most * 10**30), 10**30)) for i, most in enumerate(rooms)]
        elif gate == "gdp":  # nine tenths of delta' are the capacity's
            gap = mpmath.findroot(lambda m: gaussian_delta(m) - GATE_DELTA * 9 / 10, (0.5, 2))
            most, at = gap**2, MU_SQUARED
        else:
            return []
        return [(at, Fraction(int(most * 10**30), 10**30))]


@cache
def one(kind: str, stated: str, delta: str) -> tuple[int, ...]:
    """One invocation, rounded up to units."""
    e, own = Fraction(stated), ceil(Fraction(delta) * 10**15)
    if kind == "gaussian":  # mu; it has no epsilon
        square = e**2 * 10**15
        taus = [square * order / 2 for order in PAIR]
        units = map(ceil, (square / 2, *taus, square))
        return (0, own, 0, *units, *[i in (0, 2) for i in range(N)])
    with mpmath.workdps(80):
        x = mpmath.mpf(e.numerator) / e.denominator
        rho = x * mpmath.tanh(x / 2)
        both = [mpmath.mpf(order) for order in PAIR]
        taus = [mpmath.log(mpmath.cosh(x * (a - 0.5)) / mpmath.cosh(x / 2)) / (a - 1) for a in both]
        if kind == "laplace":  # Mironov 2017, Prop. 6; Harrison and Manurangsi 2026
            rho = min(rho, x + mpmath.exp(-x) - 1)
            ends = [(a * mpmath.exp((a - 1) * x), (a - 1) * mpmath.exp(-a * x)) for a in both]
            taus = [
                mpmath.log((near + far) / (2 * a - 1)) / (a - 1)
                for a, (near, far) in zip(both, ends, strict=True)
            ]
        # Phi(mu / 2) = e^eps / (1 + e^eps), that is erf(mu / sqrt 8) = tanh(eps / 2)
        mu = mpmath.sqrt(8) * mpmath.erfinv(mpmath.tanh(x / 2))
        real = [int(mpmath.ceil(value * 10**15)) for value in (rho, *taus, mu**2)]
    return (ceil(e * 10**9), own, ceil(e**2 * 10**15), *real, *[0] * N)


def price(part: dict[str, Any]) -> Sums:
    """All invocations, in units rounded up once per invocation."""
    if part["kind"] == "sparse_vector":
        stated = "0.2"
    else:
        stated = part.get("epsilon") or part["sensitivity"]
    count = part.get("count", 1)
    return [count * units for units in one(part["kind"], stated, part.get("delta", "0"))]


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


recorded = parts | st.lists(
    st.builds(laplace, small, st.integers(1, 3)) | st.builds(gaussian, small),
    min_size=1,
    max_size=2,
)


class Ledger(RuleBasedStateMachine):
    """Anything that clients may do, in any order, beside a model that adds up fractions."""

    gate = "basic"

    grants = Bundle("grants")
    sessions = Bundle("sessions")

    @initialize()
    def begin(self) -> None:
        """A population with six cells, two datasets and three limits."""
        self.book = Book()
        self.book.register({"age": AGES, "sex": SEXES})
        for name in DATASETS:
            self.book.dataset(name)
        self.book.policy(POLICY.format(gate=self.gate))
        self.lines = lines(self.gate)
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
            LIMITS[name][2]
        ]

    def totals(self) -> dict[tuple[str, str, Cell], Sums]:
        """Sums by rule, account and cell: everything added up afresh."""
        sums: dict[tuple[str, str, Cell], Sums] = defaultdict(lambda: list(NOTHING))
        for held in self.held.values():
            charge = added(*held.charge)
            for name in LIMITS:
                scope = self.scope(name, held)
                for cell in held.cells:
                    sums[name, scope, cell] = list(map(add, sums[name, scope, cell], charge))
        return sums

    def within(self, name: str, total: Sums) -> bool:
        """Own deltas fit, and epsilon fits or what the gate counts fits."""
        epsilon, own, _ = LIMITS[name]
        basic = total[N] == 0 and total[0] <= epsilon * 10**9
        beside = False
        for at, most in self.lines if name == "a" else ():
            beside = beside or (total[N + at] == 0 and total[at] <= most * 10**15)
        return total[1] <= own * 10**15 and (basic or beside)

    def admits(self, held: Held) -> bool:
        """Whether every rule has room in every cell."""
        totals = self.totals()
        extra = added(*(price(part) for part in held.parts))
        return all(
            self.within(name, added(totals[name, self.scope(name, held), cell], extra))
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
        self.held[grant_in(event)] = held
        return grant_in(event)

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
        self.held[grant_in(event)] = held
        return grant_in(event)

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
            held.expired = True
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
            unused = 5 - self.book.state.open[session].positives
            [(epsilon, *others)] = held.charge
            held.charge = [[epsilon - unused * 20_000_000, *others]]
        self.settle(session, make("close_sparse_vector", grant=session))

    @rule(
        client=st.sampled_from(CLIENTS),
        dataset=st.sampled_from(DATASETS),
        subjects=subjects,
        parts=recorded,
    )
    def record(self, client: str, dataset: str, subjects: Any, parts: list[Any]) -> None:
        """An invocation is always booked, and flagged exactly when the model has no room."""
        command = make("record_invocations", dataset=dataset, subjects=subjects, mechanisms=parts)
        held = Held(dataset, client, self.cells(subjects), parts, open=False)
        fits = self.admits(held)
        event = self.answer(client, self.key(), command)
        assert event.body.get("overrun", False) == (not fits)
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
                self.held[name].open, self.held[name].expired = False, True

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
        model keeps to attested ones, which start with what may still run on their members: grants
        that are open and name no age, and those on everyone that have expired.
        """
        if not attested:
            return
        self.ages.append(f"{len(self.ages)}")
        self.book.register({"age": self.ages, "sex": SEXES}, attested_new=True)
        for name, held in self.held.items():
            event = Event.from_bytes(self.book.stored[int(name[1:])])
            asked = event.body["command"].get("subjects")
            everyone = asked in (None, {}) or (isinstance(asked, list) and {} in asked)
            if held.open or (everyone and held.expired):
                held.cells = self.cells(asked)

    # -- what always holds -------------------------------------------------------------------

    @invariant()
    def accounts_are_the_models(self) -> None:
        """Every account holds, cell by cell, what the model adds up."""
        if not hasattr(self, "book"):
            return
        totals = self.totals()
        for name, (_, _, what) in LIMITS.items():
            for dataset, client in product(DATASETS, CLIENTS):
                key = (dataset, client) if what == "client" else (dataset, "")
                key = ("*", "") if what == "person" else key
                scope = self.scope(name, Held(dataset, client, frozenset(), []))
                every = [totals[name, scope, cell] for cell in product(self.ages, SEXES)]
                used = self.book.used(name, *key)
                if name != "a":  # a rule without a delta' keeps what holds along every path
                    assert used == [(*sums[:2], *sums[N : N + 2]) for sums in every]
                    continue
                assert [exactly(sums) for sums in used] == [exactly(sums) for sums in every]
                for mine, theirs in zip(used, every, strict=True):
                    least = theirs[MU_SQUARED]
                    assert least <= mine[MU_SQUARED] <= least * (1 + 1e-9)

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
        again = fold(self.book.name, map(Event.from_bytes, self.book.stored))
        assert snapshot(result.state) == snapshot(again) == snapshot(self.book.state)


def added(*sums: Sums) -> Sums:
    """The sum, place by place."""
    return [sum(place) for place in zip(NOTHING, *sums, strict=True)]


def exactly(sums: Iterable[int]) -> list[int]:
    """All but mu squared, which has to be approximated: it is compared for itself."""
    return [units for place, units in enumerate(sums) if place != MU_SQUARED]


@pytest.mark.parametrize("gate", FILTERS)
def test_a_ledger_is_its_model(gate: str) -> None:
    """Under every gate a ledger admits, books and gives back what the model does."""
    machine = type(f"Ledger_{gate}", (Ledger,), {"gate": gate})
    few = settings(
        settings.get_profile("default"), max_examples=examples(40), stateful_step_count=40
    )
    run_state_machine_as_test(machine, settings=few)
