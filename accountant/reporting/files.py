"""Reports as files: written whole or not at all."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from accountant.reporting.texts import Texts
from accountant.runtime.service import Service
from accountant.store.ledgers import Signed
from accountant.store.whole import whole

if TYPE_CHECKING:
    from accountant.reporting.shape import Report

FORMATS: Final = ("html", "json", "csv")


def report_of(service: Service, population: str, published: Signed | None) -> Report:
    """The report of everything committed; ``published`` is the last checkpoint that was.

    Raises NotFound for an unknown population.
    """
    # Imported late, as below: a service makes one a day, most commands none.
    from accountant.reporting.model import build_report  # noqa: PLC0415

    service.known(population)
    texts = Texts(partial(service.texts, population))
    return build_report(population, service.stream(population), texts, published)


def rendered(report: Report, form: str) -> str:
    """The report as ``html``, ``json`` or ``csv`` text."""
    from accountant.reporting.render import to_csv, to_html, to_json  # noqa: PLC0415

    match form:
        case "html":
            return to_html(report)
        case "json":
            return json.dumps(to_json(report), indent=1, ensure_ascii=False) + "\n"
        case _:
            return to_csv(report)


def write_report(report: Report, folder: Path) -> dict[str, Path]:
    """Writes ``folder/<population>.<format>`` for every format; returns the paths by format."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = {}
    for form in FORMATS:
        paths[form] = folder / f"{report.ledger_name}.{form}"
        write_whole(paths[form], rendered(report, form))
    return paths


def write_whole(path: Path, text: str) -> None:
    """Puts ``text`` at ``path`` by renaming: a reader never sees half of it. Raises OSError."""
    with whole(path) as file:
        file.write(text.encode())
