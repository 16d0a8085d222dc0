"""Small charts as SVG text: lines, bars and dots on one pair of axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

COLOURS: Final = ("#2a6f97", "#c8553d", "#588157", "#7b2d8b")
_WIDTH: Final = 480
_HEIGHT: Final = 260
_EDGE: Final = 52
_TICKS: Final = 5
_FONT: Final = 'font-family="sans-serif" font-size="12"'


@dataclass
class Chart:
    """A chart of x from ``across`` and y from ``up``, each a pair (least, largest)."""

    title: str
    across: tuple[float, float]
    up: tuple[float, float]
    x_label: str = ""
    names: Sequence[str] = ()
    """Names along the x axis in place of numbers."""
    _parts: list[str] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    def line(self, name: str, xs: Iterable[float], ys: Iterable[float]) -> None:
        """Add a line."""
        colour = self._colour(name)
        points = " ".join(self._at(x, y) for x, y in zip(xs, ys, strict=True))
        self._parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )

    def dots(self, name: str, xs: Iterable[float], ys: Iterable[float]) -> None:
        """Add dots."""
        colour = self._colour(name)
        for x, y in zip(xs, ys, strict=True):
            cx, cy = self._at(x, y).split(",")
            self._parts.append(
                f'<circle cx="{cx}" cy="{cy}" r="2.5" fill="{colour}" fill-opacity="0.6"/>'
            )

    def bar(self, name: str, left: float, width: float, height: float) -> None:
        """Add a bar from 0 up."""
        colour = self._colour(name)
        corners = [(left, 0.0), (left, height), (left + width, height), (left + width, 0.0)]
        points = " ".join(self._at(x, y) for x, y in corners)
        self._parts.append(f'<polygon points="{points}" fill="{colour}"/>')

    def svg(self) -> str:
        """Return the image."""
        width, height = _WIDTH + 2 * _EDGE, _HEIGHT + 2 * _EDGE
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_FONT} '
            f'role="img" aria-label="{escape(self.title)}">'
        )
        frame = (
            f'<rect x="{_EDGE}" y="{_EDGE}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" '
            'stroke="#777"/>'
        )
        return "\n".join(
            [head, frame, _text(_EDGE, 20, self.title), *self._axes(), *self._parts,
             *self._legend(), "</svg>"]
        ) + "\n"  # fmt: skip

    def _axes(self) -> list[str]:
        found, below = [], _EDGE + _HEIGHT + 16
        for i in range(_TICKS):
            share = i / (_TICKS - 1)
            y = self.up[0] + share * (self.up[1] - self.up[0])
            found.append(_text(_EDGE - 6, _EDGE + (1 - share) * _HEIGHT + 4, _short(y), "end"))
            if not self.names:
                x = self.across[0] + share * (self.across[1] - self.across[0])
                found.append(_text(_EDGE + share * _WIDTH, below, _short(x), "middle"))
        for i, name in enumerate(self.names):
            at = _EDGE + (i + 0.5) / len(self.names) * _WIDTH
            found.append(_text(at, below, name, "middle"))
        label = _text(_EDGE + _WIDTH / 2, _HEIGHT + 2 * _EDGE - 14, self.x_label, "middle")
        return [*found, label]

    def _legend(self) -> list[str]:
        found, at = [], float(_EDGE)
        for name, colour in zip(self._names, COLOURS, strict=False):
            found.append(f'<rect x="{at}" y="30" width="10" height="10" fill="{colour}"/>')
            found.append(_text(at + 14, 40, name))
            at += 30 + 6.5 * len(name)
        return found

    def _colour(self, name: str) -> str:
        if name not in self._names:
            self._names.append(name)
        return COLOURS[self._names.index(name)]

    def _at(self, x: float, y: float) -> str:
        across = (x - self.across[0]) / (self.across[1] - self.across[0])
        up = (y - self.up[0]) / (self.up[1] - self.up[0])
        left = _EDGE + min(max(across, 0), 1) * _WIDTH
        return f"{left:.1f},{_EDGE + (1 - min(max(up, 0), 1)) * _HEIGHT:.1f}"


def bars(title: str, names: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """Return a chart of bars: for each of the ``names`` one of each series."""
    most = max(max(each) for each in series.values()) * 1.05
    chart = Chart(title, (0, len(names)), (0, most), names=names)
    width = 0.8 / len(series)
    for place, (label, heights) in enumerate(series.items()):
        for i, height in enumerate(heights):
            chart.bar(label, i + 0.1 + place * width, width * 0.9, height)
    return chart.svg()


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
