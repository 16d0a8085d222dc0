"""What epsilon promises, as a picture: belief after an answer against belief before it."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from accountant.client.amounts import Amount, exact
from accountant.queries.definition import beliefs

_SIZE: Final = 320  # Of the square, in units of the image
_EDGE: Final = 44
_WHOLE: Final = _SIZE + 2 * _EDGE
_STEPS: Final = 50
_LABEL: Final = 15  # The step beside which a band is labelled
_HEAD: Final = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WHOLE} {_WHOLE}" '
    'font-family="sans-serif" font-size="12" role="img" '
    'aria-label="Belief after an answer against belief before it">'
)


def picture(epsilons: Iterable[Amount] = ("0.1", "0.5", "1", "3")) -> str:
    """Return an SVG image: the most and the least that anybody believes after an answer, against
    the belief before it, one band an epsilon.
    """
    frame = f'<rect x="{_EDGE}" y="{_EDGE}" width="{_SIZE}" height="{_SIZE}" fill="none" '
    parts = [_HEAD, f'{frame}stroke="#777"/>']
    widest_first = sorted(epsilons, key=lambda epsilon: -float(exact(epsilon)))
    for epsilon in widest_first:
        parts += _band(epsilon)
    for percent in range(0, 101, 25):
        at = _SIZE * percent / 100
        parts.append(_text(_EDGE + at, _EDGE + _SIZE + 16, f"{percent} %", "middle"))
        parts.append(_text(_EDGE - 6, _EDGE + _SIZE - at + 4, f"{percent} %", "end"))
    parts.append(_text(_EDGE + _SIZE / 2, _WHOLE - 6, "belief before", "middle"))
    parts.append(_text(_EDGE, _EDGE - 12, "belief after, at most and at least", "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _band(epsilon: Amount) -> list[str]:
    priors = [Fraction(i, _STEPS) for i in range(_STEPS + 1)]
    both = [beliefs(prior, epsilon) for prior in priors]
    most = [_place(p, after) for p, (_, after) in zip(priors, both, strict=True)]
    least = [_place(p, after) for p, (after, _) in zip(priors, both, strict=True)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*most, *reversed(least)])
    drawn = f'<polygon points="{points}" fill="#2a6f97" fill-opacity="0.2" stroke="#2a6f97"/>'
    x, y = most[_LABEL]
    return [drawn, _text(x + 4, y - 4, f"ε {exact(epsilon)}", "start")]


def _place(before: Fraction, after: float) -> tuple[float, float]:
    return _EDGE + float(before) * _SIZE, _EDGE + (1 - after) * _SIZE


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'
