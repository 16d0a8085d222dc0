"""Judging a request: every rule is evaluated, the strictest that fires decides."""

from __future__ import annotations

import unicodedata
from typing import Final

from accountant.budget import limits
from accountant.budget.commands import Sealed
from accountant.budget.decision import Action, Decision, Finding
from accountant.budget.policy import (
    LimitRule,
    MechanismRule,
    OtherRule,
    PurposeRule,
    RequireRule,
    ThresholdRule,
)
from accountant.budget.request import Request
from accountant.budget.state import State, matches
from accountant.privacy.mechanisms import Verdict

BUILT_IN: Final = "built-in:"
"""Prefix of rules that no policy states. (No policy's rule id contains a colon.)"""


def judge(state: State, request: Request, read: limits.Read = limits.read) -> Decision:
    """Evaluates every rule that applies to ``request``; changes nothing. ``read`` looks up what
    each limit is compared with.
    """
    findings = [*_claims(request), *_membership(request)]
    if state.adopted is None:
        text = (
            "no policy is adopted, so nothing says how much may be spent; "
            f"adopt one with PUT /v1/populations/{state.ledger}/policy"
        )
        findings.append(_built_in("no-policy", "block", "no-policy", text))
        return Decision(tuple(findings))
    counted = state.limits_on(request.dataset, request.by)
    if not any(rule.action == "block" and rule.per is None for rule, _, _ in counted):
        text = (
            f"no limit of policy {state.adopted.policy.policy!r} covers dataset "
            f"{request.dataset!r}; add a rule with a limit that does"
        )
        findings.append(_built_in("no-limit", "block", "no-limit", text))
    for rule in state.adopted.policy.rules:
        match rule:
            case LimitRule():
                findings += [
                    limits.limit(state, request, c, read) for c in counted if c.rule is rule
                ]
            case ThresholdRule():
                findings += [
                    limits.threshold(state, request, rule, c, read)
                    for c in counted
                    if c.rule.id == rule.of
                ]
            case OtherRule():
                findings += rule.findings(state, request, state.memories.get(rule.id))
            case _ if matches(rule.datasets, request.dataset):
                findings.append(_terms(request, rule))
    return Decision(tuple(findings))


def blank(text: str | Sealed | None) -> bool:
    """True if ``text`` shows nothing: it is absent, or only spaces and invisible characters (which
    is never sealed).
    """
    if isinstance(text, Sealed) or (text and text[0].isalnum()):
        return False
    return all(unicodedata.category(c)[0] in "ZC" for c in text or "")


def _built_in(rule: str, action: Action, code: str, text: str) -> Finding:
    return Finding(BUILT_IN + rule, action, True, code, text, {})


def _claims(request: Request) -> list[Finding]:
    """What stands against the stated mechanisms themselves."""
    findings = []
    for mechanism, priced in zip(request.mechanisms, request.priced, strict=True):
        findings += [_built_in(o.code, "block", o.code, o.text) for o in priced.objections]
        if priced.verdict is Verdict.UNVERIFIABLE:
            text = (
                f"the loss of {mechanism.kind} is the client's word; "
                "nothing that was stated lets it be derived"
            )
            findings.append(_built_in("unverifiable-claim", "flag", "unverifiable-claim", text))
    return findings


def _membership(request: Request) -> list[Finding]:
    text = (
        "membership in groups is private here, so {} stated under replace_one can only charge "
        "everyone; state it under add_or_remove_one, or ask for everyone"
    )
    code = "private-membership"
    return [_built_in(code, "block", code, text.format(kind)) for kind in request.unplaced]


def _terms(request: Request, rule: MechanismRule | RequireRule | PurposeRule) -> Finding:
    match rule:
        case MechanismRule():
            used = [m.kind for m in request.mechanisms if m.kind in rule.mechanisms]
            text = f"denied kinds: {', '.join(rule.mechanisms)}; asked: {', '.join(used) or 'none'}"
            return Finding(rule.id, rule.action, bool(used), "mechanism-denied", text, {})
        case RequireRule():
            missing = [name for name in rule.require if blank(getattr(request, name))]
            text = f"required: {', '.join(rule.require)}; missing: {', '.join(missing) or 'none'}"
            return Finding(rule.id, rule.action, bool(missing), "reason-required", text, {})
        case PurposeRule():
            fired = request.purpose not in rule.purposes
            named = "another" if isinstance(request.purpose, Sealed) else repr(request.purpose)
            text = f"purpose: {named}; accepted: " + ", ".join(rule.purposes)
            return Finding(rule.id, rule.action, fired, "purpose-denied", text, {})
