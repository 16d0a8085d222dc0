"""How another policy would go from now on: what would be left, how long that would last.

The policy is adopted on a copy of the state, by the same code as live; nothing is recorded. How
fast a limit is used is that of the past: nobody can know how clients would ask then.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from accountant.budget.commands import AdoptPolicy, Envelope
from accountant.budget.decide.adopting import adopt_policy
from accountant.budget.depletion import bounds
from accountant.budget.errors import Conflict, Problem
from accountant.budget.policy import Policy
from accountant.budget.policy_file import parse_policy
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import AccountKey, Counted, State
from accountant.budget.trials.backtest import CONFIRMED
from accountant.console.facts.accounts import UsualFacts, forecast_of, usual
from accountant.console.facts.adopting import Adopted, adopted
from accountant.console.facts.changing import LIFETIME, Change, changed, ladder
from accountant.console.facts.effects import Effect, Moved, carried_on, effect_of, moved
from accountant.console.facts.pace import Forecast, Pace
from accountant.ledger.events import rfc3339
from accountant.reporting.desk import Page
from accountant.reporting.policy_diff import Changed, differences
from accountant.reporting.schema import PointFacts
from accountant.reporting.statement import Balance, scopes

MOST_TEXT: Final = 30_000
"""Characters of a policy that somebody sends: a form is bounded, and each may take three bytes."""
MOST_LIMITS: Final = 60
"""Accounts of limits that are compared, and rules whose difference is told."""


MOST_CELLS: Final = 500_000
"""Sums of all accounts of limits from which on only what changes is worked out, and no limits
beside the one that is tried."""


_IN_POLICY: Final = re.compile(r"line \d+: rules\.\d+\.(limit\.)?(?P<field>\w+): (?P<why>.+)", re.S)


class Mistake(Struct, frozen=True):
    """Why something cannot be tried, in words."""

    text: str


class Rung(Struct, frozen=True):
    """Another limit beside the one that is tried. ``name``: in force, or tried; "" for others.
    ``text``: the whole policy.
    """

    limit: str
    name: str
    text: str
    total: Balance
    usual: UsualFacts | None
    paces: tuple[Pace, ...]


class Binding(Struct, frozen=True):
    """A limit on the same data that leaves less than the one that is tried."""

    rule: str
    dataset: str
    left: str
    limit: str


class Limits(Struct, frozen=True):
    """The limits that can be tried, in the order of the policy."""

    rule: str
    epsilon: str
    delta: str
    window: str
    datasets: tuple[str, ...]


class Tried(Struct, frozen=True, kw_only=True):
    """What another policy would change from now on. ``digest``: of its text. ``loosens``: why it
    takes two people; ``closes``: why limits would be closed for good, in words.
    """

    text: str
    digest: str
    same: bool
    changes: tuple[Changed, ...]
    loosens: tuple[str, ...]
    closes: str
    effects: tuple[Effect, ...]
    left_out: int
    depletion: tuple[str, ...]
    usual_now: UsualFacts | None
    usual_then: UsualFacts | None
    usual_of: str
    """The dataset whose usual request is told."""
    focus: Effect | None
    rungs: tuple[Rung, ...]
    binding: Binding | None
    points: tuple[PointFacts, ...]
    forecast: Forecast | None


class WhatIf(Struct, frozen=True):
    """The page: what may be tried, and what came of it, if something was."""

    population: str
    base: int
    """The event that adopted the policy in force; -1 if there is none."""
    limits: tuple[Limits, ...]
    found: Tried | Mistake | None


def what_if(page: Page, change: Change | None = None, text: str = "", account: str = "") -> WhatIf:
    """Return what may be tried, and what another limit, or the policy of ``text``, would change;
    ``account``: of which account of the limit numbers are told, the worst if it has no such.
    """
    state = page.followed.state
    found: Tried | Mistake | None = None
    limits = scopes(state)
    if state.population is None or state.adopted is None:
        if change is not None or text:
            found = Mistake("No policy is in force, so nothing can be compared with one.")
        return WhatIf(state.ledger, -1, (), found)
    if text or change is not None:
        try:
            text = text or changed(state.adopted.policy, change or Change(""))
            found = _tried(page, limits, text, change, account)
        except Problem as problem:
            detail = problem.detail
            found = Mistake(detail if change is None else _of_the_limit(detail))
    return WhatIf(state.ledger, state.adopted.sequence, tuple(_limits(state, limits)), found)


def _of_the_limit(detail: str) -> str:
    """Return what is wrong with a limit that was typed: not at which line of a policy that nobody
    has written.
    """
    found = _IN_POLICY.search(detail)
    return f"{found['field']} {found['why']}" if found else detail


def _limits(state: State, limits: Iterable[Counted]) -> Iterator[Limits]:
    names = defaultdict[str, set[str]](set)
    for one in limits:
        names[one.rule.id].add(one.key.dataset)
    for rule in state.adopted.policy.limits if state.adopted else ():
        limit = rule.limit
        yield Limits(
            rule.id,
            f"{limit.epsilon:f}",
            f"{limit.delta:f}",
            rule.span or LIFETIME,
            tuple(sorted(names[rule.id])[:MOST_LIMITS]),
        )


def _tried(
    page: Page, limits: list[Counted], text: str, change: Change | None, account: str
) -> Tried | Mistake:
    if change is None and len(text) > MOST_TEXT:
        return Mistake(f"The policy has {len(text):,} characters; the most is {MOST_TEXT:,}.")
    state, activity = page.followed.state, page.followed.activity
    policy, digest = parse_policy(text)
    before = state.adopted
    assert before is not None  # noqa: S101 for the type checker
    copy = state.frozen(page.now, requests=False)
    loosens, closes = _judged(copy, policy, page.now)
    then = adopted(page, policy, copy)
    heavy = _cells(state, limits) > MOST_CELLS
    rules = {one.rule for one in differences(before.policy, policy)} if heavy else None
    each = moved(page, limits, then, rules)
    diff = tuple(differences(before.policy, policy, state.population))[:MOST_LIMITS]
    kept = [one for one in each if one.changes]
    about = _focus(each, change, account)
    focus = None if about is None else effect_of(page, about)
    data = focus.dataset if focus is not None else "*"
    found = Tried(
        text=text,
        digest=digest,
        same=policy == before.policy,
        changes=diff,
        loosens=tuple(loosens),
        closes=closes,
        effects=tuple(effect_of(page, one) for one in kept[:MOST_LIMITS]),
        left_out=max(0, len(kept) - MOST_LIMITS),
        depletion=tuple(one.in_words() for one in bounds(policy)),
        usual_now=usual(state, activity, data, page.now),
        usual_then=usual(then.state, activity, data, page.now),
        usual_of=data,
        focus=focus,
        rungs=(),
        binding=_binding(then, focus),
        points=_points(page, focus),
        forecast=_forecast(page, about),
    )
    if change is None or about is None or heavy:
        return found
    return replace(found, rungs=tuple(_rungs(page, change, about, found)))


def _cells(state: State, limits: list[Counted]) -> int:
    """Return how many sums the accounts of the limits have."""
    each = state.people().cells if state.classes is None else state.classes.count
    return each * len(limits)


def _judged(state: State, policy: Policy, now: int) -> tuple[list[str], str]:
    """Return why a policy takes two people, and why it would close limits for good."""
    told: dict[str, Any] = {"policy": policy.to_json(), "source_digest": ""}
    command = AdoptPolicy(**told).model_copy(update={"confirms": CONFIRMED})
    try:
        body = adopt_policy(state, Envelope("what-if", command), command, now)
    except Conflict as conflict:
        if conflict.code != "policy-closes-limit":
            raise
        command = command.model_copy(update={"closes": [rule.id for rule in policy.limits]})
        body = adopt_policy(state, Envelope("what-if", command), command, now)
        return list((body or {}).get("loosens", ())), conflict.detail
    return list((body or {}).get("loosens", ())), ""


def _focus(each: list[Moved], change: Change | None, account: str) -> Moved | None:
    """Return what the page is about: the limit that is tried, on the account that was named, or the
    one of which least would be left.
    """
    if change is None:
        return None
    mine = [one for one in each if one.counted.rule.id == change.rule and one.then is not None]
    named = [one for one in mine if one.counted.key.dataset == account] or mine
    return min(named, key=lambda one: one.left, default=None)


def _rungs(page: Page, change: Change, about: Moved, found: Tried) -> Iterator[Rung]:
    """Yield other limits beside the one that is tried, the smallest first. What that one would
    leave, and what the one in force leaves, is known already.
    """
    before, was, becomes = page.followed.state.adopted, about.was, about.becomes
    now, then = about.now, about.then
    if before is None or was is None or becomes is None or now is None or then is None:
        return
    in_force, tried = was.rule.limit.epsilon, becomes.rule.limit.epsilon
    for amount in ladder(in_force, tried):
        if amount == tried:
            yield _rung(page, found, "tried", found.text, _Left(becomes, then, found.usual_then))
        elif amount == in_force:
            text = changed(before.policy, Change(change.rule))
            yield _rung(page, found, "in force", text, _Left(was, now, found.usual_now))
        else:
            text = changed(before.policy, change._replace(epsilon=f"{amount:f}"))
            left = _left(page, text, becomes.key)
            if left is not None:
                yield _rung(page, found, "", text, left)


class _Left(NamedTuple):
    """A limit on an account, and what it leaves."""

    counted: Counted
    total: Balance
    usual: UsualFacts | None


def _left(page: Page, text: str, key: AccountKey) -> _Left | None:
    """Return what the policy of a text would leave of the limit that counts in an account, which
    has another epoch there; None if it cannot be adopted.
    """
    state = page.followed.state
    try:
        policy, _ = parse_policy(text)
        then = adopted(page, policy, state.frozen(page.now, requests=False))
    except Problem:
        return None
    there = then.state.adopted
    rule = None if there is None else there.rule(key.rule)
    if there is None or rule is None:
        return None
    epoch = there.epochs[key.rule]
    counted = Counted(rule, epoch, key._replace(epoch=epoch.number))
    most = usual(then.state, page.followed.activity, key.dataset, page.now)
    return _Left(counted, then.balance(counted), most)


def _rung(page: Page, found: Tried, name: str, text: str, left: _Left) -> Rung:
    """Return another limit beside the one that is tried, used as fast as that in force was."""
    now = found.focus.now if found.focus is not None else None
    paces = now.paces if now is not None and left.counted.epoch.window is None else ()
    limit = f"{left.counted.rule.limit.epsilon.normalize():f}"
    lasts = carried_on(paces, left.total.remaining, page.now)
    return Rung(limit, name, text, left.total, left.usual, lasts)


def _binding(then: Adopted, focus: Effect | None) -> Binding | None:
    """Return the limit on the same data of which less is left than of the one that is tried."""
    if focus is None or focus.then is None:
        return None
    covered = then.state.datasets.get(focus.dataset)
    found: list[tuple[Decimal, LimitRule, str, Balance]] = []
    for one in scopes(then.state):
        rule, where = one.rule, one.key.dataset
        holds = covered is not None and rule.scope.holds(covered)
        if rule.id == focus.rule or rule.divides or rule.action != "block" or rule.subjects:
            continue
        if where == focus.dataset or (where == "*" and holds):
            total = then.balance(one)
            found.append((Decimal(total.remaining), rule, where, total))
    if not found:
        return None
    left, rule, where, total = min(found, key=lambda one: one[0])
    if left >= Decimal(focus.then.total.remaining):
        return None
    return Binding(rule.id, where, total.remaining, f"{rule.limit.epsilon:f}")


def _points(page: Page, focus: Effect | None) -> tuple[PointFacts, ...]:
    if focus is None or focus.now is None:
        return ()
    points = page.followed.burndowns.points(focus.rule, focus.dataset)
    total = focus.now.total
    last = PointFacts(
        sequence=page.followed.state.last,
        time=rfc3339(page.now),
        limit=focus.now.limit,
        spent=total.spent,
        spent_and_reserved=total.together,
        epoch=points[-1].epoch if points else 0,
    )
    return (*points, last)


def _forecast(page: Page, about: Moved | None) -> Forecast | None:
    if about is None or about.was is None or about.now is None:
        return None
    return forecast_of(page, about.was, about.now)
