"""Privacy loss in integer units, as money is kept in cents.

A *currency* is one way of measuring loss that adds up under composition. Each has a fixed unit;
losses are rounded **up** to whole units once per invocation and multiplied by the count after that,
so that a loop of n charges equals one charge of count n, totals are exact whatever the order, and
any SQL engine can add them again. Capacities are rounded **down**.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, ClassVar, Final

from accountant.privacy import balls
from accountant.privacy.balls import Number
from accountant.privacy.losses import Loss


class Currency(str):
    """What is added up, by the name it has in events.

    ``tau_22`` is the Renyi divergence of order 22; each order is a currency of its own.
    """

    __slots__ = ()

    EPSILON: ClassVar[Currency]
    DELTA: ClassVar[Currency]
    EPSILON_SQUARED: ClassVar[Currency]
    RHO: ClassVar[Currency]
    MU_SQUARED: ClassVar[Currency]

    @classmethod
    def tau(cls, order: int) -> Currency:
        """The Renyi divergence of ``order``."""
        return cls(f"{_TAU}{order}")

    @property
    def order(self) -> int | None:
        """The order, if this is a Renyi divergence."""
        return int(self.removeprefix(_TAU)) if self.startswith(_TAU) else None

    @property
    def digits(self) -> int:
        """Decimal digits after the point that one unit stands for: epsilon is kept in billionths,
        everything else in millionths of a billionth.
        """
        return 9 if self == "epsilon" else 15

    @property
    def per_one(self) -> int:
        """How many units make one."""
        return _BILLION if self == "epsilon" else _MOST_PER_ONE


_TAU: Final = "tau_"
_BILLION: Final = 10**9
_MOST_PER_ONE: Final = 10**15

Currency.EPSILON = Currency("epsilon")
Currency.DELTA = Currency("delta")
Currency.EPSILON_SQUARED = Currency("epsilon_squared")
Currency.RHO = Currency("rho")
Currency.MU_SQUARED = Currency("mu_squared")

Axis = tuple[Currency, ...]

SURE: Final[Axis] = (Currency.EPSILON, Currency.DELTA)
"""What every account keeps, in this order: the sums that hold along every path."""

FIXED: Final[Axis] = (*SURE, Currency.EPSILON_SQUARED, Currency.RHO, Currency.MU_SQUARED)
"""What every charge has; Renyi divergences follow at the orders that are asked for."""

INFINITE: Final = "infinite"
"""How a sum without a bound is written."""

LARGEST: Final = 2**62
"""No accumulator ever holds more units than this: what would pass it is booked as infinite."""


_MOST_OTHERS: Final = 3
"""Axes, but for one, that a charge is remembered on."""


@lru_cache(maxsize=1024)
def axis_of(orders: tuple[int, ...]) -> Axis:
    """The currencies of a charge that is asked for at these Renyi orders."""
    return (*FIXED, *(Currency.tau(order) for order in orders))


@lru_cache(maxsize=1024)
def _axis_named(names: tuple[str, ...]) -> Axis:
    """The currencies among ``names``, in the order of every axis."""
    orders = sorted(int(name.removeprefix(_TAU)) for name in names if name.startswith(_TAU))
    return tuple(currency for currency in axis_of(tuple(orders)) if currency in names)


@lru_cache(maxsize=1024)
def _places(axis: Axis, wanted: Axis) -> tuple[int | None, ...]:
    """Where on ``axis`` each currency of ``wanted`` stands; None if it does not."""
    known = {currency: i for i, currency in enumerate(axis)}
    return tuple(known.get(currency) for currency in wanted)


def units_up(value: Number, currency: Currency) -> int:
    """The smallest number of units that is at least ``value``; a loss is never rounded away."""
    return balls.ceiling(value, currency.per_one)


def units_down(value: Number, currency: Currency) -> int:
    """The largest number of units that is at most ``value``."""
    return balls.floor(value, currency.per_one)


def exact(units: int, currency: Currency) -> Decimal:
    """The amount that ``units`` stand for, exactly."""
    return Decimal(units).scaleb(-currency.digits)


def show(units: int, currency: Currency) -> str:
    """``units`` as a plain decimal string without an exponent: ``100000000`` nano is ``0.1``."""
    digits = 9 if currency == "epsilon" else 15
    text = str(abs(units)).zfill(digits + 1)
    shown = f"{text[:-digits]}.{text[-digits:]}".rstrip("0").rstrip(".")
    return f"-{shown}" if units < 0 else shown


def show_each(sums: Iterable[int], currency: Currency) -> list[bytes]:
    """``show`` of many ``sums``, none below zero, in half the time."""
    one, form = currency.per_one, b"%%d.%%0%dd" % currency.digits
    return [(form % divmod(units, one)).rstrip(b"0").rstrip(b".") for units in sums]


def amount(units: int | None, currency: Currency) -> str:
    """``show``, or "infinite" for None."""
    return INFINITE if units is None else show(units, currency)


@dataclass(frozen=True, slots=True)
class Charge:
    """A loss in units: one integer per currency of ``axis``, with infinities counted beside it.

    Counting infinities instead of absorbing them keeps adding and giving back exact. A currency
    that is not on the axis has no known value, which is an infinite one: it never counts as zero.
    (But a charge without any axis is nothing at all.)
    """

    axis: Axis = ()
    finite: tuple[int, ...] = ()
    infinite: tuple[int, ...] = ()
    _others: tuple[Charge, ...] = field(default=(), init=False, compare=False, repr=False)
    """What it was asked to be on other axes: the accounts of a request keep few."""

    def on(self, axis: Axis) -> Charge:
        """The same charge in the currencies of ``axis``."""
        if axis is self.axis or axis == self.axis:
            return self
        for other in self._others:
            if other.axis is axis or other.axis == axis:
                return other
        other = self._on(axis)
        object.__setattr__(self, "_others", (other, *self._others[:_MOST_OTHERS]))
        return other

    def _on(self, axis: Axis) -> Charge:
        if not self.axis:
            return Charge(axis, (0,) * len(axis), (0,) * len(axis))
        places, finite, infinite = _places(self.axis, axis), self.finite, self.infinite
        return Charge(
            axis,
            tuple([0 if i is None else finite[i] for i in places]),
            tuple([1 if i is None else infinite[i] for i in places]),
        )

    def __add__(self, other: Charge) -> Charge:
        axis = self.axis
        if axis != other.axis:
            axis = (*axis, *(c for c in other.axis if c not in axis))
        left, right = self.on(axis), other.on(axis)
        return Charge(
            axis,
            tuple(a + b for a, b in zip(left.finite, right.finite, strict=True)),
            tuple(a + b for a, b in zip(left.infinite, right.infinite, strict=True)),
        )

    def __sub__(self, other: Charge) -> Charge:
        axis = self.axis or other.axis
        left, right = self.on(axis), other.on(axis)
        return Charge(
            axis,
            tuple(a - b for a, b in zip(left.finite, right.finite, strict=True)),
            tuple(a - b for a, b in zip(left.infinite, right.infinite, strict=True)),
        )

    def units(self, currency: Currency) -> int | None:
        """The sum in one currency; None if some charge in it is infinite there."""
        if not self.axis:
            return 0
        [i] = _places(self.axis, (currency,))
        return None if i is None or self.infinite[i] else self.finite[i]

    def __getitem__(self, currency: Currency) -> int:
        """The finite part of the sum in one currency of the axis."""
        return self.finite[self.axis.index(currency)] if self.axis else 0

    def amount(self, currency: Currency) -> str:
        """The sum in one currency as a plain decimal string, or "infinite"."""
        return amount(self.units(currency), currency)

    def amounts(self) -> dict[str, str]:
        """``amount`` in every currency of the axis."""
        parts = zip(self.axis, self.finite, self.infinite, strict=True)
        return {str(c): INFINITE if closed else show(n, c) for c, n, closed in parts}

    def is_infinite(self, currency: Currency) -> bool:
        """True if some charge in it is infinite in this currency."""
        return self.units(currency) is None

    @property
    def any_infinite(self) -> bool:
        """True if some charge in it is infinite in some currency."""
        return any(self.infinite)

    @property
    def orders(self) -> tuple[int, ...]:
        """The Renyi orders that it has a column for."""
        return tuple(c.order for c in self.axis if c.order is not None)

    def within(self, other: Charge) -> bool:
        """True if this is at most ``other`` in every currency (infinities before finite sums)."""
        other = other.on(self.axis)
        return all(
            (mine_inf, mine) <= (their_inf, theirs)
            for mine, mine_inf, theirs, their_inf in zip(
                self.finite, self.infinite, other.finite, other.infinite, strict=True
            )
        )

    def beyond(self, other: Charge) -> Charge | None:
        """What this is more than ``other``, which has the same axis, currency by currency; None if
        it is nowhere more. Where a finite sum takes the place of an infinite one, nothing.
        """
        pairs = zip(self.finite, self.infinite, other.finite, other.infinite, strict=True)
        more = [
            (0, 1) if mine_inf > their_inf else (max(0, mine - theirs) * (not their_inf), 0)
            for mine, mine_inf, theirs, their_inf in pairs
        ]
        if not any(map(any, more)):
            return None
        return Charge(self.axis, tuple(f for f, _ in more), tuple(i for _, i in more))

    def saturated(self) -> Charge:
        """The charge with every finite sum past ``LARGEST`` turned into one infinite charge."""
        if max(self.finite, default=0) <= LARGEST:
            return self
        over = [amount > LARGEST for amount in self.finite]
        return Charge(
            self.axis,
            tuple(0 if o else a for a, o in zip(self.finite, over, strict=True)),
            tuple(i + o for i, o in zip(self.infinite, over, strict=True)),
        )

    def to_json(self) -> dict[str, Any]:
        """Units as decimal strings; ``infinite`` counts infinite charges by currency."""
        body: dict[str, Any] = {str(c): str(n) for c, n in zip(self.axis, self.finite, strict=True)}
        unbounded = {str(c): n for c, n in zip(self.axis, self.infinite, strict=True) if n}
        return body | ({"infinite": unbounded} if unbounded else {})

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Charge:
        """Reads what ``to_json`` wrote."""
        unbounded, axis = body.get("infinite"), _axis_named(tuple(body))
        finite = tuple([int(body[currency]) for currency in axis])
        if not unbounded:
            return cls(axis, finite, (0,) * len(axis))
        return cls(axis, finite, tuple([int(unbounded.get(currency, 0)) for currency in axis]))

    @classmethod
    def over(cls, axis: Axis, units: Sequence[int | None]) -> Charge:
        """A charge of these units, None standing for an infinite one."""
        return cls(axis, tuple(n or 0 for n in units), tuple(int(n is None) for n in units))


NOTHING: Final = Charge()


def total(charges: Iterable[Charge]) -> Charge:
    """The sum of charges; what passes ``LARGEST`` is infinite."""
    charges = list(charges)
    if len(charges) == 1:
        return charges[0].saturated()
    return sum(charges, start=NOTHING).saturated()


def charge_of(loss: Loss, count: int, orders: tuple[int, ...] = ()) -> Charge:
    """``count`` invocations of ``loss``, each rounded up, to at least one unit of everything but
    delta. Amounts past ``LARGEST`` units are booked as infinite.
    """
    losses = loss.epsilon, loss.delta, loss.squares, loss.rho, loss.mu_squared
    values = (*losses, *map(loss.curve.at, orders)) if orders else losses
    units = balls.ceilings(values, chain((_BILLION,), repeat(_MOST_PER_ONE)))
    booked = [n if n is None else (n or 1) * count for n in units]
    booked[1] = (units[1] or 0) * count
    known = [n is not None and n <= LARGEST for n in booked]
    return Charge(
        axis_of(orders),
        tuple([n if k and n else 0 for n, k in zip(booked, known, strict=True)]),
        tuple([0 if k else 1 for k in known]),
    )
