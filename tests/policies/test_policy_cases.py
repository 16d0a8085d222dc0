"""Cases beside a policy: each is decided as live, and says how it differs from what it expects."""

from __future__ import annotations

import pytest

from accountant.budget.errors import Invalid
from accountant.budget.policy_file import parse_policy, parsed
from accountant.budget.trials.cases import Cases, Verdict, never_fired, try_all

POLICY, _ = parse_policy("""
policy: p
rules:
  - {id: life, limit: {epsilon: 1}}
  - {id: half, of: life, at: 50%}
  - {id: month, window: 30d, limit: {epsilon: 0.5}, action: flag}
  - {id: kinds, mechanisms: [non_private], action: block}
""")


def tried(case: str) -> Verdict:
    """The verdict of the only case of a file."""
    [verdict] = try_all(POLICY, parsed(f"cases:\n  - {case}", Cases))
    return verdict


def asking(more: str, expect: str = "allow", scale: int = 10) -> str:
    """A case of Laplace noise of epsilon 1 / scale."""
    noise = f"{{kind: laplace, sensitivity: 1, scale: {scale}}}"
    ask = f"ask: {{dataset: d, mechanisms: [{noise}]}}"
    return f"{{case: c, requests: [{{{ask}{more}}}], expect: {expect}}}"


def test_so_many_fit_and_no_more() -> None:
    """Ten requests of 0.1 fit limit 1, each charged as it is committed; the eleventh is refused."""
    assert tried(asking(", times: 10, every: 30d", "flag")).wrong is None
    assert tried(asking(", times: 11, every: 30d", "block")).wrong is None
    wrong = tried(asking(", times: 12, every: 30d", "block")).wrong
    assert wrong == "request 11 of 12 was refused already, by life, half"


def test_time_passes_between_requests() -> None:
    """Six in a day pass the month's half, of which the rule warns; one every week does not."""
    assert "month" in tried(asking(", times: 6", "flag")).fired
    assert "month" not in tried(asking(", times: 6, every: 7d", "flag")).fired


def test_datasets_have_labels_and_owners() -> None:
    """A rule that is about labels is tried on a dataset that has them."""
    policy, _ = parse_policy(
        "policy: p\nrules:\n  - {id: all, limit: {epsilon: 9}}\n"
        "  - {id: risky, labels: {risk: high}, limit: {epsilon: 0.05}}\n"
    )
    for risk, expect in (("high", "block"), ("low", "allow")):
        text = f"datasets: {{d: {{labels: {{risk: {risk}}}}}}}\ncases:\n  - {asking('', expect)}"
        [verdict] = try_all(policy, parsed(text, Cases))
        assert verdict.wrong is None


def test_what_is_wrong_is_said() -> None:
    """The answer, the rules that gave it, and the rule that should have."""
    assert tried(asking("", "block")).wrong == "the answer is allow, not block"
    assert tried(asking("", "allow", 1)).wrong == "the answer is flag by half, month, not allow"
    other = asking("", "flag", 1).removesuffix("}") + ", rule: kinds}"
    assert tried(other).wrong == "kinds did not fire; half, month did"


def test_rules_that_nobody_tries_are_named() -> None:
    """A rule that fires in no case is told, so that a policy's cases can cover it."""
    verdicts = [tried(asking("", "flag", 1)), tried(asking(", times: 11", "block"))]
    assert never_fired(POLICY, verdicts) == ["kinds"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cases: []", "cases"),
        ("cases:\n  - {case: c, requests: [], expect: allow}", "line 2"),
        ("cases:\n  - {case: c, expect: perhaps}", "line 2"),
        ("cases:\n  - case: c\n    requests:\n      - {times: 0}\n    expect: allow", "line 4"),
    ],
)
def test_a_malformed_file_names_its_line(text: str, said: str) -> None:
    """Cases are read as strictly as policies."""
    with pytest.raises(Invalid, match=said):
        parsed(text, Cases)
