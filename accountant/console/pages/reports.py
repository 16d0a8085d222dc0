"""Reports to sign: which one of which period, and the file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import Depends, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from msgspec import Struct

from accountant.budget.commands import Role
from accountant.budget.errors import Invalid, Problem
from accountant.budget.facts import SECOND
from accountant.console.access import Form, form, pages, sentence
from accountant.console.framing import Overseen, Population, Visit, visit
from accountant.reporting.filing import check_over, digest_of, file_report
from accountant.reporting.making import (
    About,
    Made,
    checklist_page,
    period_report,
    registry_draft,
)
from accountant.reporting.periods.making import FORMATS, MEDIA, AskedReport
from accountant.reporting.periods.period import Period

router = pages()
KINDS: Final = (
    (
        "officer",
        "What an officer signs",
        "What to do now, accounts, refusals, decisions, policies.",
    ),
    ("statement", "Statement of a dataset", "Opening, each charge, closing. Name the dataset."),
    ("population", "Loss by group", "What each group had lost, before and after."),
)
FILES: Final[tuple[Role, ...]] = ("admin", "officer")
"""The roles that file reports."""
_Short = Annotated[str, Query(max_length=100)]


class Typed(Struct, frozen=True):
    """What stands in the form."""

    kind: str = ""
    dataset: str = ""
    first: str = ""
    last: str = ""
    form: str = ""


def _typed(
    kind: _Short = "",
    dataset: _Short = "",
    first: _Short = "",
    last: _Short = "",
    chosen: Annotated[str, Query(max_length=10, alias="format")] = "",
) -> Typed:
    return Typed(kind, dataset.strip(), first, last, chosen)


Chosen = Annotated[Typed, Depends(_typed)]
"""What the address of a page has of the form."""


@router.get("/{population}/reports")
def show_reports(population: Population, visit: Overseen) -> HTMLResponse:
    """Show which reports there are; the last month that is over stands in the form."""
    visit.service.known(population)
    today = datetime.fromtimestamp(visit.now / SECOND, UTC).date()
    last = today.replace(day=1) - timedelta(days=1)
    typed = Typed(first=last.replace(day=1).isoformat(), last=last.isoformat(), form="pdf")
    return _page(visit, population, typed)


class Signed(Struct, frozen=True):
    """The report that is about to be filed: its digest, the events that it rests on, and whether
    the same person has been shown another before.
    """

    name: str
    digest: str
    events: int
    changed: bool = False


def _page(
    visit: Visit,
    population: str,
    typed: Typed,
    mistake: str = "",
    status: int = 200,
    signed: Signed | None = None,
) -> HTMLResponse:
    return visit.page(
        "reports.html.j2",
        "reports",
        population,
        status=status,
        kinds=KINDS,
        forms=FORMATS,
        typed=typed,
        mistake=mistake,
        signed=signed,
    )


@router.get("/{population}/reports/file")
def send_report(population: Population, visit: Overseen, typed: Chosen) -> Response:
    """Send the report that was chosen; the page again with what is wrong of it."""
    visit.service.known(population)
    try:
        asked = _asked(visit, typed)
        found = _made(visit, population, asked, typed.form)
    except Problem as error:
        return _page(visit, population, typed, sentence(error), 422)
    return _file(found.data, typed.form, f"{population}-{asked.name}.{typed.form}")


@router.get("/{population}/reports/digest")
def show_digest(
    population: Population, visit: Annotated[Visit, Depends(visit(*FILES))], typed: Chosen
) -> Response:
    """Show the digest of a report that is to be filed; the page again with what is wrong of it."""
    visit.service.known(population)
    try:
        asked = _asked(visit, typed)
        check_over(asked)
        made = _made(visit, population, asked, typed.form)
    except Problem as error:
        return _page(visit, population, typed, sentence(error), 422)
    return _page(visit, population, typed, signed=_signed(population, asked, made, typed))


def _signed(
    population: str, asked: AskedReport, made: Made, typed: Typed, *, changed: bool = False
) -> Signed:
    name = f"{population}-{asked.name}.{typed.form}"
    return Signed(name, digest_of(made), made.events, changed)


def _asked(visit: Visit, typed: Typed) -> AskedReport:
    """Return what was chosen. Raise Invalid."""
    if not typed.kind:
        raise Invalid("unknown-report", "choose which report")
    if typed.form not in FORMATS:
        raise Invalid("unknown-report", "choose a format")
    period = Period.asked(None, typed.first, typed.last, visit.now)
    dataset = typed.dataset if typed.kind == "statement" else None
    return AskedReport.of(typed.kind, period, dataset, visit.now)


def _made(visit: Visit, population: str, asked: AskedReport, form: str) -> Made:
    return period_report(visit.desk, visit.service, _about(visit, population), asked, form)


def _about(visit: Visit, population: str) -> About:
    return About(population, visit.publisher.last_published(population), visit.reached)


Sent = Annotated[
    Form,
    Depends(form("kind", "first", "last", "format", "digest", optional=("dataset",), roles=FILES)),
]


@router.post("/{population}/reports/filed")
def file_chosen(population: Population, sent: Sent, visit: Overseen) -> Response:
    """File the report whose digest was shown, and show its event. What is wrong, or has changed
    since, is told on the page.
    """
    visit.service.known(population)
    fields = sent.fields
    dataset = fields.get("dataset", "").strip()
    typed = Typed(fields["kind"], dataset, fields["first"], fields["last"], fields["format"])
    read, by = fields["digest"], sent.visitor.name
    try:
        asked = _asked(visit, typed)
        made = _made(visit, population, asked, typed.form)
        if read != digest_of(made):
            signed = _signed(population, asked, made, typed, changed=True)
            return _page(visit, population, typed, status=409, signed=signed)
        answer = file_report(visit.service, population, asked, typed.form, made, by, read)
    except Problem as error:
        return _page(visit, population, typed, sentence(error), 422)
    return RedirectResponse(f"/console/{population}/ledger/{answer.events[-1].sequence}", 303)


@router.get("/{population}/reports/registry")
def send_registry_entry(population: Population, visit: Overseen, dataset: _Short = "") -> Response:
    """Send a draft for the public registry of deployments."""
    about = _about(visit, population)
    try:
        text = registry_draft(visit.desk, visit.service, about, dataset.strip())
    except Invalid as error:
        return _page(visit, population, Typed(dataset=dataset), sentence(error), 422)
    return _file(text.encode(), "yaml", f"{population}-{dataset.strip()}.yaml")


@router.get("/{population}/reports/checklist")
def send_checklist(population: Population, visit: Overseen) -> Response:
    """Send the checklist after NIST SP 800-226."""
    found = checklist_page(visit.desk, visit.service, _about(visit, population))
    return _file(found, "html", f"{population}-checklist.html")


def _file(data: bytes, form: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    headers["X-Content-Type-Options"] = "nosniff"
    return Response(data, media_type=MEDIA.get(form, "application/yaml"), headers=headers)
