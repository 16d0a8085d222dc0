"""The last seven days against the seven before, in words."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from accountant.console.amounts import up
from accountant.console.facts.account import WeekFacts
from accountant.reporting.activity import Ending
from accountant.reporting.numbers import counted, percent_of

DECIDED: Final[tuple[Ending, ...]] = ("admitted", "refused", "recorded")
"""How a request ends; it may have waited before, be flagged besides, and expire later."""
_LOW: Final = Decimal("0.05")
"""Amounts that differ by less are told as equal."""


def week_headline(week: WeekFacts) -> str:
    """Return how this week compares with the last."""
    if week.spent is None or week.spent_before is None:
        this, last = (sum(one.get(e, 0) for e in DECIDED) for one in (week.this, week.last))
        return f"{counted(this, 'request')} decided this week, {last:,} last week"
    return _compared(week.spent, week.spent_before)


def _compared(this: str, last: str) -> str:
    now, before = Decimal(this), Decimal(last)
    if not now and not before:
        return "Nothing was spent in two weeks"
    if not before:
        return f"{up(this, 3)} was spent this week, nothing last week"
    if not now:
        return f"Nothing was spent this week, {up(last, 3)} last week"
    ratio = now / before
    if abs(ratio - 1) <= _LOW:
        return "This week took as much as last"
    if ratio > 1:
        return f"This week took {_times(ratio)} as much as last"
    return f"This week took less than last: {percent_of(this, last)} of it"


def _times(ratio: Decimal) -> str:
    words = {2: "twice", 3: "three times", 4: "four times"}
    if ratio > 1000:
        return "more than a thousand times"
    whole = int(ratio + Decimal("0.5"))
    if whole in words and abs(ratio - whole) <= whole * _LOW:
        return words[whole]
    return f"{ratio:.1f} times"


def week_rows(week: WeekFacts) -> list[tuple[str, str, str]]:
    """Return the rows of this week against last."""

    def row(name: str, *endings: Ending) -> tuple[str, str, str]:
        this, last = (sum(one.get(e, 0) for e in endings) for one in (week.this, week.last))
        return name, f"{this:,}", f"{last:,}"

    spent = [week.spent, week.spent_before]
    rows = [
        row("Let through", "admitted"),
        row("Recorded after they ran", "recorded"),
        row("Of both, flagged", "flagged"),
        row("Refused", "refused"),
        row("Began to wait", "waiting"),
    ]
    if any(one is not None for one in spent):
        this, last = ("–" if one is None else up(one, 3) for one in spent)
        rows.insert(0, ("Spent, those charged most", this, last))
    return rows
