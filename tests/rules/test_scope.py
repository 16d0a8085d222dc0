"""Which requests a rule is about: ids, owners and labels of datasets, clients and purposes."""

from __future__ import annotations

from typing import Any

import pytest
from support import Book, hospital, laplace, make, proposed

from accountant.budget.custody.revaluation import Corrections
from accountant.budget.errors import Forbidden, Problem
from accountant.budget.policy import MAX_RULES, Policy
from accountant.budget.policy_file import parse_policy
from accountant.budget.snapshot import dump, load
from accountant.ledger.events import MAX_BYTES, Event
from accountant.privacy.units import Charge

WIDE = "  - {id: wide, limit: {epsilon: 100}}\n"
HIGH = {"risk": "high"}


def describe(book: Book, name: str, confirmed_by: str | None = None, **about: Any) -> Any:
    """Registers a dataset, or what has changed of it."""
    fields = {"id": name, "namespace": "n", "name": name} | about
    return book.ask(make("register_dataset", **fields), "admin", confirmed_by=confirmed_by)


def ledger(rules: str, **labels: dict[str, str]) -> Book:
    """A ledger with labelled datasets under rules, and a wide limit on all."""
    book = Book()
    book.register({"age": ["17", "22"]})
    for name, each in labels.items():
        describe(book, name, labels=each, owner=f"team-{name}")
    book.policy(WIDE + rules)
    return book


def rules_of(text: str) -> Policy:
    """The policy of some rules."""
    return parse_policy("policy: p\nrules:\n" + WIDE + text)[0]


@pytest.mark.parametrize(
    "rule",
    [
        "limit: {epsilon: 1}",
        "window: 1h, limit: {epsilon: 1}",
        "at_most: {epsilon: 0.1}",
        "mechanisms: [laplace]",
        "require: [justification]",
        "purposes: [audit]",
    ],
)
@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        ("datasets: d", "d"),
        ("datasets: [d, x-*]", "d"),
        ("datasets: [d, e]", "de"),
        ("owners: team-e", "e"),
        ("owners: [team-d, 'team-[e]']", "de"),
        ("labels: {risk: high}", "d"),
        ("labels: {risk: [high, low]}", "de"),
        ("labels: {risk: [high, low], domain: health}", "e"),
        ("datasets: d, labels: {risk: low}", ""),
    ],
)
def test_a_rule_of_any_kind_is_about_what_its_scope_says(
    rule: str, scope: str, covered: str
) -> None:
    """Ids match one of the patterns, owners too, and each label has one of the values."""
    book = ledger(
        f"  - {{id: r, {rule}, {scope}}}\n",
        d={"risk": "high"},
        e={"risk": "low", "domain": "health"},
        f={},
    )
    for name in "def":
        event = book.grant(laplace("2"), dataset=name)
        assert ([one for one, _ in event.body.get("fired", ())] == ["r"]) is (name in covered)
    assert not book.replayed().findings


def test_spellings_of_one_scope_are_one() -> None:
    """Order does not matter, nor whether a single pattern stands in a list."""
    one, other = (
        rules_of(f"  - {{id: a, limit: {{epsilon: 1}}, {text}}}\n")
        for text in (
            "datasets: [b, a], owners: x, labels: {risk: [b, a], at: x}, clients: [c]",
            "datasets: [a, b], owners: [x], labels: {at: [x], risk: [a, b]}, clients: c",
        )
    )
    assert one == other
    assert one.to_json()["rules"][1]["datasets"] == ["a", "b"]
    assert rules_of("  - {id: a, at_most: {epsilon: 1}, datasets: [d]}\n").to_json()["rules"][1][
        "datasets"
    ] == ("d")


@pytest.mark.parametrize(
    "wrong",
    [
        "datasets: []",
        "datasets: [a, a]",
        "labels: {}",
        "labels: {risk: []}",
        "labels: {Risk: high}",
        "labels: {risk: 'very high'}",
        "owners: ['']",
        "clients: []",
    ],
)
def test_a_scope_that_means_nothing_is_refused(wrong: str) -> None:
    """Nothing is named twice or not at all, and labels are as datasets may have them."""
    with pytest.raises(Problem):
        rules_of(f"  - {{id: a, limit: {{epsilon: 1}}, {wrong}}}\n")


def test_only_limits_count_clients() -> None:
    """A rule that blocks some clients only would be about whose key it is: no kind has that."""
    with pytest.raises(Problem):
        rules_of("  - {id: a, at_most: {epsilon: 1}, clients: [one]}\n")


def test_a_purpose_cannot_be_required_of_those_that_state_it() -> None:
    """Such a rule would never fire."""
    with pytest.raises(Problem, match="leave out purposes"):
        rules_of("  - {id: a, require: [purpose], purposes: [study]}\n")


def test_a_rule_about_purposes_is_about_no_other() -> None:
    """It applies to the purposes that it lists, which stand in clear, and to no free text."""
    book = ledger("  - {id: r, mechanisms: [laplace], purposes: [study]}\n", d={})
    said = [book.grant(laplace("0.1"), purpose=text) for text in ("study", "other", None)]
    assert [one.type for one in said] == ["grant.refused.v1", *["grant.reserved.v1"] * 2]
    assert said[0].body["command"]["purpose"] == "study"
    assert set(said[1].body["command"]["purpose"]) == {"sealed"}


@pytest.mark.parametrize("across", ["", "across: datasets, "])
def test_a_sub_limit_counts_the_charges_of_its_clients(across: str) -> None:
    """Named clients share it, patterns too; others do not count, and it guards nothing."""
    book = ledger(f"  - {{id: s, {across}limit: {{epsilon: 1}}, clients: [etl-*, ops]}}\n", d={})
    for by, fits in (("one", True), ("etl-1", True), ("ops", False), ("one", True)):
        event = book.grant(laplace("0.6"), by=by)
        assert (event.type == "grant.reserved.v1") is fits
    [told] = [one for one in book.decision(book.grant(laplace("0.6"), by="ops"))["rules"]
              if one["rule"] == "s"]  # fmt: skip
    assert told["text"].endswith("of clients “ops”)")  # a refusal names no other clients
    [rule] = [one for one in book.state.adopted.policy.rules if one.id == "s"]  # type: ignore[union-attr]
    assert "promises nothing about the data" in rule.sentence("a person")
    only = Book()
    only.register()
    only.dataset("d")
    only.policy("  - {id: s, limit: {epsilon: 1}, clients: [etl]}\n")
    assert only.grant(laplace("0.1"), by="etl").body["fired"][0] == ["built-in:no-limit"] * 1 + [
        "no-limit"
    ]


def test_a_limit_by_purpose_counts_that_purpose_only() -> None:
    """It divides the budget: what is for something else does not count in it."""
    book = ledger("  - {id: s, limit: {epsilon: 1}, purposes: [study]}\n", d={})
    said = [("study", True), ("other", True), (None, True), ("study", False)]
    for purpose, fits in said:
        event = book.grant(laplace("0.6"), purpose=purpose)
        assert (event.type == "grant.reserved.v1") is fits
    assert book.used("s")[0][0] == 600_000_000
    assert not book.replayed().findings


# -- datasets that change ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule", ["limit: {epsilon: 1}", "at_most: {epsilon: 1}", "mechanisms: [declared]"]
)
def test_going_out_of_scope_takes_two_names(rule: str) -> None:
    """A change that takes a dataset out of a rule that blocks loosens; coming in does not."""
    book = ledger(f"  - {{id: r, {rule}, labels: {{risk: high}}, owners: team-*}}\n", d={})
    describe(book, "d", labels=HIGH, owner="team-d")
    for change in ({"labels": {}, "owner": "team-d"}, {"owner": "x"}, {}):
        proposed(describe(book, "d", **change), "out of the scope of r")
    with pytest.raises(Forbidden):
        describe(book, "d", "admin", labels={}, owner="team-d")
    [event] = describe(book, "d", "officer", labels={}, owner="team-d")
    assert event.body["leaves"] == ["r"]


def test_a_flag_that_a_dataset_leaves_takes_one_name() -> None:
    """It blocks nothing."""
    book = ledger(
        "  - {id: r, mechanisms: [declared], labels: {risk: high}, action: flag}\n", d=HIGH
    )
    assert describe(book, "d", labels={}, owner="team-d")


def test_labels_that_are_left_out_stay() -> None:
    """Who registers a dataset again without labels does not take them away; an empty list does."""
    book = ledger("", d=HIGH)
    assert describe(book, "d", owner="team-d") == []
    describe(book, "d", owner="x")
    assert book.state.datasets["d"].labels == (("risk", "high"),)
    describe(book, "d", owner="x", labels={})
    assert book.state.datasets["d"].labels == ()


def test_labels_are_few_and_short() -> None:
    """At most eight, with keys and values of at most 64 plain characters."""
    book = ledger("", d={})
    for wrong in ({f"k{i}": "v" for i in range(9)}, {"k": "V"}, {"k": "v" * 65}, {"": "v"}):
        with pytest.raises(ValueError, match="labels"):
            describe(book, "d", labels=wrong)


def test_a_dataset_that_comes_in_begins_with_what_it_was_used_for() -> None:
    """Its own limit has counted it all along, a total takes it over, once."""
    rules = (
        "  - {id: own, limit: {epsilon: 2, delta: 1e-6}, labels: {risk: high}}\n"
        "  - {id: sum, across: datasets, limit: {epsilon: 3}, labels: {risk: high}}\n"
    )
    book = ledger(rules, d={}, e=HIGH)
    book.record(laplace("1.5"))
    book.record(laplace("1"), dataset="e")
    assert book.used("sum", "*")[0][0] == 10**9
    describe(book, "d", labels=HIGH, owner="team-d")
    assert book.used("sum", "*")[0][0] == 25 * 10**8
    assert book.grant(laplace("0.6")).type == "grant.refused.v1"
    describe(book, "d", "officer", labels={}, owner="team-d")
    book.record(laplace("0.25"))
    describe(book, "d", labels=HIGH, owner="team-d")
    assert book.used("sum", "*")[0][0] == 2_750_000_000
    assert book.used("own")[0][0] == 1_750_000_000
    assert not book.replayed().findings


def test_a_decision_is_told_by_what_the_dataset_was_then() -> None:
    """A later label changes no word of it."""
    book = ledger("  - {id: own, limit: {epsilon: 1}, labels: {risk: high}}\n", d=HIGH)
    event = book.grant(laplace("2"))
    told = book.decision(event)
    describe(book, "d", "officer", labels={}, owner="team-d")
    later = book.grant(laplace("2"))
    assert book.decision(event) == told
    assert "label risk “high”" in str(told)
    assert "own" not in str(book.decision(later))


def test_a_limit_guards_a_dataset_while_it_is_in_scope() -> None:
    """Out of the scope of all limits nothing is granted."""
    book = Book()
    book.register()
    describe(book, "d", labels=HIGH)
    book.policy("  - {id: own, limit: {epsilon: 1}, labels: {risk: high}}\n")
    assert book.grant(laplace("0.1")).type == "grant.reserved.v1"
    describe(book, "d", "officer", labels={})
    assert book.grant(laplace("0.1")).body["fired"] == [["built-in:no-limit", "no-limit"]]


def test_a_snapshot_keeps_labels_and_what_they_were() -> None:
    """A state that is read back goes on as the one that was written."""
    book = ledger("  - {id: own, limit: {epsilon: 1}, labels: {risk: high}}\n", d=HIGH)
    describe(book, "d", "officer", labels={"risk": "low"}, owner="team-d")
    again = load(book.name, b"".join(dump(book.state)))
    assert again.datasets == book.state.datasets
    assert again.datasets["d"].as_of(0).labels == (("risk", "high"),)


# -- how large it may be -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "each",
    [
        "limit: {epsilon: 1}, clients: [etl, ops]",
        "window: 30d, limit: {epsilon: 1}, labels: {risk: high}",
        "at_most: {epsilon: 1}, labels: {risk: [high, medium]}, purposes: [study]",
        "mechanisms: [declared], labels: {risk: [high, medium]}, owners: [team-*]",
    ],
)
def test_a_policy_has_two_hundred_rules(each: str) -> None:
    """Its event and those of its requests hold them."""
    book = ledger("".join(f"  - {{id: r{i}, {each}}}\n" for i in range(MAX_RULES - 1)), d=HIGH)
    assert len(book.stored[-1]) <= MAX_BYTES
    event = book.grant(laplace("0.1"), by="etl", purpose="study")
    assert event.type == "grant.reserved.v1"
    with pytest.raises(Problem):
        rules_of("".join(f"  - {{id: r{i}, {each}}}\n" for i in range(MAX_RULES)))


def test_a_population_has_sixteen_dimensions() -> None:
    """Groups of them are charged and compared like any others."""
    dimensions = {f"d{i:02}": ["a", "b"] for i in range(16)}
    book = hospital(dimensions=dimensions)
    half = {"d00": ["a"], "d07": ["b"], "d15": ["a"]}
    assert book.grant(laplace("0.7"), subjects=half).type == "grant.reserved.v1"
    assert book.grant(laplace("0.7"), subjects={"d15": ["b"]}).type == "grant.reserved.v1"
    assert book.grant(laplace("0.7"), subjects={"d07": ["b"]}).type == "grant.refused.v1"
    assert not book.replayed().findings
    with pytest.raises(ValueError, match="dimensions"):
        Book().register(dimensions | {"d16": ["a", "b"]})


def test_a_correction_counts_wherever_its_dataset_may_have_been(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the total, though the dataset has gone out of scope, and for the purpose it was for."""
    rules = (
        "  - {id: sum, across: datasets, limit: {epsilon: 9}, labels: {risk: high}}\n"
        "  - {id: study, limit: {epsilon: 9}, purposes: [study]}\n"
    )
    book = ledger(rules, d=HIGH)
    first = book.record(laplace("1"), purpose="study")
    describe(book, "d", "officer", labels={}, owner="team-d")
    book.policy(WIDE + rules.replace("[study]", "[study, more]"), "officer")
    twin = Corrections(frozenset({"laplace"}))
    monkeypatch.setattr("accountant.budget.custody.revaluation.former_under", lambda *_: object())
    for entry in book.stored:
        twin.take(Event.from_bytes(entry))
    [booked] = twin.booked.values()
    less = booked._replace(charge=Charge.from_json({"epsilon": "400000000", "delta": "0"}))
    command = less.command("a bound was wrong")
    assert (command.event, command.for_purpose) == (first.sequence, "study")
    [event] = book.ask(command, "operator:o")
    assert event.body["command"]["for_purpose"] == "study"
    assert book.used("sum", "*")[0][0] == 1_600_000_000
    assert book.used("study")[0][0] == 600_000_000
    assert book.state.correction(("d",), "pipe", None).keys[1].dataset == "*"


def test_no_policy_fills_the_events_of_requests() -> None:
    """What has run can always be recorded: rules that could keep too much are not adopted."""
    book = Book()
    book.register({f"d{i:02}": ["a", "b"] for i in range(16)})
    book.dataset("d")
    ids = [f"{i:03}{'x' * 61}" for i in range(MAX_RULES)]
    limits = "".join(f"  - {{id: {name}, limit: {{epsilon: 1}}}}\n" for name in ids[:60])
    thresholds = "".join(f"  - {{id: {name}, of: {ids[0]}, at: 80%}}\n" for name in ids[60:])
    with pytest.raises(Problem, match="what has run could not be recorded"):
        book.policy(limits + thresholds)
    book.policy(limits + thresholds[: thresholds.index(f"  - {{id: {ids[150]}")])
    book.record(laplace("9"), subjects={"d00": ["a"]})
    refused = book.grant(laplace("9"), subjects={"d00": ["a"]})
    assert len(refused.body["fired"]) == 150
    assert len(book.stored[-1]) <= MAX_BYTES - 4_096
