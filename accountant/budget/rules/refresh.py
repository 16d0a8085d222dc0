"""A limit that refreshes: its budget begins anew with each period of the calendar in UTC.

**What counts in a period.** What was spent in it, by the event that spent it: a commit, an expiry,
a record, the end of a session. Beside that all that open grants hold, whenever they were granted:
they may run now. So a grant that is open over a boundary counts in both periods: in that which it
was granted in for as long as that lasts, and in the next one until it ends. What it then commits is
charged to the period in which it commits.

**Claim.** Fix a period, and take all that was granted in it, that was open at any moment of it, or
that was recorded in it. Given what was before, the losses of what of this has run add up, under the
rule's gate, to at most (epsilon, delta).

*Proof.* Take a mechanism of these at the last grant within the period. If its grant is open, the
account holds it in full. If its grant has ended in the period, what was spent counts to the end of
the period, and what was given back has not run. Hence the compared sum bounds, in every currency,
what ran or may run, the new request included; and the filter admits only what stays within its
capacity (privacy/filters): an adaptive sequence that begins at the boundary with what is open then.
After the last grant, grants can only end, at no more than they hold. What a record or a correction
adds beyond the limit is flagged as an overrun, as under every limit.

Not claimed: anything of a longer time. The periods of a year add up, so the lifetime total stands
beside them. A grant of before the rule was adopted is not among what it bounds; nor is what a
command runs on after its grant has expired, which was charged in full when it expired.

The period is a function of the stamp alone. No event marks the boundary, and a decision at any
later stamp, however many periods have passed, sees what counts then. While the clock is in doubt
time stands still, and so does the period.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from accountant.budget.accounts.spans import Refresh, Window
from accountant.budget.rules.base import Compared, Finding, Told
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.window import in_its_period


class RefreshRule(LimitRule):
    """At most (epsilon, delta) for what was granted or ran in any one period of the calendar."""

    field: ClassVar[str] = "refresh"

    refresh: Refresh = Field(
        description="daily, weekly (from Monday on), monthly, quarterly or yearly, in UTC: "
        "what was spent in one period does not count in the next"
    )

    @property
    def span(self) -> str | None:
        """The period."""
        return self.refresh

    def words(self, compared: Compared, told: Told) -> Finding:
        """Return the comparison of a limit, with the period, and what is left in it."""
        found = LimitRule.words(self, compared, told)
        return in_its_period(found, Window.read(self.refresh), told.event.time)

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        words = Window.read(self.refresh).words
        return (
            f"Refreshed {self.refresh}: for what is granted or runs in {words}, and for nothing "
            "longer (the lifetime total stands beside it). " + LimitRule.sentence(self, unit)
        )
