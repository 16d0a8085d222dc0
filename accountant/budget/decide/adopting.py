"""Decide adoptions of policies: how each limit begins, and what loosens the one in force."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, TypeGuard

from accountant.budget import commands as ask
from accountant.budget.accounts.epochs import (
    Epoch,
    Start,
    next_epoch,
    same_scope,
    start_of,
)
from accountant.budget.bill import bill_of
from accountant.budget.commands import Envelope
from accountant.budget.decide.proposing import second
from accountant.budget.decide.registering import Body, size_of
from accountant.budget.errors import Conflict, Invalid
from accountant.budget.handlers import is_used, sources_of
from accountant.budget.policy import Policy
from accountant.budget.request import price_all, terms_of
from accountant.budget.rules.allotment import AllotmentRule
from accountant.budget.rules.base import HOLDING, STRICTNESS, Rule
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.refresh import RefreshRule
from accountant.budget.rules.scope import ALL
from accountant.budget.rules.threshold import ThresholdRule
from accountant.budget.state import State, lifetime
from accountant.ledger.events import MAX_BYTES, rfc3339
from accountant.privacy.curves import Orders
from accountant.privacy.filters import FILTERS, GDP
from accountant.privacy.units import SURE, Charge, Currency, decimal_of, orders_in


def adopt_policy(state: State, asked: Envelope, command: ask.AdoptPolicy, now: int) -> Body | None:
    """Adopt a policy. Raises SecondNeeded if it loosens the one in force, and Conflict if a limit
    would begin closed for good that ``closes`` does not name.
    """
    policy = Policy.stored(command.policy)
    _check_units(state, policy)
    _check_groups(state, policy)
    if state.adopted and state.adopted.policy == policy:
        return None
    _confirm_closed(state, policy, command.closes)
    begun = {rule.id: _begins(state, rule, now) for rule in policy.limits}
    told = {rule.id: _told(state, rule, *begun[rule.id]) for rule in policy.limits}
    body = {"epochs": told, "loosens": loosens(state, policy)}
    size = size_of(state.next_event(asked, "policy.adopted.v1", now, body))
    if size > MAX_BYTES:
        raise Invalid(
            "event-too-large",
            f"the event that adopts this policy would have {size} bytes, the most is {MAX_BYTES}: "
            f"it has {len(policy.rules)} rules, {len(policy.limits)} of them limits; leave out "
            "rules, or shorten ids, patterns and lists",
        )
    kept = _most_kept(state, policy, {name: epoch for name, (_, epoch) in begun.items()})
    if kept > MAX_BYTES - _ROOM:
        raise Invalid(
            "event-too-large",
            f"the event of a request would keep up to {kept} bytes of what these rules "
            f"compare, the most is {MAX_BYTES - _ROOM}: what has run could not be recorded; leave "
            "out limits and thresholds, or shorten ids",
        )
    if effect := _effect(state, policy, body):
        second(asked, effect)
    return body


def _effect(state: State, policy: Policy, body: Body) -> Body:
    """Return what of an adoption takes a second person: that it loosens, or is the first."""
    if state.adopted is not None and not body["loosens"]:
        return {}
    before: Body = {"first": policy.policy}
    if state.adopted is not None:
        before = {"replaces": state.adopted.sequence}
    starts = {name: epoch["start"] for name, epoch in body["epochs"].items()}
    return {"loosens": body["loosens"], "starts": starts} | before


def _check_units(state: State, policy: Policy) -> None:
    """Raise Invalid if a limit is for a unit that the population does not name."""
    people = state.people()
    known = [unit.name for unit in people.units]
    for rule in policy.limits:
        if rule.unit is not None and rule.unit not in known:
            raise Invalid(
                "malformed-policy",
                f"the policy cannot be adopted: limit {rule.id} is for unit {rule.unit!r}, and the "
                f"further units of population {people.name} are: {', '.join(known) or 'none'}. "
                f"State it with the population; "
                f"a limit without unit protects the first unit, {people.privacy_unit!r}",
            )


def _check_groups(state: State, policy: Policy) -> None:
    """Raise Invalid if a limit is about cells that the population does not have."""
    for rule in policy.limits:
        try:
            rule.box(state.people())
        except Invalid as error:
            raise Invalid(
                "malformed-policy", f"the policy cannot be adopted: limit {rule.id}: {error}"
            ) from None


_ROOM: Final = 4_096
"""Bytes of a request's event that rules leave for the request."""
_FIRED: Final = len('["",""],')
_SEEN: Final = len('"":{"cell":[],"dataset":"","used":[]},')
_BESIDE: Final = len('"beside":[],"more":10000,')
_ITS_CAPACITY: Final = len('"capacity":[],')
_ITS_LOCKED: Final = len('"locked":[],')
_UNITS: Final = len('"",')
_MOST_DIGITS: Final = 19
"""Digits of a sum, of at most 2^62."""
_KEPT: Final = len('"kept":[],') + 2 * (_UNITS + _MOST_DIGITS)


def _most_kept(state: State, policy: Policy, epochs: Mapping[str, Epoch]) -> int:
    """Return the most bytes that a request's event has of rules: of each that it fired, and of each
    limit and threshold the sums at a cell, with capacity and what is locked if it is a limit; and
    what the limits together list beside. The positions of a cell of d dimensions have at most d + 6
    digits, for there are at most 10^6 cells.
    """
    cell, found, beside = 2 * len(state.people().dimensions) + 6, 0, 0
    limits = {rule.id: rule for rule in policy.limits}
    for rule in policy.rules:
        found += 2 * len(rule.id) + len(rule.code) + _FIRED
        of = limits.get(rule.of if isinstance(rule, ThresholdRule) else rule.id)
        if of is not None:
            sides = epochs[of.id].capacity.sides
            sums = len(sides) * (_UNITS + _MOST_DIGITS)
            account = sums + cell + _SEEN + (0 if of.across else ask.LONGEST_ID)
            account += sums + _ITS_LOCKED if of.unlock else 0
            account += _KEPT if of.id in policy.allotments else 0
            found += account
            if of is rule:
                found += _ITS_CAPACITY + sum(_UNITS + len(str(most)) for _, most in sides)
                found += _BESIDE if policy.most_beside else 0
            beside = max(beside, 0 if of.across else account)
    return found + policy.most_beside * beside


def _confirm_closed(state: State, policy: Policy, confirmed: Sequence[str]) -> None:
    """Raise Conflict unless each limit that would begin closed for good is among ``confirmed``.

    A limit that cannot count on in its own currency begins with the plain sum of epsilons. Where a
    charge without a finite epsilon is in that, no currency has a bound, and nothing fits any more.
    """
    closed = [one for rule in policy.limits for one in _closed(state, rule)]
    if missing := [one for one in closed if one["rule"] not in confirmed]:
        each = "; ".join(_CLOSED.format(**one) for one in missing)
        names = ", ".join(dict.fromkeys(one["rule"] for one in missing))
        raise Conflict(
            "policy-closes-limit",
            f"under this policy nothing would ever fit again: {each}. Charges have no finite "
            "epsilon where Gaussian noise states no delta, or a release has no bound. Keep the "
            "gate and the scope in which they are counted, or confirm that these limits close: "
            f"closes {names}",
            closes=missing,
        )


def _closed(state: State, rule: LimitRule) -> Iterator[Body]:
    """Yield where a limit would begin closed: its dataset, the currency, and what closes it."""
    start = start_of(state.adopted, rule, used=is_used(state, rule))
    for source in sources_of(state, rule, start):
        if source.dataset != ALL and not rule.scope.holds(state.datasets[source.dataset]):
            continue  # nothing is compared with what is out of scope
        account = state.accounts[source]
        charges = account.at(state.time).used.most_infinite()[account.axis.index(Currency.EPSILON)]
        if charges:
            yield {
                "rule": rule.id,
                "dataset": source.dataset,
                "client": source.client,
                "gate": rule.filter.name,
                "currency": str(Currency.EPSILON),
                "infinite": charges,
                "begins": start.value,
            }


_CLOSED: Final = (
    "limit {rule} on dataset {dataset} begins, under gate {gate}, with {begins}, and {infinite} of "
    "the charges there have no finite {currency}"
)


def _begins(state: State, rule: LimitRule, now: int) -> tuple[Start, Epoch]:
    """Return how ``rule`` begins, and the epoch that it is in, once adopted."""
    start = start_of(state.adopted, rule, used=is_used(state, rule))
    number = state.last_epoch.get(rule.id, 0) + 1
    return start, next_epoch(state.adopted, rule, start, _stated(state, rule), number, now)


def _told(state: State, rule: LimitRule, start: Start, epoch: Epoch) -> Body:
    """Return what the event says of an epoch: what does not follow from the rule, or is easier to
    check than to find.
    """
    stated: Body = {"number": epoch.number, "start": start.name.lower()}
    if start is Start.KEPT:
        stated["since"] = rfc3339(epoch.since)
    if orders := orders_in(epoch.axis):
        stated["renyi"] = list(map(decimal_of, orders))
    if isinstance(epoch.gate, GDP):
        stated["capacity"] = str(epoch.capacity.along[0])
    if lines := orders_told(epoch, brings=bool(sources_of(state, rule, start))):
        stated["orders"] = lines
    if epoch.limit.chosen is not None:
        stated["chosen"] = list(map(str, epoch.limit.chosen))
    if not epoch.whole:
        stated["whole"] = False
    return stated


def orders_told(epoch: Epoch, *, brings: bool) -> dict[str, str]:
    """Return the orders at which a verifier draws lines, as exact decimals: the gate's own, and if
    the epoch ``brings`` sums of epsilons, those of all gates that count them. Those of Renyi
    divergences are told by themselves.
    """
    gates = FILTERS.values() if brings and epoch.axis != SURE else [epoch.gate]
    lines = [
        line
        for gate in gates
        for line in gate.lines(epoch.limit)
        if gate is epoch.gate or gate.per_epsilon(line) is not None
    ]
    return {
        str(line.currency): decimal_of(line.order) for line in lines if line.currency.order is None
    }


def _stated(state: State, rule: LimitRule) -> Orders:
    """Return the Renyi orders that a rule states, or the best one for its workload."""
    terms, workload = terms_of(state), rule.workload or ()

    def total_at(orders: Orders) -> Charge:
        prices = price_all(workload, terms.relation, orders, terms.engine, terms.units)
        return bill_of(prices, terms.units).to(rule.unit or "")

    return rule.orders_for(total_at)


def loosens(state: State, policy: Policy) -> list[str]:
    """Return how ``policy`` blocks less than the one in force, or forgets spending."""
    reasons = [
        f"{rule.id} forgets what was used" for rule in policy.limits if _forgets(state, rule)
    ]
    if state.adopted and not policy.publication.as_strict(state.adopted.policy.publication):
        reasons.append("fewer or other witnesses have to agree")
    after = {rule.id: rule for rule in policy.rules}
    before = {rule.id: rule for rule in state.adopted.policy.rules} if state.adopted else {}
    reasons += [
        f"{rule.id} begins anew {rule.span}"
        for rule in policy.limits
        if will_forget(before.get(rule.id), rule)
    ]
    reasons += divided_anew(state.adopted.policy, policy) if state.adopted else []
    names = dict.fromkeys((*before, *after)) if before else ()
    pairs = ((name, before.get(name), after.get(name)) for name in names)
    weaker = ((name, weakened(old, new, state.time)) for name, old, new in pairs)
    return reasons + [f"{name} is {how}" for name, how in weaker if how is not None]


def divided_anew(before: Policy, policy: Policy) -> list[str]:
    """Return the limits for each listed purpose of which other purposes have an account now: what
    one has used does not count for another.
    """
    changed = ", ".join(sorted(policy.listed ^ before.listed))
    return [
        f"{rule.id} divides between other purposes ({changed})"
        for rule in before.limits
        if rule.per == "purpose" and not rule.purposes and rule.action == "block" and changed
    ]


def weakened(old: Rule | None, new: Rule | None, now: int = 0) -> str | None:
    """Return how a rule holds up less, or may, once ``new`` stands in its place; None if it does
    not. To ask a person is less than to block, and more than to flag. Two names may change it to
    anything, one to what is surely as strict. An allotment takes from some what it gives to others:
    it begins and changes with two names, and ends early, too.
    """
    if isinstance(new, AllotmentRule) and old is None:
        return "added, which takes from all others"
    if isinstance(old, AllotmentRule) and new is None and not old.stands(now):
        return None
    if old is None or old.action not in HOLDING:
        return None
    if _plain_limit(old) and _plain_limit(new):
        return None if _as_strict(old, new) else "raised or changed"
    if new is None:
        return "removed"
    same = new.model_copy(update={"action": old.action}) == old
    return None if same and STRICTNESS[new.action] >= STRICTNESS[old.action] else "changed"


def _plain_limit(rule: Rule | None) -> TypeGuard[LimitRule]:
    return isinstance(rule, LimitRule) and not isinstance(rule, AllotmentRule)


def _forgets(state: State, rule: LimitRule) -> bool:
    if rule.span and not (state.adopted and state.adopted.rule(rule.id)):
        return False  # a window that begins has nothing to forget
    used = (d for d in state.datasets if lifetime(d) in state.accounts)
    forgets = start_of(state.adopted, rule, used=is_used(state, rule)) is Start.EMPTY
    return forgets and any(map(rule.scope.names_it, used))


def will_forget(old: Rule | None, new: Rule) -> bool:
    """Return whether ``new`` refreshes, and ``old``, the rule of its name before, did not in the
    same way: two people agree once to all that it is going to forget.
    """
    if not isinstance(new, RefreshRule):
        return False
    return not (isinstance(old, RefreshRule) and same_scope(old, new))


def not_reset(state: State, opened: Collection[str]) -> list[Body]:
    """Return the limits of the policy in force that say ``carry: none`` though its adoption, which
    ``opened`` the epochs of some rules, did not reset them, with the reason.
    """
    adopted = state.adopted
    return [
        {"rule": rule.id, "reason": _NOT_RESET.format(adopted.epochs[rule.id].number)}
        for rule in (adopted.policy.limits if adopted else ())
        if adopted and rule.carry == "none" and rule.id not in opened
    ]


_NOT_RESET: Final = (
    "nothing was reset: the policy before this one had carry: none here too, and its epoch {} goes "
    "on; to reset again, adopt the policy with carry: used, then with carry: none"
)


def _as_strict(old: LimitRule, new: LimitRule) -> bool:
    before, now = old.promise, new.promise
    return (
        STRICTNESS[new.action] >= STRICTNESS[old.action]
        and (
            old.unlock is None or (new.unlock is not None and new.unlock.no_faster_than(old.unlock))
        )
        and new.no_more_relaxed_than(old)
        and same_scope(old, new)
        and old.lines == new.lines
        and now.epsilon <= before.epsilon
        and now.own_delta <= before.own_delta
        and now.filter_delta <= before.filter_delta
    )
