"""The report of a period as HTML that stands alone, as a PDF, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from accountant.config import shipped
from accountant.reporting.files import cell
from accountant.reporting.periods.dataset import PartFacts, StandFacts, StatementFacts
from accountant.reporting.periods.document import Document
from accountant.reporting.periods.making import Facts, document_of
from accountant.reporting.periods.officer import AccountFacts, OfficerFacts
from accountant.reporting.periods.pdf import to_pdf
from accountant.reporting.periods.people import PeopleFacts
from accountant.reporting.safely import visible

Row = dict[str, Any]


def written(facts: Facts, form: str) -> bytes:
    """Return a report as ``html``, ``pdf``, ``csv`` or ``json``. Raise Unavailable for a PDF where
    the extra is not installed.
    """
    if form == "json":
        document = msgspec.to_builtins(facts)
        return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()
    if form == "csv":
        return _csv(facts).encode()
    return set_in(document_of(facts), form)


def set_in(document: Document, form: str) -> bytes:
    """Return a document as ``html`` or ``pdf``. Raise Unavailable as ``written`` does."""
    if form == "pdf":
        return to_pdf(document)
    return _html(document).encode()


def _html(document: Document) -> str:
    return _environment().get_template("document.html.j2").render(doc=document)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(shipped("reports/templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )


def _csv(facts: Facts) -> str:
    """Return one tidy table: the movements of a statement, the accounts of an officer's report, the
    groups of a population's.
    """
    if isinstance(facts, StatementFacts):
        names, rows = _MOVEMENTS, _movements(facts)
    elif isinstance(facts, OfficerFacts):
        names, rows = _ACCOUNTS, _accounts(facts)
    else:
        names, rows = _GROUPS, _groups(facts)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: cell(one, number=names[name]) for name, one in row.items()})
    return text.getvalue()


_MOVEMENTS: Final = {
    "population": False,
    "dataset": False,
    "rule": False,
    "epoch": True,
    "currency": False,
    "row": False,
    "time_utc": False,
    "event": True,
    "kind": False,
    "client": False,
    "grant": False,
    "subjects": False,
    "purpose": False,
    "events": True,
    "spent": True,
    "reserved": True,
    "unbounded": True,
    "epsilon_spent_rounded_up": True,
    "epsilon_spent_and_reserved_rounded_up": True,
}
"""The columns of a statement, and whether they are numbers."""


def _movements(facts: StatementFacts) -> Iterator[Row]:
    for part in facts.parts:
        same = {
            "population": facts.head.population,
            "dataset": facts.dataset,
            "rule": part.rule,
            "epoch": part.epoch,
            "currency": part.currency,
        }
        yield same | _stand("opening", part.opening)
        for one in part.lines:
            yield same | {
                "row": "movement",
                "time_utc": one.time,
                "event": one.sequence,
                "kind": one.kind,
                "client": one.by,
                "grant": one.grant,
                "subjects": one.subjects,
                "purpose": one.purpose,
                "events": one.events,
                "spent": one.spent,
                "reserved": one.reserved,
                "unbounded": one.unbounded,
            }
        yield same | _total(part)
        yield same | _stand("closing", part.closing)


def _stand(name: str, one: StandFacts) -> Row:
    return {
        "row": name,
        "time_utc": one.time,
        "spent": one.spent,
        "reserved": one.reserved,
        "unbounded": one.unbounded,
        "epsilon_spent_rounded_up": one.epsilon_spent,
        "epsilon_spent_and_reserved_rounded_up": one.epsilon_used,
    }


def _total(part: PartFacts) -> Row:
    return {
        "row": "sum of movements",
        "events": part.moved,
        "spent": part.spent,
        "reserved": part.reserved,
        "unbounded": part.unbounded,
    }


_WORDS: Final = {"dataset", "rule", "action", "window", "status", "restarted"}
_ACCOUNTS: Final = {"population": False, "first_day": False, "last_day": False} | {
    name: name not in _WORDS for name in AccountFacts.__struct_fields__
}


def _accounts(facts: OfficerFacts) -> Iterator[Row]:
    head = facts.head
    for one in facts.accounts:
        row = {"population": head.population, "first_day": head.first, "last_day": head.last}
        yield row | {name: getattr(one, name) for name in AccountFacts.__struct_fields__}


_GROUPS: Final = {
    "population": False,
    "first_day": False,
    "last_day": False,
    "dataset": False,
    "rule": False,
    "limit_epsilon": True,
    "dimension": False,
    "group": False,
    "opening_epsilon_rounded_up": True,
    "closing_epsilon_rounded_up": True,
    "remaining_epsilon_rounded_down": True,
    "status": False,
}
LIFETIME: Final = "built-in:lifetime"
"""Stands for the rule in the rows of lifetime totals. (No rule id has a colon.)"""


def _groups(facts: PeopleFacts) -> Iterator[Row]:
    head = facts.head
    same = {"population": head.population, "first_day": head.first, "last_day": head.last}
    limits = [(one.dataset, one.rule, one.limit, one.dimensions) for one in facts.limits]
    for dataset, rule, limit, dimensions in [("*", LIFETIME, None, facts.lifetime), *limits]:
        for split in dimensions:
            for one in split.groups:
                yield same | {
                    "dataset": dataset,
                    "rule": rule,
                    "limit_epsilon": limit,
                    "dimension": split.dimension,
                    "group": one.group,
                    "opening_epsilon_rounded_up": one.opening,
                    "closing_epsilon_rounded_up": one.closing,
                    "remaining_epsilon_rounded_down": one.remaining,
                    "status": one.status,
                }
