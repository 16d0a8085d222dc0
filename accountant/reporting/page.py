"""The report as a page. It says how much it leaves out; JSON and CSV have everything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from accountant.budget.state import ALL
from accountant.config import shipped
from accountant.privacy.units import INFINITE
from accountant.reporting.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, chart
from accountant.reporting.numbers import down, minute, one_in, percent, places, up
from accountant.reporting.safely import visible
from accountant.reporting.schema import DatasetFacts, Lifetime, Place, Report, Split, Standing
from accountant.reporting.verdict import exceeded, in_words, lost

BAR: Final = 160
"""Pixels of a bar that shows a whole limit."""


class Section(NamedTuple):
    """One dataset, or all of them together (``dataset`` None). ``main`` is its tightest limit."""

    number: int
    name: str
    dataset: DatasetFacts | None
    main: Standing | None
    standings: list[Standing]
    clients: list[Standing]
    lifetime: Lifetime
    picture: Chart | None
    splits: tuple[Split[Place], ...]


def to_html(report: Report) -> str:
    """Return a page that stands alone: no scripts, nothing loaded from anywhere."""
    page = _environment().get_template("report.html.j2")
    return labelled(page.render(report=report, sections=sections(report)))


_TABLE: Final = re.compile(r"<table(?: class=\"([^\"]*)\")?>.*?</table>", re.DOTALL)
_HEADING: Final = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_ROW: Final = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"<(?:td|th)(?=[ >])")


def labelled(page: str) -> str:
    """Return a page of ours in which each cell of a table says in which column it stands, so that
    the rows can be stacked on a phone. Tables of states have a layout of their own. Texts from
    outside are escaped by now: they open no table and no cell.
    """
    return _TABLE.sub(_labelled, page)


def _labelled(found: re.Match[str]) -> str:
    kind, table = found[1] or "", found[0]
    if "states" in kind.split():
        return table
    head, _, body = table.partition("<tbody>")
    names = [re.sub(r"<[^>]*>", "", name).strip() for name in _HEADING.findall(head)]
    rows = _ROW.sub(lambda row: _row(row[0], names), body)
    opened = head.replace(found[0][: found[0].index(">")], f'<table class="{kind} stack"', 1)
    return f"{opened}<tbody>{rows}"


def _row(row: str, names: Sequence[str]) -> str:
    column = iter(names)
    return _CELL.sub(lambda cell: f'{cell[0]} data-l="{next(column, "")}"', row)


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
        up=up,
        down=down,
        one_in=one_in,
        minute=minute,
        second=lambda time: time[:19].replace("T", " "),
        places=places,
    )
    environment.globals.update(alike=alike, bar=bar, percent=percent, lost=lost, in_words=in_words)
    environment.globals.update(exceeded=exceeded)
    environment.globals.update(width=WIDTH, height=HEIGHT)
    environment.globals.update(x0=LEFT, x1=WIDTH - RIGHT, y0=TOP, y1=BOTTOM)
    return environment


def sections(report: Report) -> list[Section]:
    """Return a section for each dataset, then one for all together where a rule limits them."""
    found = [_section(report, i, data) for i, data in enumerate(report.datasets, start=1)]
    if any(s.dataset == ALL for s in report.limits):
        found.append(_section(report, 0, None))
    return found


def _section(report: Report, number: int, data: DatasetFacts | None) -> Section:
    name, limits = data.id if data else ALL, [s for s in report.limits if not s.divides]
    standings = [s for s in limits if s.dataset == name]
    clients = [s for s in report.limits if s.dataset == name and s.divides]
    if data is None:
        order = sorted(standings, key=lambda s: (s.status != "over", bool(s.window), s.left))
        main = next(iter(order), None)
    else:
        named = (s for s in limits if (s.rule, s.dataset) == (data.rule, data.rule_scope))
        main = next(named, None)
    pictures = (
        chart(series)
        for series in report.series
        if main is not None and (series.rule, series.dataset) == (main.rule, main.dataset)
    )
    return Section(
        number=number,
        name=in_words(name),
        dataset=data,
        main=main,
        standings=standings,
        clients=sorted(clients, key=lambda s: s.left),
        lifetime=next(lifetime for lifetime in report.lifetimes if lifetime.dataset == name),
        picture=next(pictures, None),
        splits=main.splits if main and main.dataset == name else (),
    )


def alike(split: Split[Place]) -> bool:
    """Return True if all groups have used the same, so that one row stands for all."""
    places = {(p.spent, p.reserved, p.remaining, p.lifetime_epsilon) for p in split.groups}
    return len(places) == 1 and not split.left_out and len(split.groups) > 1


def bar(place: Place, limit: str) -> tuple[float, float, bool, str]:
    """Return a group's bar: pixels spent and reserved, whether it is over the limit, a label."""
    if place.together == INFINITE:
        return BAR, 0, True, "no bound on the loss"
    spent = min(Decimal(1), Decimal(place.spent) / Decimal(limit))
    held = min(Decimal(1), Decimal(place.together) / Decimal(limit))
    over = place.status in ("over", "over_if_reservations_run")
    label = f"{place.spent} of {limit} spent, {place.reserved} reserved, {place.remaining} left"
    return round(float(spent) * BAR, 1), round(float(held - spent) * BAR, 1), over, label
