"""What the page of a trial says in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from accountant.console.amounts import down, grouped, up
from accountant.console.drawing import Subject, drawings
from accountant.console.drawing import Tried as Line
from accountant.console.facts.changing import KEEP, LIFETIME, PERIODS
from accountant.console.facts.effects import Effect, Standing
from accountant.console.facts.pace import Pace
from accountant.console.facts.what_if import MOST_TEXT, Binding, Mistake, Rung, Tried, WhatIf
from accountant.console.pages.account_words import Figure
from accountant.console.pages.picture_words import Picture
from accountant.privacy.units import INFINITE
from accountant.reporting.numbers import counted, day, even_chance, places
from accountant.reporting.trying import Failed, Looked, Working
from accountant.reporting.verdict import in_words

_WINDOWS: Final = (
    (KEEP, "as it is"),
    (LIFETIME, "the lifetime"),
    ("30d", "30 days, rolling"),
    ("7d", "7 days, rolling"),
    ("month", "a calendar month"),
    *((name, name) for name in PERIODS),
)
ANSWERS: Final = {
    "allow": "allowed",
    "flag": "flagged",
    "approve": "left to a person",
    "block": "refused",
}


class Moved(NamedTuple):
    """Requests that were told one thing, and would be told another, or the same."""

    then: str
    now: str
    requests: int
    differs: bool


def told(
    found: WhatIf,
    looked: Looked | Working | Failed | None,
    asked: Mapping[str, str],
    days: int,
    problem: str = "",
    beside: Mapping[str, Looked] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return what the template says; ``problem``: why nothing was proposed; ``beside``: what the
    limits beside the one that is tried would have answered.
    """
    tried = found.found if isinstance(found.found, Tried) else None
    mistake = found.found.text if isinstance(found.found, Mistake) else ""
    focus = tried.focus if tried else None
    return {
        "of": found.population,
        "base": found.base,
        "limits": found.limits,
        "asked": asked,
        "days": days,
        "windows": _WINDOWS,
        "most": MOST_TEXT,
        "problem": f"{problem[:1].upper()}{problem[1:]}",
        "mistake": f"{mistake[:1].upper()}{mistake[1:]}".removesuffix(".") if mistake else "",
        "tried": tried,
        "headline": headline(found, asked),
        "answer": answer(tried) if tried else "",
        "figures": figures(tried, looked) if tried and focus else (),
        "picture": picture(tried) if tried and focus else None,
        "rungs": [rung(one, _answers(one, looked, beside), focus) for one in tried.rungs]
        if tried
        else [],
        "binding": binding(tried.binding) if tried and tried.binding else "",
        "looked": looked if isinstance(looked, Looked) else None,
        "working": looked if isinstance(looked, Working) else None,
        "failed": looked.why if isinstance(looked, Failed) else "",
        "moved": moved(looked) if isinstance(looked, Looked) else [],
        "outcome_words": ANSWERS,
        "effects": [effect(one.now, one.then) for one in tried.effects] if tried else [],
    }


def headline(found: WhatIf, asked: Mapping[str, str]) -> str:
    """Return the question that the page answers."""
    tried = found.found
    if not isinstance(tried, Tried):
        return "What if a limit were another?"
    if tried.focus is None or tried.focus.then is None:
        return "What if this were the policy?"
    name, limit = in_words(tried.focus.dataset), tried.focus.then.limit
    over = f" over {tried.focus.then.window}" if tried.focus.then.window else ""
    return f"What if rule {asked['rule']} allowed {limit} on {name}{over}?"


def answer(tried: Tried) -> str:
    """Return the sentence that could be the whole page."""
    if tried.same:
        return "This is the policy in force: nothing would change"
    focus = tried.focus
    if focus is None or focus.then is None:
        rules = counted(len(tried.changes), "rule")
        return f"{rules} would be other than now" if tried.changes else "No rule would change"
    return _lasts(focus.now, focus.then)


def _lasts(now: Standing | None, then: Standing) -> str:
    """Return how long a limit would last, or what would be left of it."""
    left = down(then.total.remaining, places(then.limit))
    if then.total.status == "over":
        spent = up(then.total.spent, places(then.limit))
        return f"It would be over at once: {spent} is spent, {grouped(then.limit)} would be allowed"
    if then.total.remaining == "0":
        return "Nothing would be left of it"
    if then.window:
        return f"{left} would be left, and budget would come back with time"
    lasts, before = dates(then.paces), dates(now.paces) if now else ""
    if lasts:
        return f"It would last until {lasts}" + (f" instead of {before}" if before else "")
    was = down(now.total.remaining, places(then.limit)) if now else ""
    return f"{left} would be left" + (f" instead of {was}" if was else "")


def dates(paces: Sequence[Pace]) -> str:
    """Return the days on which nothing is left, in words; empty if there are none."""
    found = sorted({one.runs_out for one in paces if one.runs_out})
    days = list(dict.fromkeys(map(day, found)))
    return " to ".join(days) if days else ""


def figures(tried: Tried, looked: object) -> tuple[Figure, ...]:
    """Return the four numbers of the answer."""
    focus = tried.focus
    if focus is None or focus.then is None:
        return ()
    then, now = focus.then, focus.now
    digits = places(then.limit)
    before = f"now {down(now.total.remaining, digits)}" if now else "not there now"
    usual = Figure("Usual requests", "–", "none with an epsilon of its own was asked lately")
    if tried.usual_then is not None:
        more = f"{tried.usual_then.more:,} more"
        each = up(tried.usual_then.epsilon, digits)
        was = f"now {tried.usual_now.more:,}" if tried.usual_now else "now not known"
        usual = Figure("Usual requests", more, f"{was}, of {each} on everyone")
    chance = even_chance(then.limit)
    promised = f"now {even_chance(now.limit)}" if now else "no promise now"
    return (
        Figure("Left today", down(then.total.remaining, digits), before, then.total.remaining),
        usual,
        _refused(looked, focus.dataset),
        Figure("Even chance becomes at most", chance, promised),
    )


def _refused(looked: object, dataset: str) -> Figure:
    if not isinstance(looked, Looked):
        beside = "being worked out" if isinstance(looked, Working) else "not worked out"
        return Figure("Would have refused", "–", beside)
    requests, before, now = _counts(looked, dataset)
    if not requests:
        return Figure("Would have refused", "none", "no request was decided in these days")
    were = f"{before:,} {'was' if before == 1 else 'were'} refused"
    return Figure("Would have refused", f"{now:,} of {requests:,}", were)


def _counts(looked: Looked, dataset: str) -> tuple[int, int, int]:
    """Return how many requests there were on a dataset, were refused, and would be."""
    if dataset != "*":
        return looked.on.get(dataset, (0, 0, 0))
    return looked.requests, looked.refused_then, looked.refused_now


def picture(tried: Tried) -> Picture | None:
    """Return how the limit went down, and would go on."""
    focus = tried.focus
    if focus is None or focus.then is None or focus.now is None or not tried.points:
        return None
    then, digits = focus.then, places(focus.then.limit)
    line = Line(then.limit, then.total.remaining, then.paces)
    subject = Subject(points=tried.points, forecast=tried.forecast, tried=line)
    left, now = (down(one.total.remaining, digits) for one in (then, focus.now))
    said = [
        f"{now} of {grouped(focus.now.limit)} is left now.",
        f"With a limit of {grouped(then.limit)} from now on, {left} would be left.",
    ]
    if lasts := dates(then.paces):
        said.append(f"It would reach zero on {lasts}.")
    limit = grouped(then.limit)
    return Picture(
        title=f"Budget left on {in_words(focus.dataset)}, and with a limit of {limit}",
        described=" ".join(said),
        caption="Dotted: the limit in force at the pace of the last 28 days and of the last 7. "
        "Dashed: the limit that is tried, from now on, at the same paces.",
        drawings=drawings(subject),
        rows=(),
        left_out=0,
    )


class RungTold(NamedTuple):
    """A row of other limits."""

    limit: str
    name: str
    chance: str
    refused: str
    left: str
    usual: str
    runs_out: str
    over: bool


def _answers(one: Rung, looked: object, beside: Mapping[str, Looked]) -> Looked | None:
    """Return what a limit would have answered, as far as that was worked out."""
    if one.name == "tried":
        return looked if isinstance(looked, Looked) else None
    return beside.get(one.limit)


def rung(one: Rung, looked: Looked | None, focus: Effect | None) -> RungTold:
    """Return another limit in words."""
    counts = _counts(looked, focus.dataset) if looked and focus else None
    digits = places(one.limit)
    over = one.total.status == "over"
    runs = dates(one.paces) or "no date"
    if over:
        beyond = _minus(one.total.spent, one.limit)
        runs = f"Over at once, by {up(beyond, digits)}" if beyond else "Over at once"
    elif one.total.remaining == "0":
        runs = "Nothing is left"
    return RungTold(
        limit=one.limit,
        name=one.name,
        chance=even_chance(one.limit),
        refused=f"{counts[2]:,} of {counts[0]:,}" if counts else "–",
        left=down(one.total.remaining, digits),
        usual=f"{one.usual.more:,}" if one.usual else "–",
        runs_out=runs,
        over=over,
    )


def _minus(spent: str, limit: str) -> str:
    if spent == INFINITE:
        return ""
    more = Decimal(spent) - Decimal(limit)
    return format(more, "f") if more > 0 else ""


def binding(one: Binding) -> str:
    """Return which other limit leaves less, in words."""
    left = down(one.left, places(one.limit))
    return f"Rule {one.rule} on {in_words(one.dataset)} has {left} of {grouped(one.limit)} left."


def moved(looked: Looked) -> list[Moved]:
    """Return how requests were answered, and would be; those that differ first."""
    found = []
    for key, number in looked.moved.items():
        then, now = key.split()
        found.append(Moved(ANSWERS[then], ANSWERS[now], number, then != now))
    return sorted(found, key=lambda one: (not one.differs, -one.requests))


class Told(NamedTuple):
    """A limit on an account, now and then."""

    now: str
    then: str
    over: bool
    would_be_over: bool


def effect(now: Standing | None, then: Standing | None) -> Told:
    """Return where a limit stands now and then, in words."""
    over, would_be_over = (one is not None and one.total.status == "over" for one in (now, then))
    return Told(_stands(now), _stands(then), over, would_be_over)


def _stands(one: Standing | None) -> str:
    if one is None:
        return "no such limit"
    window = f", over {one.window}" if one.window else ""
    if one.total.status == "over":
        return f"{up(one.total.spent, places(one.limit))} spent of {grouped(one.limit)}{window}"
    return f"{down(one.total.remaining, places(one.limit))} of {grouped(one.limit)} left{window}"
