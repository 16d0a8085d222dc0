"""How limits count what was booked before and after each adoption of a policy.

A limit counts a charge in the currency of the line that decides what is spent. What was booked
before it counted in that currency entered as a sure sum of epsilons (budget/accounts/epochs), or,
after a reset, not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any, Final

from accountant.budget.accounts.epochs import Epoch
from accountant.privacy.filters import Line
from accountant.privacy.units import INFINITE, SURE, Charge, Currency, show

NO_POLICY: Final = -1
"""Stands for the policy before one is adopted."""
_TENTH: Final = Decimal("0.1")


@dataclass(frozen=True, slots=True)
class Measure:
    """What a limit makes of charges in one currency. Policies are the sequences of the events that
    adopted them.
    """

    currency: Currency
    since: int = NO_POLICY
    """The policy from which on it counts charges as they are."""
    brings: bool = True
    """It counts those of earlier policies as ``per_epsilon`` units for each of epsilon."""
    per_epsilon: Fraction | None = Fraction(1)

    def of(self, charge: Charge, policy: int) -> tuple[int, int]:
        """Return the finite units of charges booked under ``policy``, and how many are infinite."""
        if policy >= self.since or (self.brings and self.currency in SURE):
            return _in(charge, self.currency)
        if not self.brings:
            return 0, 0
        units, infinite = _in(charge, Currency.EPSILON)
        if self.per_epsilon is None:
            return 0, infinite + (units > 0)
        return int(-(-units * self.per_epsilon // 1)), infinite


@dataclass(frozen=True, slots=True)
class Basis:
    """What shares of a budget are shares of: the sum that decides what is spent under a limit.
    Without a ``line`` that is the plain sum of epsilons.
    """

    measure: Measure = Measure(Currency.EPSILON)
    line: Line | None = None
    capped: bool = False
    """What is spent is less than the line shows, so that no charge adds what the line says."""
    rule: str = ""

    def sum(self, booked: Mapping[int, Charge]) -> tuple[int, int]:
        """Return the finite units of charges by policy, and how many are infinite."""
        each = [self.measure.of(charge, policy) for policy, charge in booked.items()]
        return sum(units for units, _ in each), sum(infinite for _, infinite in each)

    def adds(self, booked: Mapping[int, Charge]) -> str | None:
        """Return the epsilon that charges by policy add to what is spent, rounded up: along a line
        its slope times their sum. None where nothing of that kind is true.
        """
        units, infinite = self.sum(booked)
        if infinite:
            return INFINITE
        if self.capped:
            return None
        return show(self._along(units), Currency.EPSILON)

    @property
    def starts_at(self) -> str | None:
        """The epsilon that the line shows before any charge, which belongs to none of them."""
        line = self.line
        return None if line is None or self.capped else show(-(-line.b // line.d), Currency.EPSILON)

    def _along(self, units: int) -> int:
        return units if self.line is None else -(-self.line.a * units // self.line.d)


class Counting:
    """Follows adoptions: since when each limit rule counts charges as they are."""

    def __init__(self, begun: Mapping[str, tuple[int, bool]] | None = None) -> None:
        self._begun: dict[str, tuple[int, bool]] = dict(begun or {})

    def kept(self) -> dict[str, tuple[int, bool]]:
        """Return what was followed, to write it down, and to begin from."""
        return self._begun

    def adopted(self, sequence: int, body: Mapping[str, Any]) -> None:
        """Take the event at ``sequence`` that adopted a policy."""
        before, self._begun = self._begun, {}
        for rule, epoch in body["epochs"].items():
            start = epoch["start"]
            begun = sequence, start in ("converted", "brought")
            self._begun[rule] = before[rule] if start in ("kept", "carried") else begun

    def measure(self, rule: str, epoch: Epoch, currency: Currency) -> Measure:
        """Return how limit ``rule``, in force in ``epoch``, counts in ``currency``."""
        since, brings = self._begun[rule]
        if currency in SURE:
            return Measure(currency, since, brings)
        return Measure(currency, since, brings, dict(epoch.per_epsilon())[currency])


def share(part: int, whole: int) -> str | None:
    """Return a part as a percentage with one decimal; None of nothing."""
    if whole <= 0:
        return None
    return format((Decimal(100 * part) / whole).quantize(_TENTH, ROUND_HALF_EVEN), "f")


def _in(charge: Charge, currency: Currency) -> tuple[int, int]:
    on = charge.on((currency,))
    return on.finite[0], on.infinite[0]
