"""What is taken on one client's word: how much it may give back in all unconfirmed.

A client that gives budget back attests that something was never executed on the data, and nothing
in the ledger can verify that. The rule judges what is given back, not requests. It bounds how much
depends on one client's word alone; it promises nothing about the data.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from accountant.budget.rules.base import Compared, Rule, Strict, Told, View
from accountant.privacy.mechanisms import Amount
from accountant.privacy.units import LARGEST, Charge, Currency, amount, show, units_down

if TYPE_CHECKING:
    from accountant.ledger.events import Event


class Word(Strict):
    """The most epsilon that is taken on one client's word in all."""

    epsilon: Annotated[Amount, Field(ge=0, le=10**6)]


class TrustedRule(Rule):
    """Fires when a client would have given back more than ``trusted`` in all, unconfirmed."""

    field: ClassVar[str] = "trusted"
    code: ClassVar[str] = "approval-needed"
    reads: ClassVar[frozenset[str]] = frozenset({"back", "client", "memory"})
    remembers: ClassVar[bool] = True

    trusted: Word = Field(description="the most that is taken on one client's word in all")
    action: Literal["block", "flag"] = Field(
        "block", description="block: a second person confirms what is given back"
    )

    @cached_property
    def most(self) -> int:
        """``trusted`` in units."""
        return units_down(Fraction(self.trusted.epsilon), Currency.EPSILON)

    def compare(self, view: View) -> Compared | None:
        """Compare what is given back, with what the client gave back before. A charge without a
        finite epsilon is more than any.
        """
        if view.back is None:
            return None
        units, before = view.back.units(Currency.EPSILON), self._before(view)
        return self.compared(units is None or before is None or before + units > self.most)

    def applies(self, told: Told) -> bool:
        """Return False: it says nothing of requests."""
        return False

    def asks(self, view: View) -> str:
        """Return both sides of the comparison in words."""
        back = "nothing" if view.back is None else view.back.amount(Currency.EPSILON)
        before = amount(self._before(view), Currency.EPSILON)
        most, client = show(self.most, Currency.EPSILON), view.client
        return (
            f"rule {self.id} takes epsilon {most} on one client's word; {client} has given back "
            f"{before} on its word and would give back {back} more"
        )

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        return (
            f"To give back more than epsilon {self.trusted.epsilon:f} in all on one client's word, "
            "without a second person who confirms it,"
        )

    def remember_back(self, memory: Any, event: Event, back: Charge) -> Any:
        """Add what the client gave back, and no second person confirmed."""
        if "confirms" in event.body["command"]:
            return memory
        units, before = back.units(Currency.EPSILON), (memory or {}).get(event.by, 0)
        known = units is not None and before is not None and before + units <= LARGEST
        return {**(memory or {}), event.by: before + units if known else None}

    def begins(self, memory: Any, before: Rule) -> Any:
        """Count on under another amount: what was given back stays given back."""
        return memory if isinstance(before, TrustedRule) else None

    def _before(self, view: View) -> int | None:
        found: int | None = (view.memory(self.id) or {}).get(view.client, 0)
        return found
