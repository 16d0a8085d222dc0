"""A limit: at most (epsilon, delta) for every subject group of each matching dataset."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from msgspec.structs import replace
from pydantic import Field, model_validator

from accountant.budget.accounts.spans import Window
from accountant.budget.accounts.unlocking import whole, without
from accountant.budget.errors import Invalid
from accountant.budget.rules.base import (
    Compared,
    Finding,
    Told,
    Used,
    View,
)
from accountant.budget.rules.comparing import Kept, compare_all
from accountant.budget.rules.relaxed import RELAXED, Amounts, largest
from accountant.budget.rules.scope import either
from accountant.budget.rules.telling import quoted, sides_in_words, sides_of, where_of
from accountant.budget.rules.unlock import Unlock
from accountant.privacy.curves import Orders, order_of
from accountant.privacy.filters import DEFAULT_FILTER, Capacity, Filter, Limit, filter_for
from accountant.privacy.inverse import Total, best_order
from accountant.privacy.mechanisms import Amount, Mechanism
from accountant.privacy.units import INFINITE, Currency, show

if TYPE_CHECKING:
    from accountant.budget.accounts.epochs import Epoch

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
_PLAIN: Final = "the plain sum of epsilons"
StatedOrder = Annotated[Amount, Field(gt=1, le=16_384, decimal_places=4)]
NAME_A_DELTA: Final = " (Gaussian noise has an epsilon at a delta: add a delta to the mechanism)"

_NO_DELTA: Final = " (it would have one at a delta, and this limit keeps none for mechanisms)"


class LimitRule(Amounts):
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
      limit is adopted: a reservation bounds what it becomes. Not in a total over a span: what they
      run may be spent later, and what counts as spent at once would pass too early. There they go
      on holding it. A query that read several datasets
      while all were outside is in the account of each, and counts for each that comes in, as it
      does in the lifetimes that an adopted limit begins with.

    A correction of an earlier charge counts in the total wherever its dataset may have been.
    """

    field: ClassVar[str] = "limit"
    code: ClassVar[str] = "budget-exceeded"
    reads: ClassVar[frozenset[str]] = frozenset({"used", "locked", "client", "purpose"})

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
        if self.unlock and self.relaxed:
            raise ValueError(
                "a limit that unlocks gradually has one amount, of which a share is unlocked: "
                "leave out unlock or relaxed"
            )
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
        used, most = self._accounts(view)
        if most is None:
            return None
        capacity, relaxed = used[0].epoch.capacity, None
        if self.relaxed and self.contexts_of(view.client, view.purpose):
            relaxed, most = most, capacity
        fits, kept, others = compare_all(used, most, beside=True)
        if not fits and relaxed is not None:
            capacity = relaxed
            fits, kept, others = compare_all(used, relaxed, beside=True)
            if fits:
                return Compared(self.id, "flag", fired=True, code=RELAXED, seen=kept)
        if not fits:
            kept = kept | {"capacity": [str(most) for _, most in capacity.sides]}
        if others:
            kept["beside"] = others
        return Compared(self.id, self.action, not fits, self.code, kept)

    def compared_with(self, view: View) -> list[tuple[Used, Capacity]]:
        """Return each account that a request counts in, with what is locked as if it were used, and
        the most that a cell may hold.
        """
        used, most = self._accounts(view)
        return [] if most is None else [(one, most) for one in used]

    def _accounts(self, view: View) -> tuple[list[Used], Capacity | None]:
        """Return these accounts, and the most of all; None if there is no account."""
        if not (used := view.used(self.id)):
            return used, None
        epoch = used[0].epoch
        if self.relaxed:
            return used, self.capacity_for(epoch, view.client, view.purpose)
        if not (locks := view.locked(self)):
            return used, epoch.capacity
        pairs = zip(used, locks, strict=True)
        return [one.behind(lock) for one, lock in pairs], whole(epoch.capacity)

    def applies(self, told: Told) -> bool:
        """Return False: without numbers in the event there is no finding."""
        return False

    def words(self, compared: Compared, told: Told) -> Finding:
        """Render both sides of the comparison at the quoted cell, and in the other accounts in
        which the charge does not fit.
        """
        epoch = told.adopted.epochs[self.id]
        relaxed = compared.code == RELAXED
        fired = compared.fired and not relaxed
        numbers, text = self._sides(epoch, compared.seen, fired, told)
        if relaxed:
            compared = replace(compared, action="flag")
            text += f"; it fits only so: the usual limit is {self.limit.epsilon:f}" + (
                f" and delta {self.limit.delta:f}" if self.limit.delta else ""
            )
        text += self._without_bound(epoch, numbers, told)
        if beside := compared.seen.get("beside"):
            others = [self._sides(epoch, seen, fired, told) for seen in beside]
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
        asks = told.event.by, told.command.get("purpose")
        numbers = quoted(self, epoch, self.capacity_for(epoch, *asks), seen, told)
        most, keeps = f"the limit {numbers['limit']['epsilon']}", "the {} that this limit keeps"
        if contexts := self.seen_by(told.event.by).contexts_of(*asks):
            amount = largest([one.to(self.usual) for one in contexts])
            numbers["relaxed"] = [
                {"epsilon": f"{amount.epsilon:f}", "delta": f"{amount.delta:f}", "why": one.why}
                for one in contexts
            ]
            of = "; ".join(f"{one.when.words}: {one.why}" for one in contexts)
            most = f"the limit {amount.epsilon:f} of {of}"
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
            sums = [_PLAIN if one == Currency.EPSILON else one for one in closed]
            return f"; {_CLOSED.format(' and '.join(sums), fits)}"
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
        return gradually + self._contexts() + self._sentence(unit)

    def _contexts(self) -> str:
        """Return what is relaxed for whom, as sentences."""
        return "".join(f"{told}. " for told in self.told_of_contexts())

    def _sentence(self, unit: str) -> str:
        amount = self.most.words
        scope = self.scope
        where = f"{scope.data()} together" if self.across else scope.data(each=True)
        if self.subjects:
            where, unit = f"{where}, of {self.group_in_words}", f"{unit} of these"
        if self.divides:
            asked = f" for the purpose {either(scope.purposes)}" if scope.purposes else ""
            return (
                f"{self.who()} may use at most {amount} on {where}{asked}. This divides the "
                "budget and promises nothing about the data. What would go beyond"
            )
        if self.across:
            return f"Over {where}, {unit} may lose at most {amount}; what would go beyond"
        return (
            f"On {where}, {unit} may lose at most {amount}, in whatever subject group; what would "
            "go beyond"
        )
