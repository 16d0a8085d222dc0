"""Adds the console to the application."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI, Response

from accountant.auth.oidc import Provider
from accountant.auth.sessions import Sessions
from accountant.budget.facts import SECOND
from accountant.config.identity import provider_of
from accountant.config.settings import Settings
from accountant.console import signing_in
from accountant.console.access import HOME, Console
from accountant.console.line import Line
from accountant.console.pages import (
    accounts,
    decisions,
    evidence,
    findings,
    home,
    keys,
    ledger,
    proposals,
    reports,
    requests,
    what_if,
)
from accountant.console.place import place_of
from accountant.console.rendering import static
from accountant.door.keys import Attempts
from accountant.door.messages import problem
from accountant.reporting.trying import Trials
from accountant.reporting.under_way import UnderWay
from accountant.runtime.service import Service

_MINUTE: Final = 60 * SECOND


def add_console(app: FastAPI, service: Service, settings: Settings) -> None:
    """Add the pages for people to the application. Raise ValueError, naming the variable, for a
    setting that cannot be.
    """
    known = provider_of(settings)
    longest = int(settings.session_hours * 60 * _MINUTE)
    idle = min(int(settings.session_idle_minutes * _MINUTE), longest)
    place = place_of(settings)
    service.console = f"{place.origin}{HOME}" if place.origin else ""
    app.state.console = Console(
        place=place,
        sessions=Sessions(service.credentials, idle, longest),
        attempts=Attempts(),
        provider=Provider(known) if known else None,
    )
    app.state.trials = Trials(service.ledgers)
    app.state.reports = UnderWay(service.ledgers)
    app.add_middleware(Line)
    first = signing_in, home, keys, findings, ledger, evidence
    for module in (*first, accounts, what_if, decisions, proposals, requests, reports):
        app.include_router(module.router)

    @app.get("/console/static/{name}", include_in_schema=False)
    def file(name: str) -> Response:
        """Return a file that pages need, to anybody."""
        return static(name) or problem("unknown-path", 404, "the console has no such file")


def close_console(app: FastAPI) -> None:
    """End the processes that answer for pages, and make reports."""
    app.state.trials.close()
    app.state.desk.close()
