"""A bill: what one thing costs one privacy unit, and one of each further unit of the population."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from accountant.ledger.events import to_keep, written
from accountant.privacy.mechanisms import Priced
from accountant.privacy.mechanisms.further_units import Units
from accountant.privacy.units import NOTHING, Axis, Charge, total

Per = tuple[tuple[str, Charge], ...]
"""Charges by the name of the further unit, sorted."""


class Bill(Struct, frozen=True, gc=False):
    """The charge ``total`` to one privacy unit; in ``per`` those to further units that differ."""

    total: Charge
    per: Per = ()

    @classmethod
    def of(cls, whole: Charge, each: Iterable[tuple[str, Charge]]) -> Bill:
        """Return the bill with charges for ``each`` further unit, those that are alike left out."""
        return cls(whole, tuple([pair for pair in each if pair[1] != whole]))

    def to(self, unit: str) -> Charge:
        """Return the charge to one of a unit; of "", the first one."""
        if unit:
            for name, charge in self.per:
                if name == unit:
                    return charge
        return self.total

    def written(self) -> dict[str, Any]:
        """Return the field of an event that holds the charges to further units, if any."""
        return {"per": {name: charge.to_json() for name, charge in self.per}} if self.per else {}

    def beyond(self, other: Bill, units: Iterable[str]) -> Bill | None:
        """Return the excess over ``other``, unit by unit; None if there is none."""
        more = {name: self._beyond(other, name) for name in ("", *units)}
        if all(one is None for one in more.values()):
            return None
        axis = self.total.axis
        found = {name: one or NOTHING.on(axis) for name, one in more.items()}
        return Bill.of(found.pop(""), found.items())

    def _beyond(self, other: Bill, unit: str) -> Charge | None:
        booked = other.to(unit)
        return self.to(unit).on(booked.axis).beyond(booked)


def charge_written(charge: Charge) -> bytes:
    """Return the canonical bytes of a charge, as events hold it."""
    if any(charge.infinite) or not charge.axis:
        return to_keep(written(charge.to_json()))
    spelled, places = _spelled(charge.axis)
    finite = charge.finite
    return spelled % tuple([finite[place] for place in places])


@lru_cache(maxsize=1024)
def _spelled(axis: Axis) -> tuple[bytes, tuple[int, ...]]:
    """Return the canonical bytes of a charge on ``axis`` with gaps for the amounts, and the places
    of these on the axis, in the order of the gaps.
    """
    names = Charge.over(axis, [0] * len(axis)).to_json()
    gaps = written(dict.fromkeys(names, "%d"))
    return gaps, tuple(sorted(range(len(axis)), key=list(names).__getitem__))


def per_in(body: Mapping[str, Any], field: str = "per") -> Per:
    """Return the charges to further units that an event holds."""
    stated = body.get(field)
    return () if not stated else tuple(_read(stated))


def _read(stated: Mapping[str, Any]) -> Iterator[tuple[str, Charge]]:
    for name, charge in sorted(stated.items()):
        yield name, Charge.from_json(charge)


def bill_of(priced: Sequence[Priced], units: Units) -> Bill:
    """Return the bill of mechanisms by their ``prices``, each with a charge for each of ``units``
    (without any: the same for all).
    """
    whole = total([p.charge for p in priced])
    if not units:
        return Bill(whole)
    each = (
        (unit.name, total(p.per[place] if p.per else p.charge for p in priced))
        for place, unit in enumerate(units)
    )
    return Bill.of(whole, each)
