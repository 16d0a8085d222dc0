"""What a new policy does to what was used: epochs, carrying, resets, second names."""

from __future__ import annotations

from typing import Any

import pytest
from support import Book, confirming, hospital, laplace, make, proposed, sparse_vector

from accountant.budget.facts import grant_in
from accountant.budget.policy_file import parse_policy
from accountant.privacy.filters import BASIC, FILTERS

RULE = "  - {{id: a, limit: {{epsilon: {epsilon}, delta: 1e-6}}{more}}}\n"


def rule(epsilon: str, more: str = "") -> str:
    """The limit rule ``a``."""
    return RULE.format(epsilon=epsilon, more=more)


def outcome(event: Any) -> str:
    """The decision's outcome."""
    if event.type == "grant.refused.v1":
        return "block"
    return "flag" if event.body.get("fired") else "allow"


def epoch(book: Book, name: str = "a") -> int:
    """The rule's present epoch."""
    assert book.state.adopted is not None
    return book.state.adopted.epochs[name].number


def spent(book: Book, name: str = "a", dataset: str = "d") -> list[int]:
    """Units of epsilon per cell."""
    return [cell[0] for cell in book.used(name, dataset)]


def test_the_same_policy_is_no_event() -> None:
    """Adopting what is in force, however it is spelled, records nothing."""
    book = hospital(rule("1"))
    assert book.policy("- id: a\n  limit: {epsilon: '1.0', delta: 0.000001}\n") == []


@pytest.mark.parametrize(
    "rules",
    [
        rule("1") + "  - {id: nearly, of: a, at: 80%}\n",
        rule("1") + "  - {id: b, limit: {epsilon: 5}}\n",
        rule("1", ", own_delta: 1e-7").replace("1e-6}, own_delta", "1e-6, own_delta") + "",
    ],
    ids=["a threshold more", "a rule more", "a default written out"],
)
def test_an_unchanged_rule_keeps_its_epoch(rules: str) -> None:
    """A rule that stays as it is goes on counting in the same account."""
    book = hospital(rule("1"))
    book.grant(laplace("0.4"))
    if "own_delta" in rules:
        rules = "  - {id: a, limit: {epsilon: 1, delta: 1e-6, own_delta: 1e-7}}\n"
    book.policy(rules)
    assert epoch(book) == 1
    assert spent(book) == [400_000_000]


def test_raising_a_limit_carries_what_was_used() -> None:
    """Raising 1 to 1.5 after 0.8 leaves 0.7, not 1.5, and takes a second name."""
    book = hospital(rule("1"))
    book.record(laplace("0.8"))
    proposed(book.policy(rule("1.5")))
    book.policy(rule("1.5"), confirmed_by="officer")
    assert epoch(book) == 2
    assert spent(book) == [800_000_000]
    assert outcome(book.grant(laplace("0.71"))) == "block"
    assert outcome(book.grant(laplace("0.7"))) == "allow"


def test_lowering_a_limit_needs_nobody_else() -> None:
    """A stricter limit opens an epoch that still counts everything."""
    book = hospital(rule("1"))
    book.record(laplace("0.8"))
    book.policy(rule("0.5"))
    assert epoch(book) == 2
    assert outcome(book.grant(laplace("1e-9"))) == "block"


def test_a_reset_takes_two_names_and_starts_at_zero() -> None:
    """``carry: none`` forgets what was used, only with a second name; the lifetime remembers."""
    book = hospital(rule("1"))
    book.record(laplace("0.8"))
    proposed(book.policy(rule("1", ", carry: none")))
    proposed(book.policy(rule("0.9", ", carry: none")))  # stricter and forgetful is still forgetful
    book.policy(rule("1", ", carry: none"), confirmed_by="officer")
    assert (epoch(book), spent(book)) == (2, [0])
    assert book.used("")[0][0] == 800_000_000
    book.policy(rule("1", ", carry: none") + "  - {id: b, limit: {epsilon: 9}}\n")
    assert epoch(book) == 2  # adopting the same rule again is no second reset


def test_a_rule_cannot_be_reset_by_leaving_and_coming_back() -> None:
    """A rule that returns starts from the lifetime, so taking it away first gains nothing."""
    book = hospital(rule("1"))
    book.record(laplace("0.8"))
    proposed(book.policy("  - {id: b, limit: {epsilon: 9}}\n"))
    book.policy("  - {id: b, limit: {epsilon: 9}}\n", confirmed_by="officer")
    book.record(laplace("0.1"))
    book.policy(rule("1") + "  - {id: b, limit: {epsilon: 9}}\n")
    assert epoch(book) == 2
    assert spent(book) == [900_000_000]
    assert spent(book, "b") == [900_000_000]


def test_a_rule_under_another_name_starts_from_the_lifetime() -> None:
    """Renaming a rule takes a second name and forgets nothing."""
    book = hospital(rule("1"))
    book.record(laplace("0.8"))
    book.policy(rule("1").replace("id: a", "id: z"), confirmed_by="officer")
    assert spent(book, "z") == [800_000_000]


def test_the_first_policy_counts_what_ran_before_it() -> None:
    """Invocations recorded before any policy count in the first one."""
    book = Book()
    book.register()
    book.dataset("d")
    book.dataset("e")
    book.record(laplace("0.8"))
    book.record(laplace("0.3"), dataset="e")
    book.policy(rule("1") + "  - {id: person, across: datasets, limit: {epsilon: 8}}\n")
    assert spent(book) == [800_000_000]
    assert spent(book, "person", "*") == [1_100_000_000]


def test_the_first_policy_takes_a_second_person() -> None:
    """Whatever it says: until it is confirmed, nothing can be spent."""
    book = Book()
    book.register()
    book.dataset("d")
    policy, digest = parse_policy("policy: p\nrules:\n" + rule("1"))
    asked = make("adopt_policy", policy=policy.to_json(), source_digest=digest)
    event = proposed(book.ask(asked, "admin"), "p would be its first")
    assert book.grant(laplace("0.1")).body["fired"] == [["built-in:no-policy", "no-policy"]]
    book.ask(confirming(event), "officer")
    assert outcome(book.grant(laplace("0.1"))) == "allow"


def test_a_first_policy_loosens_no_other() -> None:
    """Why it takes a second person does not speak of one in force, though it refreshes."""
    book = Book()
    book.register()
    policy, digest = parse_policy(
        "policy: p\nrules:\n  - {id: m, refresh: monthly, limit: {epsilon: 1}}\n"
    )
    asked = make("adopt_policy", policy=policy.to_json(), source_digest=digest)
    proposed(book.ask(asked, "admin"), "would be its first$")


def test_widening_a_scope_collects_the_lifetimes() -> None:
    """A rule that becomes one across datasets starts with the sum over them, cell by cell."""
    book = hospital(rule("2"), {"sex": ["f", "m"]})
    book.dataset("e")
    book.record(laplace("0.5"), subjects={"sex": ["f"]})
    book.record(laplace("0.7"), dataset="e", subjects={"sex": ["f"]})
    book.record(laplace("0.2"), dataset="e")
    book.policy(rule("2", ", across: datasets"), confirmed_by="officer")
    assert spent(book, "a", "*") == [1_400_000_000, 200_000_000]


def test_open_grants_finish_where_they_began() -> None:
    """A changed limit carries open grants on as reserved; what they settle to counts in it too."""
    book = hospital(rule("1"))
    grant = grant_in(book.grant(laplace("0.4")))
    book.policy(rule("0.9"))
    assert book.reserved()[0][0] == spent(book)[0] == 400_000_000
    book.do("release_grant", grant=grant, reason="never run")
    assert spent(book, "") == spent(book) == [0]
    assert book.reserved() == [(0,) * 14]
    assert book.replayed().findings == []


LOOSER: list[tuple[str, str, str]] = [
    ("a rule is gone", rule("1") + "  - {id: b, limit: {epsilon: 2}}\n", rule("1")),
    ("block becomes flag", rule("1"), rule("1", ", action: flag")),
    ("another gate", rule("1"), rule("1", ", gate: basic")),
    ("fewer datasets", rule("1"), rule("1", ", datasets: x*")),
    ("more delta", rule("1"), "  - {id: a, limit: {epsilon: 1, delta: 1e-5}}\n"),
    (
        "more of delta for own deltas",
        rule("1"),
        "  - {id: a, limit: {epsilon: 1, delta: 1e-6, own_delta: 5e-7}}\n",
    ),
    ("per client", rule("1"), rule("1", ", per: client") + "  - {id: b, limit: {epsilon: 9}}\n"),
    (
        "a requirement is gone",
        rule("1") + "  - {id: r, require: [purpose]}\n",
        rule("1"),
    ),
    (
        "a purpose more",
        rule("1") + "  - {id: r, purposes: [care]}\n",
        rule("1") + "  - {id: r, purposes: [care, ads]}\n",
    ),
    (
        "a kind of mechanism fewer",
        rule("1") + "  - {id: r, mechanisms: [declared, non_private]}\n",
        rule("1") + "  - {id: r, mechanisms: [declared]}\n",
    ),
    (
        "another rule under the same name",
        rule("1") + "  - {id: r, limit: {epsilon: 2}}\n",
        rule("1") + "  - {id: r, require: [purpose]}\n",
    ),
]


@pytest.mark.parametrize(("before", "after"), [r[1:] for r in LOOSER], ids=[r[0] for r in LOOSER])
def test_loosening_takes_a_second_name(before: str, after: str) -> None:
    """Whatever blocks less than before is only proposed by one and adopted by two."""
    book = hospital(before)
    adopted = book.state.adopted
    proposed(book.policy(after))
    assert book.state.adopted is adopted
    [event] = book.policy(after, confirmed_by="officer")
    assert event.body["loosens"]
    assert (event.by, event.body["command"]["confirms"]["proposer"]) == ("officer", "admin")


STRICTER: list[tuple[str, str, str]] = [
    ("a lower limit", rule("1"), rule("0.9")),
    ("less delta", rule("1"), "  - {id: a, limit: {epsilon: 1, delta: 1e-7}}\n"),
    ("a rule more", rule("1"), rule("1") + "  - {id: b, limit: {epsilon: 2}}\n"),
    (
        "flag becomes block",
        rule("1") + "  - {id: r, require: [purpose], action: flag}\n",
        rule("1") + "  - {id: r, require: [purpose]}\n",
    ),
    ("a threshold is gone", rule("1") + "  - {id: t, of: a, at: 50%}\n", rule("1")),
]


@pytest.mark.parametrize(
    ("before", "after"), [r[1:] for r in STRICTER], ids=[r[0] for r in STRICTER]
)
def test_tightening_takes_one_name(before: str, after: str) -> None:
    """What blocks at least as much as before is one administrator's to adopt."""
    [event] = hospital(before).policy(after)
    assert event.body["loosens"] == []


def test_new_cells_inherit_in_every_account() -> None:
    """Extending a dimension carries the largest sum along it into every account, past epochs too;
    attested new members owe nothing for what was spent before, by everyone either.
    """
    book = hospital(rule("2"), {"age": ["17", "22"], "sex": ["f", "m"]})
    book.record(laplace("0.5"), subjects={"age": ["17"], "sex": ["f"]})
    book.record(laplace("0.3"), subjects={"age": ["22"], "sex": ["f"]})
    book.record(laplace("0.1"))
    book.register({"age": ["17", "22", "27"], "sex": ["f", "m"]})
    units = [600_000_000, 100_000_000, 400_000_000, 100_000_000, 600_000_000, 100_000_000]
    assert spent(book) == units
    assert spent(book, "") == units
    book.register({"age": ["17", "22", "27", "32"], "sex": ["f", "m"]}, attested_new=True)
    assert spent(book) == [*units, 0, 0]
    assert book.replayed().findings == []


def test_open_grants_do_not_reach_new_cells() -> None:
    """Releasing a grant gives back the cells it took; what a new cell inherited stays spent."""
    book = hospital(rule("2"), {"age": ["17", "22"]})
    narrow = grant_in(book.grant(laplace("0.5"), subjects={"age": ["17", "22"]}))
    everyone = grant_in(book.grant(laplace("0.25")))
    book.register({"age": ["17", "22", "27"]})
    for grant in (narrow, everyone):
        book.do("release_grant", grant=grant, reason="never run")
    assert spent(book) == [0, 0, 500_000_000]
    assert book.reserved() == [(0,) * 14] * 3
    assert outcome(book.grant(laplace("2"), subjects={"age": ["17"]})) == "allow"


COVERING: list[tuple[str, Any]] = [
    ("one value of another dimension", {"sex": ["f"]}),
    ("a union", [{"sex": ["f"]}, {"sex": ["m"], "age": ["17"]}]),
]


@pytest.mark.parametrize("attested", [True, False], ids=["attested new", "inheriting"])
@pytest.mark.parametrize("subjects", [r[1] for r in COVERING], ids=[r[0] for r in COVERING])
def test_an_open_grant_reaches_cells_that_are_added(subjects: Any, *, attested: bool) -> None:
    """A group that names no value of a dimension means all of them: what an open grant still runs
    after the dimension grew is charged to the new members too, and settles there too.
    """
    dimensions = {"age": ["17", "22"], "sex": ["f", "m"]}
    book = hospital(rule("1"), dimensions)
    grants = [
        grant_in(book.grant(laplace("0.4"), subjects=subjects)),
        grant_in(
            book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector(), subjects=subjects)
        ),
    ]
    book.policy(rule("0.9"))  # the epoch changes while they are open
    book.register(dimensions | {"age": ["17", "22", "27"]}, attested_new=attested)
    assert spent(book)[4] == book.reserved()[4][0] == 600_000_000
    book.do("commit_grant", grant=grants[0])
    book.do("close_sparse_vector", grant=grants[1])
    assert spent(book)[4] == spent(book)[0] == spent(book, "")[4] == 500_000_000
    assert book.reserved() == [(0,) * 14] * 6
    asked = book.grant(laplace("0.5"), subjects={"age": ["27"], "sex": ["f"]})
    assert outcome(asked) == "block"
    assert book.replayed().findings == []


@pytest.mark.parametrize("gate", [name for name, gate in FILTERS.items() if gate is not BASIC])
def test_what_is_reserved_and_given_back_leaves_no_trace(gate: str) -> None:
    """However often a client reserves and releases, a gate's own currency stays open."""
    book = hospital(f"  - {{id: a, limit: {{epsilon: 3, delta: 1e-6}}, gate: {gate}}}\n")
    for _ in range(700):
        grant = grant_in(book.grant(laplace("3")))
        book.do("release_grant", grant=grant, reason="never run")
    assert outcome(book.grant(laplace("0.01", 1000))) == "allow"


IMMUTABLE: list[tuple[str, dict[str, Any]]] = [
    ("another relation", {"neighbouring": "add_or_remove_one"}),
    ("another membership", {"membership": "private"}),
    ("another order", {"dimensions": {"age": ["22", "17"]}}),
    ("a value fewer", {"dimensions": {"age": ["17"]}}),
    ("a value in between", {"dimensions": {"age": ["17", "20", "22"]}}),
    ("a dimension more", {"dimensions": {"age": ["17", "22"], "sex": ["f"]}}),
    ("no dimension", {"dimensions": {}}),
]


@pytest.mark.parametrize("change", [r[1] for r in IMMUTABLE], ids=[r[0] for r in IMMUTABLE])
def test_what_a_population_is_never_changes(change: dict[str, Any]) -> None:
    """Relation, membership and existing cells are fixed for life; only values are appended."""
    dimensions = {"age": ["17", "22"]}
    book = hospital(rule("1"), dimensions)
    before = book.state.sequence
    fields: dict[str, Any] = {"dimensions": dimensions} | change
    with pytest.raises(Exception, match=r"population|dimension"):
        book.register(**fields)
    assert book.state.sequence == before
    book.register(dimensions)
    assert book.state.sequence == before  # the same again is no event
