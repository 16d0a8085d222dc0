"""How fast a limit is being used, and when nothing will be left at that pace.

Averages of the past, for print: they promise nothing. Two paces are told, of the last 28 days and
of the last 7. Where a limit gives back with time there is no such date, and the facts say why.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from accountant.budget.commands import DAY
from accountant.budget.facts import SECOND
from accountant.ledger.events import microseconds, rfc3339
from accountant.privacy.units import INFINITE
from accountant.reporting.schema import PeriodFacts, PointFacts

LONG, SHORT = 28, 7
"""Days that the two paces are averages of."""
_FARTHEST: Final = 100 * 366
"""Days; dates that are farther away are not told."""
_DAY: Final = DAY * SECOND


class Pace(Struct, frozen=True):
    """Epsilon spent a day on average of the last ``days``; the day on which nothing is left at that
    pace, an RFC 3339 time; None where there is none.
    """

    days: int
    a_day: str | None
    runs_out: str | None


class Forecast(Struct, frozen=True):
    """Two paces, the long one first. ``over_since``: when more than the limit was spent first;
    ``refills``: when a limit of a period of the calendar begins anew, before any date counts;
    ``why``: why there is no date.
    """

    paces: tuple[Pace, Pace]
    over_since: str | None
    refills: str | None
    why: str


class Use(NamedTuple):
    """A limit now: its epoch, its period of the calendar if it counts in one, and its amounts.
    ``rolling``: what is spent comes back after some days.
    """

    epoch: int
    period: PeriodFacts | None
    rolling: bool
    spent: str
    left: str


def forecast(points: Sequence[PointFacts], use: Use, now: int) -> Forecast:
    """Return what the points of a limit, in the order of time, say about when it is used up at
    stamp ``now`` (microseconds).
    """
    start = use.period.start if use.period else ""
    # Epochs, and stamps, which all are of one length, ascend.
    first = bisect_left(points, (use.epoch, start), key=lambda one: (one.epoch, one.time))
    found = points[first : bisect_right(points, use.epoch, key=lambda one: one.epoch)]
    if not first or points[first - 1].epoch != use.epoch:
        start = ""  # the limit began within the period: what it counts did, too
    each = [_pace(found, use, days, now, start) for days in (LONG, SHORT)]
    end = use.period.end if use.period else None
    if end is not None:  # before any date counts, it begins anew
        each = [p if (p.runs_out or end) < end else Pace(p.days, p.a_day, None) for p in each]
    over = next((p.time for p in found if _above(p.spent, p.limit)), None)
    return Forecast((each[0], each[1]), over, end, _why(found, each[0], use))


def _pace(points: Sequence[PointFacts], use: Use, days: int, now: int, start: str) -> Pace:
    if not points or use.rolling or INFINITE in (use.spent, use.left):
        return Pace(days, None, None)
    since = max(now - days * _DAY, microseconds(start or points[0].time))
    if (passed := now - since) < _DAY:
        return Pace(days, None, None)
    then = bisect_right(points, rfc3339(since), key=lambda one: one.time)
    before = _number(points[then - 1].spent) if then else 0.0
    a_day = max(0.0, _number(use.spent) - before) / (passed / _DAY)
    left, runs_out = _number(use.left), None
    if a_day > 0 and 0 < left / a_day < _FARTHEST:
        runs_out = rfc3339(now + int(left / a_day * _DAY))
    return Pace(days, f"{a_day:.9f}", runs_out)


def _why(points: Sequence[PointFacts], pace: Pace, use: Use) -> str:
    """Return why there is no date; empty if there is one."""
    if pace.runs_out is not None or not _number(use.left):
        return ""
    if use.rolling:
        return "it comes back with time"
    if not points or not _number(use.spent):
        return "nothing was spent yet"
    if pace.a_day is None:
        return "it has counted for less than a day"
    if float(pace.a_day) == 0:
        return f"nothing was spent in {LONG} days"
    return "not before it refills" if use.period else "not within a hundred years"


@lru_cache(maxsize=65_536)  # points stay as they are, and each page reads those of many accounts
def _above(spent: str, limit: str) -> bool:
    return _number(spent) > _number(limit)


def _number(amount: str) -> float:
    return float("inf") if amount == INFINITE else float(amount)
