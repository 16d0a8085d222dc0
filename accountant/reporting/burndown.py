"""Geometry of the burn-down picture: what is left of a limit, event after event.

Floats are good enough for a picture. Lines differ by stroke and areas by hatching, not by colour
alone, so that the picture survives a black-and-white printer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Final

from accountant.ledger.events import microseconds
from accountant.reporting.shape import PointFacts, SeriesFacts
from accountant.reporting.ticks import Tick, amounts, moments, numbers

WIDTH: Final = 720
HEIGHT: Final = 270
LEFT, RIGHT, TOP, BOTTOM = 62, 92, 34, 226
"""The plot lies from x LEFT to WIDTH - RIGHT and from y TOP to BOTTOM."""

_TAIL: Final = 14
"""So far the lines go on after the last point, so that its level can be seen."""

_SHORT: Final = 10_000_000
"""Below so many microseconds the x axis counts events instead of time."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything that the template draws, in pixels. Empty paths are left out."""

    id: str
    title: str
    description: str
    left: str
    """The line of what is left after what is spent."""
    left_with_reservations: str
    limit: str
    area: str
    over: str
    """The part below zero: more is spent or reserved than the limit."""
    zero: float
    y_ticks: tuple[Tick, ...]
    x_ticks: tuple[Tick, ...]
    x_label: str
    end: Tick
    epochs: tuple[float, ...]
    clipped: bool
    """Some value lies below the picture."""

    width: int = WIDTH
    height: int = HEIGHT
    x0: int = LEFT
    x1: int = WIDTH - RIGHT
    y0: int = TOP
    y1: int = BOTTOM


def chart(series: SeriesFacts, identity: str, name: str) -> Chart | None:
    """The picture of ``series``; None if it has no point. ``name`` is what it is a picture of."""
    points = series.points
    if not points:
        return None
    limits = [float(p.limit) for p in points]
    spent = [limit - _number(p.spent) for limit, p in zip(limits, points, strict=True)]
    held = [limit - _number(p.spent_and_reserved) for limit, p in zip(limits, points, strict=True)]
    top = max(limits)
    lowest = max(min(0.0, *spent, *held), -top)
    y = _scale(lowest - (0.06 * top if lowest < 0 else 0), top * 1.04, BOTTOM, TOP)
    xs, x_ticks, x_label = _across(points)
    paths = [_steps(xs, [y(max(v, lowest)) for v in line]) for line in (spent, held, limits)]
    ground = y(0.0)
    final = y(max(held[-1], lowest))
    return Chart(
        id=identity,
        title=f"Budget left over time: {name}, rule {series.rule}",
        description=_description(points),
        left=paths[0],
        left_with_reservations=paths[1] if held != spent else "",
        limit=paths[2],
        area=_closed(paths[1], xs[0], ground),
        over=_closed(paths[1], xs[0], ground) if lowest < 0 else "",
        zero=ground,
        y_ticks=tuple(Tick(y(v), text) for v, text in amounts(lowest, top)),
        x_ticks=x_ticks,
        x_label=x_label,
        end=Tick(final, _end(points[-1])),
        epochs=tuple(
            x
            for x, before, after in zip(xs[1:], points, points[1:], strict=False)
            if before.epoch != after.epoch
        ),
        clipped=min(*spent, *held) < lowest,
    )


def _number(amount: str) -> float:
    return float("inf") if amount == "infinite" else float(amount)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return round(start + (value - low) / span * (end - start), 1)

    return place


def _across(points: Sequence[PointFacts]) -> tuple[list[float], tuple[Tick, ...], str]:
    """The x of every point and the axis: time, or events where all happened at once."""
    times = [microseconds(p.time) for p in points]
    right = WIDTH - RIGHT - _TAIL
    if times[-1] - times[0] < _SHORT:
        sequences = [p.sequence for p in points]
        last = max(sequences[-1], sequences[0] + 1)
        x = _scale(sequences[0], last, LEFT, right)
        ticks = tuple(Tick(x(v), text) for v, text in numbers(sequences[0], last))
        return [x(s) for s in sequences], ticks, "number of the event in the ledger"
    x = _scale(times[0], times[-1], LEFT, right)
    ticks = tuple(Tick(x(v), text) for v, text in moments(times[0], times[-1]))
    return [x(t) for t in times], ticks, f"time (UTC), {_day(points[0])} to {_day(points[-1])}"


def _day(point: PointFacts) -> str:
    return point.time[:10]


def _steps(xs: Sequence[float], ys: Sequence[float]) -> str:
    """A line that keeps its height until the next point, to the right edge."""
    path = [f"M{xs[0]:g} {ys[0]:g}"]
    path += [f"H{x:g}V{y:g}" for x, y in zip(xs[1:], ys[1:], strict=True)]
    return "".join(path) + f"H{WIDTH - RIGHT}"


def _closed(path: str, start: float, ground: float) -> str:
    return f"{path}V{ground:g}H{start:g}Z"


def _end(point: PointFacts) -> str:
    if point.spent_and_reserved == "infinite":
        return "no bound"
    left = Decimal(point.limit) - Decimal(point.spent_and_reserved)
    short = Context(prec=4, rounding=ROUND_FLOOR).plus(left)
    text = format(abs(short), "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text} " + ("left" if left >= 0 else "over")


def _description(points: Sequence[PointFacts]) -> str:
    first, last = points[0], points[-1]
    if last.spent == "infinite":
        state = "a release without any bound on its loss has been booked"
    else:
        state = f"epsilon {last.spent} of {last.limit} is spent"
    if last.spent_and_reserved not in (last.spent, "infinite"):
        state += f", {last.spent_and_reserved} with what is reserved"
    return (
        f"From event {first.sequence} ({first.time}), when {first.spent} of {first.limit} was "
        f"spent, to event {last.sequence} ({last.time}): {state}."
    )
