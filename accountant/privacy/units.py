"""Privacy loss in integer units, as money is kept in cents.

A *currency* is one way of measuring loss that adds up under composition. Each has a fixed unit;
losses are rounded **up** to whole units once per invocation and multiplied by the count after that,
so that a loop of n charges equals one charge of count n, totals are exact whatever the order, and
any SQL engine can add them again. Capacities are rounded **down**.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final


class Currency(StrEnum):
    """What is added up. The order of the members is the order of every currency axis."""

    EPSILON = "epsilon"
    DELTA = "delta"
    EPSILON_SQUARED = "epsilon_squared"


CURRENCIES: Final = tuple(Currency)
AXIS: Final = {currency: i for i, currency in enumerate(CURRENCIES)}

DIGITS: Final = {Currency.EPSILON: 9, Currency.DELTA: 15, Currency.EPSILON_SQUARED: 15}
"""Decimal digits after the point that one unit stands for: epsilon is kept in billionths."""

_PER_ONE: Final[dict[Currency, int]] = {c: int("1" + "0" * n) for c, n in DIGITS.items()}

LARGEST: Final = 2**62
"""No accumulator ever holds more units than this: what would pass it is booked as infinite."""


def units_up(value: Fraction, currency: Currency) -> int:
    """The smallest number of units that is at least ``value``; a loss is never rounded away."""
    scaled = value * _PER_ONE[currency]
    return -(-scaled.numerator // scaled.denominator)


def units_down(value: Fraction, currency: Currency) -> int:
    """The largest number of units that is at most ``value``."""
    scaled = value * _PER_ONE[currency]
    return scaled.numerator // scaled.denominator


def exact(units: int, currency: Currency) -> Decimal:
    """The amount that ``units`` stand for, exactly."""
    return Decimal(units).scaleb(-DIGITS[currency])


def show(units: int, currency: Currency) -> str:
    """``units`` as a plain decimal string without an exponent: ``100000000`` nano is ``0.1``."""
    whole, part = divmod(abs(units), _PER_ONE[currency])
    sign = "-" if units < 0 else ""
    fraction = f"{part:0{DIGITS[currency]}d}".rstrip("0")
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def amount(units: int | None, currency: Currency) -> str:
    """``show``, or "infinite" for None."""
    return "infinite" if units is None else show(units, currency)


@dataclass(frozen=True, slots=True)
class Loss:
    """What one invocation costs, as exact upper bounds. ``epsilon`` None means unbounded.

    A loss (epsilon, delta) is a pure part of ``epsilon`` and a failure probability ``delta``.
    """

    epsilon: Fraction | None
    delta: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Charge:
    """A loss in units: one integer per currency, with infinities counted beside the sum.

    Counting infinities instead of absorbing them keeps adding and giving back exact.
    """

    finite: tuple[int, ...] = (0,) * len(CURRENCIES)
    infinite: tuple[int, ...] = (0,) * len(CURRENCIES)

    def __add__(self, other: Charge) -> Charge:
        return Charge(
            tuple(a + b for a, b in zip(self.finite, other.finite, strict=True)),
            tuple(a + b for a, b in zip(self.infinite, other.infinite, strict=True)),
        )

    def __sub__(self, other: Charge) -> Charge:
        return Charge(
            tuple(a - b for a, b in zip(self.finite, other.finite, strict=True)),
            tuple(a - b for a, b in zip(self.infinite, other.infinite, strict=True)),
        )

    def __getitem__(self, currency: Currency) -> int:
        return self.finite[AXIS[currency]]

    def amount(self, currency: Currency) -> str:
        """The sum in one currency as a plain decimal string, or "infinite"."""
        return amount(None if self.is_infinite(currency) else self[currency], currency)

    def is_infinite(self, currency: Currency) -> bool:
        """True if some charge in it is infinite in this currency."""
        return self.infinite[AXIS[currency]] > 0

    def within(self, other: Charge) -> bool:
        """True if this is at most ``other`` in every currency (infinities before finite sums)."""
        return all(
            (mine_inf, mine) <= (their_inf, theirs)
            for mine, mine_inf, theirs, their_inf in zip(
                self.finite, self.infinite, other.finite, other.infinite, strict=True
            )
        )

    def saturated(self) -> Charge:
        """The charge with every finite sum past ``LARGEST`` turned into one infinite charge."""
        if max(self.finite) <= LARGEST:
            return self
        over = [amount > LARGEST for amount in self.finite]
        return Charge(
            tuple(0 if o else a for a, o in zip(self.finite, over, strict=True)),
            tuple(i + o for i, o in zip(self.infinite, over, strict=True)),
        )

    def to_json(self) -> dict[str, Any]:
        """Units as decimal strings; ``infinite`` counts infinite charges by currency."""
        body: dict[str, Any] = {c.value: str(self.finite[i]) for i, c in enumerate(CURRENCIES)}
        unbounded = {
            c.value: self.infinite[i] for i, c in enumerate(CURRENCIES) if self.infinite[i]
        }
        return body | ({"infinite": unbounded} if unbounded else {})

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Charge:
        """Reads what ``to_json`` wrote. A currency that the event does not know is infinite."""
        unbounded = body.get("infinite", {})
        return cls(
            tuple(int(body.get(c.value, "0")) for c in CURRENCIES),
            tuple(int(unbounded.get(c.value, 0 if c.value in body else 1)) for c in CURRENCIES),
        )


NOTHING: Final = Charge()


def charge_of(loss: Loss, count: int) -> Charge:
    """``count`` invocations of ``loss``, each rounded up to at least one unit of epsilon.

    The own delta of an invocation and its pure part are charged apart (theory: an (epsilon, delta)
    mechanism is its pure part except with probability delta). Amounts past ``LARGEST`` units are
    booked as infinite.
    """
    if loss.epsilon is None:
        per_invocation: dict[Currency, int | None] = {
            Currency.EPSILON: None,
            Currency.EPSILON_SQUARED: None,
        }
    else:
        per_invocation = {
            Currency.EPSILON: max(1, units_up(loss.epsilon, Currency.EPSILON)),
            Currency.EPSILON_SQUARED: max(
                1, units_up(loss.epsilon * loss.epsilon, Currency.EPSILON_SQUARED)
            ),
        }
    per_invocation[Currency.DELTA] = units_up(loss.delta, Currency.DELTA)
    finite, infinite = [], []
    for currency in CURRENCIES:
        one = per_invocation[currency]
        overflow = one is None or one * count > LARGEST
        finite.append(0 if one is None or overflow else one * count)
        infinite.append(int(overflow))
    return Charge(tuple(finite), tuple(infinite))
