"""Privacy loss in integer units, as money is kept in cents.

A *currency* is one way of measuring loss that adds up under composition. Each has a fixed unit;
losses are rounded **up** to whole units once per invocation and multiplied by the count after that,
so that a loop of n charges equals one charge of count n, totals are exact whatever the order, and
any SQL engine can add them again. Capacities are rounded **down**.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from functools import lru_cache
from itertools import chain, repeat
from operator import add, itemgetter, sub
from typing import Any, ClassVar, Final

from msgspec import Struct
from msgspec.structs import force_setattr

from accountant.privacy import balls
from accountant.privacy.balls import Number
from accountant.privacy.curves import Order, Orders, order_of
from accountant.privacy.losses import Loss


class Currency(str):
    """A quantity that adds up, by its name in events; ``tau_22`` is the divergence of order 22,
    ``tau_1.25`` that of order 5/4.
    """

    __slots__ = ()

    EPSILON: ClassVar[Currency]
    DELTA: ClassVar[Currency]
    EPSILON_SQUARED: ClassVar[Currency]
    RHO: ClassVar[Currency]
    MU_SQUARED: ClassVar[Currency]

    @classmethod
    def tau(cls, order: Order) -> Currency:
        """Return the currency of Renyi divergences of ``order``, which has a finite decimal."""
        return cls(_TAU + decimal_of(order))

    @property
    def order(self) -> Order | None:
        """The order, if this is a Renyi divergence."""
        return _order_named(self)

    @property
    def digits(self) -> int:
        """The decimal places of one unit: 9 of epsilon, 15 of every other currency."""
        return 9 if self == "epsilon" else 15

    @property
    def per_one(self) -> int:
        """The number of units that make one."""
        return 10**9 if self == "epsilon" else 10**15


_TAU: Final = "tau_"
_EXACT: Final = Context(prec=99, traps=[Inexact])


def decimal_of(order: Order) -> str:
    """Return an order with a finite decimal as that."""
    if isinstance(order, int):
        return str(order)
    return f"{_EXACT.divide(Decimal(order.numerator), Decimal(order.denominator)):f}"


@lru_cache(maxsize=1024)
def _order_named(name: str) -> Order | None:
    if not name.startswith(_TAU):
        return None
    return order_of(Fraction(name.removeprefix(_TAU)))


for _name in ("epsilon", "delta", "epsilon_squared", "rho", "mu_squared"):
    setattr(Currency, _name.upper(), Currency(_name))

Axis = tuple[Currency, ...]

SURE: Final[Axis] = (Currency.EPSILON, Currency.DELTA)
"""The currencies of every account, in this order: the sums that hold along every path."""
FIXED: Final[Axis] = (*SURE, Currency.EPSILON_SQUARED, Currency.RHO, Currency.MU_SQUARED)
"""The currencies of every charge; Renyi divergences follow at the orders that are asked for."""
INFINITE: Final = "infinite"  # The spelling of a sum without a bound
LARGEST: Final = 2**62  # The most units that a sum may hold: a larger one is booked as infinite


def orders_in(axis: Axis) -> Orders:
    """Return the Renyi orders among currencies."""
    return tuple([order for order in map(_order_named, axis) if order is not None])


@lru_cache(maxsize=1024)
def axis_of(orders: Orders) -> Axis:
    """Return the currencies of a charge that is asked for at these Renyi orders."""
    return (*FIXED, *(Currency.tau(order) for order in orders))


@lru_cache(maxsize=1024)
def _axis_named(names: tuple[str, ...]) -> Axis:
    """Return the currencies among ``names``, in the order of every axis."""
    orders = sorted(orders_in(tuple(map(Currency, names))))
    return tuple(currency for currency in axis_of(tuple(orders)) if currency in names)


@lru_cache(maxsize=1024)
def _names(axis: Axis) -> tuple[str, ...]:
    """Return the currencies as plain texts, the keys of documents."""
    return tuple(map(str, axis))


@lru_cache(maxsize=1024)
def _places(axis: Axis, wanted: Axis) -> tuple[int | None, ...]:
    """Return the place on ``axis`` of each currency of ``wanted``; None if it has none."""
    known = {currency: i for i, currency in enumerate(axis)}
    return tuple(known.get(currency) for currency in wanted)


@lru_cache(maxsize=1024)
def _taking(axis: Axis, wanted: Axis) -> itemgetter[tuple[int, ...]] | None:
    """Return what takes the amounts on ``wanted`` from those on ``axis``, if they are all there."""
    places = [place for place in _places(axis, wanted) if place is not None]
    return itemgetter(*places) if len(places) == len(wanted) > 1 else None


def units_up(value: Number, currency: Currency) -> int:
    """Return the smallest number of units that is at least ``value``: a loss, rounded up."""
    return balls.ceiling(value, currency.per_one)


def units_down(value: Number, currency: Currency) -> int:
    """Return the largest number of units that is at most ``value``: a capacity, rounded down."""
    return balls.floor(value, currency.per_one)


def exact(units: int, currency: Currency) -> Decimal:
    """Return the exact amount of ``units``."""
    return Decimal(units).scaleb(-currency.digits)


def show(units: int, currency: Currency) -> str:
    """Return ``units`` as a decimal without an exponent: 100,000,000 units of epsilon are 0.1."""
    shown = _decimal(str(abs(units)), 9 if currency == "epsilon" else 15)
    return f"-{shown}" if units < 0 else shown


def _decimal(units: str, digits: int) -> str:
    """Return a whole number, not negative, of units that have so many digits behind the point."""
    units = units.zfill(digits + 1)
    part = units[-digits:].rstrip("0")
    return f"{units[:-digits]}.{part}" if part else units[:-digits]


@lru_cache(maxsize=1024)
def _digits_of(names: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return the currencies among ``names``, in the order of every axis, with their digits."""
    return tuple((str(currency), currency.digits) for currency in _axis_named(names))


def amount(units: int | None, currency: Currency) -> str:
    """Return ``show``, or "infinite" for None."""
    return INFINITE if units is None else show(units, currency)


class Charge(Struct, frozen=True, eq=False, gc=False):
    """A loss in units: one integer per currency of ``axis``, with infinities counted beside it.

    Infinities are counted, so that adding and giving back are exact. A currency that is not on
    the axis is infinite, never zero. A charge without any axis is nothing at all. Each request
    makes several, and an open grant keeps them, so that the collector does not look at them: a
    charge refers to younger ones only, never in a circle.
    """

    axis: Axis = ()
    finite: tuple[int, ...] = ()
    infinite: tuple[int, ...] = ()
    _others: tuple[Charge, ...] = ()
    """The same charge on the four axes that were asked for last."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Charge):
            return NotImplemented
        mine = self.finite, self.infinite, self.axis
        return self is other or mine == (other.finite, other.infinite, other.axis)

    __ne__ = object.__ne__  # the structure's own would look at all fields

    def __hash__(self) -> int:
        return hash((self.axis, self.finite, self.infinite))

    def __repr__(self) -> str:
        return f"Charge({self.axis!r}, {self.finite!r}, {self.infinite!r})"

    def on(self, axis: Axis) -> Charge:
        """Return the same charge in the currencies of ``axis``."""
        if axis is self.axis:
            return self
        for other in self._others:
            if other.axis is axis:
                return other
        if axis == self.axis:
            return self
        for other in self._others:
            if other.axis == axis:
                return other
        other = self._on(axis)
        force_setattr(self, "_others", (other, *self._others[:3]))
        return other

    def _on(self, axis: Axis) -> Charge:
        if not self.axis:
            return Charge.over(axis, (0,) * len(axis))
        if take := _taking(self.axis, axis):
            return Charge(axis, take(self.finite), take(self.infinite))
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
        return self._with(other, axis, add)

    def __sub__(self, other: Charge) -> Charge:
        return self._with(other, self.axis or other.axis, sub)

    def _with(self, other: Charge, axis: Axis, apply: Callable[[int, int], int]) -> Charge:
        left, right = self.on(axis), other.on(axis)
        finite = tuple(map(apply, left.finite, right.finite))
        return Charge(axis, finite, tuple(map(apply, left.infinite, right.infinite)))

    def units(self, currency: Currency) -> int | None:
        """Return the sum in one currency; None if a charge in it is infinite there."""
        if not self.axis:
            return 0
        [i] = _places(self.axis, (currency,))
        return None if i is None or self.infinite[i] else self.finite[i]

    def __getitem__(self, currency: Currency) -> int:
        """Return the finite part of the sum in one currency of the axis."""
        return self.finite[self.axis.index(currency)] if self.axis else 0

    def amount(self, currency: Currency) -> str:
        """Return the sum in one currency as a decimal string, or "infinite"."""
        return amount(self.units(currency), currency)

    def amounts(self) -> dict[str, str]:
        """Return ``amount`` in every currency of the axis."""
        sums = zip(self.axis, self.finite, self.infinite, strict=True)
        return {str(c): INFINITE if closed else show(n, c) for c, n, closed in sums}

    def is_infinite(self, currency: Currency) -> bool:
        """True if a charge in it is infinite in this currency."""
        return self.units(currency) is None

    @property
    def is_bounded(self) -> bool:
        """True if some currency but delta bounds it."""
        return any(not self.is_infinite(one) for one in self.axis if one is not Currency.DELTA)

    @property
    def orders(self) -> Orders:
        """The Renyi orders that it has a column for."""
        return orders_in(self.axis)

    def beyond(self, other: Charge) -> Charge | None:
        """Return the excess over ``other``, which has the same axis, currency by currency; None if
        there is none. A finite sum in the place of an infinite one is no excess.
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
        """Return the charge with each finite sum past ``LARGEST`` as one infinite charge."""
        if not self.finite or max(self.finite) <= LARGEST:
            return self
        over = [n > LARGEST for n in self.finite]
        finite = tuple(0 if n > LARGEST else n for n in self.finite)
        return Charge(self.axis, finite, tuple(map(add, self.infinite, over)))

    def to_json(self) -> dict[str, Any]:
        """Return units as decimal strings; ``infinite`` counts infinite charges by currency."""
        names = _names(self.axis)
        body: dict[str, Any] = dict(zip(names, map(str, self.finite), strict=True))
        if any(self.infinite):
            body["infinite"] = {c: n for c, n in zip(names, self.infinite, strict=True) if n}
        return body

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Charge:
        """Return the charge that ``to_json`` wrote."""
        unbounded, axis = body.get("infinite"), _axis_named(tuple(body))
        finite = tuple([int(body[currency]) for currency in axis])
        if not unbounded:
            return cls(axis, finite, (0,) * len(axis))
        return cls(axis, finite, tuple([int(unbounded.get(currency, 0)) for currency in axis]))

    @classmethod
    def over(cls, axis: Axis, units: Sequence[int | None]) -> Charge:
        """Return a charge of these units, None standing for an infinite one."""
        if None not in units:
            return cls(axis, tuple(units), (0,) * len(units))  # type: ignore[arg-type]
        return cls(axis, tuple([n or 0 for n in units]), tuple([int(n is None) for n in units]))


NOTHING: Final = Charge()


def amounts_in(body: dict[str, Any]) -> dict[str, str]:
    """Return the ``amounts`` of the charge that ``to_json`` wrote."""
    if "infinite" in body:
        return Charge.from_json(body).amounts()
    return {name: _decimal(body[name], digits) for name, digits in _digits_of(tuple(body))}


def total(charges: Iterable[Charge]) -> Charge:
    """Return the sum of charges; a sum past ``LARGEST`` is infinite."""
    each = list(charges)
    if len(each) == 1:  # as of most requests
        return each[0].saturated()
    return sum(each[1:], start=each[0]).saturated() if each else NOTHING


def charge_of(loss: Loss, count: int, orders: Orders = ()) -> Charge:
    """Return ``count`` invocations of ``loss``, each rounded up, to at least one unit of everything
    but delta. Amounts past ``LARGEST`` units are booked as infinite.
    """
    fixed = loss.epsilon, loss.delta, loss.squares, loss.rho, loss.mu_squared
    values = (*fixed, *map(loss.curve.at, orders)) if orders else fixed
    units = balls.ceilings(values, chain((10**9,), repeat(10**15)))
    delta, units[1] = units[1], 1
    if 0 in units:
        units = [1 if n == 0 else n for n in units]
    units[1] = delta
    if count > 1:
        units = [n and n * count for n in units]
    return Charge.over(_axis_at(orders), units).saturated()


_last: tuple[Orders, Axis] = ((), FIXED)
"""The last orders that a charge was asked for at, and its axis: fractions take long to hash."""


def _axis_at(orders: Orders) -> Axis:
    global _last  # noqa: PLW0603
    last, axis = _last
    if last is not orders:
        axis = axis_of(orders)
        _last = orders, axis
    return axis
