"""The bound on depletion: how much of a limit those that divide it can use up."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import hospital, laplace

from accountant.budget.depletion import bounds
from accountant.budget.policy_file import parse_policy

RULES = """
  - {id: all, limit: {epsilon: 3}}
  - {id: sum, across: datasets, limit: {epsilon: 4}}
  - {id: each, per: client, limit: {epsilon: 0.5}}
  - {id: named, per: client, clients: [a, b], limit: {epsilon: 1}}
  - {id: team, clients: [t-*], limit: {epsilon: 2}}
  - {id: study, purposes: [study], across: datasets, limit: {epsilon: 5}}
  - {id: part, part_of: all, limit: {epsilon: 1.2}}
  - {id: curved, per: client, limit: {epsilon: 1, delta: 1e-6}}
  - {id: lately, per: client, window: 1d, limit: {epsilon: 1}}
  - {id: marked, per: client, limit: {epsilon: 1}, action: flag}
  - {id: some, clients: [a], datasets: x-*, limit: {epsilon: 1}}
"""


def found(rules: str) -> dict[tuple[str, str], tuple[str, int | None, str]]:
    """The bounds of a policy."""
    policy = parse_policy(f"policy: p\nrules:\n{rules}")[0]
    return {
        (one.rule, one.of): (str(one.each), one.accounts, str(one.together))
        for one in bounds(policy)
    }


def test_bounds_follow_from_the_policy() -> None:
    """Of each client, of all that are named, of purposes and of the common part; and none where
    currencies, windows or data are others.
    """
    assert found(RULES) == {
        ("each", "all"): ("1/6", None, "1"),
        ("named", "all"): ("1/3", 2, "2/3"),
        ("team", "all"): ("2/3", 1, "2/3"),
        ("study", "all"): ("1", 1, "1"),
        ("study", "sum"): ("1", 1, "1"),
        ("part", "all"): ("2/5", 1, "2/5"),
        ("all quotas together", "all"): ("1", 1, "1"),
        ("the common part", "all"): ("3/5", 1, "3/5"),
    }


QUOTAS = """
  - {id: all, limit: {epsilon: 4}}
  - {id: each, per: purpose, limit: {epsilon: 0.5}}
  - {id: two, per: purpose, purposes: [study, audit], limit: {epsilon: 1},
     relaxed: [{when: {purposes: [alarm]}, epsilon: 1.5, why: x}]}
  - {id: north, subjects: {region: north}, limit: {epsilon: 1}}
  - {id: mine, subjects: {region: north}, clients: [a], limit: {epsilon: 0.4}}
  - {id: other, unit: day, clients: [a], limit: {epsilon: 1}}
"""


def test_quotas_of_purposes_and_cells_are_bounds() -> None:
    """Of each listed purpose, all others counting as one; of cells, whoever asks; with the largest
    amount of any context; and not where another unit is protected.
    """
    policy = parse_policy(f"policy: p\nrules:\n{QUOTAS}")[0]
    assert found(QUOTAS) == {
        ("each", "all"): ("1/8", 4, "1/2"),
        ("two", "all"): ("3/8", 2, "3/4"),
        ("north", "all"): ("1/4", 1, "1/4"),
        ("mine", "all"): ("1/10", 1, "1/10"),
        ("each", "north"): ("1/2", 4, "1"),
        ("two", "north"): ("1", 2, "1"),
        ("mine", "north"): ("2/5", 1, "2/5"),
        ("all quotas together", "all"): ("1", 1, "1"),
        ("all quotas together", "north"): ("1", 1, "1"),
    }
    assert [one.in_words() for one in bounds(policy) if one.of == "all"][:4] == [
        "each: each listed purpose, like all other requests together, can use up at most "
        "12.5 % of limit all "
        "on each cell, and the 4 of them 50 % together: 50 % is never used",
        "two: each listed purpose can use up at most 37.5 % of limit all on each cell, and the 2 "
        "of them 75 % together: 25 % stays for others",
        "north: whoever asks can use up at most 25 % of limit all on each cell of region “north”: "
        "75 % is never used",
        "mine: whoever it counts can use up at most 10 % of limit all on each cell of region "
        "“north”: 90 % stays for others",
    ]


def test_bounds_are_told_in_words() -> None:
    """With the share of each, of all together, or how many it takes."""
    policy = parse_policy(f"policy: p\nrules:\n{RULES}")[0]
    words = [one.in_words() for one in bounds(policy)]
    assert words[0] == (
        "each: each client can use up at most 16.67 % of limit all on each cell, so that 83.33 % "
        "stays for others; 6 of them can use up all of it"
    )
    assert words[1] == (
        "named: each client can use up at most 33.34 % of limit all on each cell, and the 2 of "
        "them 66.67 % together: 33.33 % stays for others"
    )
    assert words[-1] == (
        "the common part: can use up at most 60 % of limit all on each cell: 40 % stays for others"
    )


DIVIDED = """
  - {id: all, limit: {epsilon: 3}}
  - {id: named, per: client, clients: [a, b], limit: {epsilon: 0.9}}
  - {id: part, part_of: all, limit: {epsilon: 0.6}, clients: [c]}
"""


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(1, 9), st.booleans(), st.integers(0, 2)),
        max_size=40,
    )
)
def test_nobody_uses_up_more(asks: list[Any]) -> None:
    """Whatever is asked for, each and the common part have at most so much of every cell."""
    book = hospital(DIVIDED, {"age": ["17", "22"]})
    used: dict[tuple[str, int], Fraction] = {}
    for by, tenths, draws, cell in asks:
        more: dict[str, Any] = {"allotment": "part"} if draws else {}
        more |= {} if cell == 2 else {"subjects": {"age": [["17", "22"][cell]]}}
        mechanisms = [laplace(str(tenths / 10))]
        event = book.do("ask_grant", by, dataset="d", mechanisms=mechanisms, **more)
        if event.type == "grant.reserved.v1":
            for place in (0, 1) if cell == 2 else (cell,):
                for name in {by, "part" if draws else "common"}:
                    old = used.get((name, place), Fraction(0))
                    used[name, place] = old + Fraction(tenths, 10)
    shares = {rule: each for (rule, _), (each, *_) in found(DIVIDED).items()}
    most = {"part": shares["part"], "common": shares["the common part"]}
    most |= {"a": shares["named"], "b": shares["named"]}
    for (name, _), amount in used.items():
        assert amount <= 3 * Fraction(most.get(name, "1"))
