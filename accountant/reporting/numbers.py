"""How numbers and dates are written on pages: the only place.

Losses are rounded up, what is left is rounded down; percentages of a limit are rounded up. Amounts
are decimal strings, or "infinite", as the report has them.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

from accountant.privacy.units import INFINITE
from accountant.reporting.schema import Place

NO_BOUND: Final = "no bound"
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_WIDER: Final = 1e-12
"""A part by which a float is widened, so that it is printed rounded outward."""
_MOST_DIGITS: Final = 6


def places(limit: str) -> int:
    """Return how many decimals to print beside a limit, so that small ones are not rounded away."""
    return min(9, max(3, 3 - Decimal(limit).adjusted()))


def up(amount: str, digits: int | None = None) -> str:
    """Return a loss, rounded up to ``digits`` decimals, or in full."""
    return _rounded(amount, digits, ROUND_CEILING)


def down(amount: str, digits: int | None = None) -> str:
    """Return what is left, rounded down to ``digits`` decimals, or in full."""
    return _rounded(amount, digits, ROUND_FLOOR)


def _rounded(amount: str, digits: int | None, rounding: str) -> str:
    if amount == INFINITE:
        return NO_BOUND
    if digits is None:
        return amount
    return format(Decimal(amount).quantize(Decimal(1).scaleb(-digits), rounding), "f")


def one_in(delta: str) -> str:
    """Return a delta with its odds: "1 in 1,000,000"."""
    if delta == INFINITE:
        return NO_BOUND
    value = Decimal(delta)
    return f"{delta} (1 in {int(1 / value):,})" if value else "0"


def percent(place: Place, limit: str) -> str:
    """Return the spent and reserved share of the limit, rounded up."""
    return percent_of(place.together, limit)


def percent_of(part: str, limit: str) -> str:
    """Return a share of a limit, rounded up; "no bound" of an infinite one."""
    if part == INFINITE or not Decimal(limit):
        return NO_BOUND
    share = Decimal(part) / Decimal(limit) * 100
    return f"{share.quantize(Decimal(1), ROUND_CEILING):,} %"


def even_chance(epsilon: str) -> str:
    """Return what an even chance becomes at most by a loss: "96 in 100", rounded up, never 100.

    From Bayes' rule: odds change by at most e^epsilon either way.
    """
    if epsilon == INFINITE:
        return "certainty"
    if not float(epsilon):
        return "50 in 100"
    chance = 1 / (1 + math.exp(-float(epsilon))) * (1 + _WIDER)
    for digits in range(_MOST_DIGITS):
        shown = math.ceil(100 * chance * 10**digits) / 10**digits
        if shown < 100:
            return f"{shown:.{digits}f} in 100"
    return "all but certainty"


def day(time: str) -> str:
    """Return the day of an RFC 3339 time: "24 Nov 2026"."""
    return f"{int(time[8:10])} {_MONTHS[int(time[5:7]) - 1]} {time[:4]}"


def minute(time: str) -> str:
    """Return an RFC 3339 time to the minute: "24 Nov 2026, 15:22"."""
    return f"{day(time)}, {time[11:16]}"


def lasted(seconds: float) -> str:
    """Return a length of time in words, cut to its largest unit: "26 hours", "3 days"."""
    for unit, size, least in (("day", 86_400, 2 * 86_400), ("hour", 3_600, 2 * 3_600)):
        if seconds >= least:
            return f"{int(seconds // size)} {unit}s"
    minutes = int(seconds // 60)
    return "less than a minute" if minutes < 1 else f"{minutes} minute{'s' * (minutes > 1)}"


def counted(number: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun: "1 request", "2 requests"."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"
