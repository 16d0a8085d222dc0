"""The geometry of a burn-down picture: the rest of a limit, event after event, in floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Final, NamedTuple

from accountant.ledger.events import microseconds
from accountant.privacy.units import INFINITE
from accountant.reporting.schema import PointFacts, SeriesFacts, as_number

WIDTH: Final = 720
HEIGHT: Final = 270
LEFT, RIGHT, TOP, BOTTOM = 62, 92, 34, 226
"""The plot lies from x LEFT to WIDTH - RIGHT and from y TOP to BOTTOM."""
_TAIL: Final = 14
"""Pixels that the lines go on after the last point, so that its level can be seen."""
_SHORT: Final = 10_000_000
"""Below so many microseconds the x axis counts events instead of time."""

_SECOND: Final = 1_000_000
_DAY: Final = 86_400
_STEPS: Final = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY),
)
_MONTHS: Final = (1, 2, 3, 6, 12, 24, 60, 120, 600)
_MOST_TICKS: Final = 7


class Tick(NamedTuple):
    """A place on an axis, in pixels, and its label."""

    at: float
    text: str


class Chart(NamedTuple):
    """A burn-down picture, in pixels. ``over``: a part of the area lies below zero; ``clipped``:
    some value lies below the picture. Empty paths are not drawn.
    """

    series: SeriesFacts
    left: str
    left_with_reservations: str
    limit: str
    area: str
    over: bool
    zero: float
    y_ticks: list[Tick]
    x_ticks: list[Tick]
    x_label: str
    end: Tick
    epochs: list[float]
    clipped: bool


def chart(series: SeriesFacts) -> Chart:
    """Return the picture of ``series``."""
    points = series.points
    limits = [float(p.limit) for p in points]
    spent = [float(p.limit) - as_number(p.spent) for p in points]
    held = [float(p.limit) - as_number(p.spent_and_reserved) for p in points]
    top = max(limits)
    lowest = max(min(0.0, *spent, *held), -top)
    y = _scale(lowest - (0.06 * top if lowest < 0 else 0), top * 1.04, BOTTOM, TOP)
    xs, x_ticks, x_label = _across(points)
    paths = [_steps(xs, [y(max(v, lowest)) for v in line]) for line in (spent, held, limits)]
    changes = zip(xs[1:], points, points[1:], strict=False)
    return Chart(
        series=series,
        left=paths[0],
        left_with_reservations=paths[1] if held != spent else "",
        limit=paths[2],
        area=f"{paths[1]}V{y(0.0):g}H{xs[0]:g}Z",
        over=lowest < 0,
        zero=y(0.0),
        y_ticks=[Tick(y(v), text) for v, text in amounts(lowest, top)],
        x_ticks=x_ticks,
        x_label=x_label,
        end=Tick(y(max(held[-1], lowest)), _end(points[-1])),
        epochs=[x for x, before, after in changes if before.epoch != after.epoch],
        clipped=min(*spent, *held) < lowest,
    )


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: round(start + (value - low) / span * (end - start), 1)


def _across(points: Sequence[PointFacts]) -> tuple[list[float], list[Tick], str]:
    """Return the x of every point and the axis: time, or events if they follow closely."""
    times = [microseconds(p.time) for p in points]
    if times[-1] - times[0] < _SHORT:
        places = [p.sequence for p in points]
        low, high = places[0], max(places[-1], places[0] + 1)
        labels, said = numbers(low, high), "number of the event in the ledger"
    else:
        places, low, high = times, times[0], times[-1]
        days = f"{points[0].time[:10]} to {points[-1].time[:10]}"
        labels, said = moments(low, high), f"time (UTC), {days}"
    x = _scale(low, high, LEFT, WIDTH - RIGHT - _TAIL)
    return [x(v) for v in places], [Tick(x(v), text) for v, text in labels], said


def _steps(xs: Sequence[float], ys: Sequence[float]) -> str:
    """Return a path that keeps its height until the next point, to the right edge."""
    path = [f"M{xs[0]:g} {ys[0]:g}"]
    path += [f"H{x:g}V{y:g}" for x, y in zip(xs[1:], ys[1:], strict=True)]
    return "".join(path) + f"H{WIDTH - RIGHT}"


def _end(point: PointFacts) -> str:
    if point.spent_and_reserved == INFINITE:
        return "no bound"
    left = Decimal(point.limit) - Decimal(point.spent_and_reserved)
    short = Context(prec=4, rounding=ROUND_FLOOR).plus(left)
    return f"{abs(short).normalize():f} {'left' if left >= 0 else 'over'}"


def _step(span: float, most: int) -> float:
    """Return the smallest of 1, 2, 2.5 and 5 times a power of ten that needs ``most`` ticks."""
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))


def amounts(low: float, high: float) -> list[tuple[float, str]]:
    """Return round amounts from ``low`` to ``high``, with their labels."""
    step = _step(high - low, 5)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = [i * step for i in range(first, last + 1)]
    return [(v, format(Decimal(f"{v:.6g}"), "f").replace("-", "−")) for v in values]


def numbers(low: int, high: int) -> list[tuple[float, str]]:
    """Return round whole numbers from ``low`` to ``high``, with their labels."""
    step = max(1, math.ceil(_step(high - low, _MOST_TICKS)))
    return [(float(i), str(i)) for i in _multiples(low, high, step)]


def moments(low: int, high: int) -> list[tuple[float, str]]:
    """Return round moments between two, in microseconds since 1970, with their labels."""
    span = (high - low) / _SECOND
    step = next((step for step in _STEPS if span / step <= _MOST_TICKS), 0)
    if not step:
        return _months(low, high, span / _DAY / 30.4)
    if step >= _DAY:
        form = "%-d %b"
    elif span > _DAY:
        form = "%-d %b %H:%M"
    else:
        form = "%H:%M" if step >= 60 else "%H:%M:%S"
    places = _multiples(low, high, step * _SECOND)
    return [(float(at), _moment(at).strftime(form)) for at in places]


def _months(low: int, high: int, span: float) -> list[tuple[float, str]]:
    """Return the first days of months between two moments that are ``span`` months apart."""
    step = next((months for months in _MONTHS if span / months <= _MOST_TICKS), _MONTHS[-1])
    # Months since the year 0, January being 0: from the one after ``low`` to that of ``high``.
    first, end = (at.year * 12 + at.month for at in map(_moment, (low, high)))
    days = [datetime(n // 12, n % 12 + 1, 1, tzinfo=UTC) for n in _multiples(first, end - 1, step)]
    return [(day.timestamp() * _SECOND, day.strftime("%b %Y")) for day in days]


def _multiples(low: int, high: int, step: int) -> range:
    """Return the multiples of ``step`` from ``low`` to ``high``."""
    return range(-(-low // step) * step, high + 1, step)


def _moment(time: int) -> datetime:
    return datetime.fromtimestamp(time // _SECOND, UTC)
