"""``accountant policy lint``: what a limit makes of typical work, before it is adopted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from here import Said, accountant
from support import hospital

from accountant.budget.typical import TYPICAL

POLICY = """
policy: p
rules:
  - {id: lifetime, limit: {epsilon: 2, delta: 1e-6}}
  - id: training
    limit: {epsilon: 2, delta: 1e-6}
    workload: [{kind: gaussian, sensitivity: 1, scale: 1.1, sampling: {poisson: 0.01}, count: 10}]
  - {id: sums, limit: {epsilon: 1}}
  - {id: nearly, of: lifetime, at: 80%}
"""


def run(file: Path, *options: str) -> Said:
    """The command."""
    return accountant("policy", "lint", str(file), *options)


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """What the command says of each limit."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    done = run(file, "--json")
    assert done.code == 0, done.err
    return {row["rule"]: row for row in json.loads(done.out)["limits"]}


def fits(row: dict[str, Any]) -> dict[str, int]:
    """How often each kind of work fits a limit."""
    return {one["name"]: one["fits"] for one in row["work"]}


def test_training_is_shown_beside_its_best_order(rows: dict[str, dict[str, Any]]) -> None:
    """DP-SGD fits half as often at the default orders as at order 10, which the workload takes."""
    step = "a step of DP-SGD, rate 0.01, sigma 1.1"
    [shown] = [one for one in rows["lifetime"]["work"] if one["name"] == step]
    assert shown == {"name": step, "fits": 462, "best": 1_008, "order": "10"}
    assert (rows["lifetime"]["orders"], rows["training"]["orders"]) == (["13", "8"], ["10"])
    assert fits(rows["training"])[step] == 1_008
    assert fits(rows["training"])["the rule's workload"] == 100
    assert "best" not in rows["sums"]["work"][0]
    assert fits(rows["sums"])["Laplace noise, epsilon 0.1"] == 10


@pytest.mark.parametrize("name", TYPICAL)
def test_what_is_shown_is_what_is_granted(rows: dict[str, dict[str, Any]], name: str) -> None:
    """As many runs are granted under the limit as the command says, and not one more."""
    rule = "  - {id: a, limit: {epsilon: 2, delta: 1e-6}}\n"
    book = hospital(rule, neighbouring="add_or_remove_one")
    [mechanism], most = TYPICAL[name], fits(rows["lifetime"])[name]
    assert book.grant(mechanism | {"count": most}).type == "grant.reserved.v1"
    assert book.grant(mechanism).type == "grant.refused.v1"


def test_a_malformed_policy_is_misuse(tmp_path: Path) -> None:
    """The line and the reason, and exit code 2."""
    file = tmp_path / "policy.yaml"
    file.write_text("policy: p\nrules:\n  - {id: a, limit: {epsilon: 1}, orders: [10]}\n")
    done = run(file)
    assert done.code == 2
    assert "line 3" in done.err
    assert "without a delta" in done.err


def test_the_scope_of_each_rule_is_shown_in_words(tmp_path: Path) -> None:
    """Whom and what a rule is about, as the report says it."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policy: p\nrules:\n"
        "  - {id: a, limit: {epsilon: 1}, labels: {risk: [low, high]}, owners: x, clients: etl}\n"
        "  - {id: b, mechanisms: [declared], datasets: [d, e-*], purposes: [study]}\n"
    )
    assert json.loads(run(file, "--json").out)["about"] == {
        "a": "the datasets that are owned by “x” and have the label risk “high” or “low”, "
        "by client “etl”",
        "b": "the datasets that match “d” or “e-*”, for the purpose “study”",
    }
