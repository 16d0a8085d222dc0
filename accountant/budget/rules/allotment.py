"""An allotment: a part of a limit that is kept for a team or a release, which draws from it.

A request draws from an allotment if it names it, and if its client and its purpose may; any other
is about the common part. Whoever does not draw from it has the limit less what the allotment keeps:
for each account of the limit and each cell, what was kept and is not drawn yet. To those who draw
it is not there. After its last day it keeps nothing, and what is left belongs to all.

**What it promises.** Nothing about the data: that is the limit's promise, and every charge counts
in the limit, whoever asks. Claim: as long as all charges were granted, nobody else can use up an
allotment. *Proof.* Let C be what a cell has used of the limit without drawing, u_i what was drawn
from allotment i, and a_i its amount. What is used and what is kept are C + sum max(a_i, u_i)
together. A common charge c is granted only if that and c are within the limit; a draw d from i only
if u_i + d <= a_i, which leaves it as it is. So it stays within the limit if it was to begin with;
and then the limit never refuses a draw with u_i + d <= a_i, as C + u_i + d + the sum over the
others is no more. Where more was used before the allotment was adopted, or had run before it was
recorded, the limit may refuse a draw: it is never exceeded for an allotment's sake.

Epsilon and delta add up separately, and both have to fit; so each is kept by itself. Of a limit
with another gate than basic no amount of epsilon can be kept: a charge fits there in one of several
currencies, and a draw that fits in one could be refused in another (ADR 0035).
"""

from __future__ import annotations

from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from msgspec.structs import replace
from pydantic import AfterValidator, Field

from accountant.budget.rules.base import Compared, Finding, Rule, RuleId, Told, View
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.scope import either
from accountant.budget.rules.telling import scope_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from accountant.budget.population.population import Population
    from accountant.budget.rules.scope import Scope

CLOSED: Final = "allotment-closed"
"""The code of a refusal because a request may not draw from the allotment that it names."""
_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAY: Final = 86_400 * 10**6
_PLAIN: Final = frozenset({"id", "action", "limit", "datasets", "owners", "labels", "across"})
"""What a limit may state that has allotments, beside its gate and what it begins with."""


def _a_day(text: str) -> str:
    date.fromisoformat(text)
    return text


Day = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$"), AfterValidator(_a_day)]


class AllotmentRule(LimitRule):
    """Keeps a part of limit ``part_of`` for requests that draw from it, which may use no more."""

    field: ClassVar[str] = "part_of"
    reads: ClassVar[frozenset[str]] = frozenset(
        {"used", "locked", "allotment", "client", "purpose", "now"}
    )

    part_of: RuleId = Field(description="the limit rule that it is a part of")
    until: Day | None = Field(
        None, description="its last day, in UTC; after that what is left belongs to all"
    )
    action: Literal["block"] = "block"

    @cached_property
    def ends(self) -> int | None:
        """The first stamp at which it keeps nothing."""
        if self.until is None:
            return None
        return (date.fromisoformat(self.until).toordinal() + 1 - _EPOCH) * _DAY

    def stands(self, now: int) -> bool:
        """Return whether it keeps anything, and may be drawn from, at stamp ``now``."""
        return self.ends is None or now < self.ends

    @cached_property
    def divides(self) -> bool:
        """It promises nothing about the data."""
        return True

    @property
    def counting(self) -> tuple[object, ...]:
        """What counts in it; who may draw from it may change."""
        return self.part_of, self.scope._replace(clients=(), purposes=()), self.across

    def counts(self, client: str, purpose: object, allotment: str | None) -> bool:
        """Return whether a request draws from it: it names it, and may."""
        return allotment == self.id and self.scope.counts(client, purpose)

    def completed(self, limit: Rule | None) -> AllotmentRule:
        """Return the allotment with what it takes from its limit: the data, and the gate."""
        if not isinstance(limit, LimitRule):
            return self
        stated = self.model_fields_set
        taken = {name: getattr(limit, name) for name in ("owners", "labels", "across")}
        taken = {name: value for name, value in taken.items() if getattr(self, name) is None}
        if "datasets" not in stated:
            taken["datasets"] = limit.datasets
        if self.gate is None:
            taken["gate"] = "basic"
        return AllotmentRule.model_validate({name: getattr(self, name) for name in stated} | taken)

    def check(self, rules: Mapping[str, Rule]) -> None:
        """Raise ValueError unless ``part_of`` is a limit that allotments can be part of, and all of
        its allotments together are no more than it is.
        """
        limit = rules.get(self.part_of)
        if not isinstance(limit, LimitRule) or isinstance(limit, AllotmentRule):
            raise ValueError(
                f"allotment {self.id!r} is part of {self.part_of!r}, which is no limit rule here"
            )
        self._check_limit(limit)
        self._check_own(limit)
        parts = [
            one.promise
            for one in rules.values()
            if isinstance(one, AllotmentRule) and one.part_of == limit.id
        ]
        most = limit.promise
        epsilon, delta = sum(one.epsilon for one in parts), sum(one.own_delta for one in parts)
        if epsilon > most.epsilon or delta > most.own_delta:
            kept = f"epsilon {float(epsilon):.12g} and delta {float(delta):.12g}"
            raise ValueError(
                f"the allotments of limit {limit.id!r} keep {kept} together, and it has epsilon "
                f"{limit.limit.epsilon:f} and delta {float(most.own_delta):.12g}: keep less"
            )

    def _check_limit(self, limit: LimitRule) -> None:
        fields = {"gate", "carry", "orders", "workload"} | _PLAIN
        more = [
            name
            for name, one in type(limit).model_fields.items()
            if name not in fields and getattr(limit, name) not in (None, one.default)
        ]
        if more:
            raise ValueError(
                f"allotment {self.id!r} is part of limit {limit.id!r}, which states "
                f"{', '.join(more)}: an allotment is a part of a limit that all clients share, "
                "over the lifetime"
            )
        if limit.action != "block":
            raise ValueError(f"limit {limit.id!r} only flags: nobody needs a part of it to be kept")
        if limit.filter.name != "basic":
            raise ValueError(
                f"an allotment is an amount of epsilon and delta, and limit {limit.id!r} counts in "
                f"the currency of gate {limit.filter.name}: give it gate: basic, under which "
                "epsilons and deltas add up"
            )

    def _check_own(self, limit: LimitRule) -> None:
        stated = ("per", "subjects", "orders", "workload", "relaxed")
        if more := [name for name in stated if getattr(self, name) is not None]:
            raise ValueError(f"allotment {self.id!r} cannot state {', '.join(more)}")
        if self.filter.name != "basic" or self.carry != "used":
            raise ValueError(f"allotment {self.id!r} has gate basic, and carries what was drawn")
        same = (self.owners, self.labels, self.across)
        if same != (limit.owners, limit.labels, limit.across):
            raise ValueError(
                f"allotment {self.id!r} is about the owners, labels and accounts of its limit: "
                "leave these out"
            )
        if self.across and self.datasets != limit.datasets:
            raise ValueError(
                f"limit {limit.id!r} is a total over datasets, and so is allotment {self.id!r}: "
                "leave out its datasets"
            )

    def compare(self, view: View) -> Compared | None:
        """Compare a request that names the allotment with what is left of it."""
        if view.allotment != self.id:
            return None
        if closed := self._closed(view):
            return Compared(self.id, self.action, fired=True, code=CLOSED, seen={"closed": closed})
        return super().compare(view)

    def _closed(self, view: View) -> str | None:
        """Return why the request may not draw: the name of what does not match; None if it may."""
        scope = self.scope
        if not self.stands(view.now):
            return "until"
        if not scope._replace(purposes=()).counts(view.client, None):
            return "clients"
        if not scope.counts(view.client, view.purpose):
            return "purposes"
        return None if view.used(self.id) else "datasets"

    def words(self, compared: Compared, told: Told) -> Finding:
        """Render why it is closed to the request, or what is left of it."""
        closed = compared.seen.get("closed")
        if closed is None:
            return super().words(compared, told)
        text = _CLOSED[closed].format(client=told.event.by, until=self.until)
        text = f"allotment {self.id} {text}: ask without it for the common part"
        return self.finding(replace(compared, code=CLOSED), text)

    def place_in_words(self, place: tuple[str, str, str], people: Population) -> str:
        """Describe an account of the allotment."""
        return f"allotment {self.id}; {scope_name(*place[:2])}"

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        scope: Scope = self.scope
        amount = f"epsilon {self.limit.epsilon:f}"
        amount += f" and delta {self.limit.delta:f}" if self.limit.delta else ""
        who = f" of client {either(scope.clients)}" if scope.clients else ""
        asked = f" for the purpose {either(scope.purposes)}" if scope.purposes else ""
        until = f", until the end of {self.until} (UTC)" if self.until else ""
        where = f"{scope.data()} together" if self.across else scope.data(each=True)
        return (
            f"Of limit “{self.part_of}”, {amount} on {where} is kept for requests{who}{asked} that "
            f"name the allotment “{self.id}”{until}. It divides the budget, and others have so "
            "much less. A request that names it and may not, or would use more,"
        )


_CLOSED: Final[dict[str, str]] = {
    "until": "ended with {until} (UTC)",
    "clients": "is not kept for client {client}",
    "purposes": "is not kept for this purpose",
    "datasets": "is not of this data",
}
