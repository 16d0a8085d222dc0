"""When the capacity of an account rises by time alone: what waits may be looked at then.

Time alone lets spending leave a window, refreshes a limit, and unlocks one that unlocks over a
span. All are functions of the stamp: nothing here needs an event, and nothing changes the state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from accountant.budget.accounts.window import WindowAccount
from accountant.budget.evaluate import evaluate
from accountant.budget.request import Request
from accountant.budget.rules.base import View
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import State

_PERIODS: Final = 2
"""Periods of the calendar that are looked at: this one and the next, in which nothing is spent."""


def fits_from(state: State, request: Request) -> int | None:
    """Return the least stamp from which ``request`` would be admitted by time alone, if nothing
    else happened: no grant ends, and nobody asks. None if it would be admitted now, or something
    stands in its way that time does not take away.
    """
    rules = _in_the_way(state, request)
    stamps = [_rule_fits_from(state, request, rule) for rule in rules]
    if not stamps or None in stamps:
        return None
    latest = max(stamp for stamp in stamps if stamp is not None)
    return latest if _admits(state, request.at(latest)) else None


def fits_after(state: State, request: Request) -> int | None:
    """Return after how many further requests for the same cells ``request`` would be admitted; to
    ask again is one of them. None if it would be admitted now, or no number of them is enough.
    """
    shares = [rule.unlock.share for rule in _in_the_way(state, request) if rule.unlock]
    if not shares or not min(shares):
        return None
    most = int(-(-1 // min(shares)))

    def fits(more: int) -> bool:
        return _admits(state, request.among(more))

    return least_that(fits, 1, most) if fits(most) else None


def _in_the_way(state: State, request: Request) -> list[LimitRule]:
    """Return the limits that hold a request up; none if something else does."""
    fired = evaluate(state, request).holding
    blocking = {one.rule for one in fired if one.code == LimitRule.code}
    if len(blocking) < len(fired) or state.adopted is None:
        return []
    return [rule for rule in state.adopted.policy.limits if rule.id in blocking]


def _admits(state: State, request: Request) -> bool:
    return evaluate(state, request).granted


def _rule_fits_from(state: State, request: Request, rule: LimitRule) -> int | None:
    """Return the least stamp from which one rule does not stand in the way."""

    def fits(now: int) -> bool:
        compared = rule.compare(View(state, request.at(now)))
        return compared is None or not compared.fired or compared.action != "block"

    for begins, last in _spans(state, request, rule):
        if fits(last):
            return least_that(fits, begins, last)
    return None


def _spans(state: State, request: Request, rule: LimitRule) -> Iterator[tuple[int, int]]:
    """Yield spans of stamps, both ends included, within which what a rule admits only rises: up to
    the end of a period, or until all has left the window and is unlocked.
    """
    last = now = request.now
    for one in View(state, request).used(rule.id):
        window, account = one.epoch.window, one.reading.account
        if window is not None and window.calendar:
            for _ in range(_PERIODS):
                end = window.ends(now)
                yield now, end - 1
                now = end
            return
        if isinstance(account, WindowAccount) and account.passing:
            last = max(last, account.passing[-1].ends)
        if rule.unlock is not None:
            born = max((stamp for *_, stamp in state.people().grown), default=0)
            last = max(last, max(born, one.epoch.begun) + rule.unlock.length)
    yield now, last


def least_that(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least number in [low, high) from which on ``holds``; ``high`` if there is none."""
    return low + bisect_left(range(low, high), True, key=holds)
