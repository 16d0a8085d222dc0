"""Which rules were in force at some moment, and which limits a rule had before: from the events
that adopted policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from accountant.budget.facts import stated_by
from accountant.budget.policy import Policy
from accountant.budget.population.population import Dataset, Population
from accountant.budget.rules.base import Rule, Scoped
from accountant.budget.rules.threshold import ThresholdRule
from accountant.ledger.events import Event, rfc3339
from accountant.reporting.words import rule_in_words


class RuleThen(Struct, frozen=True):
    """A rule, and the event and the time since which it said this; "" if that is not known."""

    id: str
    sentence: str
    since: int
    time: str


class PolicyThen(Struct, frozen=True):
    """The policy in force at a moment: the event that adopted it, which of all policies it is, and
    those of its rules that are about a dataset. ``unreadable``: it holds a kind of rule that this
    program does not know.
    """

    name: str
    sequence: int
    time: str
    number: int
    of: int
    rules: tuple[RuleThen, ...]
    unreadable: bool = False


class LimitThen(Struct, frozen=True):
    """What a limit was, from the event ``sequence`` on until ``until`` ("" : it is in force)."""

    epsilon: str
    delta: str
    sequence: int
    time: str
    until: str
    by: str
    confirmed_by: str | None


def policy_then(
    adoptions: Sequence[Event],
    total: int,
    before: int,
    dataset: Dataset | None,
    people: Population | None,
) -> PolicyThen | None:
    """Return the policy in force at event ``before``, of the latest ``adoptions`` of ``total``;
    None if there was none, or it is not among them. ``dataset`` None: all together.
    """
    known = [event for event in adoptions if event.sequence <= before]
    if not known:
        return None
    last, dropped = known[-1], total - len(adoptions)
    told = last.body["command"]["policy"]
    head = told["policy"], last.sequence, rfc3339(last.time), dropped + len(known), total
    try:
        policy = Policy.stored(told)
    except ValueError:
        return PolicyThen(*head, (), unreadable=True)
    since = _since(known)
    there = None if dataset is None else dataset.as_of(before)
    rules = [
        RuleThen(rule.id, rule_in_words(rule, people), *since[rule.id])
        for rule in policy.rules
        if _is_about(_limit_of(rule, policy), there)
    ]
    return PolicyThen(*head, tuple(rules))


def _limit_of(rule: Rule, policy: Policy) -> Rule:
    """Return the limit of a threshold, which says on which data it fires; any other rule itself."""
    if not isinstance(rule, ThresholdRule):
        return rule
    return next((one for one in policy.limits if one.id == rule.of), rule)


def _is_about(rule: Rule, dataset: Dataset | None) -> bool:
    """Return whether a rule says something of a dataset; or of all together."""
    if dataset is None:
        return not isinstance(rule, Scoped) or bool(getattr(rule, "across", None))
    return not isinstance(rule, Scoped) or rule.scope.holds(dataset)


def _since(adoptions: Iterable[Event]) -> dict[str, tuple[int, str]]:
    """Return since which event each rule of the last policy is as it is there."""
    found: dict[str, tuple[int, str]] = {}
    before: dict[str, Any] = {}
    for event in adoptions:
        rules = {rule["id"]: rule for rule in event.body["command"]["policy"]["rules"]}
        found = {
            name: found[name] if before.get(name) == rule else (event.sequence, rfc3339(event.time))
            for name, rule in rules.items()
        }
        before = rules
    return found


def limits_then(adoptions: Iterable[Event], rule: str) -> tuple[LimitThen, ...]:
    """Return what the limit of a rule was, the last first."""
    found: list[LimitThen] = []
    last: tuple[str, str] | None = None
    for event in adoptions:
        command = event.body["command"]
        told: Any = next((one for one in command["policy"]["rules"] if one["id"] == rule), {})
        limit = told.get("limit")
        amounts = (str(limit["epsilon"]), str(limit.get("delta", "0"))) if limit else None
        if amounts == last:
            continue
        stamp, last = rfc3339(event.time), amounts
        if found and not found[-1].until:
            found[-1] = replace(found[-1], until=stamp)
        if amounts is not None:
            confirmed = event.by if command.get("confirms") else None
            by = stated_by(event)
            found.append(LimitThen(*amounts, event.sequence, stamp, "", by, confirmed))
    return tuple(reversed(found))
