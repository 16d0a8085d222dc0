"""A limit on a window: budget comes back with time.

It promises only this: what starts inside one window that is fixed in advance is (epsilon, delta)
given everything before it. It never bounds the total over longer times: rolling or calendar, the
windows of a year add up. So the lifetime total is always shown beside it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from pydantic import Field, field_validator

from accountant.budget.accounts.spans import Window
from accountant.budget.rules.base import Compared, Finding, Told
from accountant.budget.rules.limit import LimitRule
from accountant.ledger.events import rfc3339
from accountant.privacy.units import INFINITE


class WindowRule(LimitRule):
    """At most (epsilon, delta) for what starts inside any one window that is fixed in advance."""

    field: ClassVar[str] = "window"

    window: str = Field(description="30d or 12h, which roll on; or month, a calendar month in UTC")

    @field_validator("window")
    @classmethod
    def _known(cls, text: str) -> str:
        if Window.read(text).refreshes:
            raise ValueError(f"{text!r} is no window: say refresh: {text}")
        return text

    @property
    def span(self) -> str | None:
        """The window."""
        return self.window

    def words(self, compared: Compared, told: Told) -> Finding:
        """Return the comparison of a limit, with what it is counted over."""
        found = LimitRule.words(self, compared, told)
        return in_its_period(found, Window.read(self.window), told.event.time)

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        words = Window.read(self.window).words
        return (
            f"Counted over {words}: for what starts inside one such window that is fixed in "
            "advance, and for nothing longer (the lifetime total stands beside it). "
            + LimitRule.sentence(self, unit)
        )


def in_its_period(found: Finding, window: Window, at: int) -> Finding:
    """Return a limit's finding with the window that it was counted over at stamp ``at``, and with a
    period of the calendar when that ends and the epsilon that was left in it before the request.
    """
    text = f"{found.text}; counted over {window.words}, not over the lifetime"
    if (period := window.period(at)) is None:
        return found._replace(text=text)
    start, end = map(rfc3339, period)
    spent = found.numbers["spent_before"]
    more = Decimal(0 if spent == INFINITE else found.numbers["limit"]["epsilon"])
    left = format(max(more - Decimal(0 if spent == INFINITE else spent), Decimal(0)), "f")
    text += f": {start[:10]} to {end[:10]}, epsilon {left} was left, and it refreshes on {end[:10]}"
    numbers = {**found.numbers, "period": {"start": start, "end": end, "left": left}}
    return found._replace(text=text, numbers=numbers)
