"""Round numbers and moments to write along an axis."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = 1_000_000
_DAY: Final = 86_400
_STEPS: Final = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY),
)
_MONTHS: Final = (1, 2, 3, 6, 12, 24, 60, 120, 600)
_MOST: Final = 7


class Tick(NamedTuple):
    """A place on an axis, in pixels, and what is written there."""

    at: float
    text: str


def _step(span: float, most: int) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that needs at most ``most`` ticks."""
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))


def amounts(low: float, high: float) -> list[tuple[float, str]]:
    """Round amounts from ``low`` to ``high``."""
    step = _step(high - low, 5)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(i * step, _plain(i * step)) for i in range(first, last + 1)]


def _plain(value: float) -> str:
    return format(Decimal(f"{value:.6g}"), "f").replace("-", "−")


def numbers(low: int, high: int) -> list[tuple[float, str]]:
    """Round whole numbers from ``low`` to ``high``."""
    step = max(1, math.ceil(_step(high - low, _MOST)))
    first = -(-low // step) * step
    return [(float(i), str(i)) for i in range(first, high + 1, step)]


def moments(low: int, high: int) -> list[tuple[float, str]]:
    """Round moments between two, in microseconds since 1970."""
    span = (high - low) / _SECOND
    for step in _STEPS:
        if span / step <= _MOST:
            return _regular(low, high, step * _SECOND)
    months = next((m for m in _MONTHS if span / (m * 30.4 * _DAY) <= _MOST), _MONTHS[-1])
    return _months(low, high, months)


def _regular(low: int, high: int, step: int) -> list[tuple[float, str]]:
    if step >= _DAY * _SECOND:
        form = "%-d %b"
    elif high - low > _DAY * _SECOND:
        form = "%-d %b %H:%M"
    else:
        form = "%H:%M" if step >= 60 * _SECOND else "%H:%M:%S"
    first = -(-low // step) * step
    return [(float(t), _moment(t).strftime(form)) for t in range(first, high + 1, step)]


def _months(low: int, high: int, months: int) -> list[tuple[float, str]]:
    start = _moment(low)
    count = start.year * 12 + start.month
    count += -count % months
    found = []
    while (at := datetime(count // 12, count % 12 + 1, 1, tzinfo=UTC)) <= _moment(high):
        found.append((float((at - _EPOCH) // timedelta(microseconds=1)), at.strftime("%b %Y")))
        count += months
    return found


def _moment(time: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time)
