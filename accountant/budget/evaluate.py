"""The only evaluator: compare every rule that applies; the strictest action that fired decides.

Decisions, previews, batches, replay and verification all call it.
"""

from __future__ import annotations

from msgspec import Struct

from accountant.budget.accounts.peak import times
from accountant.budget.request import Request
from accountant.budget.rules import built_in
from accountant.budget.rules.base import HOLDING, STRICTNESS, Compared, Ruling, View
from accountant.budget.rules.comparing import cut
from accountant.budget.state import State
from accountant.privacy.units import Charge


class Judgement(Struct, frozen=True):
    """The comparisons of all rules for one request."""

    compared: list[Compared]
    """In the policy's order; built-in ones first."""
    fired: list[Compared]
    """Those that fired, the reason for the outcome first."""
    view: View
    """What they were compared with; as it was then, until something is folded in."""

    @property
    def outcome(self) -> Ruling:
        """allow, flag, approve or block: the strictest action that fired."""
        return self.fired[0].action if self.fired else "allow"

    @property
    def granted(self) -> bool:
        """Whether the request is granted at once: nothing blocks it, and no person is asked."""
        return not self.fired or self.fired[0].action not in HOLDING

    @property
    def holding(self) -> list[Compared]:
        """The comparisons that keep it from being granted at once."""
        return [one for one in self.fired if one.action in HOLDING]


def order_of(one: Compared) -> tuple[bool, int, bool]:
    """Sort fired rules first, then by strictness, then objections to the request before budgets."""
    return not one.fired, -STRICTNESS[one.action], one.code == "budget-exceeded"


def evaluate(state: State, request: Request) -> Judgement:
    """Compare every rule with ``request``. Changes nothing."""
    adopted, found = state.adopted, list[Compared]()
    view = View(state, request)
    if not (request.sound and view.guarded):  # most requests have no objection
        datasets = map(state.datasets.__getitem__, request.datasets)
        found += built_in.compare(request, adopted, state.ledger, datasets)
    if adopted is not None:
        for rule in adopted.policy.rules:
            if (compared := rule.compare(view)) is not None:
                found.append(compared)
        if len(request.datasets) > 1:  # only then has a limit several accounts
            policy = adopted.policy
            found = cut(found, [rule.id for rule in policy.limits], policy.most_beside)
    fired = [one for one in found if one.fired]
    if len(fired) > 1:
        fired.sort(key=order_of)
    return Judgement(found, fired, view)


def returning(state: State, client: str, back: Charge, now: int) -> list[tuple[Compared, str]]:
    """Compare every rule that judges it with what a client gives ``back`` at stamp ``now``. Return
    those that fired, in the policy's order, with both sides in words. Changes nothing.
    """
    found = []
    for rule in state.adopted.policy.judging_returns if state.adopted else ():
        view = View.of_return(state, client, back, now)
        compared = rule.compare(view)
        if compared is not None and compared.fired:
            found.append((compared, rule.asks(view)))
    return found


def how_many(state: State, request: Request) -> int:
    """Return how many more requests like this one the blocking limits, at least one, admit."""
    view, policy = View(state, request), state.adopted
    return min(
        times(one.whole, one.charge, most)
        for rule in (policy.policy.limits if policy else ())
        if rule.action == "block"
        for one, most in rule.compared_with(view)
    )
