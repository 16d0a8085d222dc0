"""What a query may cost, and the noise that it buys.

The service keeps every currency in whole units and rounds each step up. A budget is therefore
shared among steps in whole units, rounded down, and all steps together cost no more than it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from accountant.client.amounts import Amount
from accountant.queries.exact import positive
from accountant.queries.records import Records
from accountant.queries.steps import DiscreteGaussian, DiscreteLaplace, Laplace, Noise

MOST: Final = 10**12
"""The most that a query may cost."""
_UNITS: Final = {"epsilon": 10**9, "rho": 10**15}
"""Units of a currency that make one (docs/glossary.md: unit of a currency)."""
_PAIR: Final = {"epsilon": 2, "rho": 4}
"""The factor by which a charge is booked for one unit that leaves and one that comes."""


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount of ``epsilon`` (Laplace noise, choices) or of ``rho`` (normal noise), and the
    relation under which steps are stated if that is not the population's.
    """

    currency: str
    amount: Fraction
    stated: str | None

    @classmethod
    def of(cls, data: Records, epsilon: Amount | None, rho: Amount | None = None) -> Budget:
        """Return the budget of a query on ``data``, of which exactly one amount is given. Where the
        service books what is stated twice, it is a half (of rho a quarter). Raise ValueError, also
        where it is public that nobody is asked about.
        """
        data.check_somebody()
        if (epsilon is None) == (rho is None):
            raise ValueError("give either epsilon, for Laplace noise, or rho, for normal noise")
        currency = "epsilon" if rho is None else "rho"
        amount = positive(currency, epsilon if rho is None else rho)
        if amount > MOST:
            raise ValueError(f"{currency} of more than {MOST} hides nothing: ask for less")
        if data.doubled:
            amount /= _PAIR[currency]
        return cls(currency, amount, data.stated).share(1)

    def share(self, parts: int) -> Budget:
        """Return the budget of one of ``parts`` steps. Raise ValueError if that is nothing."""
        per_one = _UNITS[self.currency]
        units = self.amount * per_one // parts
        if units < 1:
            raise ValueError(
                f"{self.currency} {float(self.amount)} for {parts} steps is less than the ledger's "
                f"unit of {1 / per_one:g} for each"
            )
        return replace(self, amount=Fraction(units, per_one))

    def noise(self, sensitivity: Fraction, *, whole: bool = False) -> Noise:
        """Return noise for one number, ``whole`` or not, that a unit changes by ``sensitivity``."""
        return self.noise_on_list(None, sensitivity, sensitivity, whole=whole)

    def noise_on_list(
        self, size: int | None, l1: Fraction, l2: Fraction, *, whole: bool = False
    ) -> Noise:
        """Return noise for ``size`` numbers that a unit changes by ``l1`` in all and by ``l2`` in
        length.
        """
        if self.currency == "rho":
            return DiscreteGaussian.costing(self.amount, l2, self.stated, size, whole=whole)
        kind = DiscreteLaplace if whole else Laplace
        return kind.costing(self.amount, l1, self.stated, size)
