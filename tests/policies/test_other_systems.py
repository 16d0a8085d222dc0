"""Policies of other systems: documented with their sources, and with numbers that filters give."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support import mechanism
from typer.testing import CliRunner

from accountant.budget.policy_file import parse_policy
from accountant.budget.typical import chosen_afresh, runs, total_of
from accountant.cli.policy import policy
from accountant.config import shipped
from accountant.privacy.mechanisms import Relation

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/other-systems.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"\]\(\.\./\.\./policies/([\w-]+)\.yaml\)", PAGE)))
LIMIT = "{{epsilon: 233, delta: {}, own_delta: 0}}"
BOUNDED = {"kind": "exponential", "scale": "2"}  # its epsilon is its sensitivity


def laplace(epsilon: str) -> dict[str, Any]:
    """Laplace noise."""
    return {"kind": "laplace", "sensitivity": epsilon, "scale": "1"}


@pytest.mark.parametrize("name", NAMES)
def test_its_cases_name_their_sources(name: str) -> None:
    """Whoever doubts a number finds where it was read, and when."""
    cases = (shipped("policies") / "cases" / f"{name}.yaml").read_text(encoding="utf-8")
    [said] = re.findall(r"read\s(?:#\s)?on\s(?:#\s)?(\d+ \w+ \d{4})", cases)
    assert said in PAGE
    assert "https://" in cases


@pytest.mark.parametrize("path", sorted(shipped("policies").glob("*.yaml")), ids=lambda p: p.stem)
def test_each_limit_is_described(path: Path) -> None:
    """`accountant policy lint` says of each limit of each policy that ships how much work fits."""
    done = CliRunner().invoke(policy, ["lint", str(path), "--json"])
    assert done.exit_code == 0, done.output
    found, _ = parse_policy(path.read_text(encoding="utf-8"))
    rows = {row["rule"]: row for row in json.loads(done.output)["limits"]}
    assert rows.keys() == {rule.id for rule in found.limits}
    for row in rows.values():
        assert max(one["fits"] for one in row["work"]) > 0, row


@pytest.mark.parametrize(
    ("limit", "gate", "work", "many"),
    [
        ("{epsilon: 233}", "basic", laplace("0.5"), 466),
        (LIMIT.format("5.6e-11"), "advanced", laplace("0.5"), 996),
        (LIMIT.format("5.6e-11"), "advanced", {"kind": "declared", "epsilon": "0.5"}, 996),
        (LIMIT.format("1e-12"), "advanced", laplace("0.5"), 948),
        (LIMIT.format("1e-8"), "advanced", laplace("0.5"), 1_069),
        (LIMIT.format("5.6e-11"), "renyi", laplace("0.5"), 1_206),
        (LIMIT.format("5.6e-11"), "zcdp", laplace("1"), 342),
        (LIMIT.format("5.6e-11"), "renyi", laplace("1"), 364),
        (LIMIT.format("5.6e-11"), "zcdp", BOUNDED | {"sensitivity": "1"}, 1_007),
        ("{epsilon: 10}", "basic", {"kind": "laplace", "sensitivity": "1", "scale": "30"}, 299),
        ("{epsilon: 25.6}", "basic", laplace("0.01"), 2_560),
        (
            "{epsilon: 34.9, delta: 7e-9, own_delta: 6e-9}",
            "zcdp",
            BOUNDED | {"sensitivity": "0.15"},
            3_158,
        ),
    ],
)
def test_the_page_says_how_much_fits(
    limit: str, gate: str, work: dict[str, Any], many: int
) -> None:
    """Each number of queries on the page is what a limit admits, and not one more."""
    found, _ = parse_policy(f"policy: p\nrules:\n  - {{id: a, limit: {limit}, gate: {gate}}}\n")
    [rule] = found.limits
    relation = Relation.ADD_OR_REMOVE_ONE
    cost = total_of([mechanism(work)], relation)
    assert runs(rule, chosen_afresh(rule, relation), cost) == many
    assert f"{many:,}" in PAGE
