"""How a limit went down: a picture, the same in words, and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Final, NamedTuple

from accountant.console.amounts import down, up
from accountant.console.drawing import Drawing, Subject, drawings
from accountant.console.facts.account import Burn, Limit
from accountant.ledger.events import microseconds
from accountant.privacy.units import INFINITE
from accountant.reporting.numbers import day, minute, places
from accountant.reporting.verdict import in_words

MOST_STEPS: Final = 40
"""Rows of the table beside the picture."""


class Row(NamedTuple):
    """A step of the table beside the picture."""

    sequence: int
    time: str
    spent: str
    reserved_too: str
    left: str
    limit: str


class Picture(NamedTuple):
    """How it went down: pictures, what they show in words, and the same as a table."""

    title: str
    described: str
    caption: str
    drawings: tuple[Drawing, ...]
    rows: tuple[Row, ...]
    left_out: int


def picture(dataset: str, usual: str | None, limit: Limit, burn: Burn) -> Picture | None:
    """Return the burn-down of a limit; None where nothing is kept of it."""
    if not burn.points:
        return None
    subject = Subject(
        points=burn.points,
        refused=[microseconds(time) for _, time in burn.refused],
        usual=usual,
        forecast=limit.forecast,
    )
    first, last = burn.points[0], burn.points[-1]
    rows = tuple(reversed(list(_rows(burn))))
    return Picture(
        title=f"Budget left on {in_words(dataset)}, {day(first.time)} to {day(last.time)}",
        described=described(limit, burn),
        caption=_caption(limit, burn),
        drawings=drawings(subject),
        rows=rows[:MOST_STEPS],
        left_out=max(0, len(rows) - MOST_STEPS),
    )


def _left(limit: str, used: str) -> str:
    if used == INFINITE:
        return "0"
    return format(max(Decimal(0), Decimal(limit) - Decimal(used)), "f")


def _rows(burn: Burn) -> Iterator[Row]:
    before = None
    for one in burn.points:
        if before is None or (one.spent_and_reserved, one.limit) != before:
            left = _left(one.limit, one.spent_and_reserved)
            yield Row(one.sequence, one.time, one.spent, one.spent_and_reserved, left, one.limit)
        before = one.spent_and_reserved, one.limit


def described(limit: Limit, burn: Burn) -> str:
    """Return the picture in words, for those who do not see it."""
    first, last, digits = burn.points[0], burn.points[-1], places(limit.epsilon)
    said = [
        f"Epsilon left for those who were charged most: "
        f"{down(_left(first.limit, first.spent_and_reserved), digits)} on {day(first.time)}, "
        f"{down(_left(last.limit, last.spent_and_reserved), digits)} now."
    ]
    for before, one in pairwise(burn.points):
        if one.limit != before.limit:
            said.append(f"The limit went from {before.limit} to {one.limit} on {day(one.time)}.")
    said += [
        f"At the pace of the last {pace.days} days nothing is left on {day(pace.runs_out)}."
        for pace in limit.forecast.paces
        if pace.runs_out
    ]
    if burn.refused:
        said.append(f"The last refusal was on {minute(burn.refused[-1][1])}.")
    return " ".join(said)


def _caption(limit: Limit, burn: Burn) -> str:
    digits = places(limit.epsilon)
    said = ["Left for those who were charged most, as the limit was. Each step is an event."]
    if burn.every > 1:
        said[0] = (
            f"Left for those who were charged most, as the limit was; one event in {burn.every:,} "
            "is drawn."
        )
    if burn.refused:
        said.append("✕ marks a refusal.")
    paces = [
        f"the last {pace.days} days ({up(pace.a_day, digits)} a day)"
        for pace in limit.forecast.paces
        if pace.runs_out and pace.a_day is not None
    ]
    if paces:
        said.append(f"The dotted lines carry on at the pace of {' and of '.join(paces)}.")
    if limit.window:
        said.append("What came back between events is not drawn.")
    return " ".join(said)
