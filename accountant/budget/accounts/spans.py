"""Spans that a limit counts over: windows that roll on, and periods of the calendar in UTC.

Stamps are microseconds since 1970 as POSIX counts them, without leap seconds: each day has 86,400
seconds, and a leap second is part of the day that it ends or the one that follows, as the clock
shows it. Everything here is a function of the stamp.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

Refresh = Literal["daily", "weekly", "monthly", "quarterly", "yearly"]
"""How often a limit begins anew."""

_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([hd])")
_SECONDS: Final = {"h": 3_600, "d": 86_400}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LAST_YEAR: Final = 9_999
_DAYS: Final = {"daily": 1, "weekly": 7}
_MONTHS: Final = {"month": 1, "monthly": 1, "quarterly": 3, "yearly": 12}
_NAMES: Final = {
    "daily": "day",
    "weekly": "week from Monday on",
    "month": "month",
    "monthly": "month",
    "quarterly": "quarter",
    "yearly": "year",
}


class Period(NamedTuple):
    """A span of the calendar: the stamps from ``start`` on, before ``end``."""

    start: int
    end: int


class Window(NamedTuple):
    """``30d`` or ``12h``, which roll on; or a period of the calendar in UTC: ``month``, and those
    that a limit refreshes by.
    """

    text: str

    @classmethod
    def read(cls, text: str) -> Window:
        """Parse a window. Raise ValueError if ``text`` is none."""
        if text not in _NAMES and not _SPAN.fullmatch(text):
            raise ValueError(f"{text!r} is no window: say 30d, 12h, or month")
        return cls(text)

    @property
    def calendar(self) -> bool:
        """Whether it is a period of the calendar."""
        return self.text in _NAMES

    @property
    def refreshes(self) -> bool:
        """Whether it is what ``refresh`` names."""
        return self.calendar and self.text != "month"

    @property
    def length(self) -> int:
        """The microseconds of a window that rolls on; those of the shortest period otherwise."""
        if (days := _SHORTEST.get(self.text)) is not None:
            return days * _SECONDS["d"] * 1_000_000
        return int(self.text[:-1]) * _SECONDS[self.text[-1]] * 1_000_000

    def period(self, at: int) -> Period | None:
        """Return the period of the calendar that stamp ``at`` lies in; None if the window rolls."""
        if not self.calendar:
            return None
        moment = _EPOCH + at * _MICROSECOND
        if self.text in _DAYS:
            back = moment.weekday() if self.text == "weekly" else 0
            first = moment.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(back)
            start = (first - _EPOCH) // _MICROSECOND
            return Period(start, start + self.length)
        months = _MONTHS[self.text]
        ordinal = (moment.year * 12 + moment.month - 1) // months * months
        return Period(_first_of(ordinal), _first_of(ordinal + months))

    def ends(self, at: int) -> int:
        """Return the stamp from which spending at stamp ``at`` no longer counts."""
        period = self.period(at)
        return at + self.length if period is None else period.end

    @property
    def words(self) -> str:
        """The window as part of a sentence."""
        if self.calendar:
            return f"a calendar {_NAMES[self.text]} (UTC)"
        unit = {"h": "hour", "d": "day"}[self.text[-1]]
        number = self.text[:-1]
        return f"{number} {unit}" if number == "1" else f"{number} {unit}s"


_SHORTEST: Final = {
    "daily": 1,
    "weekly": 7,
    "month": 28,
    "monthly": 28,
    "quarterly": 90,
    "yearly": 365,
}
"""Days of the shortest period."""


def _first_of(ordinal: int) -> int:
    """Return the stamp at which a month begins, months counted from year 0; the end of the year
    9999, the last that dates reach, for any later.
    """
    year, month = divmod(ordinal, 12)
    if year > _LAST_YEAR:
        return _first_of(12 * _LAST_YEAR) + 365 * _SECONDS["d"] * 1_000_000
    return (datetime(year, month + 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
