"""Limits whose scope moves against a naive model: a list of charges, added up afresh.

The model knows what a scope promises and none of the code. It holds the fold, the replay, a
snapshot, the tables' changes and the verifier for auditors to the same sums.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from effort import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support import Book, laplace, make

from accountant import verify_minimal
from accountant.budget.facts import grant_in
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.publishing.fleet.changes import ChargeSums, applied

DATASETS = ("d", "e", "f")
CLIENTS = ("etl", "one")
PURPOSES = (None, "study", "other")
RISKS = ("high", "low")
RULES = """
  - {id: wide, limit: {epsilon: 1000}}
  - {id: each, labels: {risk: high}, limit: {epsilon: 2}, gate: basic}
  - {id: total, across: datasets, labels: {risk: high}, limit: {epsilon: 3}, gate: basic}
  - {id: theirs, across: datasets, owners: [team-*], per: client, limit: {epsilon: 1.5}}
  - {id: month, window: 1h, across: datasets, owners: team-a, limit: {epsilon: 2}}
  - {id: batch, clients: [etl], limit: {epsilon: 1}}
  - {id: studies, purposes: [study], datasets: [d, e], limit: {epsilon: 1}}
  - {id: reasons, require: [justification], labels: {risk: [high, odd]}}
"""
MOVING = {"total": ("risk", False), "theirs": ("owner", True), "month": ("owner", False)}
MICRO = 1_000_000
HOUR = 3_600 * MICRO


@dataclass
class Charge:
    """What one request has booked on each cell. ``spent``: when, None while it is only reserved."""

    datasets: tuple[str, ...]
    client: str
    purpose: str | None
    cells: tuple[int, ...]
    epsilon: Fraction
    spent: int | None = None
    expired: bool = False


@dataclass
class Copy:
    """What came into a total with a dataset, as it stood then: it never changes again."""

    cells: tuple[int, ...]
    epsilon: Fraction
    spent: int


@dataclass
class Total:
    """A total over datasets of one client, or of all."""

    inside: list[Charge | Copy] = field(default_factory=list)
    outside: dict[str, list[Charge]] = field(default_factory=dict)


class Scopes(RuleBasedStateMachine):
    """A ledger on which datasets move in and out of scopes."""

    def __init__(self) -> None:
        super().__init__()
        self.book = Book()
        self.book.register({"age": ["17", "22"]})
        self.what = {name: {"risk": "low", "owner": "team-b"} for name in DATASETS}
        for name in DATASETS:
            self.describe(name)
        self.charges: list[Charge] = []
        self.open: dict[str, Charge] = {}
        self.totals: dict[tuple[str, str], Total] = {}

    @initialize(first=st.booleans())
    def adopt(self, first: bool) -> None:
        """The policy comes after a first charge, or before."""
        if first:
            self.book.policy("  - {id: wide, limit: {epsilon: 1000}}\n")
            self.spend(("d",), "one", None, (0,), Fraction(1, 2), hold=False)
        self.book.policy(RULES)
        self.totals.clear()  # a total begins with what its data were used for, but for windows
        for charge in self.charges:
            self.into("total", charge)

    def describe(self, name: str) -> None:
        """Registers a dataset as the model has it."""
        what = self.what[name]
        labels = {"labels": {"risk": what["risk"]}}
        about = {"namespace": "n", "name": name, "owner": what["owner"]}
        command = make("register_dataset", id=name, **about, **labels)
        self.book.ask(command, "admin", confirmed_by="officer")

    # -- what the rules mean -----------------------------------------------------------------

    def holds(self, rule_id: str, name: str) -> bool:
        """Whether a dataset is in the scope of a rule now."""
        what = self.what[name]
        if rule_id in ("each", "total", "reasons"):
            return what["risk"] == "high"
        return what["owner"] == "team-a" if rule_id == "month" else what["owner"] != "other"

    def into(self, rule_id: str, charge: Charge) -> None:
        """A charge goes into the total if one of its datasets is in scope; else it waits."""
        of = self.totals.setdefault((rule_id, charge.client if MOVING[rule_id][1] else ""), Total())
        if any(self.holds(rule_id, name) for name in charge.datasets):
            of.inside.append(charge)
        else:
            for name in charge.datasets:
                of.outside.setdefault(name, []).append(charge)

    def used(self, rule_id: str, client: str, cell: int) -> Fraction:
        """What a total has of a cell."""
        now, lines = self.book.now, self.totals.get((rule_id, client), Total()).inside
        return sum(
            (self.counts(rule_id, line, now) for line in lines if cell in line.cells), Fraction()
        )

    def counts(self, rule_id: str, line: Charge | Copy, now: int) -> Fraction:
        """What a line counts at a stamp: after its hour nothing, in a window."""
        passed = rule_id == "month" and line.spent is not None and line.spent + HOUR <= now
        return Fraction() if passed else line.epsilon

    def on(self, name: str, cell: int, **of: Any) -> Fraction:
        """All that a dataset was ever used for, by some."""
        return sum(
            (
                one.epsilon
                for one in self.charges
                if name in one.datasets
                and cell in one.cells
                and all(getattr(one, key) == value for key, value in of.items())
            ),
            Fraction(),
        )

    def fits(self, charge: Charge) -> bool:
        """Whether a charge fits under every limit, in every cell."""
        for cell in charge.cells:
            for name in charge.datasets:
                if self.holds("each", name) and self.on(name, cell) + charge.epsilon > 2:
                    return False
                adopted = self.since(name, cell, client="etl")
                if charge.client == "etl" and adopted + charge.epsilon > 1:
                    return False
                said = self.since(name, cell, purpose="study")
                if charge.purpose == "study" and name != "f" and said + charge.epsilon > 1:
                    return False
            for rule_id, most in (("total", 3), ("theirs", Fraction(3, 2)), ("month", 2)):
                client = charge.client if MOVING[rule_id][1] else ""
                inside = any(self.holds(rule_id, name) for name in charge.datasets)
                if inside and self.used(rule_id, client, cell) + charge.epsilon > most:
                    return False
        return True

    def since(self, name: str, cell: int, **of: str) -> Fraction:
        """The first charge was by client one for nothing: sub-limits begin with none anyway."""
        return self.on(name, cell, **of)

    # -- what happens ------------------------------------------------------------------------

    def spend(
        self,
        datasets: tuple[str, ...],
        client: str,
        purpose: str | None,
        cells: tuple[int, ...],
        epsilon: Fraction,
        *,
        hold: bool,
    ) -> None:
        """Reserves, or records what ran."""
        charge = Charge(datasets, client, purpose, cells, epsilon)
        subjects = None if len(cells) == 2 else {"age": [["17", "22"][cells[0]]]}
        about: dict[str, Any] = {
            "dataset": list(datasets),
            "subjects": subjects,
            "purpose": purpose,
        }
        about |= {"justification": "x", "mechanisms": [laplace(str(float(epsilon)))]}
        kind = "ask_grant" if hold else "record_invocations"
        about |= {"ttl_seconds": 86_400} if hold else {}
        in_force = "total" in [r.id for r in self.book.state.adopted.policy.limits]  # type: ignore[union-attr]
        fits = not in_force or self.fits(charge)
        event = self.book.do(kind, client, **about)
        if hold:
            assert event.type == ("grant.reserved.v1" if fits else "grant.refused.v1")
        else:
            assert event.body.get("overrun", False) is not fits
            charge.spent = event.time
        if hold and not fits:
            return
        self.charges.append(charge)
        for rule_id in MOVING if in_force else ():
            self.into(rule_id, charge)
        if hold:
            self.open[grant_in(event)] = charge

    @rule(
        datasets=st.sets(st.sampled_from(DATASETS), min_size=1, max_size=2),
        client=st.sampled_from(CLIENTS),
        purpose=st.sampled_from(PURPOSES),
        cells=st.sampled_from([(0,), (1,), (0, 1)]),
        tenths=st.integers(1, 9),
        hold=st.booleans(),
    )
    def ask(self, datasets: set[str], client: str, purpose: str | None, cells: tuple[int, ...],
            tenths: int, hold: bool) -> None:  # fmt: skip
        """Somebody asks, or records."""
        names = tuple(sorted(datasets))
        self.spend(names, client, purpose, cells, Fraction(tenths, 10), hold=hold)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), release=st.booleans())
    def settle(self, data: st.DataObject, release: bool) -> None:
        """A grant is committed, or given back."""
        name = data.draw(st.sampled_from(sorted(self.open)))
        charge = self.open.pop(name)
        kind = "release_grant" if release else "commit_grant"
        more = {"reason": "no"} if release else {}
        self.book.do(kind, charge.client, grant=name, **more)
        charge.spent = self.book.now
        if release:
            charge.epsilon = Fraction()

    @rule(minutes=st.integers(1, 50), ends=st.booleans())
    def wait(self, minutes: int, ends: bool) -> None:
        """Time passes, perhaps once all grants have ended; they last for a day."""
        for name in list(self.open) if ends else ():
            self.book.do("commit_grant", self.open[name].client, grant=name)
            self.open.pop(name).spent = self.book.now
        self.book.now += minutes * 60 * MICRO

    @rule(
        name=st.sampled_from(DATASETS),
        risk=st.sampled_from(RISKS),
        owner=st.sampled_from(["team-a", "team-b", "other"]),
    )
    def move(self, name: str, risk: str, owner: str) -> None:
        """A dataset changes, and comes into scopes or goes out of them."""
        before = {rule_id: self.holds(rule_id, name) for rule_id in MOVING}
        self.what[name] = {"risk": risk, "owner": owner}
        self.describe(name)
        for (rule_id, _), total in self.totals.items():
            if self.holds(rule_id, name) and not before[rule_id]:
                now = self.book.now
                for one in total.outside.pop(name, []):
                    runs = rule_id == "month" and one.spent is None
                    if runs and not any(one is line for line in total.inside):
                        total.inside.append(one)  # what it will have spent passes an hour later
                    else:
                        total.inside.append(Copy(one.cells, self.counts(rule_id, one, now), now))

    # -- what has to hold --------------------------------------------------------------------

    @invariant()
    def sums(self) -> None:
        """Every account has what the model adds up."""
        state = self.book.state
        if state.adopted is None or "total" not in state.adopted.epochs:
            return
        for rule_id, by_client in ((name, each) for name, (_, each) in MOVING.items()):
            for client in CLIENTS if by_client else ("",):
                account = self.book.account(rule_id, "*", client).at(self.book.now)
                found = account.used.stacked()[0].tolist()
                due = [self.used(rule_id, client, cell) for cell in (0, 1)]
                assert found == [int(one * 10**9) for one in due], (rule_id, client)
        for name in DATASETS:  # in scope or not
            found = [used[0] for used in self.book.used("each", name)]
            assert found == [int(self.on(name, cell) * 10**9) for cell in (0, 1)]

    def teardown(self) -> None:
        """Whoever follows the events comes to the same accounts."""
        book = self.book
        assert not book.replayed().findings
        state, sums, audit = State(book.name), ChargeSums(), verify_minimal.Audit()
        for entry in book.stored:
            event = Event.from_bytes(entry)
            for change in applied(state, event):
                sums.add(change)
            document = json.loads(entry)
            audit.now = max(audit.now, event.time)
            audit.attempt(audit.size, audit.fold, document, event.type, document["command"])
            audit.size += 1
        for key, account in state.accounts.items():
            assert account.at(book.now) == book.state.accounts[key].at(book.now), key
        assert state.accounts.keys() == book.state.accounts.keys()
        sums.agree(state)
        assert audit.findings == []
        assert dict(self.minimal(audit)) == dict(self.ours(state))

    @staticmethod
    def minimal(audit: verify_minimal.Audit) -> Iterator[tuple[Any, list[int]]]:
        """Epsilons by cell of the accounts that are used, as the second verifier has them."""
        for key, account in audit.accounts.items():
            account.advance(audit.now)
            found = [account.at((cell,))[0] for cell in (0, 1)]
            if any(found):
                yield key, found

    @staticmethod
    def ours(state: State) -> Iterator[tuple[Any, list[int]]]:
        """The same of a state."""
        for key, account in state.accounts.items():
            found = account.at(state.time).used.stacked()[0].tolist()
            if any(found):
                yield tuple(key), found


TestScopes = Scopes.TestCase
TestScopes.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
