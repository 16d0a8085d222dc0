"""The policy files that ship: each can be adopted, and does what its comments say."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import World, declared, laplace

from accountant.budget.policy import Policy
from accountant.budget.policy_file import parse_policy
from accountant.config import shipped

FILES = sorted(shipped("policies").glob("*.yaml"))
NOISELESS = {"kind": "non_private"}
COIN = {"kind": "randomized_response", "truth_probability": "0.5"}
GAUSSIAN = {"kind": "gaussian", "sensitivity": "1", "scale": "20", "delta": "1e-10"}
COARSE = GAUSSIAN | {"delta": "1e-8"}

CARE = {"purpose": "quality of care", "justification": "agreed programme of ward indicators"}
TABLE = {"purpose": "release programme"}
WEEKLY = {"purpose": "weekly dashboard"}

Case = tuple[str, str, list[dict[str, Any]], dict[str, str], str, str]
"""What is tried, the dataset, the mechanisms, the reasons, the outcome, and the rule behind it."""

CASES: dict[str, list[Case]] = {
    "hospital": [
        ("a count", "health-visits", [laplace("0.1")], CARE, "allow", ""),
        ("a count with Gaussian noise", "health-visits", [GAUSSIAN], CARE, "allow", ""),
        ("more than a client's half", "health-visits", [laplace("0.6")], CARE, "block",
         "fair-share"),
        ("more than the limit", "health-visits", [laplace("1.1")], CARE, "block", "health"),
        ("own delta over its part", "health-visits", [COARSE, COARSE], CARE, "block", "health"),
        ("no justification", "health-visits", [laplace("0.1")], WEEKLY, "block", "reasons"),
        (
            "a new purpose",
            "health-visits",
            [laplace("0.1")],
            CARE | {"purpose": "curiosity"},
            "flag",
            "known-purposes",
        ),
        ("staffing without a reason", "staffing", [laplace("1.5")], {}, "allow", ""),
        ("too much of staffing", "staffing", [laplace("2.1")], {}, "block", "other-data"),
        ("no noise", "staffing", [NOISELESS], {}, "block", "no-bare-answers"),
        ("a bare claim", "staffing", [declared("0.1")], {}, "block", "no-bare-answers"),
    ],
    "statistics-office": [
        ("a table", "census-2026", [laplace("0.5")], TABLE, "allow", ""),
        ("a table with Gaussian noise", "census-2026", [GAUSSIAN], TABLE, "allow", ""),
        ("too large an own delta", "census-2026", [COARSE], TABLE, "block", "census"),
        ("over half of the census", "census-2026", [laplace("1.2")], TABLE, "flag",
         "census-half-used"),
        ("more than the census allows", "census-2026", [laplace("2.1")], TABLE, "block", "census"),
        ("all of a survey", "survey-health", [laplace("1")], TABLE, "flag", "survey-nearly-used"),
        ("more than a survey allows", "survey-health", [laplace("1.1")], TABLE, "block", "survey"),
        ("many small ones are a plain sum", "survey-health", [laplace("0.01", 101)], TABLE, "block",
         "survey"),
        ("outside the programme", "census-2026", [laplace("0.1")], WEEKLY, "block", "programme"),
        ("without a purpose", "census-2026", [laplace("0.1")], {}, "block", "reasons"),
        ("respondents' own noise", "survey-health", [COIN], TABLE, "block", "survey"),
        ("data that no limit covers", "registers", [laplace("0.1")], TABLE, "allow", ""),
        ("no noise", "census-2026", [NOISELESS], TABLE, "block", "no-bare-answers"),
    ],
    "product-analytics": [
        ("a dashboard", "usage-app", [laplace("0.02", 20)], WEEKLY, "allow", ""),
        ("many small questions", "usage-app", [laplace("0.01", 600)], WEEKLY, "allow", ""),
        ("much for one team", "usage-app", [laplace("2.5")], WEEKLY, "flag", "greedy-client"),
        ("far too many", "usage-app", [laplace("0.01", 10_000)], WEEKLY, "block", "usage"),
        ("nearly all", "usage-app", [laplace("3.5")], WEEKLY, "flag", "usage-nearly-used"),
        ("sensitive data", "sensitive-billing", [laplace("0.4")], WEEKLY, "allow", ""),
        ("over half of them", "sensitive-billing", [laplace("0.6")], WEEKLY, "flag",
         "sensitive-half-used"),
        ("more than a month's share of them", "sensitive-billing", [laplace("0.3"), laplace("0.3")],
         WEEKLY, "flag", "sensitive-month"),
        ("much in one request", "sensitive-billing", [laplace("0.501")], WEEKLY, "flag",
         "sensitive-large-request"),
        ("too much of them", "sensitive-billing", [laplace("1.5")], WEEKLY, "block", "sensitive"),
        ("a bare claim", "usage-app", [declared("0.1")], WEEKLY, "flag", "bare-claims"),
        ("a bare claim on sensitive data", "sensitive-billing", [declared("0.1")], WEEKLY, "block",
         "no-bare-claims-on-sensitive-data"),
        ("no noise", "usage-app", [NOISELESS], WEEKLY, "block", "no-raw-numbers"),
        ("without a purpose", "usage-app", [laplace("0.1")], {}, "block", "reasons"),
    ],
}  # fmt: skip


def test_every_policy_that_ships_to_start_from_has_cases() -> None:
    """A file without a table of cases would be a promise that nobody checks."""
    assert {path.stem for path in FILES} == set(CASES)


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
    headers = {"Accountant-Approver": there.auth("officer")["Authorization"]}
    text = path.read_text(encoding="utf-8")
    first = there.put("/policy", text, headers=headers)
    assert first.status_code == 200, first.text
    assert first.json()["adopted"]
    again = there.put("/policy", text)
    assert not again.json()["adopted"]


@pytest.mark.parametrize(
    ("name", "case"),
    [(name, case) for name, cases in CASES.items() for case in cases],
    ids=lambda value: value if isinstance(value, str) else value[0].replace(" ", "-"),
)
def test_a_case_is_decided_as_the_comments_say(name: str, case: Case, world: Any) -> None:
    """The first request on fresh data has the expected outcome, for the expected reason."""
    _, dataset, mechanisms, reasons, outcome, rule = case
    there = started(world(), name, dataset)
    asked = {"dataset": dataset, "mechanisms": mechanisms} | reasons
    decision = there.post("/preview", asked).json()["decision"]
    assert decision["outcome"] == outcome
    fired = {r["rule"] for r in decision["rules"] if r["fired"] and r["action"] == outcome}
    assert rule in fired or (not rule and not fired)


def started(there: World, name: str, dataset: str) -> World:
    """A service with a dataset and the policy ``name``."""
    path = shipped("policies") / f"{name}.yaml"
    for answer in (
        there.put("", POPULATION),
        there.put(f"/datasets/{dataset}", {"namespace": "n", "name": dataset}),
        there.put("/policy", path.read_text(encoding="utf-8")),
    ):
        assert answer.status_code == 200, answer.text
    return there


POPULATION = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}


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
