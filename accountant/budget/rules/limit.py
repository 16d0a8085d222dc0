"""A limit: at most (epsilon, delta) for every subject group of each matching dataset."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from accountant.budget.accounts.spans import Window
from accountant.budget.accounts.unlocking import whole, without
from accountant.budget.errors import Invalid
from accountant.budget.rules.base import (
    Compared,
    Finding,
    ScopedByPurpose,
    Strict,
    Told,
    Used,
    View,
)
from accountant.budget.rules.comparing import Kept, compare_all
from accountant.budget.rules.scope import ALL, Patterns, Scope, either, scope_of
from accountant.budget.rules.telling import quoted, scope_name, sides_in_words, sides_of, where_of
from accountant.budget.rules.unlock import Unlock
from accountant.privacy.curves import Orders, order_of
from accountant.privacy.filters import DEFAULT_FILTER, Capacity, Filter, Limit, filter_for
from accountant.privacy.inverse import Total, best_order
from accountant.privacy.mechanisms import Amount, Mechanism
from accountant.privacy.units import INFINITE, Currency, show

if TYPE_CHECKING:
    from accountant.budget.accounts.epochs import Epoch
    from accountant.budget.population.population import Population

SMALLEST_DELTA: Final = Decimal("1e-20")
_OF_AN_ACCOUNT: Final = (
    "scope",
    "dataset",
    "group",
    "decided_by",
    "spent_before",
    "spent_after",
    "comparisons",
)
"""The numbers that differ between the accounts of a rule."""
_UNBOUNDED: Final = "{} has no finite epsilon as stated{}"
_COUNTLESS: Final = "so many invocations cost more than any sum holds"
_CLOSED: Final = "what was booked before has no bound in {}, so {} fits"
StatedOrder = Annotated[Amount, Field(gt=1, le=16_384, decimal_places=4)]
NAME_A_DELTA: Final = " (Gaussian noise has an epsilon at a delta: add a delta to the mechanism)"

_NO_DELTA: Final = " (it would have one at a delta, and this limit keeps none for mechanisms)"


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


class LimitRule(ScopedByPurpose):
    """At most (epsilon, delta) for every subject group of each dataset in scope.

    A limit counts a charge in an account of the dataset, or across datasets in one of them all. It
    counts what its datasets are used for while they are out of its scope, too: a dataset that comes
    in must not begin as if it had never been used.

    * For each dataset: the account of a dataset that the scope names counts every charge on it, in
      scope or not, from the moment that the rule is adopted, and is compared while it is in scope.
      So nothing is forgotten or counted twice when labels change, for no account does. The order of
      the lines was fixed before the first charge, as the filters ask.
    * Across datasets: a charge on data in scope counts in the total, once, and stays there. Any
      other counts *outside*: in an account for each dataset that the scope names, which nothing is
      compared with. When a dataset comes in, all that its outside account holds moves into the
      total, and the outside account begins at nothing. So each charge on one dataset is at each
      moment in exactly one of both. What open grants hold of it counts as spent then, as when a
      limit is adopted: a reservation bounds what it becomes. A query that read several datasets
      while all were outside is in the account of each, and counts for each that comes in, as it
      does in the lifetimes that an adopted limit begins with.

    A correction of an earlier charge counts in the total wherever its dataset may have been.
    """

    field: ClassVar[str] = "limit"
    code: ClassVar[str] = "budget-exceeded"
    reads: ClassVar[frozenset[str]] = frozenset({"used", "locked"})

    limit: LimitSpec
    across: Literal["datasets"] | None = Field(
        None, description="a person's total over all datasets in scope"
    )
    per: Literal["client"] | None = Field(None, description="a sub-limit for each client")
    clients: Patterns | None = Field(
        None,
        description="globs over the names of clients: a sub-limit, which counts their charges only",
    )
    gate: Literal["basic", "advanced", "zcdp", "renyi", "gdp"] | None = None
    orders: Annotated[list[StatedOrder], Field(min_length=1, max_length=4)] | None = Field(
        None, description="Renyi orders; each gets an equal part of the delta"
    )
    workload: Annotated[list[Mechanism], Field(min_length=1, max_length=50)] | None = Field(
        None, description="typical mechanisms, for which the best Renyi order is taken"
    )
    unlock: Unlock | None = Field(
        None, description="the share that may be used grows from nothing: with time, or by request"
    )
    unit: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")] | None = Field(
        None,
        description="the further unit that it protects, in place of the first one",
    )
    carry: Literal["used", "none"] = Field(
        "used", description="what a new epoch starts with; none is a reset and takes two names"
    )

    @model_validator(mode="after")
    def _lines_of_renyi(self) -> LimitRule:
        stated = [name for name in ("orders", "workload") if getattr(self, name) is not None]
        if len(stated) > 1:
            raise ValueError("state orders, or a workload to take the order from, not both")
        if stated and self.filter.name != "renyi":
            raise ValueError(
                f"{stated[0]} is about Renyi orders, and this limit has none: its gate is "
                f"{self.filter.name}" + ("" if self.promise.filter_delta else " without a delta")
            )
        if len(set(self.orders or ())) < len(self.orders or ()):
            raise ValueError("an order is stated twice")
        return self

    @model_validator(mode="after")
    def _unlocks_in_time(self) -> LimitRule:
        if self.unlock and self.unit is not None:
            raise ValueError(
                "a limit for a further unit does not unlock gradually: what is unlocked is counted "
                "by cells of the first unit; leave out unlock or unit"
            )
        window = Window.read(self.span) if self.span and self.unlock else None
        if window and window.calendar and self.unlock and self.unlock.length > window.length:
            raise ValueError(
                f"it would never be unlocked: {self.unlock.over} is longer than the shortest of "
                f"what it counts over, {window.words}, with each of which it is locked again"
            )
        return self

    @property
    def per_request(self) -> bool:
        """Whether requests unlock it."""
        return self.unlock is not None and self.unlock.over is None

    @cached_property
    def scope(self) -> Scope:
        """Which charges it counts."""
        return scope_of(self.datasets, self.owners, self.labels, self.clients, self.purposes)

    @cached_property
    def divides(self) -> bool:
        """Whether it only divides a budget: it counts the charges of one client, of some clients or
        for some purposes, and promises nothing about the data.
        """
        return self.per is not None or self.scope.partial

    @property
    def data(self) -> str:
        """What the rule applies to, as text."""
        return super().data + (f", for one {self.unit}" if self.unit else "")

    @property
    def promises(self) -> bool:
        """Whether it promises something to the first unit of the population: only then a dataset
        that it covers has a limit.
        """
        return not self.divides and self.unit is None

    @property
    def lines(self) -> tuple[object, ...]:
        """What the gate's lines are drawn by, beside the limit."""
        return self.gate, self.orders, self.workload

    @cached_property
    def promise(self) -> Limit:
        """The limit with its delta split: all of it is own delta under basic, else a tenth."""
        delta = Fraction(self.limit.delta)
        if self.limit.own_delta is not None:
            own = Fraction(self.limit.own_delta)
        else:
            own = delta if self.gate == "basic" else delta / 10
        return Limit(Fraction(self.limit.epsilon), delta, own)

    @property
    def counting(self) -> tuple[object, ...]:
        """Which charges it counts, and in which accounts: rules with the same count the same."""
        return self.scope, self.across, self.per, self.span, self.unit

    def counts(self, client: str, purpose: object, allotment: str | None) -> bool:
        """Return whether it counts what ``client`` asks for ``purpose``, whatever ``allotment`` it
        draws from.
        """
        return self.scope.counts(client, purpose)

    def concerns(self, client: str) -> bool:
        """Return whether it counts some request of ``client``."""
        return self.scope.concerns(client)

    def seen_by(self, client: str) -> LimitRule:
        """Return the rule with only those patterns over names of clients that match ``client``."""
        if not self.clients:
            return self
        stated = {name: getattr(self, name) for name in self.model_fields_set}
        return self.model_validate(stated | {"clients": list(self.scope.seen_by(client).clients)})

    def stands(self, now: int) -> bool:
        """Return whether it is in force at stamp ``now``."""
        return True

    def orders_for(self, workload: Total) -> Orders:
        """Return the Renyi orders that the rule states, or the best one for its workload, of which
        ``workload`` gives the total charge; none if it leaves the choice to the filter. Raises
        Invalid for a workload without a bound.
        """
        if self.workload is not None:
            if best := best_order(self.promise, workload):
                return (best,)
            raise Invalid(
                "malformed-policy",
                f"the policy cannot be adopted: the workload of {self.id} has no finite Renyi "
                "divergence at any order, so that no order can be chosen for it; list mechanisms "
                "that have one in this population",
            )
        return tuple(order_of(Fraction(order)) for order in self.orders or ())

    @cached_property
    def filter(self) -> Filter:
        """The gate that admits beside basic."""
        return filter_for(self.gate or DEFAULT_FILTER, self.promise)

    def compare(self, view: View) -> Compared | None:
        """Compare the charge with what is left in every selected cell of every account."""
        if not (pairs := self.compared_with(view)):
            return None
        used, [most, *_] = zip(*pairs, strict=True)
        fits, kept, others = compare_all(used, most, beside=True)
        if not fits:
            capacity = used[0].epoch.capacity
            kept = kept | {"capacity": [str(most) for _, most in capacity.sides]}
        if others:
            kept["beside"] = others
        return Compared(self.id, self.action, not fits, self.code, kept)

    def compared_with(self, view: View) -> list[tuple[Used, Capacity]]:
        """Return each account that a request counts in, with what is locked as if it were used, and
        the most that a cell may hold.
        """
        used, locks = view.used(self.id), view.locked(self)
        if not locks:
            return [(one, one.epoch.capacity) for one in used]
        pairs = zip(used, locks, strict=True)
        return [(one.behind(lock), whole(one.epoch.capacity)) for one, lock in pairs]

    def applies(self, told: Told) -> bool:
        """Return False: without numbers in the event there is no finding."""
        return False

    def words(self, compared: Compared, told: Told) -> Finding:
        """Render both sides of the comparison at the quoted cell, and in the other accounts in
        which the charge does not fit.
        """
        epoch = told.adopted.epochs[self.id]
        numbers, text = self._sides(epoch, compared.seen, compared.fired, told)
        text += self._without_bound(epoch, numbers, told)
        if beside := compared.seen.get("beside"):
            others = [self._sides(epoch, seen, compared.fired, told) for seen in beside]
            text += "".join(f"; {sides}" for _, sides in others)
            numbers["beside"] = [{name: one[name] for name in _OF_AN_ACCOUNT} for one, _ in others]
        if more := compared.seen.get("more"):
            text += f"; nor does it fit in {more} {'more' if beside else 'other'} account" + (
                "s" if more > 1 else ""
            )
            numbers["more"] = more
        return self.finding(compared, text, **numbers)

    def _sides(
        self, epoch: Epoch, seen: Kept, fired: bool, told: Told
    ) -> tuple[dict[str, Any], str]:
        """Return the numbers of one account, and both sides of its comparison in words."""
        if "locked" in seen and self.unlock is not None:
            return self._still_locked(epoch, self.unlock, seen, told)
        numbers = quoted(self, epoch, epoch.capacity, seen, told)
        most, keeps = f"the limit {numbers['limit']['epsilon']}", "the {} that this limit keeps"
        return numbers, sides_in_words(numbers, most, keeps, fired)

    def _still_locked(
        self, epoch: Epoch, unlock: Unlock, seen: Kept, told: Told
    ) -> tuple[dict[str, Any], str]:
        """Return the same where a part of the limit is locked at the quoted cell."""
        part = without(epoch.capacity, list(map(int, seen["locked"])))
        numbers = quoted(self, epoch, part, seen, told)
        most, before = numbers["limit"]["epsilon"], numbers["spent_before"]
        so_far = show(max(part.epsilon, 0), Currency.EPSILON)
        numbers["unlocked"] = so_far
        epsilon, own, *along = numbers["comparisons"]
        within = [one for one in (epsilon, *along) if one["holds"]]
        shown = (within or [epsilon, *along])[:1] + ([] if own["holds"] else [own])
        sides = " and ".join(
            f"{sides_of(one['currency'], one)} is {'within' if one['holds'] else 'more than'} "
            f"{one['capacity']}"
            for one in shown
        )
        left = "nothing" if before == INFINITE else f"{max(Decimal(most) - Decimal(before), 0):f}"
        return numbers, (
            f"epsilon {so_far} of {most} is unlocked here so far, {unlock.words}: {sides} "
            f"({numbers['scope']}{where_of(numbers)}); of the whole limit {left} is left"
        )

    def _without_bound(self, epoch: Epoch, numbers: dict[str, Any], told: Told) -> str:
        """Return why a charge that has no bound in any currency that counts has none, and what
        would have one; empty for any other.
        """
        compared = [one for one in numbers["comparisons"] if one["currency"] != Currency.DELTA]
        if numbers["spent_after"] != INFINITE:
            return ""
        if closed := [one["currency"] for one in compared if one["used"] == INFINITE]:
            still = [one["currency"] for one in compared if one["used"] != INFINITE]
            fits = f"only what is finite in {' or '.join(still)}" if still else "nothing"
            return f"; {_CLOSED.format(' and '.join(closed), fits)}"
        currencies = {one["currency"] for one in compared}
        kinds = [kind for kind, closed in told.unbounded.items() if currencies <= closed]
        if not kinds:
            return f"; {_COUNTLESS}"
        others = ", nor ".join(map(str, epoch.capacity.currencies))
        others = f", nor {others}" if others else f", and gate {self.filter.name} counts no more"
        text = _UNBOUNDED.format(", ".join(kinds), others)
        hint = NAME_A_DELTA if epoch.capacity.own_delta else _NO_DELTA
        return f"; {text}{hint if 'gaussian' in ' '.join(kinds) else ''}"

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        gradually = f"Unlocked gradually, {self.unlock.words}. " if self.unlock else ""
        return gradually + self._sentence(unit)

    def _sentence(self, unit: str) -> str:
        amount = f"epsilon {self.limit.epsilon:f}"
        amount += f" (delta {self.limit.delta:f})" if self.limit.delta else ""
        scope = self.scope
        where = f"{scope.data()} together" if self.across else scope.data(each=True)
        if self.divides:
            asked = f" for the purpose {either(scope.purposes)}" if scope.purposes else ""
            return (
                f"{self._who()} may use at most {amount} on {where}{asked}. This divides the "
                "budget and promises nothing about the data. What would go beyond"
            )
        if self.across:
            return f"Over {where}, {unit} may lose at most {amount}; what would go beyond"
        return (
            f"On {where}, {unit} may lose at most {amount}, in whatever subject group; what would "
            "go beyond"
        )

    def _who(self) -> str:
        """Return whose charges a sub-limit counts, as the subject of a sentence."""
        named = f" {either(self.scope.clients)}" if self.scope.clients else ""
        if self.per:
            return f"Each client{named}"
        return f"Client{named}, all that match together," if named else "All clients together"

    @property
    def span(self) -> str | None:
        """The window that it counts over; None: the lifetime."""
        return None

    def place(self, dataset: str, client: str) -> tuple[str, str]:
        """Return dataset (or ``ALL``) and client (or "") of the account that a charge on data in
        scope goes to.
        """
        return ALL if self.across else dataset, client if self.per else ""

    def place_in_words(self, dataset: str, client: str, people: Population) -> str:
        """Describe an account of the rule, and what of it the rule is about: of which unit, if the
        population has several.
        """
        narrowed = self.scope.narrowed
        found = scope_name(dataset, client) + (f"; of {narrowed}" if narrowed else "")
        return found + (f"; for {people.called(self.unit)}" if people.units else "")
