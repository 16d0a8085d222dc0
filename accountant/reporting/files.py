"""Reports as HTML, JSON and CSV, and as files that are written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from accountant.privacy.units import INFINITE
from accountant.reporting.progress import Progress, counted, silent
from accountant.reporting.safely import visible
from accountant.reporting.schema import LifetimeGroup, Report
from accountant.reporting.texts import Texts
from accountant.store.ledgers import Ledgers, Signed
from accountant.store.whole import whole

FORMATS: Final = ("html", "json", "csv")
LIFETIME: Final = "built-in:lifetime"
"""Stands for the rule in the rows of lifetime totals. (No rule id has a colon.)"""

COLUMNS: Final = {
    "population": "report.ledger_name",
    "ledger_sequence": "report.ledger.last_sequence",
    "as_of_utc": "report.ledger.last_time",
    "rule": "standing.rule",
    "action": "standing.action",
    "gate": "standing.gate",
    "dataset": "standing.dataset",
    "client": "standing.client",
    "purpose": "standing.purpose",
    "epoch": "standing.epoch",
    "counted_from_utc": "standing.counted_from",
    "dimension": "dimension",
    "group": "place.group",
    "status": "place.status",
    "limit_epsilon": "standing.limit.epsilon",
    "limit_delta_probability": "standing.limit.delta",
    "limit_own_delta_probability": "standing.limit.own_delta",
    "spent_epsilon_rounded_up": "place.spent",
    "reserved_epsilon_rounded_up": "place.reserved",
    "remaining_epsilon_rounded_down": "place.remaining",
    "sum_of_epsilons": "place.sum_of_epsilons",
    "spent_delta_probability": "place.spent_delta",
    "spent_and_reserved_delta_probability": "place.held_delta",
    "own_delta_probability": "place.own_delta",
    "lifetime_epsilon": "place.lifetime_epsilon",
    "lifetime_delta_probability": "place.lifetime_delta",
}
"""The columns of the CSV report, and where in the report their values are."""
NUMBERS: Final = frozenset(
    name
    for name in COLUMNS
    if name.endswith(("epsilon", "probability", "_up", "_down", "epsilons", "epoch", "sequence"))
)

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Prefixes that make a spreadsheet read a cell as a formula, or skip its first character."""


def report_of(
    ledgers: Ledgers,
    population: str,
    published: Signed | None,
    reached: frozenset[str] | None = None,
    progress: Progress = silent,
) -> Report:
    """Return the report of what is committed, which names only ``reached`` populations, if not
    None. Raise StoreError, or ValueError if it is damaged.
    """
    # Imported late, as below: a service makes one report a day, most commands none.
    from accountant.reporting.model import build_report  # noqa: PLC0415

    texts = Texts(partial(ledgers.texts, population))
    events = counted(ledgers.stream(population), progress)
    elsewhere = {
        dataset: [use for use in uses if reached is None or use.ledger in reached]
        for dataset, uses in ledgers.elsewhere(population).items()
    }
    return build_report(population, events, texts, published, elsewhere)


def write_whole(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` by renaming: a reader never sees half of it. Raise OSError."""
    with whole(path) as file:
        file.write(text.encode())


def rendered(report: Report, form: str) -> str:
    """Return the report as ``html``, ``json`` or ``csv``."""
    if form == "html":
        from accountant.reporting.page import to_html  # noqa: PLC0415

        return to_html(report)
    if form == "json":
        document = msgspec.to_builtins(report)  # under its own names (schema.py), without floats
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    return to_csv(report)


def to_csv(report: Report) -> str:
    """Return one tidy table: a row for each rule, scope, dimension and group.

    A text cell that a spreadsheet would read as a formula begins with an apostrophe. Numbers stay
    plain, and an unbounded one is ``inf``.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    for row in _rows(report):
        writer.writerow({name: _cell(name, value) for name, value in row.items()})
    return text.getvalue()


def _rows(report: Report) -> Iterator[dict[str, Any]]:
    for standing in report.limits:
        yield _row(report, "", standing=standing, place=standing.total)
        for split in standing.splits:
            for place in split.groups:
                yield _row(report, split.dimension, standing=standing, place=place)
    for lifetime in report.lifetimes:
        everyone = LifetimeGroup("everyone", lifetime.epsilon, lifetime.delta)
        groups = [("", everyone)]
        groups += [(split.dimension, one) for split in lifetime.splits for one in split.groups]
        for dimension, one in groups:
            yield _row(report, dimension) | {
                "rule": LIFETIME,
                "gate": "sum",
                "dataset": lifetime.dataset,
                "group": one.group,
                "lifetime_epsilon": one.epsilon,
                "lifetime_delta_probability": one.delta,
            }


def _row(report: Report, dimension: str, **parts: Any) -> dict[str, Any]:
    """Return the columns whose values are in ``report``, ``dimension`` or ``parts``."""
    values = SimpleNamespace(report=report, dimension=dimension, **parts)
    return {
        name: attrgetter(path)(values)
        for name, path in COLUMNS.items()
        if hasattr(values, path.partition(".")[0])
    }


def _cell(name: str, value: Any) -> Any:
    return cell(value, number=name in NUMBERS)


def cell(value: Any, *, number: bool) -> Any:
    """Return a value as a cell: an unbounded number as ``inf``, a text in one line, with an
    apostrophe before what a spreadsheet would read as a formula.
    """
    if value is None:
        return ""
    if number:
        return "inf" if value == INFINITE else value
    text = visible(str(value))
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
