"""Other numbers for one limit, as the text of a whole policy."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

from accountant.budget.errors import Invalid
from accountant.budget.policy import Policy

KEEP: Final = "keep"
LIFETIME: Final = "lifetime"
PERIODS: Final = ("daily", "weekly", "monthly", "quarterly", "yearly")


class Change(NamedTuple):
    """Other numbers for one limit: "" and ``KEEP`` leave what is in force. ``window``: what it
    counts over, ``LIFETIME``, 30d, month, or one of ``PERIODS``.
    """

    rule: str
    epsilon: str = ""
    delta: str = ""
    window: str = KEEP


def changed(policy: Policy, change: Change) -> str:
    """Return the text of a policy with other numbers in one limit. Raise Problem."""
    document = policy.to_json()
    rules = [rule for rule in document["rules"] if rule["id"] == change.rule]
    if not rules or change.rule not in {rule.id for rule in policy.limits}:
        raise Invalid("unknown-rule", f"the policy in force has no limit called {change.rule!r}")
    [rule] = rules
    for name, value in (("epsilon", change.epsilon), ("delta", change.delta)):
        if value:
            rule["limit"][name] = _number(name, value)
    if change.delta:  # its split is drawn anew
        rule["limit"].pop("own_delta", None)
    if change.window != KEEP:
        for name in ("window", "refresh"):
            rule.pop(name, None)
        if change.window in PERIODS:
            rule["refresh"] = change.window
        elif change.window != LIFETIME:
            rule["window"] = change.window
    return json.dumps(document, ensure_ascii=False, indent=1)


_MOST_DIGITS: Final = 30


def _number(name: str, text: str) -> str:
    """Return a number as a policy holds it."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    # Digits are written out: a large exponent would fill the memory.
    if not value.is_finite() or abs(value.adjusted()) > _MOST_DIGITS:
        raise Invalid("malformed-policy", f"{name} is {text!r}, which is no number, like 1.5")
    return format(value, "f")


def ladder(in_force: Decimal, tried: Decimal) -> list[Decimal]:
    """Return both limits with one between them and one on either side, all positive, ascending."""
    step = abs(tried - in_force) / 2 or in_force / 4
    step = step.quantize(Decimal(1).scaleb(max(-9, step.adjusted() - 1)))
    low, high = min(in_force, tried), max(in_force, tried)
    found = {low - step, low, low + step, high, high + step}
    return sorted(Decimal(f"{one.normalize():f}") for one in found if one > 0)
