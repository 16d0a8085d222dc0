"""A limit on a window: budget comes back with time.

It promises only this: what starts inside one window that is fixed in advance is (epsilon, delta)
given everything before it. It never bounds the total over longer times: rolling or calendar, the
windows of a year add up. So the lifetime total is always shown beside it.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator

from accountant.budget.accounts.window import Window
from accountant.budget.rules.base import Compared, Finding, Told
from accountant.budget.rules.limit import LimitRule


class WindowRule(LimitRule):
    """At most (epsilon, delta) for what starts inside any one window that is fixed in advance."""

    field: ClassVar[str] = "window"

    window: str = Field(description="30d or 12h, which roll on; or month, a calendar month in UTC")

    @field_validator("window")
    @classmethod
    def _known(cls, text: str) -> str:
        Window.read(text)
        return text

    @property
    def span(self) -> str | None:
        """The window."""
        return self.window

    def words(self, compared: Compared, told: Told) -> Finding:
        """Return the comparison of a limit, with what it is counted over."""
        found = LimitRule.words(self, compared, told)
        words = Window.read(self.window).words
        return found._replace(text=f"{found.text}; counted over {words}, not over the lifetime")

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        words = Window.read(self.window).words
        return (
            f"Counted over {words}: for what starts inside one such window that is fixed in "
            "advance, and for nothing longer (the lifetime total stands beside it). "
            + LimitRule.sentence(self, unit)
        )
