"""The policy files that ship: each can be adopted, and does what its comments say."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Any

import pytest
import yaml

from accountant.budget.policy import Policy
from accountant.budget.policy_file import parse_policy, parsed
from accountant.budget.trials.cases import Cases, never_fired, try_all
from accountant.config import shipped

FILES = sorted(shipped("policies").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_policy_says_what_its_cases_expect(path: Path) -> None:
    """The comments of a file are promises: each rule fires in a case beside it, as it should."""
    policy, _ = parse_policy(path.read_text(encoding="utf-8"))
    cases = (path.parent / "cases" / path.name).read_text(encoding="utf-8")
    verdicts = list(try_all(policy, parsed(cases, Cases)))
    assert [one for one in verdicts if one.wrong] == []
    assert never_fired(policy, verdicts) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_policy_parses_and_is_stable_under_resolving(path: Path) -> None:
    """Each file is read without a complaint, and its resolved form is its own resolved form."""
    policy, digest = parse_policy(path.read_text(encoding="utf-8"))
    assert len(digest) == 64
    assert Policy.model_validate(policy.to_json()).resolved() == policy
    assert path.stem == policy.policy


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_policy_explains_each_rule(path: Path) -> None:
    """Whoever answers for a rule finds its meaning in a comment before it or beside it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for rule in yaml.safe_load("\n".join(lines))["rules"]:
        at = next(i for i, line in enumerate(lines) if f"id: {rule['id']}" in line.split("#")[0])
        said = lines[at - 1].lstrip().startswith("#") or "#" in lines[at]
        assert said, rule["id"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_policy_can_be_adopted(path: Path, world: Any) -> None:
    """A real service takes each file over HTTP, and takes it again without a change."""
    there = world().hospital()
    text = path.read_text(encoding="utf-8")
    first = there.policy(text)
    assert first.status_code == 200, first.text
    again = there.put("/policy", text)
    assert not again.json()["adopted"]


@pytest.mark.parametrize(
    ("name", "prior", "stated"),
    [
        ("hospital", 0.5, {"0.1": 53, "0.5": 63, "1": 74, "2": 89, "3": 96}),
        ("statistics-office", 0.1, {"0.5": 16, "1": 24, "2": 46, "3": 70}),
        ("product-analytics", 0.5, {"1": 74, "2": 89, "4": 99}),
    ],
)
def test_the_beliefs_in_the_comments_are_right(
    name: str, prior: float, stated: dict[str, int]
) -> None:
    """Each "so many in 100" is the posterior that the epsilon allows, rounded up."""
    text = (shipped("policies") / f"{name}.yaml").read_text(encoding="utf-8")
    for epsilon, per_hundred in stated.items():
        most = 100 * prior / (prior + (1 - prior) * exp(-float(epsilon)))
        assert per_hundred - 1 < most <= per_hundred, (epsilon, most)
        assert f"{per_hundred} in 100" in text.replace("in\n  # 100", "in 100"), per_hundred
