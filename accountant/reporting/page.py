"""The report as a page: the same facts, cut to what a reader can take in.

JSON and CSV have everything; the page says how much it leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache, partial
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from accountant.budget.state import ALL
from accountant.config import shipped
from accountant.privacy.units import INFINITE
from accountant.reporting.chart import Chart, chart
from accountant.reporting.schema import DatasetFacts, Lifetime, Place, Report, Split, Standing
from accountant.reporting.texts import visible
from accountant.reporting.verdict import lost

BAR: Final = 160
"""Pixels of a bar that shows a whole limit."""
NO_BOUND: Final = "no bound"


@dataclass(frozen=True, slots=True)
class Bar:
    """Pixels of a bar that are spent and reserved; the rest is left."""

    spent: float
    reserved: float
    over: bool
    label: str


@dataclass(frozen=True, slots=True)
class Section:
    """One dataset, or all of them together (``dataset`` None)."""

    anchor: str
    name: str
    dataset: DatasetFacts | None
    main: Standing | None
    standings: tuple[Standing, ...]
    clients: tuple[Standing, ...]
    lifetime: Lifetime
    picture: Chart | None
    splits: tuple[Split[Place], ...]


def to_html(report: Report) -> str:
    """Return a page that stands alone: no scripts, nothing loaded from anywhere."""
    page = _environment().get_template("report.html.j2")
    return page.render(report=report, sections=sections(report))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(shipped("reports/templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(
        up=partial(_rounded, rounding=ROUND_CEILING),
        down=partial(_rounded, rounding=ROUND_FLOOR),
        one_in=one_in,
        minute=lambda time: time[:16].replace("T", " "),
        second=lambda time: time[:19].replace("T", " "),
        places=places,
    )
    environment.globals.update(alike=alike, bar=bar, percent=percent, lost=lost)
    return environment


def sections(report: Report) -> list[Section]:
    """Return a section for each dataset, then one for all together where a rule limits them."""
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
    clients = sorted((s for s in report.limits if s.dataset == name and s.client), key=_left)
    main, series = _main(report, standings, data), None
    if main:
        wanted = main.rule, main.dataset
        series = next((s for s in report.series if (s.rule, s.dataset) == wanted), None)
    own = main is not None and main.dataset == name
    title = "all datasets together" if name == ALL else name
    shown = title if own else "all datasets together"
    return Section(
        anchor=f"data-{number}",
        name=title,
        dataset=data,
        main=main,
        standings=standings,
        clients=tuple(clients),
        lifetime=lifetime,
        picture=chart(series, f"burndown-{number}", shown) if series else None,
        splits=main.splits if main and own else (),
    )


def _main(
    report: Report, standings: tuple[Standing, ...], data: DatasetFacts | None
) -> Standing | None:
    """Return the tightest limit: the one that the dataset names, or the tightest over all."""
    if data is not None:
        wanted = data.rule, data.rule_scope
        rows = (s for s in report.limits if (s.rule, s.dataset) == wanted and not s.client)
        return next(rows, None)
    return min(
        standings, key=lambda s: (s.status != "over", bool(s.window), _left(s)), default=None
    )


def _left(standing: Standing) -> Decimal:
    """Return the share of a limit that is left."""
    return Decimal(standing.total.remaining) / Decimal(standing.limit.epsilon)


def alike(split: Split[Place]) -> bool:
    """Return True if all groups have used the same, so that one row stands for all."""
    places = {(p.spent, p.reserved, p.remaining, p.lifetime_epsilon) for p in split.groups}
    return len(places) == 1 and not split.left_out and len(split.groups) > 1


def bar(place: Place, limit: str) -> Bar:
    """Return the bar of a group under a limit."""
    if place.together == INFINITE:
        return Bar(BAR, 0, over=True, label="no bound on the loss")
    spent = min(Decimal(1), Decimal(place.spent) / Decimal(limit))
    held = min(Decimal(1), Decimal(place.together) / Decimal(limit))
    over = place.status in ("over", "over_if_reservations_run")
    label = f"{place.spent} of {limit} spent, {place.reserved} reserved, {place.remaining} left"
    return Bar(round(float(spent) * BAR, 1), round(float(held - spent) * BAR, 1), over, label)


def places(limit: str) -> int:
    """Return how many decimals to print beside a limit, so that small ones are not rounded away."""
    return min(9, max(3, 3 - Decimal(limit).adjusted()))


def _rounded(amount: str, digits: int | None = None, *, rounding: str) -> str:
    """Return an amount for print, rounded to ``digits`` decimals, or in full."""
    if amount == INFINITE:
        return NO_BOUND
    if digits is None:
        return amount
    return format(Decimal(amount).quantize(Decimal(1).scaleb(-digits), rounding), "f")


def one_in(delta: str) -> str:
    """Return a delta as a share that people can picture: "1 in 1,000,000"."""
    if delta == INFINITE:
        return NO_BOUND
    value = Decimal(delta)
    return f"{delta} (1 in {int(1 / value):,})" if value else "0"


def percent(place: Place, limit: str) -> str:
    """Return what is spent and reserved as a share of the limit, rounded up."""
    if (held := place.together) == INFINITE:
        return NO_BOUND
    share = Decimal(held) / Decimal(limit) * 100
    return f"{share.quantize(Decimal(1), ROUND_CEILING):,} %"
