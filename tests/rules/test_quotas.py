"""Quotas under a limit: for each purpose, and for some cells."""

from __future__ import annotations

from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Book, hospital, laplace, snapshot
from test_allotment import fired, followed
from test_oracle import PRICED, Checked

from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Invalid
from accountant.budget.policy_file import parse_policy
from accountant.budget.snapshot import dump, load
from accountant.ledger.events import Event
from accountant.privacy.filters import FILTERS
from accountant.reporting.statement import accounts_json

ALL = "  - {id: all, limit: {epsilon: 3}}\n"
EACH = "  - {id: each, per: purpose, limit: {epsilon: 1}}\n"
KNOWN = "  - {id: known, purposes: [study, audit], action: flag}\n"
NORTH = "  - {id: north, subjects: {region: north}, limit: {epsilon: 1}}\n"
REGIONS = {"age": ["17", "22"], "region": ["north", "south"]}
GRANTED, REFUSED = "grant.reserved.v1", "grant.refused.v1"


def ask(book: Book, epsilon: str, purpose: str | None = None, **more: Any) -> Event:
    """The answer to a request."""
    about = {"dataset": "d", "mechanisms": [laplace(epsilon)], "purpose": purpose}
    return book.do("ask_grant", **(about | more))


# -- of each purpose -----------------------------------------------------------------------------


def test_each_listed_purpose_has_as_much() -> None:
    """What one purpose has used takes nothing from another, and all count in the limit above."""
    book = hospital(ALL + EACH + KNOWN)
    assert ask(book, "1", "study").type == GRANTED
    assert fired(ask(book, "0.1", "study")) == [["each", "budget-exceeded"]]
    assert ask(book, "1", "audit").type == GRANTED
    assert ask(book, "1").type == GRANTED
    assert ["all", "budget-exceeded"] in fired(ask(book, "0.1", "audit"))


def test_all_other_requests_share_one_account() -> None:
    """Nobody gets more by naming another purpose, or none."""
    book = hospital(ALL + EACH + KNOWN)
    assert ask(book, "0.4").type == GRANTED
    assert ask(book, "0.4", "my own words").type == GRANTED
    refused = ask(book, "0.4", "other words")
    assert ["each", "budget-exceeded"] in fired(refused)
    [text] = [one["text"] for one in book.decision(refused)["rules"] if one["rule"] == "each"]
    assert "all requests for no listed purpose" in text


def test_a_quota_of_named_purposes_counts_no_others() -> None:
    """With ``purposes`` it is for each of these, and says nothing of other requests."""
    book = hospital(ALL + EACH.replace("limit:", "purposes: [study], limit:") + KNOWN)
    assert ask(book, "1", "study").type == GRANTED
    assert ask(book, "0.1", "study").type == REFUSED
    assert ask(book, "1.5", "audit").type == GRANTED
    assert ask(book, "0.5").type == GRANTED


def test_a_quota_covers_no_dataset() -> None:
    """Neither a quota for each purpose nor one for some cells is the limit that a dataset needs."""
    book = hospital(EACH + NORTH + KNOWN, REGIONS)
    assert fired(ask(book, "0.1", "study"))[0] == ["built-in:no-limit", "no-limit"]


def test_another_list_of_purposes_takes_two_people() -> None:
    """Each purpose that is listed from then on has an amount of its own."""
    book = hospital(ALL + EACH + KNOWN)
    more = ALL + EACH + KNOWN + KNOWN.replace("known", "more").replace("audit", "census")
    [proposed] = book.policy(more)
    assert "each divides between other purposes (census)" in proposed.body["effect"]["loosens"]


def test_accounts_name_the_purpose() -> None:
    """The statement has a line for each purpose that was charged, and one for all others."""
    book = hospital(ALL + EACH + KNOWN)
    ask(book, "0.5", "study")
    ask(book, "0.25")
    lines = [one for one in accounts_json(book.state)["accounts"] if one["rule"] == "each"]
    assert [(one.get("purpose"), one["total"]["remaining"]) for one in lines] == [
        (None, "0.75"),
        ("study", "0.5"),
    ]
    assert [one["scope"] for one in lines] == [
        "dataset d, all requests for no listed purpose",
        "dataset d, purpose study",
    ]


# -- of some cells -------------------------------------------------------------------------------


def test_a_quota_of_some_cells_is_read_there_only() -> None:
    """Requests for other people are not about it; whoever names everyone meets it too."""
    book = hospital(ALL + NORTH, REGIONS)
    assert ask(book, "1.5", subjects={"region": ["south"]}).type == GRANTED
    assert "north" not in ask(book, "0.1", subjects={"region": ["south"]}).body["rules"]
    assert ask(book, "0.5", subjects={"age": ["17"]}).type == GRANTED
    assert ask(book, "0.4").type == GRANTED
    refused = ask(book, "0.2")
    assert fired(refused) == [["north", "budget-exceeded"]]
    assert refused.body["rules"]["north"]["cell"] == [0, 0]
    assert ask(book, "0.2", subjects={"age": ["22"], "region": ["north"]}).type == GRANTED


def test_cells_that_are_added_count() -> None:
    """A new age in the north is of the north; a new region is not."""
    book = hospital(ALL + NORTH, REGIONS, neighbouring="add_or_remove_one")
    ask(book, "0.8", ttl_seconds=60)
    more = {"age": ["17", "22", "27"], "region": ["north", "south", "west"]}
    book.register(more, neighbouring="add_or_remove_one", attested_new=True)
    assert ask(book, "0.3", subjects={"age": ["27"], "region": ["north"]}).type == REFUSED
    assert ask(book, "1.2", subjects={"region": ["west"]}).type == GRANTED


def test_cells_that_are_not_there_are_refused() -> None:
    """A policy names dimensions and values of the population, or is not adopted."""
    with pytest.raises(Invalid, match=r"limit north: .*region"):
        hospital(ALL + NORTH, {"age": ["17"]})
    with pytest.raises(Invalid, match=r"limit north: .*east"):
        hospital(ALL + NORTH.replace("region: north", "region: east"), REGIONS)


def test_cells_of_a_further_unit_are_refused() -> None:
    """A unit may lie in several cells."""
    with pytest.raises(Invalid, match="may lie in several cells"):
        parse_policy("policy: p\nrules:\n" + NORTH.replace("limit:", "unit: home, limit:"))


def test_the_statement_is_of_these_cells() -> None:
    """What others have used is not shown as if it were theirs."""
    book = hospital(ALL + NORTH, REGIONS)
    ask(book, "2", subjects={"region": ["south"]})
    ask(book, "0.25", subjects={"region": ["north"], "age": ["22"]})
    [north] = [
        x for x in accounts_json(book.state, by="region")["accounts"] if x["rule"] == "north"
    ]
    assert (north["total"]["spent"], north["total"]["reserved"]) == ("0", "0.25")
    assert [one["group"] for one in north["groups"]] == ["north"]
    assert north["worst_group"] == {"age": "22"}


# -- laws ----------------------------------------------------------------------------------------

QUOTAS = [
    """
  - {id: all, limit: {epsilon: 3, delta: 1e-5}, gate: GATE}
  - {id: each, per: purpose, limit: {epsilon: 1, delta: 1e-6}, gate: GATE}
  - {id: sum, per: purpose, across: datasets, purposes: [study], limit: {epsilon: 1.2}, clients: t*}
  - {id: girls, subjects: {sex: f}, limit: {epsilon: 1, delta: 1e-6}, gate: GATE}
  - {id: week, subjects: {age: ["17"], sex: m}, window: 2h, per: client, limit: {epsilon: 0.6}}
  - {id: slow, subjects: {age: "22"}, unlock: {per_request: 1/4}, limit: {epsilon: 2}, action: flag}
  - {id: near, of: girls, at: 50%}
  - {id: known, purposes: [study, audit], action: flag}
""",
    """
  - {id: all, limit: {epsilon: 4, delta: 1e-5}, gate: GATE}
  - {id: each, per: purpose, limit: {epsilon: 1.5, delta: 1e-6}, gate: GATE, labels: {risk: high}}
  - {id: girls, subjects: {sex: f}, limit: {epsilon: 2, delta: 1e-6}, gate: basic}
  - {id: boys, subjects: {sex: m}, across: datasets, limit: {epsilon: 2, delta: 1e-6}}
  - {id: known, purposes: [study], action: flag}
""",
]
purposes = st.sampled_from([None, "study", "audit", "free text"])
groups = st.sampled_from(
    [None, None, {"sex": ["f"]}, {"age": ["22"]}, {"age": ["17"], "sex": ["m"]}]
)
happening = st.one_of(
    st.tuples(
        st.just("ask"),
        st.booleans(),
        st.sampled_from(["one", "two"]),
        st.sampled_from(["d", "e", ["d", "e"]]),
        st.integers(0, 5),
        groups,
        purposes,
    ),
    st.tuples(st.just("settle"), st.booleans()),
    st.tuples(st.just("wait"), st.integers(60, 7_000)),
    st.tuples(st.just("policy"), st.integers(0, 1)),
    st.tuples(st.just("extend"), st.booleans()),
    st.just(("recover",)),
)


@settings(max_examples=examples(80))
@given(st.sampled_from(sorted(FILTERS)), st.lists(happening, max_size=40))
def test_quotas_are_the_oracles(gate: str, todo: list[Any]) -> None:
    """Every decision and every account is what plain Python comes to; a snapshot keeps all of it,
    and the second verifier and the tables add up the same.
    """
    book, ages = Checked(), ["17", "22"]
    book.register({"age": ages, "sex": ["f", "m"]}, neighbouring="add_or_remove_one")
    for name in "de":
        book.dataset(name)
    book.policy(QUOTAS[0].replace("GATE", gate), "officer")
    for kind, *of in todo:
        opened = [grant for grant in book.state.open.values() if not grant.due(book.now)]
        if kind == "ask":
            grants, by, datasets, priced, subjects, purpose = of
            asked = {"mechanisms": [PRICED[priced]], "subjects": subjects, "purpose": purpose}
            asked |= {"dataset": datasets} | ({"ttl_seconds": 5_000} if grants else {})
            book.do("ask_grant" if grants else "record_invocations", by, **asked)
        elif kind == "settle" and opened:
            more = {"reason": "x"} if of[0] else {}
            what = "release_grant" if of[0] else "commit_grant"
            book.do(what, opened[0].by, grant=opened[0].id, **more)
        elif kind == "wait":
            book.now += of[0] * 1_000_000
            for grant in [one for one in book.state.open.values() if one.due(book.now)]:
                book.do("expire_grant", SYSTEM, grant=grant.id)
        elif kind == "policy":
            book.policy(QUOTAS[of[0]].replace("GATE", gate), "officer", closes=True)
        elif kind == "extend":
            ages.append(str(30 + len(ages)))
            about: dict[str, Any] = {"neighbouring": "add_or_remove_one", "attested_new": of[0]}
            book.register({"age": ages, "sex": ["f", "m"]}, **about)
        elif kind == "recover":
            book.do("recover", "admin", reason="x", lost=[])
    book.compare_accounts()
    assert not book.replayed().findings
    assert snapshot(load(book.name, b"".join(dump(book.state)))) == snapshot(book.state)
    followed(book)


UNDER = """
  - {id: some, subjects: {sex: f}, limit: {epsilon: 0.8}}
  - {id: each, per: purpose, limit: {epsilon: 1.1, delta: 1e-6}, gate: zcdp}
  - {id: both, per: client, subjects: {age: "17"}, limit: {epsilon: 0.7}}
"""
ABOVE = """
  - {id: all, limit: {epsilon: 2, delta: 1e-6}, gate: GATE}
  - {id: part, part_of: all, limit: {epsilon: 0.5}, clients: [two]}
  - {id: known, purposes: [study, audit], action: flag}
"""


@settings(max_examples=examples(60))
@given(
    st.sampled_from(["basic", *sorted(FILTERS)]),
    st.lists(
        st.tuples(st.sampled_from(["one", "two"]), st.integers(0, 5), groups, purposes), max_size=40
    ),
)
def test_quotas_are_additional_limits_only(gate: str, asks: list[Any]) -> None:
    """Whatever is granted with quotas is granted without them, after the same grants."""
    above = ABOVE.replace("GATE", gate)
    above = above if gate == "basic" else above.replace("  - {id: part", "# {id: part")
    dimensions = {"age": ["17", "22"], "sex": ["f", "m"]}
    book, without = hospital(above + UNDER, dimensions), hospital(above, dimensions)
    for by, priced, subjects, purpose in asks:
        about = {"mechanisms": [PRICED[priced]], "subjects": subjects, "purpose": purpose}
        event = book.do("ask_grant", by, dataset="d", **about)
        compared = [event.body.get("rules", {}).get("all")]
        if event.type == GRANTED:
            twin = without.do("ask_grant", by, dataset="d", **about)
            assert twin.type == GRANTED
            assert compared == [twin.body["rules"]["all"]]
