"""How much of a limit those that divide it can use up: the bound on depletion.

A limit that all clients share is used up by whoever asks first, unless others divide it. What a
dividing limit (of each client, of some clients or purposes) admits on a cell is at most its own
amount there. So what it counts can use up at most min(1, q / E) of the whole, q and E being the
epsilons; n clients, each with an account of its own, at most min(1, n q / E) together. What draws
from no allotment can use up at most (E - sum of the allotments) / E while these stand. It holds for
each cell and each account of the whole by itself, of what is granted while the policy is in force.

Both have to add up epsilons (gate basic): what fits a smaller limit under another gate may be any
part of a larger one, which counts in another currency or on another line. What no dividing limit
counts can use up all. Information for those who write policies: no decision depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from accountant.budget.policy import Policy
from accountant.budget.rules.allotment import AllotmentRule
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.scope import EVERYTHING

_SPECIAL: Final = frozenset("*?[")
_COMMON: Final = "the common part"


class Bound(NamedTuple):
    """What requests that ``rule`` counts can use up of the limit ``of``, as shares."""

    rule: str
    of: str
    each: Fraction
    """Of one of its accounts: of each client, or of all that it counts together."""
    clients: int | None
    """How many accounts it has: one, or of so many named clients; None: of any number."""

    @property
    def together(self) -> Fraction:
        """What all that it counts can use up together."""
        return Fraction(1) if self.clients is None else min(Fraction(1), self.clients * self.each)

    @property
    def needed(self) -> int:
        """How many of its accounts it takes to use up all."""
        return -(-1 // self.each)

    def in_words(self) -> str:
        """Return the bound as a sentence."""
        each, together = _percent(self.each), _percent(self.together)
        on = f"of limit {self.of} on each cell"
        if self.clients == 1:
            return f"{self.rule}: can use up at most {each} % {on}"
        who = f"{self.rule}: each client can use up at most {each} % {on}"
        if self.clients is None:
            return f"{who}; {self.needed} of them can use up all of it"
        return f"{who}, and the {self.clients} that it names {together} % together"


def _percent(share: Fraction) -> str:
    """Return a share in per cent, rounded up to two decimals."""
    return f"{Decimal(-(-share * 10_000 // 1)).scaleb(-2).normalize():f}"


def bounds(policy: Policy) -> Iterator[Bound]:
    """Yield the bound of each dividing limit that blocks on each limit that it divides, in order.
    Not of windows, which come back, nor where one of both has another gate than basic.
    """
    basic = [
        rule
        for rule in policy.limits
        if rule.action == "block" and rule.filter.name == "basic" and rule.span is None
    ]
    wholes = [rule for rule in basic if not rule.divides]
    for part in (rule for rule in basic if rule.divides):
        for whole in wholes:
            if _divides(part, whole):
                share = min(Fraction(1), part.promise.epsilon / whole.promise.epsilon)
                yield Bound(part.id, whole.id, share, _accounts(part))
    for whole in wholes:
        if kept := [one.promise.epsilon for one in policy.allotments.get(whole.id, ())]:
            yield Bound(_COMMON, whole.id, 1 - sum(kept) / whole.promise.epsilon, 1)


def _divides(part: LimitRule, whole: LimitRule) -> bool:
    """Return whether all that ``whole`` counts in one account, of what ``part`` counts, is in one
    account of ``part``, too.
    """
    if isinstance(part, AllotmentRule):
        return part.part_of == whole.id
    mine, other = (one.scope._replace(clients=(), purposes=()) for one in (part, whole))
    everything = mine.names == (EVERYTHING,) and not mine.moves
    return part.across in (whole.across, "datasets") and (mine == other or everything)


def _accounts(part: LimitRule) -> int | None:
    if part.per is None:
        return 1
    names = part.scope.clients
    return None if not names or any(_SPECIAL & {*name} for name in names) else len(names)
