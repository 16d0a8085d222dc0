"""Periods: whole days of UTC, from one to another, both included."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple, Self

from accountant.budget.commands import DAY
from accountant.budget.errors import Invalid
from accountant.budget.facts import SECOND

_EPOCH: Final = date(1970, 1, 1)
MOST_YEARS: Final = 100
"""The longest period."""


class Period(NamedTuple):
    """The days from ``first`` to ``last``."""

    first: date
    last: date

    @property
    def start(self) -> int:
        """The stamp at which it begins, in microseconds."""
        return (self.first - _EPOCH).days * DAY * SECOND

    @property
    def end(self) -> int:
        """The stamp at which it is over, in microseconds."""
        return (self.last + timedelta(days=1) - _EPOCH).days * DAY * SECOND

    @property
    def name(self) -> str:
        """The period as file names have it: "2026-10", or "2026-10-05_2026-11-04"."""
        if self.first.day == 1 and self.last == _end_of_month(self.first):
            return f"{self.first:%Y-%m}"
        return f"{self.first.isoformat()}_{self.last.isoformat()}"

    @classmethod
    def of_month(cls, text: str) -> Self:
        """Return a month, "2026-10". Raise Invalid."""
        try:
            first = date.fromisoformat(f"{text}-01")
        except ValueError:
            raise Invalid("unknown-report", f"{text!r} is no month: write 2026-10") from None
        return cls(first, _end_of_month(first))

    @classmethod
    def of_days(cls, first: str, last: str) -> Self:
        """Return a period from one day to another, "2026-10-05". Raise Invalid."""
        try:
            found = cls(date.fromisoformat(first), date.fromisoformat(last))
        except ValueError:
            text = f"{first!r} to {last!r} are no days: write 2026-10-05"
            raise Invalid("unknown-report", text) from None
        if found.last < found.first:
            raise Invalid("unknown-report", f"the period ends on {last}, before it begins: {first}")
        if found.last.year - found.first.year > MOST_YEARS:
            raise Invalid("unknown-report", f"a period has at most {MOST_YEARS} years")
        return found

    @classmethod
    def asked(cls, month: str | None, first: str | None, last: str | None, now: int) -> Self:
        """Return the period that is asked for, at stamp ``now``: a month, or from a day to another
        (by default: today). Raise Invalid, also for a period that has not begun.
        """
        if month and (first or last):
            raise Invalid("unknown-report", "name a month, or a first and a last day, not both")
        today = datetime.fromtimestamp(now / SECOND, UTC).date().isoformat()
        if month:
            found = cls.of_month(month)
        elif first:
            found = cls.of_days(first, last or max(first, today))
        else:
            raise Invalid("unknown-report", "name a month (2026-10), or a first day (2026-10-05)")
        if found.start > now:
            text = f"the period begins on {found.first.isoformat()}, and today is {today}"
            raise Invalid("unknown-report", text)
        return found


def _end_of_month(first: date) -> date:
    return first.replace(day=monthrange(first.year, first.month)[1])
