"""Limits that move: what is carried on must hold against operators who choose when to move them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from support import hospital, laplace

from accountant.budget.epochs import Adopted, Epoch, next_epoch
from accountant.budget.policy import LimitRule, Policy
from accountant.budget.policy_file import parse_policy

DELTA = 0.01
STEP = Fraction(1, 100)
STEPS = 600

Chain = list[tuple[LimitRule, Epoch]]


def limit_rule(epsilon: str) -> tuple[Policy, LimitRule]:
    """A policy of one limit with all of delta for its gate."""
    text = f"  - {{id: a, limit: {{epsilon: {epsilon}, delta: {DELTA}, own_delta: 0}}}}\n"
    policy, _ = parse_policy("policy: p\nrules:\n" + text)
    return policy, policy.limits[0]


def raised(limits: list[str]) -> Chain:
    """The epochs of one rule whose limit is raised step by step, as the product carries them."""
    adopted, chain = None, []
    for number, epsilon in enumerate(limits, start=1):
        policy, rule = limit_rule(epsilon)
        epoch = next_epoch(adopted, rule, number, 0)
        adopted = Adopted(policy, "", 0, {"a": epoch})
        chain.append((rule, epoch))
    return chain


def anew(limits: list[str]) -> Chain:
    """The same limits, each on the order that is best for it: the accounting that is wrong."""
    chain = []
    for epsilon in limits:
        _, rule = limit_rule(epsilon)
        limit = replace(rule.promise, order=None)
        chain.append((rule, Epoch(1, 0, limit, rule.filter.capacity(limit))))
    return chain


def worst_failure(chain: Chain) -> float:
    """The largest probability that the loss exceeds what is shown as spent, over everybody who
    chooses, after seeing each answer, whether to ask once more, to raise the limit, or to stop.

    Each answer is randomised response of ``STEP``; dynamic programming over (answers, how many of
    them went against the person, how many raises).
    """
    up = float(np.exp(float(STEP)) / (1 + np.exp(float(STEP))))
    square, one = int(STEP**2 * 10**15), int(STEP * 10**9)
    values = np.zeros((len(chain), STEPS + 2))
    for n in range(STEPS, -1, -1):
        loss = (2 * np.arange(n + 1) - n) * float(STEP)
        after = values
        values = np.zeros((len(chain), STEPS + 2))
        for k in reversed(range(len(chain))):
            rule, epoch = chain[k]
            spent = rule.filter.spent(epoch.limit, n * one, n * square) / 1e9
            best = (loss > spent + 1e-12).astype(float)
            second = epoch.capacity.second or 0
            admitted = n < STEPS and (
                (n + 1) * one <= epoch.capacity.epsilon or (n + 1) * square <= second
            )
            if admitted:
                go = up * after[k, 1 : n + 2] + (1 - up) * after[k, : n + 1]
                best = np.maximum(best, go)
            if k + 1 < len(chain):
                best = np.maximum(best, values[k + 1, : n + 1])
            values[k, : n + 1] = best
    return float(values[0, 0])


@pytest.mark.parametrize("limits", [["0.5"], ["0.2", "1"], ["0.1", "0.2", "0.4", "0.7", "1", "2"]])
def test_well_timed_raises_do_not_break_what_is_shown(limits: list[str]) -> None:
    """However a limit is raised after seeing answers, what is shown as spent holds up to delta'."""
    assert worst_failure(raised(limits)) <= DELTA


def test_the_same_operator_breaks_orders_that_move() -> None:
    """Re-choosing the order at each raise breaks the promise: the search can tell."""
    ladder = ["0.05", "0.1", "0.2", "0.4", "0.7", "1", "2"]
    assert worst_failure(anew(ladder)) > 1.2 * DELTA


def rules(epsilon: str, more: str = "") -> str:
    """The limit rule ``a`` with a delta."""
    return f"  - {{id: a, limit: {{epsilon: {epsilon}, delta: 1e-6}}{more}}}\n"


def test_a_raise_keeps_the_order_and_gives_the_difference() -> None:
    """A raised limit goes on on its own line: the numbers that people see do not jump."""
    book = hospital(rules("1"))
    book.record(laplace("0.01", 300))
    assert book.state.adopted is not None
    before = book.state.adopted.epochs["a"]
    gate = book.state.adopted.policy.limits[0].filter
    book.policy(rules("2"), approved_by="officer")
    after = book.state.adopted.epochs["a"]
    used = book.used()[0]
    assert (after.number, after.carried) == (2, True)
    assert gate.order(after.limit) == gate.order(before.limit)
    assert gate.spent(after.limit, used[0], used[2]) == gate.spent(before.limit, used[0], used[2])
    assert after.capacity.second is not None
    assert before.capacity.second is not None
    assert after.capacity.second > before.capacity.second
    assert book.replayed().findings == []


def test_a_rule_adopted_on_used_data_starts_from_the_plain_sum() -> None:
    """What was used before a rule counted it is a sure sum of epsilons to it, never less."""
    book = hospital(rules("9"))
    book.record(laplace("0.01", 300))
    book.policy(rules("9") + "  - {id: b, limit: {epsilon: 9, delta: 1e-6}}\n")
    assert book.state.adopted is not None
    epoch = book.state.adopted.epochs["b"]
    rule = book.state.adopted.policy.limits[1]
    [cell] = book.used("b")
    assert cell[0] == 3 * 10**9
    line = rule.filter.spent(epoch.limit, 2**80, cell[2]) / 1e9
    intercept = rule.filter.spent(epoch.limit, 2**80, 0) / 1e9
    assert line == pytest.approx(3 + intercept, abs=1e-8)
    assert line >= 3 + intercept - 1e-9
    assert book.replayed().findings == []


def test_what_has_no_bound_closes_a_rule_that_is_adopted_later() -> None:
    """A rule adopted after a release without noise is closed from the start."""
    book = hospital(rules("9"))
    book.record({"kind": "non_private"})
    book.policy(rules("9") + "  - {id: b, limit: {epsilon: 9, delta: 1e-6}}\n")
    [cell] = book.used("b")
    assert cell[3] == cell[5] == 1
    event = book.grant(laplace("0.01"))
    fired = {r["rule"] for r in event.body["decision"]["rules"] if r["fired"]}
    assert "b" in fired


def test_a_new_population_starts_from_nothing() -> None:
    """The first epoch on unused data carries nothing, and says so."""
    book = hospital(rules("1"))
    assert book.state.adopted is not None
    assert not book.state.adopted.epochs["a"].carried


@pytest.mark.parametrize("scope", ["", ", per: client"])
def test_another_gate_keeps_what_the_rule_has_used(scope: str) -> None:
    """A rule that changes its gate starts from its own sum of epsilons; what is reserved then
    counts as spent in it, for its squares are not what the new gate counts.
    """
    basic = "  - {id: a, limit: {epsilon: 9, delta: 1e-6}, gate: basic" + scope + "}\n"
    total = "  - {id: t, limit: {epsilon: 99}}\n"
    book = hospital(basic + total)
    book.record(laplace("0.5"))
    grant = book.grant(laplace("3")).body["grant"]
    client = "pipe" if scope else ""
    book.policy(basic.replace("basic", "advanced") + total, approved_by="officer")
    assert book.state.adopted is not None
    rule = book.state.adopted.policy.limits[0]
    epoch = book.state.adopted.epochs["a"]
    per = rule.filter.per_epsilon(epoch.limit)
    book.do("release_grant", grant=grant, reason="never run")
    [cell] = book.used("a", client=client)
    assert cell[0] == 3_500_000_000
    assert cell[0] * per <= cell[2] <= cell[0] * per + 2
    assert book.replayed().findings == []
