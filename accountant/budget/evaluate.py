"""The only evaluator: compare every rule that applies; the strictest action that fired decides.

Decisions, previews, batches, replay and verification all call it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from accountant.budget.accounts.epochs import Epoch
from accountant.budget.accounts.peak import Reading, times
from accountant.budget.commands import Sealed
from accountant.budget.request import Request
from accountant.budget.rules import built_in
from accountant.budget.rules.base import STRICTNESS, Compared, Ruling
from accountant.budget.state import State
from accountant.privacy.units import Charge


class Judgement(NamedTuple):
    """The comparisons of all rules for one request."""

    compared: list[Compared]
    """In the policy's order; built-in ones first."""
    fired: list[Compared]
    """Those that fired, the reason for the outcome first."""

    @property
    def outcome(self) -> Ruling:
        """allow, flag or block: the strictest action that fired."""
        return self.fired[0].action if self.fired else "allow"


def order_of(one: Compared) -> tuple[bool, int, bool]:
    """Sort fired rules first, then by strictness, then objections to the request before budgets."""
    return not one.fired, -STRICTNESS[one.action], one.code == "budget-exceeded"


class Viewed:
    """What rules may read of a request and of the ledger before it (rules/base.View)."""

    def __init__(self, state: State, request: Request) -> None:
        self._state, self._selection = state, request.selection
        self._limits = state.route(request.dataset, request.by).by_rule
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
        """Return the epoch of a limit rule, and what it has used on the selected cells."""
        if (counted := self._limits.get(rule)) is None:
            return None
        state, key = self._state, counted.key
        account = (state.accounts.get(key) or state.account(key)).at(self.now)
        reading = self._readings.get(id(account))
        if reading is None:
            reading = self._readings[id(account)] = Reading(account, self._selection)
        return counted.epoch, reading

    def memory(self, rule: str) -> Any:
        """Return the memory of a rule."""
        return self._state.memories.get(rule)


def evaluate(state: State, request: Request) -> Judgement:
    """Compare every rule with ``request``. Changes nothing."""
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
    """Return how many more requests like this one the blocking limits, at least one, admit."""
    view = Viewed(state, request)
    return min(
        times(reading, request.total.on(reading.account.axis), epoch.capacity)
        for counted in state.limits_on(request.dataset, request.by)
        if counted.rule.action == "block"
        for found in [view.used(counted.rule.id)]
        if found is not None
        for epoch, reading in [found]
    )
