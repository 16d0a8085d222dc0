"""Parts of a whole, laid out side by side, so that by eye they add up to it."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_FLOOR, Decimal
from typing import Final

from msgspec import Struct

from accountant.privacy.units import INFINITE
from accountant.reporting.schema import as_number

_SMALLEST: Final = Decimal("0.1")


class Part(Struct, frozen=True):
    """A part: its amount in the currency that counts; the epsilon that it ``adds`` to what is
    spent, None where that is not known; of how many requests. ``begins`` and ``share`` are in per
    cent of the whole; None where the whole has no bound. ``named``: the name came from outside.
    """

    name: str
    amount: str
    adds: str | None
    requests: int
    begins: float | None = None
    share: float | None = None
    named: bool = True

    @property
    def percent(self) -> str:
        """The share in words, cut to a tenth."""
        if self.amount == INFINITE:
            return "no bound"
        if self.share is None:
            return "–"
        tenth = Decimal(self.share).quantize(_SMALLEST, ROUND_FLOOR)
        return f"{tenth} %" if tenth or not self.share else "under 0.1 %"


def laid_out(parts: Iterable[Part], most: int) -> tuple[Part, ...]:
    """Return the largest parts that are more than nothing, each beginning where the one before
    ends; all after the first ``most`` as one.
    """
    found = [one for one in parts if as_number(one.amount) > 0]
    found.sort(key=lambda one: -as_number(one.amount))
    if len(found) > most + 1:
        found = [*found[:most], _together(found[most:])]
    whole = sum(as_number(one.amount) for one in found)
    if whole == float("inf"):
        return tuple(found)
    placed, begins = [], 0.0
    for one in found:
        share = 100 * as_number(one.amount) / whole
        more = {"begins": begins, "share": share}
        placed.append(Part(one.name, one.amount, one.adds, one.requests, **more, named=one.named))
        begins += share
    return tuple(placed)


def _together(parts: list[Part]) -> Part:
    amounts, adds = [one.amount for one in parts], [one.adds for one in parts]
    return Part(
        name=f"{len(parts):,} others",
        amount=_sum(amounts),
        adds=None if None in adds else _sum([one for one in adds if one is not None]),
        requests=sum(one.requests for one in parts),
        named=False,
    )


def _sum(amounts: list[str]) -> str:
    return INFINITE if INFINITE in amounts else format(sum(map(Decimal, amounts)), "f")
