"""Who has lost how much, as a table with shades."""

from __future__ import annotations

from decimal import Decimal
from typing import Final, NamedTuple

from accountant.console.amounts import grouped, up
from accountant.console.facts.account import Limit
from accountant.console.facts.groups import Groups, Place
from accountant.privacy.units import INFINITE
from accountant.reporting.numbers import places

_STEPS: Final = (Decimal("0.4"), Decimal("0.6"), Decimal("0.8"))
"""The parts of a limit from which on a place is drawn darker."""
_LEAST: Final = Decimal("1e-9")
"""The smallest amount of epsilon that is told apart from nothing."""


class HeatCell(NamedTuple):
    """A place of the heat map: its shade and its number; ``poor``: less is left than a usual
    request costs.
    """

    shade: int
    text: str
    poor: bool


class Heat(NamedTuple):
    """Who has lost how much, as a table."""

    said: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]
    corner: str
    key: tuple[tuple[int, str], ...]


def heat(limit: Limit, usual_costs: str | None, found: Groups) -> Heat:
    """Return the use of a limit by group."""
    digits, most = places(limit.epsilon), Decimal(limit.epsilon)
    usual = None if usual_costs is None else Decimal(usual_costs)
    rows = tuple(
        (name, tuple(_cell(place, most, usual, digits) for place in row))
        for name, row in zip(found.rows.shown, found.places, strict=True)
    )
    cells = [cell for _, row in rows for cell in row]
    poor, columns = sum(cell.poor for cell in cells), found.columns
    less = "as much left as a usual request costs" if usual is not None else "anything left"
    said = f"All {len(cells):,} groups that are shown have {less}."
    if poor:
        have = "groups has" if poor == 1 else "groups have"
        no = "less left than a usual request costs" if usual is not None else "nothing left"
        said = f"{poor:,} of {len(cells):,} {have} {no}."
    names = found.rows.dimension + (f" and {columns.dimension}" if columns else "")
    caption = (
        f"Epsilon spent or reserved by {names}, of a limit of {grouped(limit.epsilon)}; of each "
        "group the person who was charged most."
    )
    for side in (found.rows, *([columns] if columns else [])):
        if side.chosen:
            caption += (
                f" Of {side.values:,} values of {side.dimension}, {side.chosen} "
                f"{len(side.shown)} are shown."
            )
    if poor:
        caption += f" Underlined: {no}."
    return Heat(
        said=said,
        caption=caption,
        head=columns.shown if columns else ("Everyone in it",),
        rows=rows,
        corner=found.rows.dimension,
        key=_key(limit, usual),
    )


def _cell(place: Place, most: Decimal, usual: Decimal | None, digits: int) -> HeatCell:
    poor = place.over or Decimal(place.left) < (_LEAST if usual is None else usual)
    if place.used == INFINITE:
        return HeatCell(5, "∞", poor=True)
    share = Decimal(place.used) / most if most else Decimal(1)
    shade = 5 if poor else 1 + sum(share >= step for step in _STEPS)
    return HeatCell(shade, up(place.used, digits), poor)


def _key(limit: Limit, usual: Decimal | None) -> tuple[tuple[int, str], ...]:
    most = Decimal(limit.epsilon)
    low, middle, high = (f"{(most * step).normalize():f}" for step in _STEPS)
    none = "nothing left" if usual is None else "too little for a usual request"
    return (
        (1, f"under {low}"),
        (2, f"{low} to {middle}"),
        (3, f"{middle} to {high}"),
        (4, f"{high} (80 %) or more"),
        (5, none),
    )
