"""Limits for parts of the privacy unit and for groups of it, on one ledger."""

from __future__ import annotations

from typing import Any

import pytest
from support import Book, cells_of, declared, hospital, laplace

from accountant.budget.errors import Conflict, Invalid
from accountant.budget.state import lifetime

UNITS = {
    "person-day": {"part_of": "person", "at_most": 31, "called": "one person on one day"},
    "household": {"group_of": "person", "at_most": 3},
}
RULES = """
  - {id: a, limit: {epsilon: 1}}
  - {id: day, limit: {epsilon: 0.2}, unit: person-day}
  - {id: home, limit: {epsilon: 2.5}, unit: household}
"""


def ledger(rules: str = RULES, dimensions: Any = None, **more: Any) -> Book:
    """A ledger with these units."""
    return hospital(rules, dimensions, units=UNITS, **more)


def weekly(epsilon: str, day: str, **more: Any) -> dict[str, Any]:
    """Noise that costs so much of a person, and of a person-day."""
    return laplace(epsilon, sensitivity_per={"person-day": day}, **more)


def fired(book: Book, *mechanisms: dict[str, Any], **more: Any) -> list[str]:
    """The rules that fire on a request."""
    return [rule for rule, _ in book.grant(*mechanisms, **more).body.get("fired", [])]


def test_each_guarantee_is_compared_by_itself() -> None:
    """A request is granted if the limits for all units admit it, and refused by any of them."""
    book = ledger()
    assert fired(book, weekly("0.5", "0.1")) == []
    assert fired(book, weekly("0.3", "0.15")) == ["day"]
    assert fired(book, weekly("0.4", "0.01")) == ["home"]
    assert fired(book, weekly("0.6", "0.01")) == ["a", "home"]
    assert fired(book, weekly("0.3", "0.1")) == []
    assert book.replayed().findings == []


def test_refusals_say_for_whom_a_limit_is() -> None:
    """The unit stands in words beside the comparison, that of the first unit too."""
    book = ledger()
    told = book.decision(book.grant(weekly("0.9", "0.3")))
    texts = {one["rule"]: one["text"] for one in told["rules"]}
    assert "0.3 asked = 0.3 is more than the limit 0.2" in texts["day"]
    assert "(dataset d; for one person on one day)" in texts["day"]
    assert "(dataset d; for one household)" in texts["home"]
    assert "(dataset d; for one person)" in texts["a"]


def test_one_unit_is_not_mentioned() -> None:
    """Where there is only one, texts are as they were."""
    book = hospital()
    [told] = book.decision(book.grant(laplace("0.1")))["rules"]
    assert "(dataset d)" in told["text"]


def test_a_group_may_lie_in_several_cells() -> None:
    """What is asked about women and about men adds up for a household, and not for a person."""
    book = ledger(dimensions={"sex": ["f", "m"]})
    assert fired(book, weekly("0.6", "0.1"), subjects={"sex": ["f"]}) == []
    assert fired(book, weekly("0.6", "0.1"), subjects={"sex": ["m"]}) == ["home"]
    assert fired(book, weekly("0.2", "0.1"), subjects={"sex": ["m"]}) == []
    account = book.state.account(lifetime("d", "household"))
    assert account.used.flat
    assert book.used("a") == [(6 * 10**8, 0, 0, 0), (2 * 10**8, 0, 0, 0)]


def test_new_members_do_not_begin_a_group_anew() -> None:
    """A cell whose members are attested to be new owes nothing, but a household with a new member
    has lost what it has lost.
    """
    book = ledger(dimensions={"age": ["17"]})
    book.record(weekly("0.8", "0.1"))
    book.register({"age": ["17", "18"]}, units=UNITS, attested_new=True)
    only = {"subjects": {"age": ["18"]}}
    assert fired(book, weekly("0.5", "0.1"), **only) == ["home"]
    assert fired(book, weekly("0.03", "0.01"), **only) == []


def test_the_first_unit_needs_a_limit() -> None:
    """Limits for parts and groups do not stand for it."""
    book = ledger("  - {id: day, limit: {epsilon: 9}, unit: person-day}\n")
    assert fired(book, weekly("0.1", "0.1")) == ["built-in:no-limit"]


def test_a_limit_that_is_adopted_later_counts_what_its_unit_was_charged() -> None:
    """It begins with the lifetimes of its unit, not with those of the first one."""
    book = ledger("  - {id: a, limit: {epsilon: 9}}\n")
    book.record(weekly("0.5", "0.1"))
    book.policy("  - {id: a, limit: {epsilon: 9}}\n" + RULES.split("\n", 2)[2], "officer")
    [[day, *_]], [[home, *_]] = book.used("day"), book.used("home")
    assert (day, home) == (10**8, 15 * 10**8)
    [proposed] = book.policy(
        "  - {id: a, limit: {epsilon: 9}}\n  - {id: day, limit: {epsilon: 0.2}}\n"
    )
    assert "day is raised or changed" in proposed.body["effect"]["loosens"]


def test_statements_are_compared() -> None:
    """What cannot be is refused; what is more than it has to be is granted, and flagged."""
    book = ledger("  - {id: a, limit: {epsilon: 9}}\n")
    assert fired(book, weekly("0.1", "0.2")) == ["built-in:sensitivities-contradict"]
    found = book.grant(weekly("0.7", "0.01"))
    assert found.type == "grant.reserved.v1"
    assert found.body["fired"] == [["built-in:sensitivities-apart", "sensitivities-apart"]]
    assert "62 times that is less" in book.decision(found)["rules"][0]["text"]
    assert fired(book, laplace("0.1", sensitivity_per={"day": "0.1"})) == [
        "built-in:unit-not-named"
    ]


@pytest.mark.parametrize(
    ("units", "code"),
    [
        ({"week": {"part_of": "visitor"}}, "unknown-unit"),
        ({"person": {"part_of": "person"}}, "unknown-unit"),
    ],
)
def test_a_unit_is_of_the_first_unit(units: Any, code: str) -> None:
    """A further unit is a part or a group of the privacy unit, under another name."""
    with pytest.raises(Invalid) as refused:
        Book().register(units=units)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "unit",
    [
        {},
        {"part_of": "person", "group_of": "person", "at_most": 2},
        {"group_of": "person"},
        {"part_of": "person", "at_most": 0},
    ],
)
def test_a_unit_is_a_part_or_a_group(unit: Any) -> None:
    """Exactly one of both; and nothing bounds a group without its size."""
    with pytest.raises(ValueError, match="units"):
        Book().register(units={"x": unit})


def test_units_never_change() -> None:
    """More may be named before the first charge; what was stated stays, and is kept if left out."""
    book = Book()
    book.register(units={"day": {"part_of": "person"}})
    book.register(units={"home": {"group_of": "person", "at_most": 3}})
    book.register()
    assert [unit.name for unit in book.state.people().units] == ["day", "home"]
    with pytest.raises(Conflict, match="was stated as a group, at most 3"):
        book.register(units={"home": {"group_of": "person", "at_most": 4}})
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 9}}\n")
    book.register(units={"week": {"part_of": "person"}})  # routes are found anew
    book.record(laplace("0.1"))
    assert book.state.account(lifetime("d", "week")).used.flat
    assert lifetime("d", "week") in book.state.accounts
    assert book.replayed().findings == []


def late(*units: str, relation: str = "replace_one", **charged: Any) -> Book:
    """A ledger in which something was charged before some of UNITS were stated."""
    book = hospital("  - {id: a, limit: {epsilon: 9}}\n", DIMENSIONS, neighbouring=relation)
    book.record(charged.get("first", laplace("0.5")), subjects={"age": ["17"]})
    book.record(laplace("0.25"), subjects={"age": ["18"]})
    stated = {name: UNITS_LATE[name] for name in units}
    book.register(DIMENSIONS, neighbouring=relation, units=stated)
    return book


DIMENSIONS = {"age": ["17", "18"]}
UNITS_LATE: dict[str, Any] = {
    "day": {"part_of": "person"},
    "home": {"group_of": "person", "at_most": 3},
}


@pytest.mark.parametrize(
    ("relation", "unit", "each"),
    [
        ("replace_one", "day", [500_000_000, 250_000_000]),
        ("add_or_remove_one", "day", [1_000_000_000, 500_000_000]),
        ("replace_one", "home", [1_500_000_000] * 2),
        ("add_or_remove_one", "home", [1_500_000_000] * 2),
    ],
)
def test_a_unit_that_is_late_has_lost_so_many_steps(
    relation: str, unit: str, each: list[int]
) -> None:
    """A part as much as the person, or twice, in its cell; a group of three three times the most of
    any cell. A limit that is adopted then begins with it.
    """
    book = late(unit, relation=relation)
    sums = [column[0] for column in cells_of(book.state.account(lifetime("d", unit)).used)]
    assert sums == each
    rules = "  - {id: a, limit: {epsilon: 9}}\n  - {id: u, limit: {epsilon: 1.6}, unit: UNIT}\n"
    book.policy(rules.replace("UNIT", unit), "officer")
    assert [column[0] for column in book.used("u")] == each
    assert book.replayed().findings == []


def test_a_unit_of_several_steps_comes_too_late_after_a_delta() -> None:
    """Over several steps a delta grows with e to the power of epsilon, which no sum bounds; over
    one it does not.
    """
    with pytest.raises(Conflict, match="home: something was charged with a delta before"):
        late("home", first=declared("0.5", "1e-9"))
    with pytest.raises(Conflict, match="day: something was charged with a delta before"):
        late("day", relation="add_or_remove_one", first=declared("0.5", "1e-9"))
    assert late("day", first=declared("0.5", "1e-9")).state.people().units[0].name == "day"


def test_a_unit_waits_for_open_grants() -> None:
    """What they will have cost it is not known."""
    book = hospital("  - {id: a, limit: {epsilon: 9}}\n")
    grant = book.grant(laplace("0.5"))
    with pytest.raises(Conflict, match="1 grants are open"):
        book.register(units={"day": UNITS_LATE["day"]})
    book.do("commit_grant", grant=f"g{grant.sequence}")
    book.register(units={"day": UNITS_LATE["day"]})


def test_a_limit_names_a_unit_that_there_is() -> None:
    """A misspelled one is refused, and the first unit has no name there."""
    book = ledger()
    for unit in ("person_day", "person"):
        with pytest.raises(Invalid, match="the further units of population fair are: household"):
            book.policy(f"  - {{id: a, limit: {{epsilon: 1}}, unit: {unit}}}\n", "officer")


def test_a_further_unit_makes_no_dimension_of_days() -> None:
    """A person with events on several days lies in several cells, whatever parts limits protect."""
    with pytest.raises(Invalid, match="as a group of it") as refused:
        ledger(dimensions={"day": ["2026-11-01", "2026-11-02"]})
    assert refused.value.code == "times-of-events"


def test_days_are_cells_of_person_days() -> None:
    """With the person-day as the first unit, releases about two days do not add up for it; they do
    for the person, whose limit promises something over all days.
    """
    book = Book()
    about = {"privacy_unit": "person-day", "neighbouring": "add_or_remove_one"}
    about |= {"membership": "public", "dimensions": {"day": ["2026-11-01", "2026-11-02"]}}
    person = {"group_of": "person-day", "at_most": 31}
    book.do("register_population", "admin", **about, units={"person": person})
    book.dataset("d")
    book.policy(
        "  - {id: day, limit: {epsilon: 0.3}}\n  - {id: all, limit: {epsilon: 0.5}, unit: person}\n"
    )
    once = laplace("0.3", sensitivity_per={"person": "0.3"})
    assert fired(book, once, subjects={"day": ["2026-11-01"]}) == []
    assert fired(book, once, subjects={"day": ["2026-11-02"]}) == ["all"]
    assert fired(book, laplace("0.1"), subjects={"day": ["2026-11-02"]}) == ["all"]
