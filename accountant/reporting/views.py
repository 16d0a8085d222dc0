"""What the page shows of a report: the same facts, cut to what a reader can take in.

JSON and CSV have everything; the page says how much it leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

from accountant.budget.state import ALL
from accountant.reporting.burndown import Chart, chart
from accountant.reporting.shape import (
    DatasetFacts,
    Lifetime,
    Place,
    Report,
    Split,
    Standing,
    Usage,
)

MOST_GROUPS: Final = 30
MOST_USAGES: Final = 12
MOST_CLIENTS: Final = 30
BAR: Final = 160


@dataclass(frozen=True, slots=True)
class Bar:
    """Widths in pixels of what is spent and reserved on a bar of BAR pixels; the rest is left."""

    spent: float
    reserved: float
    over: bool
    label: str


@dataclass(frozen=True, slots=True)
class SplitView:
    """Groups of a dimension; ``alike``: all stand at the same place, so that one row says all."""

    split: Split
    rows: tuple[Place, ...]
    left_out: int
    alike: bool


@dataclass(frozen=True, slots=True)
class UsageView:
    """What used a dataset up, under one heading; ``left_out`` further names are not shown."""

    title: str
    rows: tuple[Usage, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Section:
    """One dataset, or all of them together (``dataset`` None)."""

    anchor: str
    name: str
    dataset: DatasetFacts | None
    main: Standing | None
    standings: tuple[Standing, ...]
    clients: tuple[Standing, ...]
    clients_left_out: int
    lifetime: Lifetime
    picture: Chart | None
    splits: tuple[SplitView, ...]
    usages: tuple[UsageView, ...]


def sections(report: Report) -> list[Section]:
    """A section for each dataset, then one for all together where a rule limits that."""
    lifetimes = {lifetime.dataset: lifetime for lifetime in report.lifetimes}
    found = [
        _section(report, i, data.id, data, lifetimes[data.id])
        for i, data in enumerate(report.datasets, start=1)
    ]
    if any(s.dataset == ALL for s in report.limits):
        found.append(_section(report, 0, ALL, None, lifetimes[ALL]))
    return found


def _section(
    report: Report, number: int, name: str, data: DatasetFacts | None, lifetime: Lifetime
) -> Section:
    standings = tuple(s for s in report.limits if s.dataset == name and not s.client)
    clients = [s for s in report.limits if s.dataset == name and s.client]
    clients.sort(key=lambda s: Decimal(s.total.remaining) / Decimal(s.limit.epsilon))
    main = _main(report, standings, data)
    series = next(
        (s for s in report.series if main and (s.rule, s.dataset) == (main.rule, main.dataset)),
        None,
    )
    own = main is not None and main.dataset == name
    title = "all datasets together" if name == ALL else name
    shown = title if own else "all datasets together"
    return Section(
        anchor=f"data-{number}",
        name=title,
        dataset=data,
        main=main,
        standings=standings,
        clients=tuple(clients[:MOST_CLIENTS]),
        clients_left_out=max(0, len(clients) - MOST_CLIENTS),
        lifetime=lifetime,
        picture=chart(series, f"burndown-{number}", shown) if series else None,
        splits=tuple(map(_split, main.splits)) if main and own else (),
        usages=_usages(data) if data else (),
    )


def _main(
    report: Report, standings: tuple[Standing, ...], data: DatasetFacts | None
) -> Standing | None:
    """The tightest limit: what the dataset names, or the most used of the person's totals."""
    if data is not None:
        wanted = (data.rule, data.rule_scope)
        return next(
            (s for s in report.limits if (s.rule, s.dataset) == wanted and not s.client), None
        )
    return min(
        standings,
        key=lambda s: (
            s.status != "over",
            bool(s.window),
            Decimal(s.total.remaining) / Decimal(s.limit.epsilon),
        ),
        default=None,
    )


def _split(split: Split) -> SplitView:
    places = {(p.spent, p.reserved, p.remaining, p.lifetime_epsilon) for p in split.groups}
    rows = split.groups[:MOST_GROUPS]
    alike = len(places) == 1 and not split.left_out and len(split.groups) > 1
    return SplitView(split, rows[:1] if alike else rows, split.values - len(rows), alike)


def _usages(data: DatasetFacts) -> tuple[UsageView, ...]:
    tables = (
        ("client", data.by_client),
        ("kind of mechanism", data.by_kind),
        ("purpose", data.by_purpose),
    )
    return tuple(
        UsageView(title, rows[:MOST_USAGES], max(0, len(rows) - MOST_USAGES))
        for title, rows in tables
        if rows
    )


def bar(place: Place, limit: str) -> Bar:
    """The bar of a place under a limit."""
    over = place.status in ("over", "over_if_reservations_run")
    if "infinite" in (place.spent, place.reserved):
        return Bar(BAR, 0, over=True, label="no bound on what was lost")
    most = Decimal(limit)
    spent = min(Decimal(1), Decimal(place.spent) / most)
    held = min(Decimal(1), (Decimal(place.spent) + Decimal(place.reserved)) / most)
    label = f"{place.spent} of {limit} spent, {place.reserved} reserved, {place.remaining} left"
    return Bar(round(float(spent) * BAR, 1), round(float(held - spent) * BAR, 1), over, label)


def places(limit: str) -> int:
    """How many decimals to print beside a limit, so that small limits are not rounded away."""
    return min(9, max(3, 3 - Decimal(limit).adjusted()))


def up(amount: str, digits: int | None = None) -> str:
    """An amount for print, rounded up to ``digits`` decimals, or in full."""
    return _rounded(amount, digits, ROUND_CEILING)


def down(amount: str, digits: int | None = None) -> str:
    """An amount for print, rounded down to ``digits`` decimals, or in full."""
    return _rounded(amount, digits, ROUND_FLOOR)


def _rounded(amount: str, digits: int | None, rounding: str) -> str:
    if amount == "infinite":
        return "no bound"
    if digits is None:
        return amount
    return format(Decimal(amount).quantize(Decimal(1).scaleb(-digits), rounding), "f")


def one_in(delta: str) -> str:
    """A delta as a share that people can picture: "1 in 1,000,000"."""
    if delta == "infinite":
        return "no bound"
    value = Decimal(delta)
    return f"{delta} (1 in {int(1 / value):,})" if value else "0"


def percent(place: Place, limit: str) -> str:
    """What is spent and reserved as a share of the limit, rounded up."""
    if "infinite" in (place.spent, place.reserved):
        return "no bound"
    share = (Decimal(place.spent) + Decimal(place.reserved)) / Decimal(limit) * 100
    return f"{share.quantize(Decimal(1), ROUND_CEILING):,} %"


def together(place: Place) -> str:
    """Spent and reserved, as one amount."""
    if "infinite" in (place.spent, place.reserved):
        return "infinite"
    return format(Decimal(place.spent) + Decimal(place.reserved), "f")


def minute(time: str) -> str:
    """An RFC 3339 time for people: "2026-03-05 14:07"."""
    return time[:16].replace("T", " ")


def second(time: str) -> str:
    """The same with seconds: "2026-03-05 14:07:21"."""
    return time[:19].replace("T", " ")


def anchors(found: Sequence[Section]) -> dict[str, str]:
    """Where each dataset's section is."""
    return {section.name: section.anchor for section in found if section.dataset}
