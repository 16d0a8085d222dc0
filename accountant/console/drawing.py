"""The picture of what was left of a limit: steps for what happened, dots for what may come.

One drawing for each width, so that labels never shrink. A drawing is a list of marks, which a
template writes as SVG: whatever comes from outside is escaped there. All coordinates are pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import floor, log10
from typing import Final, NamedTuple

from accountant.budget.facts import SECOND
from accountant.console.amounts import down
from accountant.console.facts.pace import Forecast, Pace
from accountant.ledger.events import microseconds
from accountant.privacy.units import INFINITE
from accountant.reporting.numbers import places
from accountant.reporting.schema import PointFacts, as_number

_DAY: Final = 86_400 * SECOND
_SHORTEST: Final = 3_600 * SECOND
"""A ledger is drawn over at least so many microseconds."""
_NEAR: Final = 60
"""Units of a drawing within which two labels would cover each other."""
_DIGIT: Final = 0.6
"""The width of a digit, as a part of the size of the type."""
_AHEAD: Final = 0.4
"""The part of the past that is drawn ahead, where no date is near."""
_MONTHS: Final = [
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
]
_MOST_CROSSES: Final = 12


class Mark(NamedTuple):
    """A path, or a text at a place. ``style`` is a class of the style sheet."""

    style: str
    path: str = ""
    text: str = ""
    x: float = 0
    y: float = 0
    anchor: str = "start"
    size: int = 14

    @property
    def wide(self) -> float:
        """About how wide its text is."""
        return len(self.text) * self.size * 0.56

    def meets(self, other: Mark) -> bool:
        """Whether two texts that begin at their places cover each other."""
        beside = self.x + self.wide <= other.x or other.x + other.wide <= self.x
        return not beside and abs(self.y - other.y) < max(self.size, other.size)


class Frame(NamedTuple):
    """A width: its class, its picture, and where the plot lies in it."""

    style: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    size: int
    ticks: int
    """Dates below the plot, at most."""
    points: int
    """Events that are drawn, about."""


FRAMES: Final = (
    Frame("wideonly", 1040, 340, 52, 136, 46, 306, 14, 7, 160),
    Frame("mid", 676, 300, 52, 136, 44, 266, 14, 5, 110),
    Frame("narrow", 292, 240, 40, 14, 44, 206, 12, 3, 60),
)


class Tried(NamedTuple):
    """Another limit from now on: what would be left, and how long that would last."""

    limit: str
    left: str
    paces: tuple[Pace, ...]


class Drawing(NamedTuple):
    """One picture. ``name`` makes the ids of its title and description."""

    frame: Frame
    name: str
    marks: tuple[Mark, ...]


class Subject(NamedTuple):
    """What is drawn: the points of a limit, the last of which is now; refusals, by stamp; what a
    usual request costs, where it is known; the two paces; another limit that is tried.
    """

    points: Sequence[PointFacts]
    refused: Sequence[int] = ()
    usual: str | None = None
    forecast: Forecast | None = None
    tried: Tried | None = None


def drawings(subject: Subject) -> tuple[Drawing, ...]:
    """Return a picture for each width; none where there is nothing to draw."""
    if not subject.points:
        return ()
    return tuple(
        Drawing(frame, f"burn-{frame.style}", tuple(_Plot(subject, frame).marks()))
        for frame in FRAMES
    )


class _Plot:
    """A picture in the making."""

    def __init__(self, subject: Subject, frame: Frame) -> None:
        self.subject, self.frame = subject, frame
        self.points = _thinned(subject.points, frame.points)
        self.stamps = [microseconds(one.time) for one in self.points]
        self.limits = [float(one.limit) for one in self.points]
        self.left = [
            max(0.0, limit - as_number(one.spent_and_reserved))
            for limit, one in zip(self.limits, self.points, strict=True)
        ]
        self.now = self.stamps[-1]
        self.begin = min(self.stamps[0], self.now - _SHORTEST)
        self.end = self._end()
        self.top = max([*self.limits, *([float(subject.tried.limit)] if subject.tried else [])])
        self.top = self.top or 1.0
        step = _nice(self.top / 4)
        self.steps = [i * step for i in range(int(self.top / step + 1e-9) + 1)]
        wide = max(len(_amount(one)) for one in self.steps) * frame.size * _DIGIT + 14
        self.frame = frame._replace(left=max(frame.left, round(wide)))
        self.digits = places(self.points[-1].limit) if float(self.points[-1].limit) else 3

    def _end(self) -> int:
        """Return the last stamp that is drawn: somewhat beyond the last date that is told, if that
        is not too far away.
        """
        past = self.now - self.begin
        dates = [microseconds(one.runs_out) for one in self._paces() if one.runs_out]
        near = [stamp for stamp in dates if stamp - self.now <= 1.5 * past]
        return self.now + max(int(_AHEAD * past), int(1.15 * (max(near, default=0) - self.now)))

    def _paces(self) -> list[Pace]:
        subject = self.subject
        found = list(subject.forecast.paces) if subject.forecast else []
        return [*found, *(subject.tried.paces if subject.tried else ())]

    def x(self, stamp: float) -> float:
        """Return where a stamp is."""
        part = (stamp - self.begin) / (self.end - self.begin)
        wide = self.frame.width - self.frame.left - self.frame.right
        return round(self.frame.left + part * wide, 1)

    def y(self, left: float) -> float:
        """Return where an amount is."""
        high = self.frame.bottom - self.frame.top
        return round(self.frame.bottom - left / self.top * high, 1)

    def marks(self) -> Iterator[Mark]:
        """Yield all marks, those below first."""
        yield from self._axes()
        xs = [self.x(stamp) for stamp in self.stamps]
        line = _steps(xs, [self.y(one) for one in self.left])
        frame, edge = self.frame, self.frame.width - self.frame.right
        yield Mark("f-area", f"{line}V{frame.bottom}H{xs[0]}Z")
        ahead = xs[-1] if self.subject.tried else edge
        yield Mark("l-limit", _steps(xs, [self.y(one) for one in self.limits]) + f"H{ahead}")
        yield from self._limits()
        yield Mark("l-left", line)
        yield from self._usual(edge)
        yield from self._ahead("l-fore", self.left[-1], self._now_paces())
        yield from self._tried(edge)
        yield from self._crosses()
        yield from self._label()

    def _now_paces(self) -> Sequence[Pace]:
        return self.subject.forecast.paces if self.subject.forecast else ()

    def _axes(self) -> Iterator[Mark]:
        frame, size = self.frame, self.frame.size
        edge = frame.width - frame.right
        yield Mark("t-soft", text="epsilon left", x=2, y=13, size=size)
        for amount in self.steps:
            y = self.y(amount)
            yield Mark("l-grid" if amount else "l-axis", f"M{frame.left} {y}H{edge}")
            yield Mark(
                "t-soft", text=_amount(amount), x=frame.left - 8, y=y + 4, anchor="end", size=size
            )
        for place, (stamp, text) in enumerate(self._dates()):
            x = self.x(stamp)
            yield Mark("l-axis", f"M{x} {frame.bottom}v5")
            anchor = "start" if place == 0 else "middle"
            yield Mark("t-soft", text=text, x=x, y=frame.bottom + 20, anchor=anchor, size=size)
        x = self.x(self.now)
        yield Mark("l-now", f"M{x} {frame.top - 20}V{frame.bottom}")
        near = any(abs(self.x(stamp) - x) < _NEAR for stamp in self.stamps)  # a label of the limit
        if frame.style != "narrow" and not near:
            yield Mark("t-soft", text="now", x=x + 5, y=frame.top - 11, size=size)

    def _dates(self) -> list[tuple[int, str]]:
        """Return whole days at equal distances, the first at the beginning; hours, of less."""
        whole = self.end - self.begin
        if whole < 3 * _DAY:
            return [(self.begin, _hour(self.begin)), (self.now, _hour(self.now))][
                : 2 if self.now - self.begin > whole / 3 else 1
            ]
        days = max(1, -(-whole // (_DAY * self.frame.ticks)))
        found = range(self.begin, self.end, days * _DAY)
        years = _moment(self.begin).year != _moment(self.end).year
        last = self.end - whole // 20
        return [(stamp, _day(stamp, year=years)) for stamp in found if stamp <= last]

    def _limits(self) -> Iterator[Mark]:
        """Yield the labels of the limit, wherever it changed and there is room."""
        shown = -1e9
        for i, limit in enumerate(self.limits):
            if i and limit == self.limits[i - 1]:
                continue
            x = self.x(self.stamps[i])
            text = f"limit {self.points[i].limit}"
            if i and self.frame.style != "narrow":
                text += f" since {_day(self.stamps[i])}"
            mark = Mark("t-b", text=text, x=x + 8, y=self.y(limit) - 6, size=self.frame.size)
            if x - shown < 8 or x + mark.wide > self.frame.width:
                continue
            yield mark
            shown = x + mark.wide

    def _usual(self, edge: int) -> Iterator[Mark]:
        usual = self.subject.usual
        if usual is None or self.subject.tried or not 0 < float(usual) <= self.top:
            return
        y = self.y(float(usual))
        yield Mark("l-typ", f"M{self.frame.left} {y}H{edge}")
        if self.frame.style != "narrow":
            yield Mark("", text="one usual request", x=edge + 8, y=y - 2, size=self.frame.size)
            text = f"{float(usual):.{self.digits}f}"
            yield Mark("t-soft", text=text, x=edge + 8, y=y + 14, size=self.frame.size)

    def _ahead(self, style: str, left: float, paces: Sequence[Pace]) -> Iterator[Mark]:
        """Yield the lines down to nothing; one that leaves the picture ends at its edge."""
        x, y, edge = self.x(self.now), self.y(left), self.frame.width - self.frame.right
        for pace in paces:
            if pace.runs_out is None:
                continue
            end = microseconds(pace.runs_out)
            if end <= self.end:
                yield Mark(style, f"M{x} {y}L{self.x(end)} {self.frame.bottom}")
            else:
                part = (self.end - self.now) / (end - self.now)
                yield Mark(style, f"M{x} {y}L{edge} {self.y(left * (1 - part))}")

    def _tried(self, edge: int) -> Iterator[Mark]:
        tried = self.subject.tried
        if tried is None:
            return
        x, left = self.x(self.now), as_number(tried.left)
        now, then = self.y(self.limits[-1]), self.y(float(tried.limit))
        yield Mark("l-alt", f"M{x} {now}V{then}H{edge}M{x} {self.y(self.left[-1])}V{self.y(left)}")
        yield from self._ahead("l-alt", left, tried.paces)
        anchor, at = ("end", edge) if self.frame.style == "narrow" else ("start", edge + 8)
        y = then - 6 if self.frame.style == "narrow" else then + 5
        text = f"tried: {tried.limit}"
        yield Mark("t-b", text=text, x=at, y=y, anchor=anchor, size=self.frame.size)

    def _crosses(self) -> Iterator[Mark]:
        """Yield a cross at each of the latest refusals, on the line."""
        inside = [one for one in self.subject.refused if self.begin <= one <= self.now]
        for stamp in inside[-_MOST_CROSSES:]:
            at = max(i for i, one in enumerate(self.stamps) if one <= stamp)
            x, y = self.x(stamp), self.y(self.left[at])
            yield Mark("l-x", f"M{x - 5:g} {y - 5:g}l10 10m0 -10l-10 10")

    def _label(self) -> Iterator[Mark]:
        """Yield what is left now, in words."""
        if self.subject.tried and self.frame.style == "narrow":
            return  # there is no room beside its lines
        last = self.points[-1]
        left = Decimal(0)
        if last.spent_and_reserved != INFINITE:
            left = max(left, Decimal(last.limit) - Decimal(last.spent_and_reserved))
        text = f"{down(f'{left:f}', self.digits)} left" if left else "nothing left"
        x, y = self.x(self.now) + 9, min(self.y(self.left[-1]), self.frame.bottom - 26) - 10
        mark = Mark("t-b", text=text, x=x, y=y, size=self.frame.size)
        if any(mark.meets(other) for other in self._limits()):
            mark = mark._replace(y=self.y(self.left[-1]) + self.frame.size + 4)
        yield mark


def _thinned(points: Sequence[PointFacts], most: int) -> Sequence[PointFacts]:
    """Return about ``most`` points, with the ends, and each at which the limit is new."""
    every = -(-len(points) // most)
    return [
        one
        for i, one in enumerate(points)
        if i % every == 0 or i == len(points) - 1 or one.limit != points[i - 1].limit
    ]


def _steps(xs: Sequence[float], ys: Sequence[float]) -> str:
    """Return a path that goes across, then down: an amount holds until the next event."""
    found = [f"M{xs[0]} {ys[0]}"]
    for x, y, before in zip(xs[1:], ys[1:], ys, strict=False):
        if y != before:
            found.append(f"H{x}V{y}")
    return "".join(found) + f"H{xs[-1]}"


def _amount(amount: float) -> str:
    """Return a round number in digits, however large or small: 1,000,000 or 0.000000005."""
    return f"{Decimal(f'{amount:.6g}'):,f}"


def _nice(step: float) -> float:
    """Return a round number that is at least ``step``."""
    size: float = 10 ** floor(log10(step))
    return next(size * one for one in (1, 2, 2.5, 5, 10) if size * one >= step * (1 - 1e-9))


def _moment(stamp: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=stamp)


def _day(stamp: int, *, year: bool = False) -> str:
    found = _moment(stamp)
    return f"{found.day} {_MONTHS[found.month - 1]}" + (f" {found.year}" if year else "")


def _hour(stamp: int) -> str:
    return f"{_day(stamp)}, {_moment(stamp):%H:%M}"
