"""Every decision of random ledgers, taken again by an evaluator in plain Python."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracle import Cell, Found, Key, Oracle
from random_ledgers import Ops, ledger, ops
from support import (
    NON_PRIVATE,
    Book,
    declared,
    gaussian,
    laplace,
    make,
    snapshot,
    sparse_vector,
)

from accountant import verify_minimal
from accountant.auditing.totals import totals_of
from accountant.budget.decide import SYSTEM, batching
from accountant.budget.errors import Conflict
from accountant.budget.outcome import REGISTRATIONS
from accountant.budget.rules import KINDS
from accountant.budget.snapshot import dump, load
from accountant.ledger.events import Event, canonical
from accountant.privacy.filters import FILTERS


class Checked(Book):
    """A ledger beside an oracle that sees its events."""

    def __init__(self) -> None:
        super().__init__()
        self.oracle = Oracle()
        self.met: set[str] = set()
        """Kinds of events and of words that were compared."""

    def _take(self, asked: Any) -> Any:
        events = super()._take(asked)
        if isinstance(events, list):
            for event in events:
                self.check(event)
        return events

    def check(self, event: Event) -> None:
        """The event says what the oracle says."""
        found = self.oracle.see(event, self.state.adopted)
        self.met.add(event.type)
        if found is None:
            return
        body = event.body
        assert body.get("fired", []) == found.fired
        assert (event.type in ("grant.refused.v1", "batch.refused.v1")) == (
            found.outcome == "block" and event.type != "invocation.recorded.v1"
        )
        asks = found.outcome == "approve" and event.type != "invocation.recorded.v1"
        assert (event.type in ("grant.waiting.v1", "grant.admitted.v1")) == asks
        over = any(code == "budget-exceeded" and self.blocks(rule) for rule, code in found.fired)
        assert body.get("overrun", False) == (over and event.type == "invocation.recorded.v1")
        told = dict(body.get("rules", {}))
        assert told.keys() == found.rules.keys()
        for rule, expected in found.rules.items():
            if "cell" not in told[rule]:
                assert rule in found.alike
                expected.pop("cell", None)
            others = told[rule].get("beside", ()), expected.get("beside", ())
            for one, other in zip(*others, strict=True):
                alike = other.pop("alike")
                if "cell" not in one:
                    assert alike
                    del other["cell"]
                self.met.add("beside")
            assert told[rule] == expected, rule
            self.met.add("full" if "capacity" in expected else "fits")
            self.met |= {"infinite"} & set(expected.get("used", ()))
        self.check_exhausted(event, found)

    def check_exhausted(self, event: Event, found: Found) -> None:
        """What was not granted lists, limit by limit, the accounts and the cells in which the
        charge does not fit, each once; what was granted or had run lists none.
        """
        listed: dict[tuple[str, str], frozenset[Cell]] = {}
        for one in self.explained(event).exhausted:
            for name in one.datasets:
                _, every = found.exhausted[one.rule, name]
                among = None if one.subjects is None else self.oracle.selected(one.subjects)
                cells = every if among is None else every & among
                assert not listed.get((one.rule, name), frozenset()) & cells
                listed[one.rule, name] = listed.get((one.rule, name), frozenset()) | cells
                assert not one.part
                self.met.add("all cells" if among is None else "some cells")
        held = event.type not in ("grant.reserved.v1", "invocation.recorded.v1")
        if held and event.type != "grant.admitted.v1":
            assert listed == {key: full for key, (full, _) in found.exhausted.items()}
        else:
            assert not listed

    def blocks(self, rule: str) -> bool:
        """Whether a rule blocks."""
        return any(
            r["id"] == rule and r.get("action", "block") == "block" for r in self.oracle.rules
        )

    def compare_accounts(self) -> None:
        """Every account has, cell by cell, what the oracle adds up."""
        keys = {tuple(key) for key in self.state.accounts}
        assert keys == self.oracle.accounts.keys()
        for key in keys:
            self.compare_account(key)  # type: ignore[arg-type]

    def compare_account(self, key: Key) -> None:
        """One account."""
        now = self.state.time
        account = next(a for k, a in self.state.accounts.items() if tuple(k) == key).at(now)
        naive = self.oracle.accounts[key]
        assert account.axis == naive.axis
        used = account.used.stacked()
        for cell in self.oracle.cells:
            column = [int(sums[cell]) for sums in used]
            expected = naive.at(cell, now)
            finite = [expected[currency][0] for currency in naive.axis]
            infinite = [expected[currency][1] for currency in naive.axis]
            assert column == finite + infinite, (key, cell)


def known(todo: Ops) -> Ops:
    """What the oracle knows: it carries nothing over."""
    return [op for op in todo if op[0] != "carry"]


@settings(max_examples=examples(50))
@given(st.sampled_from(sorted(FILTERS)), st.booleans(), ops.map(known))
def test_every_decision_is_the_oracles(gate: str, wide: bool, todo: Ops) -> None:
    """Outcome, fired rules in order, and for each limit and threshold the sums at the cell that is
    quoted are those that plain Python comes to; and so is every account in the end.
    """
    book = Checked()
    ledger(gate, wide, todo, book)
    book.compare_accounts()


ASKS: Ops = [
    ("ask", client, dataset, mechanism, group, purpose)
    for client, dataset, mechanism, group, purpose in (
        ("one", "d", 0, 0, "study"),
        ("one", "d", 4, 2, None),
        ("two", "d", 4, 5, "free text"),
        ("two", "e", 3, 3, "study"),
        ("one", "d", 2, 4, "study"),
        ("one", "e", 1, 0, None),
        ("two", "d", 5, 0, "study"),
        ("two", "e", 6, 2, "study"),
    )
]
RICH: Ops = [
    ("session",),
    *ASKS,
    ("commit", 0),
    ("part", 1),
    ("release", 1),
    ("record", "one", "d", 2, 2, "study"),
    ("batch", False, "two", [("d", 0, 5, "study"), ("e", 1, 2, None)]),
    ("batch", False, "one", [("d", 0, 2, "study"), ("d", 6, 0, None)]),
    ("extend", True),
    ("made", "e", ["d"]),
    *ASKS,
    ("record", "two", "e", 6, 3, None),
    ("policy", 1),
    *ASKS,
    ("gate", "zcdp"),
    ("extend", False),
    *ASKS,
    ("wait", 4000),
    ("expire",),
    *ASKS,
    ("record", "one", "d", 4, 3, "study"),
    ("recover",),
    ("gate", "basic"),
    *ASKS,
]


@pytest.mark.parametrize("gate", FILTERS)
def test_a_rich_ledger_is_the_oracles(gate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a ledger in which everything happens that the property is about, where an event
    has little room for a refused batch.
    """
    monkeypatch.setattr(batching, "MOST_BYTES", 100)
    book = Checked()
    ledger(gate, False, RICH, book)
    book.compare_accounts()
    assert {"full", "fits", "infinite", "all cells", "some cells"} <= book.met
    assert {
        "grant.reserved.v1",
        "grant.refused.v1",
        "grant.expired.v1",
        "batch.part.v1",
        "batch.refused.v1",
        "ledger.recovered.v1",
        "sparse_vector.closed.v1",
        *REGISTRATIONS,
    } <= book.met


SCOPED = [
    """
  - {id: wide, limit: {epsilon: 3, delta: 1e-5}}
  - {id: own, limit: {epsilon: 1, delta: 1e-6}, labels: {risk: [high, odd]}, gate: GATE}
  - {id: sum, across: datasets, limit: {epsilon: 1.5, delta: 1e-6}, labels: {risk: high}}
  - {id: week, window: 2h, across: datasets, limit: {epsilon: 1}, owners: [team-*], per: client}
  - {id: two, limit: {epsilon: 1}, clients: [tw*], datasets: [d, e]}
  - {id: study, across: datasets, limit: {epsilon: 1}, purposes: [study], owners: [team-a]}
  - {id: near, of: sum, at: 50%}
  - {id: cap, at_most: {epsilon: 0.5}, purposes: [study], labels: {risk: high}}
  - {id: raw, mechanisms: [declared], owners: [team-b]}
  - {id: why, require: [justification], labels: {risk: high}, action: flag}
""",
    """
  - {id: wide, limit: {epsilon: 4, delta: 1e-5}}
  - {id: own, limit: {epsilon: 2, delta: 1e-6}, labels: {risk: [high, odd]}, gate: GATE}
  - {id: sum, across: datasets, limit: {epsilon: 2, delta: 1e-6}, labels: {risk: high}, gate: basic}
  - {id: new, across: datasets, limit: {epsilon: 2, delta: 1e-6}, owners: [team-a], gate: GATE}
""",
]
names = st.sets(st.sampled_from("def"), min_size=1, max_size=2).map(sorted)
happening = st.one_of(
    st.tuples(
        st.just("ask"),
        st.booleans(),
        st.sampled_from(["one", "two"]),
        names,
        st.integers(0, 5),
        st.sampled_from([None, {"sex": ["f"]}, {"age": ["22"]}]),
        st.sampled_from([None, "study"]),
    ),
    st.tuples(
        st.just("move"),
        st.sampled_from("def"),
        st.sampled_from(["high", "odd", "low"]),
        st.sampled_from(["team-a", "team-b", "x"]),
    ),
    st.tuples(st.just("settle"), st.booleans()),
    st.tuples(st.just("wait"), st.integers(60, 7_000)),
    st.tuples(st.just("policy"), st.integers(0, 1)),
)
PRICED = (
    laplace("0.1"),
    laplace("0.4"),
    gaussian("0.05", "1e-9"),
    gaussian("0.1"),
    declared("0.1", "1e-9"),
    laplace("0.8"),
)


@settings(max_examples=examples(80))
@given(st.sampled_from(sorted(FILTERS)), st.lists(happening, max_size=40))
def test_scopes_are_the_oracles(gate: str, todo: list[Any]) -> None:
    """The same where datasets come into scopes and go out of them, and policies change."""
    book = Checked()
    book.register({"age": ["17", "22"], "sex": ["f", "m"]})
    for name in "def":
        book.dataset(name)
    book.policy(SCOPED[0].replace("GATE", gate), "officer")
    for kind, *of in todo:
        if kind == "ask":
            grants, by, datasets, priced, subjects, purpose = of
            asked = {"mechanisms": [PRICED[priced]], "subjects": subjects, "purpose": purpose}
            asked |= {"dataset": datasets} | ({"ttl_seconds": 86_400} if grants else {})
            book.do("ask_grant" if grants else "record_invocations", by, **asked)
        elif kind == "move":
            name, risk, owner = of
            about = {"namespace": "n", "name": name, "owner": owner}
            command = make("register_dataset", id=name, labels={"risk": risk}, **about)
            book.ask(command, "admin", confirmed_by="officer")
        elif kind == "settle" and book.state.open:
            grant = next(iter(book.state.open.values()))
            more = {"reason": "x"} if of[0] else {}
            book.do("release_grant" if of[0] else "commit_grant", grant.by, grant=grant.id, **more)
        elif kind == "wait":
            book.now += of[0] * 1_000_000
        elif kind == "policy":
            book.policy(SCOPED[of[0]].replace("GATE", gate), "officer", closes=True)
    book.compare_accounts()
    assert not book.replayed().findings


UNITS = {
    "day": {"part_of": "person", "at_most": 31},
    "home": {"group_of": "person", "at_most": 3, "called": "one household"},
    "visit": {"part_of": "person"},
}
LATE = {
    "tour": {"part_of": "person"},
    "club": {"group_of": "person", "at_most": 3},
    "pair": {"group_of": "person", "at_most": 1},
}
"""Those that are stated when something was charged already."""
BY_UNIT = [
    """
  - {id: ever, limit: {epsilon: 3, delta: 1e-5}, gate: GATE}
  - {id: daily, limit: {epsilon: 0.8, delta: 1e-6}, unit: day, gate: GATE}
  - {id: homes, limit: {epsilon: 6, delta: 1e-5}, unit: home, gate: GATE, action: flag}
  - {id: near, of: daily, at: 50%}
""",
    """
  - {id: ever, limit: {epsilon: 3, delta: 1e-5}, gate: GATE}
  - {id: daily, limit: {epsilon: 0.9, delta: 1e-6}, unit: visit, gate: GATE}
  - {id: homes, limit: {epsilon: 4, delta: 1e-5}, unit: home, gate: basic}
  - {id: all, across: datasets, limit: {epsilon: 5, delta: 1e-5}, unit: home, per: client}
  - {id: week, window: 2h, limit: {epsilon: 0.5, delta: 1e-6}, unit: day, action: flag}
""",
]
FOR_UNITS = (
    *PRICED,
    laplace("0.2", sensitivity_per={"day": "0.05"}),
    laplace("0.4", 3, sensitivity_per={"day": "0.3", "home": "0.6"}),
    gaussian("0.1", "1e-9", sensitivity_per={"visit": "0.02"}),
)
of_units = st.one_of(
    st.tuples(
        st.just("ask"),
        st.booleans(),
        st.lists(st.integers(0, len(FOR_UNITS) - 1), min_size=1, max_size=3),
        st.sampled_from([None, None, {"sex": ["f"]}, {"age": ["22"]}]),
    ),
    st.tuples(st.just("settle"), st.sampled_from(["release", "commit", "part"])),
    st.tuples(st.just("session"), st.integers(0, 4)),
    st.tuples(st.just("wait"), st.integers(60, 7_000)),
    st.tuples(st.just("policy"), st.integers(0, 1)),
    st.tuples(st.just("extend"), st.booleans()),
    st.tuples(st.just("late"), st.sampled_from(sorted(LATE))),
    st.just(("recover",)),
)


@settings(max_examples=examples(80))
@given(
    st.sampled_from(sorted(FILTERS)),
    st.sampled_from(["add_or_remove_one", "replace_one"]),
    st.lists(of_units, max_size=30),
)
@example("advanced", "add_or_remove_one", [("session", 0), ("session", 0)])  # a threshold of a unit
def test_several_guarantees_are_the_oracles(  # noqa: C901 (a case each)
    gate: str, relation: str, todo: list[Any]
) -> None:
    """Where limits protect parts of a person, and groups, beside persons: what is charged, compared
    and given back is what plain Python comes to for each unit; a snapshot keeps all of it, and the
    second verifier adds up the same.
    """
    book, ages = Checked(), ["17", "22"]
    about = {"neighbouring": relation, "units": UNITS}
    book.register({"age": ages, "sex": ["f", "m"]}, **about)
    book.dataset("d")
    book.policy(BY_UNIT[0].replace("GATE", gate), "officer")
    for kind, *of in todo:
        opened = [grant for grant in book.state.open.values() if not grant.due(book.now)]
        if kind == "ask":
            grants, priced, subjects = of
            asked = {"mechanisms": [FOR_UNITS[at] for at in priced], "subjects": subjects}
            asked |= {"ttl_seconds": 5_000} if grants else {}
            book.do("ask_grant" if grants else "record_invocations", dataset="d", **asked)
        elif kind == "session":
            more = {"sensitivity_per": {"day": "0.5"}} if of[0] % 2 else {}
            opens = book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector(**more))
            if opens.type == "grant.reserved.v1":
                name = f"g{opens.sequence}"
                book.do("count_answers", grant=name, positives=of[0], negatives=1)
                book.do("close_sparse_vector", grant=name)
        elif kind == "settle" and opened:
            grant, how = opened[0], {"release": {"reason": "x"}, "commit": {}}.get(of[0])
            if how is None:
                how = {"mechanisms": grant.document["mechanisms"][:1]}
            what = "release_grant" if of[0] == "release" else "commit_grant"
            book.do(what, grant.by, grant=grant.id, **how)
        elif kind == "wait":
            book.now += of[0] * 1_000_000
            for grant in [one for one in book.state.open.values() if one.due(book.now)]:
                book.do("expire_grant", SYSTEM, grant=grant.id)
        elif kind == "policy":
            book.policy(BY_UNIT[of[0]].replace("GATE", gate), "officer", closes=True)
        elif kind == "extend":
            ages.append(str(30 + len(ages)))
            book.register({"age": ages, "sex": ["f", "m"]}, **about, attested_new=of[0])
        elif kind == "late":
            units = about["units"] | {of[0]: LATE[of[0]]}
            with suppress(Conflict):
                book.register({"age": ages, "sex": ["f", "m"]}, **(about | {"units": units}))
                about["units"] = units
        elif kind == "recover":
            book.do("recover", "admin", reason="x", lost=[])
    book.compare_accounts()
    assert not book.replayed().findings
    again = load(book.name, b"".join(dump(book.state)))
    assert snapshot(again) == snapshot(book.state)
    audit = verify_minimal.Audit()
    audit.manifest = {"ledger": book.name}
    for entry in book.stored:
        audit.entry(entry)
    audit.add_up()
    assert audit.findings == []
    assert canonical({"accounts": audit.totals}) == totals_of(book.state)


SIZES = (
    laplace("0.01", 300),
    laplace("2.8"),
    laplace("0.1", 2),
    declared("0.1", "1e-9"),
    gaussian("0.3"),
    NON_PRIVATE,
)
VALUES = ["1", "2", "3"]
some = st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True)
term = st.fixed_dictionaries({}, optional={"x": some, "y": some})
narrow = st.fixed_dictionaries({"x": some, "y": some})
group = narrow | term | st.lists(narrow | term, min_size=2, max_size=4)
"""Single cells, ranges, all, and unions of them."""


@settings(max_examples=examples(50))
@given(
    st.sampled_from(sorted(FILTERS)),
    st.lists(st.tuples(st.sampled_from([0, 0, 1, 1, 2, 2, 3, 4, 5]), group), max_size=12),
    st.lists(st.tuples(st.integers(0, 3), group), min_size=1, max_size=8),
)
def test_the_cell_that_is_quoted_is_the_oracles(gate: str, past: Any, asks: Any) -> None:
    """Where many small charges stand beside few large ones, so that the sum of epsilons does not
    tell what a gate counts as spent, and where cells are equal.
    """
    book = Checked()
    book.register({"x": VALUES, "y": VALUES})
    book.dataset("d")
    book.policy(
        f"  - {{id: a, limit: {{epsilon: 4, delta: 1e-6}}, gate: {gate}}}\n"
        "  - {id: nearly, of: a, at: 40%}\n"
    )
    for mechanism, subjects in past:
        book.record(SIZES[mechanism], subjects=subjects)
    for mechanism, subjects in asks:
        book.grant(SIZES[mechanism], subjects=subjects)
    book.compare_accounts()


def test_the_ledgers_have_every_kind_of_rule() -> None:
    """A rule kind that no random ledger has would not be compared."""
    book = Checked()
    ledger("renyi", False, [], book)
    missing = [field for field in KINDS if not any(field in rule for rule in book.oracle.rules)]
    assert not missing, "add such a rule to random_ledgers.py and to oracle.py"
