"""The report as HTML, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from accountant.config.resources import shipped
from accountant.reporting.sanitize import visible
from accountant.reporting.shape import Lifetime, LifetimeGroup, Place, Report, Standing
from accountant.reporting.trust import lost
from accountant.reporting.views import (
    anchors,
    bar,
    down,
    minute,
    one_in,
    percent,
    places,
    second,
    sections,
    together,
    up,
)

LIFETIME: Final = "built-in:lifetime"
"""Stands in the place of a rule for the sums that no policy limits. (No rule id has a colon.)"""

HEADER: Final = (
    "population",
    "ledger_sequence",
    "as_of_utc",
    "rule",
    "action",
    "gate",
    "dataset",
    "client",
    "epoch",
    "counted_from_utc",
    "dimension",
    "group",
    "status",
    "limit_epsilon",
    "limit_delta_probability",
    "limit_own_delta_probability",
    "spent_epsilon_rounded_up",
    "reserved_epsilon_rounded_up",
    "remaining_epsilon_rounded_down",
    "sum_of_epsilons",
    "spent_delta_probability",
    "spent_and_reserved_delta_probability",
    "own_delta_probability",
    "lifetime_epsilon",
    "lifetime_delta_probability",
)
NUMBERS: Final = frozenset(
    name
    for name in HEADER
    if name.endswith(("epsilon", "probability", "_up", "_down", "epsilons", "epoch", "sequence"))
)

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What makes a spreadsheet read a cell as a formula, or look past the cell's first character."""


def to_html(report: Report) -> str:
    """A page that stands alone: no scripts, nothing loaded from anywhere."""
    found = sections(report)
    page = _environment().get_template("report.html.j2")
    return page.render(report=report, sections=found, anchors=anchors(found))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(shipped("reports/templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_printed,
    )
    environment.filters.update(
        up=up, down=down, one_in=one_in, minute=minute, second=second, places=places
    )
    environment.globals.update(bar=bar, percent=percent, together=together, lost=lost)
    return environment


def _printed(value: Any) -> Any:
    return visible(value) if type(value) is str else value


def to_json(report: Report) -> dict[str, Any]:
    """The report's own names (shape.py): strings, integers, booleans, lists and objects only."""
    return asdict(report)


def to_csv(report: Report) -> str:
    """One tidy table: a row per rule, scope, dimension and group.

    Text cells that a spreadsheet would take for a formula get an apostrophe in front; numbers stay
    plain, and an unbounded one is ``inf``.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, HEADER, restval="", lineterminator="\r\n")
    writer.writeheader()
    for row in _rows(report):
        writer.writerow({name: _cell(name, value) for name, value in row.items()})
    return text.getvalue()


def _rows(report: Report) -> Iterator[dict[str, Any]]:
    common = {
        "population": report.ledger_name,
        "ledger_sequence": report.ledger.last_sequence,
        "as_of_utc": report.ledger.last_time,
    }
    for standing in report.limits:
        head = common | _standing(standing)
        yield head | _place("", standing.total)
        for split in standing.splits:
            for place in split.groups:
                yield head | _place(split.dimension, place)
    for lifetime in report.lifetimes:
        head = common | {"rule": LIFETIME, "gate": "sum", "dataset": lifetime.dataset}
        yield head | _group("", _everyone(lifetime))
        for part in lifetime.splits:
            for group in part.groups:
                yield head | _group(part.dimension, group)


def _standing(standing: Standing) -> dict[str, Any]:
    return {
        "rule": standing.rule,
        "action": standing.action,
        "gate": standing.gate,
        "dataset": standing.dataset,
        "client": standing.client,
        "epoch": standing.epoch,
        "counted_from_utc": standing.counted_from,
        "limit_epsilon": standing.limit.epsilon,
        "limit_delta_probability": standing.limit.delta,
        "limit_own_delta_probability": standing.limit.own_delta,
    }


def _place(dimension: str, place: Place) -> dict[str, Any]:
    return {
        "dimension": dimension,
        "group": place.group,
        "status": place.status,
        "spent_epsilon_rounded_up": place.spent,
        "reserved_epsilon_rounded_up": place.reserved,
        "remaining_epsilon_rounded_down": place.remaining,
        "sum_of_epsilons": place.sum_of_epsilons,
        "spent_delta_probability": place.spent_delta,
        "spent_and_reserved_delta_probability": place.held_delta,
        "own_delta_probability": place.own_delta,
        "lifetime_epsilon": place.lifetime_epsilon,
        "lifetime_delta_probability": place.lifetime_delta,
    }


def _group(dimension: str, group: LifetimeGroup) -> dict[str, Any]:
    return {
        "dimension": dimension,
        "group": group.group,
        "lifetime_epsilon": group.epsilon,
        "lifetime_delta_probability": group.delta,
    }


def _everyone(lifetime: Lifetime) -> LifetimeGroup:
    return LifetimeGroup("everyone", lifetime.epsilon, lifetime.delta)


def _cell(name: str, value: Any) -> Any:
    if value is None:
        return ""
    if name in NUMBERS:
        return "inf" if value == "infinite" else value
    text = visible(str(value))
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
