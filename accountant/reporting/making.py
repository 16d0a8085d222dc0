"""Reports as the service makes them: each is work of the desk, for a process of its own if the
ledger is long.

The service answers grants meanwhile, and the memory that a report takes ends with the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from accountant.budget.errors import Problem
from accountant.ledger.events import Event
from accountant.reporting.checklist import checklist
from accountant.reporting.contributors import limit_fired, used_up_by
from accountant.reporting.desk import Desk
from accountant.reporting.files import rendered, report_of
from accountant.reporting.periods.account import Place, subject_of
from accountant.reporting.periods.making import AskedReport, facts_of
from accountant.reporting.periods.rendering import set_in, written
from accountant.reporting.progress import Progress, counted, silent
from accountant.reporting.registry import registry_entry
from accountant.reporting.schema import Report
from accountant.reporting.texts import Texts
from accountant.runtime.memory import collection_paused
from accountant.runtime.service import Service
from accountant.store.ledgers import Ledgers, Signed


class About(NamedTuple):
    """What a report is of: a population as it was ``published`` last, for somebody who reaches
    these populations, by default all.
    """

    population: str
    published: Signed | None
    reached: frozenset[str] | None = None

    def report(self, ledgers: Ledgers, progress: Progress = silent) -> Report:
        """Return the compliance report."""
        return report_of(ledgers, *self, progress)


class Made(NamedTuple):
    """A report of a period: its bytes, and on how many events it rests."""

    data: bytes
    events: int


def report_texts(
    desk: Desk, service: Service, about: About, forms: Sequence[str]
) -> dict[str, str]:
    """Return the compliance report in each of ``forms``. Raise StoreError, or NotFound without a
    ledger.
    """
    service.known(about.population)
    return desk.work(about.population, partial(_texts, about=about, forms=tuple(forms)))


def period_report(
    desk: Desk,
    service: Service,
    about: About,
    asked: AskedReport,
    form: str,
    progress: Progress = silent,
) -> Made:
    """Return the report of a period in a form. Raise StoreError, NotFound without a ledger, Invalid
    for a dataset that was not registered by its end, or Unavailable where no PDF can be made.
    """
    service.known(about.population)
    likely = likely_place(service, about.population, asked)
    work = partial(made, about=about, asked=asked, form=form, likely=likely)
    return desk.work(about.population, work, progress=progress)


def registry_draft(
    desk: Desk, service: Service, about: About, dataset: str, progress: Progress = silent
) -> str:
    """Return a draft for the public registry of deployments. Raise StoreError, NotFound without a
    ledger, or Invalid without a dataset.
    """
    service.known(about.population)
    work = partial(_draft, about=about, dataset=dataset)
    return desk.work(about.population, work, progress=progress)


def checklist_page(
    desk: Desk, service: Service, about: About, progress: Progress = silent
) -> bytes:
    """Return the checklist after NIST SP 800-226 as HTML. Raise StoreError, or NotFound without a
    ledger.
    """
    service.known(about.population)
    return desk.work(about.population, partial(_checklist, about=about), progress=progress)


def used_up(
    desk: Desk, service: Service, event: Event, rules: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return, of the ``rules`` of a decision, for each limit that fired the charges that used it up
    (``contributors.py``); the ledger is read only if one has. Raise StoreError.
    """
    if not any(map(limit_fired, rules)):
        return []
    name, before = event.ledger, event.sequence
    work = partial(
        _used_up,
        population=name,
        rules=list(rules),
        before=before,
        policies=service.policies(name, before),
        datasets=service.state(name).datasets,
    )
    return desk.work(name, work, before)


def _used_up(
    ledgers: Ledgers, progress: Progress, population: str, **asked: Any
) -> list[dict[str, Any]]:
    texts = Texts(partial(ledgers.texts, population), page=1)
    return used_up_by(counted(ledgers.stream(population), progress), texts=texts, **asked)


def _texts(
    ledgers: Ledgers, progress: Progress, about: About, forms: tuple[str, ...]
) -> dict[str, str]:
    with collection_paused():
        report = about.report(ledgers, progress)
    return {form: rendered(report, form) for form in forms}


def likely_place(service: Service, population: str, asked: AskedReport) -> Place | None:
    """Return where a statement would read if its period ended now."""
    if asked.dataset is None:
        return None
    try:
        return subject_of(service.state(population), asked.dataset).place
    except Problem:
        return None  # there is no such dataset


def made(
    ledgers: Ledgers,
    progress: Progress,
    about: About,
    asked: AskedReport,
    form: str,
    likely: Place | None = None,
) -> Made:
    """Return the report of a period, made here. Raise as ``period_report`` does, or ValueError for
    a damaged ledger.
    """
    with collection_paused():
        facts = facts_of(ledgers, about.population, asked, about.published, progress, likely)
    return Made(written(facts, form), facts.head.events)


def _draft(ledgers: Ledgers, progress: Progress, about: About, dataset: str) -> str:
    with collection_paused():
        report = about.report(ledgers, progress)
    return registry_entry(report, dataset)


def _checklist(ledgers: Ledgers, progress: Progress, about: About) -> bytes:
    with collection_paused():
        report = about.report(ledgers, progress)
    return set_in(checklist(report), "html")
