"""A threshold: fires when more than a share of a limit is spent or reserved.

The share is of what the limit shows: of its epsilon, beside what its gate says is spent, however
far along its own currency that is; and of the own delta that it keeps.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from accountant.budget.rules.base import Compared, Finding, Rule, RuleId, Told, View
from accountant.budget.rules.comparing import tightest
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.telling import quoted, sides_in_words
from accountant.privacy.filters import Capacity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from accountant.budget.accounts.epochs import Epoch


class ThresholdRule(Rule):
    """Fires when more than a share of a limit rule's epsilon, or of the own delta that it keeps,
    would be spent or reserved.
    """

    field: ClassVar[str] = "of"
    code: ClassVar[str] = "threshold-passed"
    reads: ClassVar[frozenset[str]] = frozenset({"used"})

    of: RuleId
    at: str = Field(pattern=r"^\d{1,2}(\.\d+)?%$", description="a percentage below 100 %")
    action: Literal["flag"] = "flag"

    @cached_property
    def share(self) -> Fraction:
        """``at`` as a fraction."""
        return Fraction(Decimal(self.at[:-1])) / 100

    def check(self, rules: Mapping[str, Rule]) -> None:
        """Raise ValueError unless ``of`` names a limit rule."""
        if not isinstance(rules.get(self.of), LimitRule):
            raise ValueError(f"rule {self.id!r} is of {self.of!r}, which is no limit rule here")

    def capacity(self, epoch: Epoch) -> Capacity:
        """Return the capacity at which the rule fires, worked out once: it takes long fractions."""
        gate, limit = epoch.gate, epoch.limit
        found = limit.shares.get((gate.name, self.at))
        if found is None:
            found = limit.shares[gate.name, self.at] = gate.capacity(limit, self.share)
        return found

    def compare(self, view: View) -> Compared | None:
        """Compare the charge with the share in every selected cell."""
        if not (used := view.used(self.of)):
            return None
        fits, kept = tightest(used, self.capacity(used[0].epoch))
        return Compared(self.id, self.action, not fits, self.code, kept)

    def applies(self, told: Told) -> bool:
        """Return False: without numbers in the event there is no finding."""
        return False

    def words(self, compared: Compared, told: Told) -> Finding:
        """Render the share, and both sides of the comparison at the peak."""
        [of] = [rule for rule in told.adopted.policy.limits if rule.id == self.of]
        epoch = told.adopted.epochs[self.of]
        numbers = quoted(of, epoch, self.capacity(epoch), compared.seen, told)
        most = f"{self.at} of the limit {numbers['limit']['epsilon']} of rule {self.of}"
        keeps = f"{self.at} of what rule {self.of} keeps, {{}},"
        text = sides_in_words(numbers, most, keeps, compared.fired)
        return self.finding(compared, text, **numbers)

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        return (
            f"A request with which more than {self.at} of the epsilon of rule “{self.of}”, or of "
            "the own delta that it keeps for mechanisms, would be spent or reserved"
        )
