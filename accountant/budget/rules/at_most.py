"""A cap per request: fires when one request costs more than the cap, whatever a limit has left."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from accountant.budget.rules.base import Compared, Finding, Rule, Strict, Told, View, matches
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

    def exceeded(self, total: Charge) -> list[Currency]:
        """Return the currencies in which ``total`` is more than this, or has no bound."""
        most = {Currency.EPSILON: self.epsilon, Currency.DELTA: self.delta}
        return [c for c, cap in most.items() if cap is not None and not _within(total, c, cap)]

    def reachable(self, total: Charge) -> bool:
        """Return True if what is capped has a bound in ``total``, so that less of it may fit."""
        most = {Currency.EPSILON: self.epsilon, Currency.DELTA: self.delta}
        return not any(total.is_infinite(c) for c, cap in most.items() if cap is not None)


class AtMostRule(Rule):
    """Fires when a request as a whole costs more than ``at_most``."""

    field: ClassVar[str] = "at_most"
    code: ClassVar[str] = "request-too-costly"
    reads: ClassVar[frozenset[str]] = frozenset({"dataset", "total"})

    at_most: Cap
    datasets: str = Field("*", max_length=200, description="glob over dataset ids")

    def compare(self, view: View) -> Compared | None:
        """Compare the plain sums of epsilons and deltas of the request with the cap."""
        if not matches(self.datasets, view.dataset):
            return None
        return self.compared(bool(self.at_most.exceeded(view.total)))

    def words(self, compared: Compared, told: Told) -> Finding:
        """Render the cost of the request and its cap."""
        sides = [
            f"{currency} {told.total.amount(currency)} of at most {cap:f}"
            for currency, cap in (
                (Currency.EPSILON, self.at_most.epsilon),
                (Currency.DELTA, self.at_most.delta),
            )
            if cap is not None
        ]
        text = f"this request alone costs {', '.join(sides)}"
        if compared.fired and self.at_most.reachable(told.total):
            text += ": ask for less, or in several requests"
        elif compared.fired:
            text += ": as stated it has no finite cost"
            text += NAME_A_DELTA if "gaussian" in told.kinds else ""
        return self.finding(compared, text)

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        caps = [
            f"{name} {cap:f}"
            for name, cap in (("epsilon", self.at_most.epsilon), ("delta", self.at_most.delta))
            if cap is not None
        ]
        return f"On {self.data}, a single request that costs more than {' or '.join(caps)}"


def _within(total: Charge, currency: Currency, cap: Decimal) -> bool:
    units = total.units(currency)
    return units is not None and units <= units_down(Fraction(cap), currency)
