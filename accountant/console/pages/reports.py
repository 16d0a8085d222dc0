"""Reports to sign: which one of which period, and the file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from msgspec import Struct
from msgspec.structs import asdict

from accountant.budget.commands import Role
from accountant.budget.errors import Invalid, Problem
from accountant.budget.facts import SECOND
from accountant.console.access import Form, Refused, form, pages, sentence
from accountant.console.framing import Overseen, Population, Visit, visit
from accountant.reporting.filing import check_over, digest_of, file_report
from accountant.reporting.making import (
    About,
    Made,
    checklist_page,
    period_report,
    registry_draft,
)
from accountant.reporting.periods.making import FORMATS, MEDIA, AskedReport, events_read
from accountant.reporting.periods.period import Period
from accountant.reporting.under_way import Making, UnderWay, Wanted

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
PATIENCE: Final = 1.0
"""Seconds that somebody waits for a report without being told how far it is."""
MOST_NAMED: Final = 1_000
"""Datasets that a form offers; the name of any other is typed."""
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
        datasets=visit.service.datasets(population)[:MOST_NAMED],
    )


@router.get("/{population}/reports/file")
def send_report(
    request: Request, population: Population, visit: Overseen, typed: Chosen
) -> Response:
    """Send the report that was chosen, or go where it is waited for; the page again with what is
    wrong of it.
    """
    return _sent(request, visit, population, "file", typed)


@router.get("/{population}/reports/digest")
def show_digest(
    request: Request,
    population: Population,
    visit: Annotated[Visit, Depends(visit(*FILES))],
    typed: Chosen,
) -> Response:
    """Show the digest of a report that is to be filed, or go where it is waited for; the page again
    with what is wrong of it.
    """
    return _sent(request, visit, population, "digest", typed)


@router.get("/{population}/reports/registry")
def send_registry_entry(
    request: Request, population: Population, visit: Overseen, typed: Chosen
) -> Response:
    """Send a draft for the public registry of deployments, or go where it is waited for."""
    return _sent(request, visit, population, "registry", typed)


@router.get("/{population}/reports/checklist")
def send_checklist(
    request: Request, population: Population, visit: Overseen, typed: Chosen
) -> Response:
    """Send the checklist after NIST SP 800-226, or go where it is waited for."""
    return _sent(request, visit, population, "checklist", typed)


@router.get("/{population}/reports/making")
def show_making(
    request: Request,
    population: Population,
    visit: Overseen,
    typed: Chosen,
    made: Annotated[str, Query(max_length=20, alias="for")] = "file",
) -> Response:
    """Show how far a report is, and where it is once it is made. The page asks for itself."""
    visit.service.known(population)
    if made not in WAITED or (made == "digest" and visit.visitor.role not in FILES):
        raise Refused(404, "There is no such page.")
    try:
        wanted = _wanted(visit, population, made, typed)
        found = _under_way(request).ask(wanted, 0)
    except Problem as error:
        return _page(visit, population, typed, sentence(error), 422)
    far = found if isinstance(found, Making) else None
    place = _address(population, made, typed)
    name, does = WAITED[made]
    return visit.page(
        "making.html.j2",
        "reports",
        population,
        fresh=0 if far is None else 1,
        far=far,
        name=name,
        does=does,
        done=place,
        typed=typed,
    )


def _sent(request: Request, visit: Visit, population: str, made: str, typed: Typed) -> Response:
    visit.service.known(population)
    under_way = _under_way(request)
    try:
        wanted = _wanted(visit, population, made, typed)
        found = under_way.ask(wanted, PATIENCE)
    except Problem as error:
        return _page(visit, population, typed, sentence(error), 422)
    if isinstance(found, Making):
        return RedirectResponse(_address(population, "making", typed, made), 303)
    under_way.take(wanted.key)
    if made == "registry":
        dataset = typed.dataset
        return _file(found.encode(), "yaml", f"{population}-{dataset}.yaml")
    if made == "checklist":
        return _file(found, "html", f"{population}-checklist.html")
    asked = _asked(visit, typed)
    if made == "digest":
        return _page(visit, population, typed, signed=_signed(population, asked, found, typed))
    return _file(found.data, typed.form, f"{population}-{asked.name}.{typed.form}")


WAITED: Final = {
    "file": ("The report", "Download it"),
    "digest": ("The report", "Show its digest"),
    "registry": ("The draft for the registry", "Download it"),
    "checklist": ("The checklist", "Download it"),
}
"""What is waited for: its name, and what is done with it."""


def _address(population: str, page: str, typed: Typed, made: str = "") -> str:
    """Return the address of a page with what stands in the form."""
    fields = {**asdict(typed), "format": typed.form, "for": made}
    del fields["form"]
    query = urlencode({name: value for name, value in fields.items() if value})
    here = f"/console/{quote(population, safe='')}/reports/{page}"
    return f"{here}?{query}" if query else here


def _under_way(request: Request) -> UnderWay:
    found: UnderWay = request.app.state.reports
    return found


def _wanted(visit: Visit, population: str, made: str, typed: Typed) -> Wanted[Any]:
    """Return what was chosen, as it is waited for. Raise Invalid."""
    about = _about(visit, population)
    whose = visit.visitor.name, visit.reached, population

    def events() -> int:
        return visit.service.head(population).size

    make: Callable[..., Any]
    if made == "registry":
        make = partial(registry_draft, dataset=typed.dataset)
        key: tuple[Any, ...] = (*whose, made, typed.dataset)
    elif made == "checklist":
        make, key = checklist_page, (*whose, made)
    else:
        asked = _asked(visit, typed)
        if made == "digest":
            check_over(asked)
        events = partial(events_read, visit.service.ledgers, population, asked)
        make = partial(period_report, asked=asked, form=typed.form)
        key = (*whose, made, asked._replace(now=0), typed.form)
    made_by = partial(make, visit.desk, visit.service, about)
    return Wanted(key, population, events, lambda progress: made_by(progress=progress))


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


def _file(data: bytes, form: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    headers["X-Content-Type-Options"] = "nosniff"
    return Response(data, media_type=MEDIA.get(form, "application/yaml"), headers=headers)
