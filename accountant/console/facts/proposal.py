"""Proposals: what would change, what that would do, and what has become of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from heapq import nlargest
from typing import Any, Final

from msgspec import Struct

from accountant.budget.commands import AdoptPolicy
from accountant.budget.decide.proposing import why
from accountant.budget.depletion import bounds, relaxed_in_words
from accountant.budget.errors import Problem
from accountant.budget.policy import Policy
from accountant.budget.population.population import Population
from accountant.budget.proposals import Proposal
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import Counted, State
from accountant.budget.trials.backtest import Backtest, used_at_most
from accountant.console.facts.asked import Line, mechanism
from accountant.console.facts.proposed import question
from accountant.ledger.events import rfc3339
from accountant.reporting.numbers import minute
from accountant.reporting.policy_diff import Changed, differences
from accountant.reporting.statement import Balance, balances, scopes
from accountant.reporting.words import groups_in_words, rule_in_words, shortened

MOST: Final = 60
"""Rules that are listed of those that differ."""
_LONGEST: Final = 400
_LOOKED_AT: Final = 20
"""Accounts of a limit of which what is left is found."""
_TEXTS: Final = ("reason", "justification")
"""Fields of a change that hold somebody's own words."""
_UNTOLD: Final = frozenset({"type", "confirms", "source_digest", "policy", *_TEXTS})


class Closing(Struct, frozen=True):
    """Who closed a proposal, or decided a request, when, by which event, and why."""

    by: str
    time: str
    sequence: int
    reason: str | None = None


class Proposed(Struct, frozen=True, kw_only=True):
    """A proposal in a list. ``stage``: open, lapsed, confirmed or declined."""

    number: int
    question: str
    by: str
    time: str
    expires: str
    why: str
    stage: str
    closing: Closing | None


class LimitThen(Struct, frozen=True):
    """A limit, and the account of it that is nearest to its end."""

    epsilon: str
    delta: str
    together: str
    left: str
    span: str | None


class LimitChange(Struct, frozen=True):
    """A limit before and after a policy was adopted; None where there is none."""

    rule: str
    now: LimitThen | None
    then: LimitThen | None


class ProposalFacts(Struct, frozen=True, kw_only=True):
    """A proposal. ``owed``: what was charged on each dataset when it was proposed, and is now."""

    proposed: Proposed
    lede: str
    digest: str
    kind: str
    lines: tuple[Line, ...]
    owed: tuple[tuple[str, str, str], ...]
    rules: tuple[Changed, ...]
    more: int
    """Rules that differ, too, and are not listed."""
    limits: tuple[LimitChange, ...]
    depletion: tuple[str, ...]
    relaxed: tuple[str, ...]


def proposed(one: Proposal, now: int, closing: Closing | None = None) -> Proposed:
    """Return a proposal, which holds its command, as a list shows it."""
    stage = "lapsed" if one.status == "open" and one.expired(now) else one.status
    return Proposed(
        number=one.sequence,
        question=question(one.command),
        by=one.by,
        time=rfc3339(one.time),
        expires=rfc3339(one.expires),
        why=shortened(why(one.effect), _LONGEST),
        stage=stage,
        closing=closing,
    )


def lede(told: Proposed) -> str:
    """Return the second sentence about a proposal: what it is that takes two, or how it ended."""
    if told.stage == "open":
        return "It takes a second person" + (f": {told.why}." if told.why else ".")
    if told.closing is None:
        return f"It lapsed: nobody decided by {minute(told.expires)}. Nothing has changed."
    by, when = told.closing.by, minute(told.closing.time)
    where = f"on {when}, event {told.closing.sequence}."
    if told.stage == "confirmed":
        return f"{by} confirmed it {where}"
    return f"{by} {'withdrew' if by == told.by else 'refused'} it {where} Nothing has changed."


def proposal(
    one: Proposal,
    command: Mapping[str, Any],
    now: int,
    closing: Closing | None,
    people: Population | None = None,
    state: State | None = None,
    before: Policy | None = None,
    owed: Mapping[str, str] | None = None,
) -> ProposalFacts:
    """Return a proposal, which holds its command. ``command`` is the same with texts and names;
    ``state`` is a copy that may be changed; ``before`` the policy that was in force, or still is;
    ``owed`` what is charged by now.
    """
    told = proposed(one, now, closing)
    policy = None
    if command["type"] == AdoptPolicy.command:
        policy = Policy.stored(dict(command["policy"]))
    then = one.effect.get("owed", {})
    rules = changed(policy, before, people) if policy else ()
    return ProposalFacts(
        proposed=told,
        lede=lede(told),
        digest=one.digest,
        kind=str(command["type"]),
        lines=(*lines(command), *(_beside(before, policy) if before and policy else ())),
        owed=tuple((n, v, (owed or {}).get(n, v)) for n, v in then.items()),
        rules=rules[:MOST],
        more=max(0, len(rules) - MOST),
        limits=limits(state, policy, rules[:MOST], now) if state and policy else (),
        depletion=tuple(each.in_words() for each in bounds(policy)) if policy else (),
        relaxed=relaxed_in_words(policy) if policy else (),
    )


def lines(command: Mapping[str, Any]) -> tuple[Line, ...]:
    """Return what a change says, field by field; its texts last."""
    found = []
    if "policy" in command:
        found.append(Line("Policy", str(command["policy"]["policy"])))
    for name, value in command.items():
        if name in _UNTOLD or value is None:
            continue
        title = name.replace("_", " ").capitalize()
        found += [Line(title, shortened(text, _LONGEST)) for text in _said(name, value)]
    texts = [(name, command[name]) for name in _TEXTS if command.get(name)]
    found += [Line(name.capitalize(), str(text), quoted=True) for name, text in texts]
    return tuple(found)


def _said(name: str, value: Any) -> list[str]:
    if name == "subjects":
        return [groups_in_words(value)]
    if name == "mechanisms":
        return [mechanism(one) for one in value[:10]]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if isinstance(value, list):
        return [", ".join(map(str, value)) or "none"]
    if isinstance(value, Mapping):
        return [f"{key}: {_plain(each)}" for key, each in value.items()] or ["none"]
    return [str(value)]


def _plain(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(map(str, value[:10]))
        return f"{shown} and {len(value) - 10:,} more" if len(value) > 10 else shown
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return str(value)


def changed(
    policy: Policy, before: Policy | None, people: Population | None
) -> tuple[Changed, ...]:
    """Return the rules by which a policy differs from the one before it, if there was one."""
    if before is not None:
        return tuple(differences(before, policy, people))
    said = ((rule.id, rule_in_words(rule, people)) for rule in policy.rules)
    return tuple(Changed(name, None, text, loosens=False) for name, text in said)


def _beside(before: Policy, policy: Policy) -> list[Line]:
    """Return what changes beside the rules."""
    found = []
    if before.order != policy.order:
        text = f"{policy.order.replace('_', ' ')}, instead of {before.order.replace('_', ' ')}"
        found.append(Line("Order of those who wait", text))
    if before.publication != policy.publication:
        found.append(Line("Witnesses", f"{_witnesses(policy)}, instead of {_witnesses(before)}"))
    return found


def _witnesses(policy: Policy) -> str:
    said = policy.publication
    return f"{said.required} of {len(said.witnesses)}" if said.witnesses else "none"


def limits(
    state: State, policy: Policy, changed: Iterable[Changed], now: int
) -> tuple[LimitChange, ...]:
    """Return the limits that a policy would change, as they are and as they would be. ``state`` is
    a copy, in which the policy is adopted. Empty if it cannot be adopted now.
    """
    names = [one.rule for one in changed]
    before = _standing(state, names)
    tested = Backtest(state)
    try:
        tested.adopt(policy, now)
    except Problem:
        return ()
    after = _standing(tested.state, names)
    each = (LimitChange(name, before.get(name), after.get(name)) for name in names)
    return tuple(one for one in each if one.now or one.then)


def _standing(state: State, names: Iterable[str]) -> dict[str, LimitThen]:
    adopted = state.adopted
    if state.population is None or adopted is None:
        return {}
    wanted = set(names)
    found = {
        rule.id: (-1.0, _then(rule, "0", f"{rule.limit.epsilon:f}"))
        for rule in adopted.policy.limits
        if rule.id in wanted
    }
    for counted in _fullest(state, [one for one in scopes(state) if one.rule.id in wanted]):
        name = counted.rule.id
        [total] = balances(state, counted, None)
        if _share(total) > found[name][0]:
            window = counted.epoch.window.words if counted.epoch.window else None
            then = _then(counted.rule, total.together, total.remaining, window)
            found[name] = (_share(total), then)
    return {name: then for name, (_, then) in found.items()}


def _fullest(state: State, counted: list[Counted]) -> Iterator[Counted]:
    """Yield some accounts of each limit, among them the one that has used most: those that have by
    the largest sums of any of their cells. What each has left takes longer to find.
    """
    by_rule = defaultdict[str, list[Counted]](list)
    for one in counted:
        by_rule[one.rule.id].append(one)
    for each in by_rule.values():
        yield from nlargest(_LOOKED_AT, each, key=partial(_at_most, state))


def _at_most(state: State, counted: Counted) -> float:
    """Return an upper bound on what an account has used."""
    if (account := state.accounts.get(counted.key)) is None:
        return 0.0
    spent = used_at_most(counted.rule, counted.epoch, account.at(max(state.time, state.now)))
    return float("inf") if spent is None else float(spent)


def _then(rule: LimitRule, together: str, left: str, span: str | None = None) -> LimitThen:
    return LimitThen(f"{rule.limit.epsilon:f}", f"{rule.limit.delta:f}", together, left, span)


def _share(total: Balance) -> float:
    return float("inf") if total.share is None else total.share
