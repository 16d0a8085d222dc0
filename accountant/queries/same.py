"""When two values are the same: the one rule for categories, units and groups.

``key`` gives each value a key, and two values are the same if their keys are equal. So it is an
equivalence: no record is in two categories, no unit has two names, and what hashes a name hashes
its key. A key is made of

* a number of any type: the number as it is printed, exactly. 1, 1.0, True and Decimal("1.00") are
  the same, and so are 0.1 and the float of 32 bits that is printed as 0.1. Numbers of one type
  and their keys have the same order.
* a time of any type: the seconds since 1970, exactly. A day is its first moment, and a time with
  a zone is that moment in UTC.
* a length of time: its seconds, or its months.
* a text: itself, also if it is spelled like a number. A tuple: the keys of its entries.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_CALENDAR: Final = frozenset({"Y", "M"})
_COARSE: Final = frozenset({"Y", "M", "W", "D", "h", "m"})
_PER_SECOND: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9, "ps": 12, "fs": 15, "as": 18}
_START: Final = datetime(1970, 1, 1)


def key(value: Any) -> Hashable:
    """Return the key of a value. Raise ValueError for one that can be no category and no name: a
    list, or another one that has no hash.
    """
    if isinstance(value, str | bytes):
        return bytes(value) if isinstance(value, bytes) else str.__str__(value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _of_numpy(value)
    if isinstance(value, date | timedelta):
        return _of_time(value)
    if isinstance(value, Real | Decimal | np.bool_):
        return _of_number(value)
    if isinstance(value, tuple):
        return tuple(map(key, value))
    try:
        hash(value)
    except TypeError:
        raise ValueError(f"{value!r} can be no category and no name") from None
    return value  # type: ignore[no-any-return]


def keys(column: NDArray[Any]) -> Iterable[Hashable]:
    """Return the key of each entry."""
    if column.dtype.kind in "iuU":  # NumPy's own types are slower
        return map(key, column.tolist())
    return map(key, column)


def _of_number(value: Any) -> Hashable:
    if isinstance(value, Integral | np.bool_):
        return Fraction(int(value))
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if not np.isfinite(float(value)):
        return float(value) if value == value else (float, "nan")  # noqa: PLR0124
    return Fraction(float.__repr__(value) if isinstance(value, float) else str(value))


def _of_time(value: date | timedelta) -> Hashable:
    for finer in ("to_datetime64", "to_timedelta64"):  # pandas counts nanoseconds, in UTC
        if hasattr(value, finer):
            return _of_numpy(getattr(value, finer)())
    if isinstance(value, timedelta):
        return timedelta, _seconds(value)
    if not isinstance(value, datetime):
        return datetime, _seconds(value - _START.date())
    plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return datetime, _seconds(plain - _START)


def _seconds(length: timedelta) -> Fraction:
    return Fraction(length // timedelta(microseconds=1), 10**6)


def _of_numpy(value: np.datetime64 | np.timedelta64) -> tuple[Hashable, ...]:
    kind = datetime if isinstance(value, np.datetime64) else timedelta
    if np.isnat(value):
        return kind, "NaT"
    unit, size = np.datetime_data(value.dtype)
    if unit == "generic" or (kind is timedelta and unit in _CALENDAR):
        months = int(value.astype(np.int64)) * size * (12 if unit == "Y" else 1)
        return kind, months, "generic" if unit == "generic" else "months"
    if unit in _COARSE:
        value, unit, size = value.astype(f"{value.dtype.kind}8[s]"), "s", 1
    return kind, Fraction(int(value.astype(np.int64)) * size, 10 ** _PER_SECOND[unit])
