"""Epochs: a rule's life with one limit, and what a new one starts from.

A filter's promise holds for a limit and an order that were fixed before the first charge it counts.
A changed limit is therefore a new epoch. It may carry on what was used in the old one, on the old
order: one line holds at all times at once, wherever on it a limit is put. What was used before a
rule counted it at all enters as a sure sum of epsilons (privacy/filters).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import Any

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.classes import Space
from accountant.budget.accounts.spans import Window
from accountant.budget.accounts.window import WindowAccount
from accountant.budget.policy import Policy
from accountant.budget.population.population import Dataset
from accountant.budget.rules.limit import LimitRule
from accountant.ledger.events import Event, microseconds
from accountant.privacy.curves import Orders, order_of
from accountant.privacy.filters import FILTERS, Capacity, Filter, Limit, axis_under
from accountant.privacy.units import SURE, Axis, Charge, Currency, orders_in


class Start(Enum):
    """What a new epoch's accounts begin with."""

    KEPT = "the rule is unchanged: its epoch goes on"
    CARRIED = "what the rule has used, on the same order"
    CONVERTED = "what the rule has used, as a sure sum of epsilons: its gate is another"
    BROUGHT = "what the data have used, as a sure sum of epsilons"
    UNUSED = "nothing: its epoch was never charged, so that orders are chosen afresh"
    EMPTY = "nothing: the rule was reset"


@dataclass(frozen=True, slots=True)
class Epoch:
    """A rule's life with one limit, its order included. ``since`` is the stamp it counts from;
    ``carried``: it began with something that had been used before.
    """

    number: int
    since: int
    gate: Filter
    limit: Limit
    capacity: Capacity
    axis: Axis
    """What its accounts keep: the currencies of every gate, to compare them, at orders fixed here.
    """
    window: Window | None = None
    carried: bool = False
    whole: bool = True
    """It counts all that its data have ever been used for: no reset is behind it."""
    begun: int = 0
    """The stamp at which the rule began to count what it does, whatever its limit was: a limit that
    unlocks with time unlocks from then on. Only a fold knows it."""

    def opens(self, space: Space) -> Account:
        """Return an account of this epoch with nothing in it."""
        empty = Account.empty(space, self.axis)
        if self.window is None:
            return empty
        return WindowAccount(empty.axis, empty.used, empty.bound, empty.held, self.window)

    def per_epsilon(self) -> Iterator[tuple[Currency, Fraction | None]]:
        """Yield, for each line of each filter, the units that stand for one unit of epsilon already
        spent; None if nothing can.
        """
        for gate in FILTERS.values() if self.axis != SURE else ():
            for line in gate.lines(self.limit):
                yield line.currency, gate.per_epsilon(line)

    def of_sure(self, used: Charge) -> Charge:
        """Convert sums of epsilons and deltas that hold on every path into all currencies of this
        epoch: what a new epoch would start from.
        """
        units: dict[Currency, int | None] = {c: used.units(c) for c in SURE}
        epsilon = units[Currency.EPSILON]
        for currency, each in self.per_epsilon():
            known = epsilon == 0 or (epsilon is not None and each is not None)
            units[currency] = -(-(epsilon or 0) * (each or 0) // 1) if known else None
        return Charge.over(self.axis, [units[currency] for currency in self.axis]).saturated()


@dataclass(frozen=True)
class Adopted:
    """The policy in force and the epoch of each of its limit rules."""

    policy: Policy
    digest: str
    sequence: int
    epochs: dict[str, Epoch]

    @cached_property
    def orders(self) -> Orders:
        """The Renyi orders that charges are wanted at."""
        return tuple(sorted({*chain(*(orders_in(epoch.axis) for epoch in self.epochs.values()))}))

    @property
    def purposes(self) -> frozenset[str]:
        """The purposes that its rules compare, which stand in clear in events."""
        return self.policy.listed

    @cached_property
    def scoping(self) -> frozenset[str]:
        """The purposes that decide which rules a request is in the scope of, and which accounts it
        counts in.
        """
        if any(rule.per == "purpose" for rule in self.policy.limits):
            return self.purposes
        return frozenset().union(*(scope.purposes for _, scope in self.policy.scopes))

    def named(self, purpose: object) -> str:
        """Return ``purpose`` if the policy lists it; "" for any other, and for none."""
        return purpose if isinstance(purpose, str) and purpose in self.purposes else ""

    @cached_property
    def routes(self) -> dict[tuple[tuple[str, ...], str, str | None, str | None], Any]:
        """Where charges go, by datasets, client, purpose and allotment, as far as it was worked out
        (state.py). A dataset that changes makes it anew.
        """
        return {}

    def guards(self, dataset: Dataset) -> bool:
        """Return True if a limit covers ``dataset``, blocks, and counts all charges on it to the
        population's first unit.
        """
        return any(
            rule.action == "block" and rule.promises and rule.scope.holds(dataset)
            for rule in self.policy.limits
        )

    def rule(self, name: str) -> LimitRule | None:
        """Return the limit rule of that name, if there is one."""
        return next((rule for rule in self.policy.limits if rule.id == name), None)


def adopted_by(event: Event) -> Adopted:
    """Return the policy that ``event`` adopted, with the epochs that it states, to explain
    decisions under it. Only a fold knows whether something was carried.
    """
    command, told = event.body["command"], event.body["epochs"]
    policy = Policy.stored(command["policy"])
    epochs = {}
    for rule in policy.limits:
        one = told[rule.id]
        chosen = None
        if "chosen" in one:
            epsilon, filter_delta = map(Fraction, one["chosen"])
            chosen = epsilon, filter_delta
        since = microseconds(one["since"]) if "since" in one else event.time
        whole, orders = one.get("whole", True), stated_orders(rule, one)
        epochs[rule.id] = epoch_of(rule, chosen, orders, one["number"], since, whole=whole)
    return Adopted(policy, command["source_digest"], event.sequence, epochs)


def stated_orders(rule: LimitRule, told: Mapping[str, Any]) -> Orders:
    """Return the Renyi orders of an epoch in an event, if the rule states them or a workload."""
    stated = told.get("renyi", ()) if rule.orders or rule.workload else ()
    return tuple(map(order_of, map(Fraction, stated)))


def start_of(before: Adopted | None, rule: LimitRule, *, used: bool) -> Start:
    """Return how ``rule`` begins when it is adopted after ``before``; ``used``: something was ever
    booked or reserved in its epoch.
    """
    old = before.rule(rule.id) if before else None
    if old and not same_scope(old, rule):
        old = None
    reset = rule.carry == "none" and not (old and old.carry == "none")
    same = old and (old.limit, old.lines, old.contexts) == (rule.limit, rule.lines, rule.contexts)
    if same and not reset:
        return Start.KEPT
    if old and not used:
        return Start.UNUSED
    if rule.carry == "none":
        return Start.EMPTY
    if old and _same_gate(old, rule):
        return Start.CARRIED
    if old and not rule.span:
        return Start.CONVERTED
    # What came before a window fixed now is no part of what it promises.
    return Start.EMPTY if rule.span else Start.BROUGHT


def next_epoch(
    before: Adopted | None,
    rule: LimitRule,
    start: Start,
    orders: Orders,
    number: int,
    now: int,
) -> Epoch:
    """Return the epoch that ``rule`` is in once adopted. ``orders`` and ``number`` are for a new
    one; without ``orders`` the Renyi orders are chosen for its limit.
    """
    chosen, whole, begun = None, start is not Start.EMPTY, now
    if before and start not in (Start.EMPTY, Start.BROUGHT):
        old = before.epochs[rule.id]
        if start is Start.KEPT:
            return old
        whole, begun = old.whole, old.begun
        if start is Start.CARRIED:
            chosen, orders = old.limit.chosen_for, old.limit.orders
    return epoch_of(rule, chosen, orders, number, now, whole=whole, begun=begun)


def epoch_of(
    rule: LimitRule,
    chosen: tuple[Fraction, Fraction] | None,
    orders: Orders,
    number: int,
    since: int,
    *,
    carried: bool = False,
    whole: bool = True,
    begun: int = 0,
) -> Epoch:
    """Return the epoch of ``rule`` with orders chosen for ``chosen`` (None: for its own limit), or
    with these ``orders``. Capacity and currencies follow from these.
    """
    limit = replace(rule.promise, chosen=chosen, orders=orders)
    capacity, axis = rule.filter.capacity(limit), axis_under(limit)
    window = None if rule.span is None else Window.read(rule.span)
    facts = number, since, rule.filter, limit, capacity, axis, window
    return Epoch(*facts, carried=carried, whole=whole, begun=begun)


def same_scope(old: LimitRule, new: LimitRule) -> bool:
    """Return True if both rules count the same charges in the same accounts."""
    return old.counting == new.counting


def _same_gate(old: LimitRule, new: LimitRule) -> bool:
    """Return True if both rules have one gate that draws the same lines, and both or neither a
    delta': their accounts keep the same currencies.
    """
    kept = old.promise.filter_delta > 0, new.promise.filter_delta > 0
    drawn = old.filter.name, *old.lines[1:]
    return drawn == (new.filter.name, *new.lines[1:]) and kept[0] == kept[1]
