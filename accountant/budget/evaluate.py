"""The evaluator, the only one: every rule that applies says what it finds, the strictest decides.

Deciding, previews, batches, replay and verification all come here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from accountant.budget.accounts.epochs import Epoch
from accountant.budget.accounts.peak import Reading, times
from accountant.budget.commands import Sealed
from accountant.budget.request import Request
from accountant.budget.rules import built_in
from accountant.budget.rules.base import STRICTNESS, Compared, Outcome
from accountant.budget.state import State
from accountant.privacy.units import Charge


class Judgement(NamedTuple):
    """What all rules say of a request."""

    compared: list[Compared]
    """In the policy's order; built-in ones first."""
    fired: list[Compared]
    """Those that fired, in the order in which they are told."""

    @property
    def outcome(self) -> Outcome:
        """allow, flag or block: the strictest action that fired."""
        return self.fired[0].action if self.fired else "allow"


def order_of(one: Compared) -> tuple[bool, int, bool]:
    """Fired rules come first, among them the strictest, and what is wrong with the request itself
    before what is used up.
    """
    return not one.fired, -STRICTNESS[one.action], one.code == "budget-exceeded"


class Viewed:
    """A request and the ledger before it, as rules may read them (rules/base.View)."""

    def __init__(self, state: State, request: Request) -> None:
        self._state, self._selection = state, request.selection
        self._limits = state.route(request.dataset, request.by).by_rule
        self._found: dict[str, tuple[Epoch, Reading]] = {}
        self._readings: dict[int, Reading] = {}
        """By account: limits that have used the same hold one."""
        self.dataset: str = request.dataset
        self.client: str = request.by
        self.now: int = request.now
        self.purpose: str | Sealed | None = request.purpose
        self.justification: str | Sealed | None = request.justification
        self.kinds: frozenset[str] = request.costs.kinds
        self.total: Charge = request.total

    def used(self, rule: str) -> tuple[Epoch, Reading] | None:
        """What a limit rule has used on the selected cells, and its epoch."""
        found = self._found.get(rule)
        if found is None and (counted := self._limits.get(rule)) is not None:
            account = self._state.account(counted.key).at(self.now)
            reading = self._readings.get(id(account))
            if reading is None:
                reading = self._readings[id(account)] = Reading(account, self._selection)
            found = self._found[rule] = counted.epoch, reading
        return found

    def memory(self, rule: str) -> Any:
        """What a rule remembers."""
        return self._state.memories.get(rule)


def evaluate(state: State, request: Request) -> Judgement:
    """Every rule's word on ``request``; changes nothing."""
    found = built_in.compare(request, state.adopted, state.ledger)
    if state.adopted is not None:
        view = Viewed(state, request)
        for rule in state.adopted.policy.rules:
            if (compared := rule.compare(view)) is not None:
                found.append(compared)
    fired = [one for one in found if one.fired]
    if len(fired) > 1:
        fired.sort(key=order_of)
    return Judgement(found, fired)


def how_many(state: State, request: Request) -> int:
    """How many more requests like this one the blocking limits, of which there must be one, would
    admit.
    """
    view = Viewed(state, request)
    return min(
        times(reading, request.total.on(reading.account.axis), epoch.capacity)
        for counted in state.limits_on(request.dataset, request.by)
        if counted.rule.action == "block"
        for found in [view.used(counted.rule.id)]
        if found is not None
        for epoch, reading in [found]
    )
