"""Allotments: parts of a limit that are kept for those who draw from them by name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from effort import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support import SECOND, START, Book, declared, laplace, make

from accountant import verify_minimal
from accountant.budget.custody.revaluation import Corrections
from accountant.budget.decide import SYSTEM
from accountant.budget.decide.adopting import weakened
from accountant.budget.errors import Invalid
from accountant.budget.facts import grant_in
from accountant.budget.policy_file import parse_policy
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.ledger.events import Event, microseconds
from accountant.privacy.units import Charge
from accountant.publishing.fleet.changes import ChargeSums, applied
from accountant.reporting.statement import balances, scopes, statement

LIMIT = "  - {id: all, limit: {epsilon: 3, delta: 1e-6}, gate: basic}\n"
TEAM = "  - {id: team, part_of: all, limit: {epsilon: 1.2}, clients: [t-*], until: 2027-03-31}\n"
END = microseconds("2027-04-01T00:00:00.000000Z")
GRANTED, REFUSED = "grant.reserved.v1", "grant.refused.v1"


def ledger(rules: str = LIMIT + TEAM, *datasets: str) -> Book:
    """A ledger of two cells under such rules."""
    book = Book()
    book.register({"age": ["17", "22"]})
    for name in datasets or ("d",):
        book.dataset(name)
    book.policy(rules)
    return book


def ask(
    book: Book, epsilon: str, by: str = "other", of: str | None = None, age: str = "", **more: Any
) -> Event:
    """The answer to a request; ``of``: the allotment that it names."""
    about: dict[str, Any] = {"dataset": "d", "mechanisms": [laplace(epsilon)], "allotment": of}
    about |= {"subjects": {"age": [age]}} if age else {}
    return book.do("ask_grant", by, **(about | more))


def fired(event: Event) -> list[list[str]]:
    """The rules that fired, with their codes."""
    return list(event.body.get("fired", ()))


def allotments(text: str, rules: str = LIMIT) -> Any:
    """The policy with these allotments."""
    return parse_policy(f"policy: p\nrules:\n{rules}allotments:\n{text}")[0]


def followed(book: Book) -> None:
    """The tables' changes add up to the accounts, and the verifier for auditors finds nothing."""
    state, sums, audit = State(book.name), ChargeSums(), verify_minimal.Audit()
    for entry in book.stored:
        event = Event.from_bytes(entry)
        for change in applied(state, event):
            sums.add(change)
        document = json.loads(entry)
        audit.now, audit.time = max(audit.now, event.time), document["time"]
        audit.attempt(audit.size, audit.fold, document, event.type, document["command"])
        audit.size += 1
    sums.agree(state)
    assert audit.findings == []


# -- what is kept --------------------------------------------------------------------------------


def test_others_have_what_is_not_kept() -> None:
    """Others may use the limit less what the allotment keeps, and not a unit more."""
    book = ledger()
    assert ask(book, "1.8000000001").type == REFUSED
    assert ask(book, "1.8").type == GRANTED
    assert ask(book, "0.000000001").type == REFUSED


def test_those_who_draw_have_what_is_kept() -> None:
    """However much others ask for, the team has its part to the unit, and not a unit more."""
    book = ledger()
    while ask(book, "0.1").type == GRANTED:
        pass
    assert ask(book, "1.2", "t-one", "team").type == GRANTED
    assert fired(ask(book, "0.000000001", "t-two", "team")) == [
        ["all", "budget-exceeded"],
        ["team", "budget-exceeded"],
    ]


def test_a_client_that_names_no_allotment_asks_the_common_part() -> None:
    """Those it is kept for draw by name only: what they ask for without it is like others' ."""
    book = ledger()
    assert ask(book, "1.9", "t-one").type == REFUSED
    assert ask(book, "1.8", "t-one").type == GRANTED
    assert ask(book, "1.2", "t-one", "team").type == GRANTED


def test_nothing_falls_back_on_the_common_part() -> None:
    """A request that names an allotment without room in it is refused, whatever is free beside."""
    event = ask(ledger(), "1.3", "t-one", "team")
    assert fired(event) == [["team", "budget-exceeded"]]


def test_what_is_kept_is_by_cell() -> None:
    """What the team drew on one cell is no longer kept there, and on the other it is."""
    book = ledger()
    ask(book, "1.2", "t-one", "team", age="17")
    assert ask(book, "1.8", age="17").type == GRANTED
    refused = ask(book, "1.81", age="22")
    assert refused.body["rules"]["all"]["kept"] == ["1200000000", "0"]
    assert ask(book, "1.8", age="22").type == GRANTED


def test_what_is_kept_is_by_dataset() -> None:
    """Of a limit for each dataset each has the whole allotment; of a total there is one."""
    each = ledger(LIMIT + TEAM, "d", "e")
    for name in "de":
        assert ask(each, "1.2", "t-one", "team", dataset=name).type == GRANTED
        assert ask(each, "1.8", dataset=name).type == GRANTED
    total = LIMIT.replace("limit:", "across: datasets, limit:")
    together = ledger(total + TEAM, "d", "e")
    assert ask(together, "1.2", "t-one", "team", dataset="d").type == GRANTED
    assert ask(together, "0.1", "t-one", "team", dataset="e").type == REFUSED
    assert ask(together, "1.8", dataset="e").type == GRANTED


def test_an_allotment_may_be_of_some_datasets() -> None:
    """Of the others nothing is kept, and what one query reads there is common."""
    rules = LIMIT + TEAM.replace("clients", "datasets: d, clients")
    book = ledger(rules, "d", "e")
    assert ask(book, "3", dataset="e").type == GRANTED
    assert fired(ask(book, "0.1", "t-one", "team", dataset="e")) == [
        ["team", "allotment-closed"],
        ["all", "budget-exceeded"],
    ]
    again = ledger(rules, "d", "e")
    assert ask(again, "1.2", "t-one", "team", dataset=["d", "e"]).type == GRANTED
    assert ask(again, "1.8", dataset=["d", "e"]).type == GRANTED


def test_delta_is_kept_by_itself() -> None:
    """An allotment that keeps no delta leaves all of it to others; one that does, the rest."""
    assert ask(ledger(), "0.1", mechanisms=[declared("0.1", "1e-6")]).type == GRANTED
    book = ledger(LIMIT + TEAM.replace("epsilon: 1.2", "epsilon: 1.2, delta: 4e-7"))
    assert ask(book, "0", mechanisms=[declared("0.1", "7e-7")]).type == REFUSED
    assert ask(book, "0", mechanisms=[declared("0.1", "6e-7")]).type == GRANTED
    assert ask(book, "0", "t-one", "team", mechanisms=[declared("0.1", "4e-7")]).type == GRANTED


def test_what_is_given_back_is_kept_again() -> None:
    """A reservation that the team releases is its own again; one that it commits is spent."""
    book = ledger()
    grant = grant_in(ask(book, "1.2", "t-one", "team"))
    ask(book, "1.8")
    book.do("release_grant", "t-one", grant=grant, reason="not run")
    assert ask(book, "0.1").type == REFUSED
    assert ask(book, "1.2", "t-one", "team").type == GRANTED


def test_words_say_what_is_kept() -> None:
    """Both sides of the comparison are in the text, and what is kept is a number of its own."""
    book = ledger()
    ask(book, "1")
    decision = book.decision(ask(book, "1"))
    [found] = [one for one in decision["rules"] if one["rule"] == "all"]
    text = "epsilon 1 used + 1.2 kept for allotments + 1 asked = 3.2 is more than the limit 3"
    assert found["text"] == f"{text} (dataset d)"
    assert found["comparisons"][0]["kept"] == "1.2"


def test_accounts_show_what_is_left_for_whom() -> None:
    """What is left of a limit is without what is kept; the allotment has a line of its own."""
    book = ledger()
    ask(book, "0.5")
    ask(book, "1", "t-one", "team", age="17")
    whole, team = (line.total for line in statement(book.state))
    assert (whole.remaining, whole.kept) == ("1.3", "1.2")
    assert (team.remaining, team.kept) == ("0.2", "0")
    whole = balances(book.state, scopes(book.state)[0], 0)
    assert [(one.remaining, one.kept) for one in whole] == [("1.3", "0.2"), ("1.3", "1.2")]
    book.now = END
    ask(book, "0.1", age="22")
    whole, team = (line.total for line in statement(book.state))
    assert (whole.remaining, whole.kept, team.remaining) == ("1.5", "0", "0")


# -- when it ends --------------------------------------------------------------------------------


def test_it_keeps_until_its_last_day_is_over() -> None:
    """To the microsecond: then nobody draws from it, and what is left belongs to all."""
    book = ledger()
    book.now = END - 1
    assert ask(book, "1.9").type == REFUSED
    assert ask(book, "0.1", "t-one", "team").type == GRANTED
    book.now = END
    assert fired(ask(book, "0.1", "t-one", "team")) == [["team", "allotment-closed"]]
    assert ask(book, "2.9").type == GRANTED


def test_a_clock_that_jumps_over_the_end_changes_nothing_else() -> None:
    """What was drawn stays used, and open grants of the team still commit or come back to all."""
    book = ledger()
    first = grant_in(ask(book, "0.5", "t-one", "team", ttl_seconds=1))
    book.now = END + 400 * 86_400 * SECOND
    assert ask(book, "2.6").type == REFUSED
    book.do("expire_grant", SYSTEM, grant=first)
    assert ask(book, "2.5").type == GRANTED
    assert not book.replayed().findings


def test_an_open_grant_outlives_its_allotment() -> None:
    """It holds its reservation to its own end, and what it gives back then belongs to all."""
    book = ledger()
    book.now = END - 1
    grant = grant_in(ask(book, "1.2", "t-one", "team"))
    book.now = END
    assert ask(book, "1.8").type == GRANTED
    assert ask(book, "0.1").type == REFUSED
    book.do("release_grant", "t-one", grant=grant, reason="not run")
    assert ask(book, "1.2").type == GRANTED


# -- adversaries ---------------------------------------------------------------------------------


def test_nobody_draws_what_is_kept_for_others() -> None:
    """A client that is not named, a purpose that is not, and a name that is none get nothing."""
    rules = LIMIT + TEAM.replace("until", "purposes: [census], until")
    book = ledger(rules)
    closed = [["team", "allotment-closed"]]
    assert fired(ask(book, "0.1", "other", "team", purpose="census")) == closed
    assert fired(ask(book, "0.1", "T-one", "team", purpose="census")) == closed
    assert fired(ask(book, "0.1", "t-one", "team", purpose="another")) == closed
    with pytest.raises(Invalid, match="no allotment called 'all'"):
        ask(book, "0.1", "t-one", "all")
    assert ask(book, "1.2", "t-one", "team", purpose="census").type == GRANTED


def test_a_record_of_another_takes_nothing_from_the_allotment() -> None:
    """What already ran is recorded, and counts as common if its client may not draw."""
    book = ledger()
    about = {"dataset": "d", "mechanisms": [laplace("1")], "allotment": "team"}
    event = book.do("record_invocations", "other", **about)
    assert fired(event) == [["team", "allotment-closed"]]
    assert "overrun" not in event.body
    assert ask(book, "1.2", "t-one", "team").type == GRANTED


def test_more_than_was_kept_is_taken_from_all() -> None:
    """What a team records beyond its part counts in the limit, which is never exceeded for it."""
    book = ledger()
    about = {"dataset": "d", "mechanisms": [laplace("2")], "allotment": "team"}
    assert book.do("record_invocations", "t-one", **about).body["overrun"] is True
    assert ask(book, "1.1").type == REFUSED
    assert ask(book, "1").type == GRANTED


def test_the_limit_holds_where_data_were_used_before() -> None:
    """An allotment of a limit that is nearly used up gets what is left, and no more."""
    book = ledger(LIMIT)
    ask(book, "2.5")
    book.policy(LIMIT + TEAM, confirmed_by="officer")
    assert ask(book, "0.6", "t-one", "team").type == REFUSED
    assert ask(book, "0.5", "t-one", "team").type == GRANTED


def test_a_batch_sees_what_its_own_items_draw() -> None:
    """Two draws that fit alone and not together are refused, and nothing of the batch happens."""
    book = ledger()
    about = {"dataset": "d", "mechanisms": [laplace("0.7")], "allotment": "team"}
    item = make("ask_grant", **about)
    assert book.batch(item, item, by="t-one")[-1].type == "batch.refused.v1"
    other = make("ask_grant", **(about | {"allotment": None}))
    book.batch(item, other, by="t-one")
    opened = list(book.state.open)
    back = [make("release_grant", grant=name, reason="not run") for name in opened]
    more = make("ask_grant", **(about | {"mechanisms": [laplace("1.3")]}))
    refused = book.batch(*back, other, more, by="t-one")[-1]
    assert (refused.type, refused.body["item"]) == ("batch.refused.v1", 3)
    assert not book.replayed().findings
    followed(book)


def test_a_correction_counts_where_the_charge_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a draw should have cost is drawn from the same allotment."""
    book = ledger()
    grant = grant_in(ask(book, "0.5", "t-one", "team"))
    book.do("commit_grant", "t-one", grant=grant)
    twin = Corrections(frozenset({"laplace"}))
    monkeypatch.setattr("accountant.budget.custody.revaluation.former_under", lambda *_: object())
    for entry in book.stored:
        twin.take(Event.from_bytes(entry))
    [booked] = twin.booked.values()
    less = booked._replace(charge=Charge.from_json({"epsilon": "400000000", "delta": "0"}))
    book.ask(less.command("a bound was wrong"), "operator:o")
    assert book.used("team")[0][0] == book.used("all")[0][0] == 600_000_000


# -- adopting ------------------------------------------------------------------------------------


def test_a_policy_spells_allotments_by_name() -> None:
    """``allotments`` is short for rules; errors name the line of the file."""
    policy = allotments("  a: {epsilon: 1, of: all, until: 2027-01-31, clients: [t]}\n")
    assert [rule.id for rule in policy.rules] == ["all", "a"]
    with pytest.raises(Invalid, match=r"line 6: rules.1.until: month must be in 1..12"):
        allotments("  a: {epsilon: 1, of: all,\n    until: 2027-13-31}\n")
    with pytest.raises(Invalid, match=r"line 5: allotments.a"):
        allotments("  a: 3\n")


@pytest.mark.parametrize(
    ("text", "rules", "why"),
    [
        ("  a: {epsilon: 2, of: all}\n  b: {epsilon: 1.1, of: all}", LIMIT, "keep epsilon 3.1"),
        ("  a: {epsilon: 1, delta: 2e-6, of: all}", LIMIT, "keep epsilon 1 and delta 2e-06"),
        ("  a: {epsilon: 1, of: none}", LIMIT, "which is no limit rule"),
        ("  a: {epsilon: 1, of: all}\n  b: {epsilon: 1, of: a}", LIMIT, "which is no limit rule"),
        ("  a: {epsilon: 1, of: all}", LIMIT.replace("gate: basic", "gate: zcdp"), "gate zcdp"),
        ("  a: {epsilon: 1, of: all}", LIMIT.replace("gate: basic", "gate: basic, per: client"), "states per"),  # noqa: E501
        ("  a: {epsilon: 1, of: all}", LIMIT.replace("gate", "window: 1h, gate"), "states window"),
        ("  a: {epsilon: 1, of: all}", LIMIT.replace("gate", "clients: x, gate"), "states clients"),
        ("  a: {epsilon: 1, of: all}", LIMIT.replace("gate", "action: flag, gate"), "only flags"),
        ("  a: {epsilon: 1, of: all, per: client}", LIMIT, "cannot state per"),
        ("  a: {epsilon: 1, of: all, owners: [x]}", LIMIT, "leave these out"),
        ("  a: {epsilon: 1, of: all, gate: renyi, delta: 1e-7}", LIMIT, "has gate basic"),
        ("  a: {epsilon: 1, of: all, action: flag}", LIMIT, "action"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_in_words(text: str, rules: str, why: str) -> None:
    """Overbooking, other currencies, and parts of what not all share."""
    with pytest.raises(Invalid, match=why):
        allotments(f"{text}\n", rules)


def test_an_allotment_takes_the_data_of_its_limit() -> None:
    """Also where the limit has no gate yet, for without a delta it is basic."""
    rules = "  - {id: all, limit: {epsilon: 3}, labels: {risk: high}, across: datasets}\n"
    found = allotments("  a: {epsilon: 1, of: all}\n", rules).rules[1]
    assert (found.labels, found.across, found.gate) == ({"risk": ["high"]}, "datasets", "basic")


CHANGES = [
    (TEAM.replace("1.2", "1.3"), "changed"),
    (TEAM.replace("1.2", "1.1"), "changed"),
    (TEAM.replace("t-*", "x-*"), "changed"),
    (TEAM.replace("03-31", "04-30"), "changed"),
    (TEAM.replace(", until: 2027-03-31", ""), "changed"),
    ("", "removed"),
    (TEAM + TEAM.replace("team", "more").replace("1.2", "0.1"), "more is added"),
]


@pytest.mark.parametrize(("rules", "how"), CHANGES)
def test_an_allotment_is_moved_by_two_people(rules: str, how: str) -> None:
    """Whoever gains, somebody loses: it begins, changes and ends early with two names."""
    book = ledger()
    [proposed] = book.policy(LIMIT + rules)
    assert how in str(proposed.body["effect"]["loosens"])
    book.policy(LIMIT + rules, confirmed_by="officer")


def test_one_that_has_ended_may_go() -> None:
    """It keeps nothing, so that nobody loses."""
    book = ledger()
    book.now = END
    ask(book, "0.1")
    book.policy(LIMIT)
    assert weakened(None, None) is None


@pytest.mark.parametrize("amount", ["1.1", "1.3"])
def test_a_changed_allotment_counts_what_was_drawn(amount: str) -> None:
    """Raised, lowered, kept for others or for longer: what was drawn stays drawn."""
    book = ledger()
    ask(book, "1", "t-one", "team")
    new = TEAM.replace("1.2", amount).replace("t-*", "x-*").replace("2027-03", "2027-05")
    book.policy(LIMIT + new, confirmed_by="officer")
    assert ask(book, "0.4", "x-one", "team").type == REFUSED
    assert ask(book, "0.1", "x-one", "team").type == GRANTED


# -- a model -------------------------------------------------------------------------------------

MODEL = """
  - {id: all, limit: {epsilon: 3}}
  - {id: sum, across: datasets, limit: {epsilon: 4}}
  - {id: near, of: all, at: 50%}
"""
PARTS = [
    "  - {id: one, part_of: all, limit: {epsilon: 1.2}, clients: [t], until: 2026-09-22}\n"
    "  - {id: two, part_of: all, limit: {epsilon: 0.8}, datasets: d}\n"
    "  - {id: six, part_of: sum, limit: {epsilon: 2.5}, clients: [u]}\n",
    "  - {id: one, part_of: all, limit: {epsilon: 0.7}, clients: [t, u]}\n"
    "  - {id: six, part_of: sum, limit: {epsilon: 3}, clients: [u], until: 2026-09-25}\n",
]
DAY = 86_400 * SECOND
FIRST_END = microseconds("2026-09-23T00:00:00.000000Z")
LATER_END = microseconds("2026-09-26T00:00:00.000000Z")


@dataclass
class Kept:
    """An allotment as the model has it: ``drawn`` by account and cell is added up afresh."""

    of: str
    amount: Fraction
    clients: tuple[str, ...] = ()
    data: tuple[str, ...] = ("d", "e")
    end: int = 2**63


TABLE: list[dict[str, Kept]] = [
    {
        "one": Kept("all", Fraction(12, 10), ("t",), end=FIRST_END),
        "two": Kept("all", Fraction(8, 10), data=("d",)),
        "six": Kept("sum", Fraction(25, 10), ("u",)),
    },
    {
        "one": Kept("all", Fraction(7, 10), ("t", "u")),
        "six": Kept("sum", Fraction(3), ("u",), end=LATER_END),
    },
]


@dataclass
class Line:
    """A charge: what it drew from, if it could, and whether a policy since has forgotten that."""

    datasets: tuple[str, ...]
    cells: tuple[int, ...]
    epsilon: Fraction
    drawn: str | None = None


class Allotments(RuleBasedStateMachine):
    """A ledger with allotments of a limit for each dataset and of a total, against plain sums."""

    def __init__(self) -> None:
        super().__init__()
        self.book = ledger(MODEL + PARTS[0], "d", "e")
        self.table, self.lines = TABLE[0], list[Line]()
        self.open: dict[str, tuple[str, Line]] = {}

    def used(self, place: str, cell: int, drawn: str | None = None) -> Fraction:
        """What an account has of a cell; ``*`` is the total; ``drawn`` from one allotment only."""
        return sum(
            (
                line.epsilon
                for line in self.lines
                if cell in line.cells
                and (place == "*" or place in line.datasets)
                and drawn in (None, line.drawn)
            ),
            Fraction(),
        )

    def may(self, name: str | None, by: str, datasets: tuple[str, ...]) -> bool:
        """Whether a request draws from an allotment, were it not for its end."""
        if name is None:
            return False
        kept = self.table[name]
        return (not kept.clients or by in kept.clients) and bool({*datasets} & {*kept.data})

    def fits(  # noqa: C901 (all that the rules mean)
        self, name: str | None, by: str, line: Line
    ) -> bool:
        """Whether a request is granted."""
        now, draws = self.book.now, self.may(name, by, line.datasets)
        if name is not None and not (draws and now < self.table[name].end):
            return False
        for limit, most, places in (("all", 3, line.datasets), ("sum", 4, ("*",))):
            for place in places:
                for cell in line.cells:
                    total = self.used(place, cell) + line.epsilon
                    for other, kept in self.table.items():
                        if kept.of != limit or not (place == "*" or place in kept.data):
                            continue
                        mine = self.used(place, cell, other)
                        if other == name and draws:
                            if mine + line.epsilon > kept.amount:
                                return False
                        elif now < kept.end:
                            total += max(Fraction(), kept.amount - mine)
                    if total > most:
                        return False
        return True

    @rule(
        datasets=st.sampled_from([("d",), ("e",), ("d", "e")]),
        by=st.sampled_from("tux"),
        cells=st.sampled_from([(0,), (1,), (0, 1)]),
        tenths=st.sampled_from([1, 1, 2, 3, 5, 8]),
        name=st.sampled_from([None, None, "one", "one", "six", "six", "two"]),
        hold=st.sampled_from([True, True, True, False]),
    )
    def ask(
        self,
        datasets: tuple[str, ...],
        by: str,
        cells: tuple[int, ...],
        tenths: int,
        name: str | None,
        hold: bool,
    ) -> None:
        """Somebody asks, or records what ran."""
        name = name if name in self.table else None
        line = Line(datasets, cells, Fraction(tenths, 10))
        fits = self.fits(name, by, line)
        about: dict[str, Any] = {"dataset": list(datasets), "allotment": name}
        about["mechanisms"] = [laplace(str(tenths / 10))]
        about |= {} if len(cells) == 2 else {"subjects": {"age": [["17", "22"][cells[0]]]}}
        about |= {"ttl_seconds": 20 * 86_400} if hold else {}
        event = self.book.do("ask_grant" if hold else "record_invocations", by, **about)
        if hold:
            assert (event.type == GRANTED) is fits, event
        else:
            assert any(code != "threshold-passed" for _, code in fired(event)) is not fits
        if hold and not fits:
            return
        line.drawn = name if self.may(name, by, datasets) else None
        self.lines.append(line)
        if hold:
            self.open[grant_in(event)] = by, line

    @precondition(lambda self: self.open)
    @rule(data=st.data(), release=st.booleans())
    def settle(self, data: st.DataObject, release: bool) -> None:
        """A grant ends."""
        name = data.draw(st.sampled_from(sorted(self.open)))
        by, line = self.open.pop(name)
        more = {"reason": "no"} if release else {}
        self.book.do("release_grant" if release else "commit_grant", by, grant=name, **more)
        if release:
            self.lines.remove(line)

    @rule(hours=st.sampled_from([1, 20, 30, 100]))
    def wait(self, hours: int) -> None:
        """Time passes, perhaps over the end of an allotment; grants last longer."""
        if self.book.now + hours * 3_600 * SECOND < START + 19 * DAY:
            self.book.now += hours * 3_600 * SECOND

    @rule(to=st.integers(0, 1))
    def adopt(self, to: int) -> None:
        """Two people move the allotments. One that is left out, and comes again, is another."""
        gone = self.table.keys() - TABLE[to].keys()
        self.book.policy(MODEL + PARTS[to], confirmed_by="officer")
        self.table = TABLE[to]
        for line in self.lines:
            line.drawn = None if line.drawn in gone else line.drawn

    @invariant()
    def limits(self) -> None:
        """Accounts have what the model adds up, of allotments too."""
        for rule_id, place in (("all", "d"), ("all", "e"), ("sum", "*")):
            due = [int(self.used(place, cell) * 10**9) for cell in (0, 1)]
            assert self.book.account(rule_id, place).used.stacked()[0].tolist() == due
        for name, kept in self.table.items():
            for place in ("*",) if kept.of == "sum" else kept.data:
                due = [int(self.used(place, cell, name) * 10**9) for cell in (0, 1)]
                assert self.book.account(name, place).used.stacked()[0].tolist() == due

    def teardown(self) -> None:
        """Whoever follows the events comes to the same accounts and decisions."""
        book = self.book
        assert not book.replayed().findings
        assert load(book.name, b"".join(dump(book.state))) == book.state
        followed(book)


TestAllotments = Allotments.TestCase
TestAllotments.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)
