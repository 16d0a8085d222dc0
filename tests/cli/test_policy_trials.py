"""``accountant policy test`` and ``policy backtest``: a policy tried before it is adopted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from here import accountant
from support import laplace

ROOT = Path(__file__).parents[2]
RULES = "  - {id: a, limit: {epsilon: 1}}\n"
TIGHTER = "policy: q\nrules:\n  - {id: a, limit: {epsilon: 0.3}}\n  - {id: b, of: a, at: 50%}\n"


def run(*words: str, code: int = 0, **environment: str) -> str:
    """What the command prints."""
    done = accountant("policy", *words, **environment)
    assert done.code == code, done
    return done.out


def test_the_documented_cases_are_as_they_say(tmp_path: Path) -> None:
    """The file of cases in the guide, on the policy that the guide names."""
    text = (ROOT / "docs/how-to/write-a-policy.md").read_text()
    [cases] = re.findall(r"```yaml\n(cases:\n.*?)```", text, re.DOTALL)
    (tmp_path / "cases.yaml").write_text(cases)
    policy = str(ROOT / "policies/product-analytics.yaml")
    said = run("test", policy, str(tmp_path / "cases.yaml"))
    assert "2 of 2 cases are as expected" in said
    assert "rules that fired in no case: sensitive, " in said
    run("test", policy, str(tmp_path / "cases.yaml"), "--every-rule", code=1)


def test_a_case_that_is_wrong_fails(tmp_path: Path) -> None:
    """Exit code 1, and what the answer was; 2 for a file that is no file of cases."""
    (tmp_path / "p.yaml").write_text(TIGHTER)
    case = "cases: [{case: none, requests: [{ask: {dataset: d, mechanisms: [{kind: laplace, "
    (tmp_path / "c.yaml").write_text(case + "sensitivity: 1, scale: 1}]}}], expect: allow}]")
    files = str(tmp_path / "p.yaml"), str(tmp_path / "c.yaml")
    [verdict] = json.loads(run("test", *files, "--json", code=1))["cases"]
    assert verdict["wrong"] == "the answer is block by a, b, not allow"
    (tmp_path / "c.yaml").write_text("cases: 1")
    run("test", *files, code=2)


@pytest.mark.parametrize("days", ["1", "1000"])
def test_a_ledger_is_decided_again(
    world: Callable[..., Any], database: str, tmp_path: Path, days: str
) -> None:
    """Of ten grants of 0.1 three fit a limit of 0.3, whether what they were asked under is in the
    period or before it; the ledger does not change.
    """
    there = world().hospital(RULES)
    (tmp_path / "q.yaml").write_text(TIGHTER)
    where = {"ACCOUNTANT_DATABASE_URL": database, "ACCOUNTANT_HOME": str(tmp_path)}
    words = "backtest", str(tmp_path / "q.yaml"), "-p", "fair", "--days", days
    assert "holds no request" in run(*words, **where)
    asked = {"dataset": "d", "mechanisms": [laplace("0.1")]}
    for at in range(10):
        answer = there.post("/grants", asked, key=f"k{at}")
        assert answer.status_code == 201, answer.text
    size = there.service.head("fair").size
    found = json.loads(run(*words, "--json", **where))
    assert found["outcomes"] == [
        {"then": "allow", "now": "allow", "requests": 1},
        {"then": "allow", "now": "block", "requests": 7},
        {"then": "allow", "now": "flag", "requests": 2},
    ]
    assert found["most_used"] == {"a": "0.3"}
    assert "refused" in run(*words, **where)
    assert there.service.head("fair").size == size
    run("backtest", words[1], "-p", "nobody", code=2, **where)


CHANGED = """
policy: q
rules:
  - {id: a, limit: {epsilon: 2}}
  - {id: c, mechanisms: [declared], action: block}
"""


def test_two_policies_are_compared_in_words(tmp_path: Path) -> None:
    """What is added, removed and changed, and which of it takes a second person."""
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(TIGHTER)
    new.write_text(CHANGED)
    said = run("diff", str(new), str(old), code=1)
    assert "a: changed, which loosens" in said
    assert "may lose at most epsilon 0.3" in said
    assert "may lose at most epsilon 2" in said
    rows = json.loads(run("diff", str(new), str(old), "--json", code=1))["rules"]
    assert [(row["rule"], row["what"], row["loosens"]) for row in rows] == [
        ("a", "changed", True),
        ("c", "added", False),
        ("b", "removed", False),
    ]
    assert "do the same" in run("diff", str(new), str(new))
    run("diff", str(new), code=2)


def test_a_policy_is_compared_with_the_one_in_force(
    world: Callable[..., Any], database: str, tmp_path: Path
) -> None:
    """The ledger's policy is named by its population, and told in the words of its unit."""
    world().hospital(RULES)
    (tmp_path / "new.yaml").write_text(CHANGED)
    where = {"ACCOUNTANT_DATABASE_URL": database, "ACCOUNTANT_HOME": str(tmp_path)}
    said = run("diff", str(tmp_path / "new.yaml"), "-p", "fair", code=1, **where)
    assert "a: changed, which loosens" in said
    assert "one person may lose" in said
