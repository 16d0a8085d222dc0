"""Larger amounts of a limit for requests in a context: for some purposes, or of some clients.

After the context rules of DPolicy (Küchler, Viand, Lycklama, Hithnawi, IEEE S&P 2025): in an
emergency, say, more of the same budget may be used. A request in a context is compared with the
larger amount, on the same sums; all others with the usual one. So what is granted in a context
leaves less to the others, or nothing.

**What it promises.** The largest epsilon and the largest delta that it states anywhere. *Proof.*
Let (e, d) be the largest of each; d' is the part of the usual delta that the gate has, and what a
context adds to delta is added to the part for own deltas. Take the limit (e, d) with this d', on
the orders that the usual limit has chosen. Its lines are those of the usual one: they depend on the
orders and on d' only. In each currency that is compared its capacity is at least that of any amount
stated here, as lines rise. So whatever is admitted here would be admitted there, on the same sums.
And that limit keeps its promise on these lines, wherever it is put on them, as a limit does that
was raised and carries on (privacy/filters): under gdp as well, whose capacity is paid for once, at
the usual amount, and which goes along its line beyond.

**Never silently.** A request that fits only by its context is flagged (``limit-relaxed``), its
event names the rule, and its decision the context and why. To add a context to a limit takes two
people.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, Self

from pydantic import Field, model_validator

from accountant.budget.rules.base import Strict
from accountant.budget.rules.quotas import Quota
from accountant.budget.rules.scope import Patterns, Purposes, Scope, either
from accountant.privacy.mechanisms import Amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accountant.budget.accounts.epochs import Epoch
    from accountant.privacy.filters import Capacity

RELAXED: Final = "limit-relaxed"
"""The code of a request that fits only because of its context."""
MOST_CONTEXTS: Final = 20


SMALLEST_DELTA: Final = Decimal("1e-20")


class LimitSpec(Strict):
    """(epsilon, delta); ``own_delta`` is the part kept for mechanisms' own deltas."""

    epsilon: Annotated[Amount, Field(ge=Decimal("1e-9"), le=10**6)]
    delta: Annotated[Amount, Field(ge=0, lt=1)] = Decimal(0)
    own_delta: Annotated[Amount, Field(ge=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _own_within_delta(self) -> LimitSpec:
        if self.own_delta is not None and self.own_delta > self.delta:
            raise ValueError(f"own_delta {self.own_delta} is more than delta {self.delta}")
        if 0 < self.delta < SMALLEST_DELTA:
            raise ValueError(f"delta {self.delta} is neither 0 nor at least {SMALLEST_DELTA}")
        return self


class Context(Strict):
    """Requests for some purposes, of some clients, or both."""

    purposes: Purposes | None = Field(None, description="it is for one of these")
    clients: Patterns | None = Field(None, description="globs over the names of clients")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.purposes is None and self.clients is None:
            raise ValueError("say for which purposes, or for which clients: others are to wait")
        return self

    @property
    def scope(self) -> Scope:
        """Which requests are in it."""
        return Scope(clients=tuple(self.clients or ()), purposes=tuple(self.purposes or ()))

    def seen_by(self, client: str) -> Context | None:
        """Return the context as ``client`` may see it: with no names of clients but its own. None
        if it never is in it.
        """
        if not self.clients:
            return self
        mine = [one for one in self.clients if Scope(clients=(one,)).concerns(client)]
        return self.model_copy(update={"clients": mine}) if mine else None

    @property
    def words(self) -> str:
        """The requests in it."""
        asked = f" for the purpose {either(self.purposes)}" if self.purposes else ""
        by = f" of client {either(self.clients)}" if self.clients else ""
        return f"requests{asked}{by}"


class Larger(NamedTuple):
    """A larger amount. Without an epsilon, or a delta, the usual one."""

    epsilon: Decimal
    delta: Decimal

    @property
    def words(self) -> str:
        """The amount in words."""
        return f"epsilon {self.epsilon:f}" + (f" (delta {self.delta:f})" if self.delta else "")

    def capacity(self, usual: Decimal, epoch: Epoch) -> Capacity:
        """Return the most that a cell may hold by this amount on the lines of ``epoch``, of a limit
        whose ``usual`` delta it raises.
        """
        limit, more = epoch.limit, Fraction(self.delta - usual)
        known = epoch.gate.name, f"{self.epsilon} and {self.delta}"
        if (found := limit.shares.get(known)) is None:
            raised = replace(
                limit,
                epsilon=Fraction(self.epsilon),
                delta=limit.delta + more,
                own_delta=limit.own_delta + more,
                chosen=limit.chosen_for,
            )
            found = limit.shares[known] = epoch.gate.capacity(raised)
        return found


class Relaxed(Strict):
    """A context, and how much of a limit requests in it may bring it to."""

    when: Annotated[Context, Field(description="the requests that are in it")]
    epsilon: Annotated[Amount, Field(gt=0, le=10**6)] | None = Field(
        None, description="what they may bring the limit to; left out: as usual"
    )
    delta: Annotated[Amount, Field(gt=0, lt=1)] | None = Field(
        None, description="what they may bring its delta to; left out: as usual"
    )
    why: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="the reason, which decisions name"
    )

    @property
    def stated(self) -> tuple[Context, Decimal | None, Decimal | None]:
        """What it states, beside why."""
        return self.when, self.epsilon, self.delta

    def to(self, usual: Larger) -> Larger:
        """Return the amount that requests in it may bring a limit to."""
        epsilon = usual.epsilon if self.epsilon is None else self.epsilon
        return Larger(epsilon, usual.delta if self.delta is None else self.delta)

    def no_more_than(self, others: Sequence[Relaxed], before: Larger, usual: Larger) -> bool:
        """Return whether ``others`` have the same context with no smaller amount; ``before`` is the
        usual amount of their limit, ``usual`` that of this one's.
        """
        mine, theirs = self.to(usual), (one.to(before) for one in others if one.when == self.when)
        return any(mine.epsilon <= one.epsilon and mine.delta <= one.delta for one in theirs)


def largest(amounts: Sequence[Larger]) -> Larger:
    """Return the largest epsilon and the largest delta."""
    return Larger(max(one.epsilon for one in amounts), max(one.delta for one in amounts))


class Amounts(Quota):
    """Base of the kinds that count charges: how much may be used, in which context."""

    limit: LimitSpec
    relaxed: Annotated[list[Relaxed], Field(min_length=1, max_length=MOST_CONTEXTS)] | None = Field(
        None, description="larger amounts for requests in a context, which are flagged"
    )

    @model_validator(mode="after")
    def _relaxed_is_more(self) -> Self:
        usual = self.usual
        for one in self.relaxed or ():
            more = one.to(usual)
            if more == usual or more.epsilon < usual.epsilon or more.delta < usual.delta:
                raise ValueError(
                    f"relaxed for {one.when.words} it is epsilon {more.epsilon:f} and delta "
                    f"{more.delta:f}: an amount has to be larger than the usual one, epsilon "
                    f"{usual.epsilon:f} and delta {usual.delta:f}"
                )
        return self

    @property
    def in_clear(self) -> frozenset[str]:
        """The purposes that it compares."""
        contexts = (one.when.purposes or () for one in self.relaxed or ())
        return super().in_clear.union(*contexts)

    @property
    def usual(self) -> Larger:
        """The amount for requests in no context."""
        return Larger(self.limit.epsilon, self.limit.delta)

    @property
    def most(self) -> Larger:
        """The largest epsilon and delta of any request, which it promises."""
        return largest([self.usual, *(one.to(self.usual) for one in self.relaxed or ())])

    def seen_by(self, client: str) -> Self:
        """Return the rule as ``client`` may see it, without names of others."""
        found = super().seen_by(client)
        if not any(one.when.clients for one in self.relaxed or ()):
            return found
        pairs = [(one, one.when.seen_by(client)) for one in self.relaxed or ()]
        mine = [one.model_copy(update={"when": when}) for one, when in pairs if when is not None]
        return found.model_copy(update={"relaxed": mine or None})

    @property
    def contexts(self) -> tuple[object, ...]:
        """What its contexts state, beside why."""
        return tuple(one.stated for one in self.relaxed or ())

    def contexts_of(self, client: str, purpose: object) -> list[Relaxed]:
        """Return the contexts that a request is in."""
        return [one for one in self.relaxed or () if one.when.scope.counts(client, purpose)]

    def capacity_for(self, epoch: Epoch, client: str, purpose: object) -> Capacity:
        """Return the most that a cell may hold with a request of ``client`` for ``purpose``."""
        if not (contexts := self.contexts_of(client, purpose)):
            return epoch.capacity
        return largest([one.to(self.usual) for one in contexts]).capacity(self.limit.delta, epoch)

    def largest_in(self, epoch: Epoch) -> Capacity:
        """Return the most that a cell may hold, whatever is asked for: more breaks the promise."""
        return self.most.capacity(self.limit.delta, epoch) if self.relaxed else epoch.capacity

    def no_more_relaxed_than(self, old: Amounts) -> bool:
        """Return whether requests in a context may bring it to no more than they may bring ``old``
        to, in the same context.
        """
        ways = self.relaxed or (), old.relaxed or (), old.usual, self.usual
        mine, theirs, before, usual = ways
        return all(one.no_more_than(theirs, before, usual) for one in mine)

    def told_of_contexts(self) -> list[str]:
        """Return for each context what is relaxed for whom, and what that leaves others."""
        until = "the budget comes back" if self.span else "the limit is raised"
        return [
            f"{one.when.words[0].upper()}{one.when.words[1:]} may bring it to "
            f"{one.to(self.usual).words} instead of {self.usual.words} ({one.why}); then all "
            f"others are refused until {until}"
            for one in self.relaxed or ()
        ]
