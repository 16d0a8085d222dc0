"""How much of a limit those that divide it can use up: the bound on depletion.

A limit that all clients share is used up by whoever asks first, unless others divide it. What a
quota (a limit of each client, of each purpose, of some clients or purposes, or about some cells)
admits on a cell is at most its own amount there: the largest, if it has several. So what it counts
in one account can use up at most min(1, q / E) of the whole, q and E being the epsilons; n accounts
at most min(1, n q / E) together, and all quotas at most the sum of theirs, for each charge that one
of them counts is in that one's part. What draws from no allotment can use up at most
(E - sum of the allotments) / E while these stand. Whatever they do, the rest stays for those that
none of them counts. It holds for each cell and each account of the whole by itself, of what is
granted while the policy is in force.

Both have to add up epsilons (gate basic): what fits a smaller limit under another gate may be any
part of a larger one, which counts in another currency or on another line. What no quota counts can
use up all. Information for those who write policies: no decision depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

from accountant.budget.policy import Policy
from accountant.budget.rules.allotment import AllotmentRule
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.scope import EVERYTHING

_SPECIAL: Final = frozenset("*?[")
_COMMON: Final = "the common part"
_TOGETHER: Final = "all quotas together"


class Bound(NamedTuple):
    """What requests that ``rule`` counts can use up of the limit ``of``, as shares."""

    rule: str
    of: str
    each: Fraction
    """Of one of its accounts: of each client or purpose, or of all that it counts together."""
    accounts: int | None
    """How many accounts it has; None: of any number of clients."""
    per: str | None = None
    """Whose each account is: a client's or a purpose's."""
    all: bool = False
    """It counts all charges: what it leaves of the limit is never used."""
    group: str = ""
    """The cells that it is about, in words; empty: all."""

    @property
    def together(self) -> Fraction:
        """What all that it counts can use up together."""
        return Fraction(1) if self.accounts is None else min(Fraction(1), self.accounts * self.each)

    @property
    def needed(self) -> int:
        """How many of its accounts it takes to use up all."""
        return -(-1 // self.each)

    def in_words(self) -> str:
        """Return the bound as a sentence."""
        on = f"of limit {self.of} on each cell" + (f" of {self.group}" if self.group else "")
        who = f"each {self.per} " if self.per else ""
        if self.group and not self.per:
            who = "whoever asks " if self.all else "whoever it counts "
        found = f"{self.rule}: {who}can use up at most {_percent(self.each)} % {on}"
        if self.accounts is None:
            if self.each < 1:
                found += f", so that {_left(self.each)} % stays for others"
            return f"{found}; {self.needed} of them can use up all of it"
        if self.per:
            found += f", and the {self.accounts} of them {_percent(self.together)} % together"
        if self.together == 1:
            return found
        left = _left(self.together)
        return (
            f"{found}: {left} % is never used"
            if self.all
            else f"{found}: {left} % stays for others"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the bound for a program, shares as exact fractions, and its sentence."""
        shares = {"each": self.each, "together": self.together, "left": 1 - self.together}
        return {
            "rule": self.rule,
            "of": self.of,
            "accounts": self.accounts,
            **{name: str(share) for name, share in shares.items()},
            "text": self.in_words(),
        }


def _percent(share: Fraction) -> str:
    """Return a share in per cent, rounded up to two decimals."""
    return f"{Decimal(-(-share * 10_000 // 1)).scaleb(-2).normalize():f}"


def _left(share: Fraction) -> str:
    """Return what is left beside a share in per cent, rounded down to two decimals."""
    return f"{Decimal((1 - share) * 10_000 // 1).scaleb(-2).normalize():f}"


def bounds(policy: Policy) -> Iterator[Bound]:
    """Yield the bound of each quota that blocks on each limit that it divides, in order; of those
    that divide one together; and of the common part beside allotments. Not of windows, which come
    back, nor where one of both has another gate than basic.
    """
    basic = [
        rule
        for rule in policy.limits
        if rule.action == "block" and rule.filter.name == "basic" and rule.span is None
    ]
    wholes = [rule for rule in basic if not rule.divides]
    found = [
        _bound(policy, part, whole)
        for part in basic
        for whole in wholes
        if (part.divides or part.subjects) and part is not whole and _divides(part, whole)
    ]
    yield from found
    for whole in wholes:
        parts = [one for one in found if one.of == whole.id and not one.group]
        if len(parts) > 1:
            share = min(Fraction(1), sum((one.together for one in parts), Fraction()))
            yield Bound(_TOGETHER, whole.id, share, 1)
        if kept := [one.promise.epsilon for one in policy.allotments.get(whole.id, ())]:
            yield Bound(_COMMON, whole.id, 1 - sum(kept) / whole.promise.epsilon, 1)


def told_of(policy: Policy) -> dict[str, Any]:
    """Return what a program is told of a policy: its bounds, and its contexts in words, if any."""
    found = {
        "depletion": [one.to_json() for one in bounds(policy)],
        "relaxed": list(relaxed_in_words(policy)),
    }
    return {name: told for name, told in found.items() if told}


def relaxed_in_words(policy: Policy) -> tuple[str, ...]:
    """Return for each context of each limit who may bring it to what, and what that leaves."""
    return tuple(f"{rule.id}: {told}" for rule in policy.limits for told in rule.told_of_contexts())


def _bound(policy: Policy, part: LimitRule, whole: LimitRule) -> Bound:
    share = min(Fraction(1), Fraction(part.most.epsilon) / whole.promise.epsilon)
    counts_all = not part.scope.partial and part.per != "client"
    per: str | None = part.per
    if per == "purpose":
        per = (
            "listed purpose"
            if part.purposes
            else "listed purpose, like all other requests together,"
        )
    accounts, group = _accounts(policy, part), part.group_in_words
    return Bound(part.id, whole.id, share, accounts, per, counts_all, group)


def _divides(part: LimitRule, whole: LimitRule) -> bool:
    """Return whether all that ``whole`` counts in one account and cell, of what ``part`` counts, is
    in one account of ``part``, too.
    """
    if isinstance(part, AllotmentRule):
        return part.part_of == whole.id
    if part.unit != whole.unit or (whole.subjects and part.subjects not in (None, whole.subjects)):
        return False
    mine, other = (one.scope._replace(clients=(), purposes=()) for one in (part, whole))
    everything = mine.names == (EVERYTHING,) and not mine.moves
    return part.across in (whole.across, "datasets") and (mine == other or everything)


def _accounts(policy: Policy, part: LimitRule) -> int | None:
    """Return how many accounts a quota has on what one account of a limit counts."""
    if part.per is None:
        return 1
    if part.per == "purpose":
        return len(set(part.purposes)) if part.purposes else len(policy.listed) + 1
    names = part.scope.clients
    return None if not names or any(_SPECIAL & {*name} for name in names) else len(names)
