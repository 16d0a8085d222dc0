"""A cap per request: fires when one request costs more than the cap, whatever a limit has left."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from accountant.budget.rules.base import Compared, Finding, ScopedByPurpose, Strict, Told, View
from accountant.budget.rules.limit import NAME_A_DELTA
from accountant.privacy.mechanisms import Amount
from accountant.privacy.units import Charge, Currency, units_down


class Cap(Strict):
    """The most that one request may cost: a sum of epsilons, a sum of deltas, or both."""

    epsilon: Annotated[Amount, Field(gt=0, le=10**6)] | None = None
    delta: Annotated[Amount, Field(ge=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _something(self) -> Cap:
        if self.epsilon is None and self.delta is None:
            raise ValueError("say epsilon, delta, or both")
        return self

    @cached_property
    def stated(self) -> dict[Currency, Decimal]:
        """The most in each currency that has a cap."""
        most = {Currency.EPSILON: self.epsilon, Currency.DELTA: self.delta}
        return {currency: cap for currency, cap in most.items() if cap is not None}


class AtMostRule(ScopedByPurpose):
    """Fires when a request as a whole costs more than ``at_most``."""

    field: ClassVar[str] = "at_most"
    code: ClassVar[str] = "request-too-costly"
    reads: ClassVar[frozenset[str]] = frozenset({"covers", "total"})

    at_most: Cap

    def compare(self, view: View) -> Compared | None:
        """Compare the plain sums of epsilons and deltas of the request with the cap."""
        if not view.covers(self):
            return None
        caps = self.at_most.stated.items()
        return self.compared(not all(_within(view.total, *cap) for cap in caps))

    def words(self, compared: Compared, told: Told) -> Finding:
        """Render the cost of the request and its cap; where it fired, those that it exceeds."""
        caps = self.at_most.stated
        if compared.fired:
            caps = {c: cap for c, cap in caps.items() if not _within(told.total, c, cap)}
        sides = [f"{c} {told.total.amount(c)} of at most {cap:f}" for c, cap in caps.items()]
        text = f"this request alone costs {', '.join(sides)}"
        if compared.fired and not any(map(told.total.is_infinite, caps)):
            text += ": ask for less, or in several requests"
        elif compared.fired:
            text += ": as stated it has no finite cost"
            text += NAME_A_DELTA if any(place[0] == "gaussian" for place in told.places) else ""
        return self.finding(compared, text)

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        caps = [f"{currency} {cap:f}" for currency, cap in self.at_most.stated.items()]
        return f"On {self.data}, a single request that costs more than {' or '.join(caps)}"


def _within(total: Charge, currency: Currency, cap: Decimal) -> bool:
    units = total.units(currency)
    return units is not None and units <= units_down(Fraction(cap), currency)
