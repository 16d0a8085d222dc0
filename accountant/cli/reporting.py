"""report, registry, checklist: how it stands, what happened in a period, and for others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from accountant.budget.errors import Invalid
from accountant.cli import common
from accountant.cli.progress import progress
from accountant.reporting import files
from accountant.reporting.checklist import checklist as nist_checklist
from accountant.reporting.filing import file_report
from accountant.reporting.making import Made, likely_place
from accountant.reporting.periods.making import FORMATS, AskedReport, events_read, facts_of
from accountant.reporting.periods.period import Period
from accountant.reporting.periods.rendering import set_in, written
from accountant.reporting.registry import registry_entry
from accountant.reporting.schema import Report
from accountant.runtime.service import Service
from accountant.store.ledgers import Signed
from accountant.store.whole import whole


@common.app.command()
def report(
    *,
    population: common.PopulationOption,
    kind: Annotated[
        str | None,
        typer.Option(help="of a period: officer (default), statement (of a dataset), population"),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="the dataset of the statement")] = None,
    month: Annotated[str | None, typer.Option(help="the period: 2026-10")] = None,
    first: Annotated[
        str | None, typer.Option("--from", help="the first day of the period: 2026-10-05")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", help="the last day of the period; default: today")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="html, json, csv, or pdf (of a period); default: the ending of --out, or html",
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--out", "-o", help="file to write; default: standard output")
    ] = None,
    filed: Annotated[
        bool,
        typer.Option("--file", help="record the digest of the report, of a period that is over"),
    ] = False,
    local: common.LocalOption = False,
) -> None:
    """Write the compliance report as of now; or, of a period, a report to sign."""
    form = form or (to and to.suffix.removeprefix(".")) or "html"
    with common.local_service() as service:
        service.known(population)
        published = common.publisher_of(service).last_published(population)
        if kind is None and not (month or first or last):
            if filed:
                raise Invalid("unknown-report", "what is filed is of a period: name a --month")
            data = _now(service, population, published, form)
        else:
            now = service.time()
            period = Period.asked(month, first, last, now)
            asked = AskedReport.of(kind or "officer", period, dataset, now)
            data, size = _period(service, population, published, asked, form)
            if filed:
                made = Made(data, size)
                answer = file_report(service, population, asked, form, made, common.operator())
                common.say(f"filed as event {answer.events[-1].sequence}")
    _put(data, to)


def _now(service: Service, population: str, published: Signed | None, form: str) -> bytes:
    if form not in files.FORMATS:
        text = f"unknown report format {form!r}: html, json or csv; pdf of a period (--month)"
        raise Invalid("unknown-format", text)
    return files.rendered(_report(service, population, published), form).encode()


def _period(
    service: Service, population: str, published: Signed | None, asked: AskedReport, form: str
) -> tuple[bytes, int]:
    """Return the report, and on how many events it rests."""
    if form not in FORMATS:
        raise Invalid("unknown-format", f"unknown report format {form!r}: {', '.join(FORMATS)}")
    with progress() as bars:
        size = events_read(service.ledgers, population, asked)
        task = bars.add_task("reading events", total=size)
        advance = partial(bars.advance, task)
        likely = likely_place(service, population, asked)
        facts = facts_of(service.ledgers, population, asked, published, advance, likely)
        bars.update(task, description=f"writing {form}", completed=size)
        return written(facts, form), facts.head.events


@common.app.command()
def registry(
    population: common.PopulationOption,
    dataset: Annotated[str, typer.Option(help="the dataset that the entry is about")],
    to: Annotated[
        Path | None, typer.Option("--out", "-o", help="file to write; default: standard output")
    ] = None,
) -> None:
    """Write a draft for the public registry of deployments of differential privacy, as YAML."""
    with common.local_service() as service:
        text = registry_entry(_known_report(service, population), dataset)
    _put(text.encode(), to)


@common.app.command()
def checklist(
    population: common.PopulationOption,
    form: Annotated[str, typer.Option("--format", help="html or pdf")] = "html",
    to: Annotated[
        Path | None, typer.Option("--out", "-o", help="file to write; default: standard output")
    ] = None,
) -> None:
    """Write the checklist after NIST SP 800-226: what the ledger answers, and what people must."""
    if form not in ("html", "pdf"):
        raise Invalid("unknown-format", f"unknown format {form!r}: html or pdf")
    with common.local_service() as service:
        data = set_in(nist_checklist(_known_report(service, population)), form)
    _put(data, to)


def _known_report(service: Service, population: str) -> Report:
    service.known(population)
    published = common.publisher_of(service).last_published(population)
    return _report(service, population, published)


def _report(service: Service, population: str, published: Signed | None) -> Report:
    """Return the compliance report, for which every event is read."""
    with progress() as bars:
        task = bars.add_task("reading events", total=service.ledgers.head(population).size)
        advance = partial(bars.advance, task)
        return files.report_of(service.ledgers, population, published, progress=advance)


def _put(data: bytes, to: Path | None) -> None:
    if to is None:
        typer.echo(data if data.startswith(b"%PDF-") else data.decode(), nl=False)
        return
    with whole(to) as file:
        file.write(data)
    common.say(f"wrote {to}")
