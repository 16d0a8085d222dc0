"""Adds the console to the application."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from accountant.auth.sessions import Sessions
from accountant.budget.facts import SECOND
from accountant.config.settings import Settings
from accountant.console import signing_in
from accountant.console.access import Console
from accountant.console.place import place_of
from accountant.door.keys import Attempts
from accountant.runtime.service import Service

_MINUTE: Final = 60 * SECOND


def add_console(app: FastAPI, service: Service, settings: Settings) -> None:
    """Add the pages for people to the application. Raise ValueError, naming the variable, for a
    setting that cannot be.
    """
    longest = int(settings.session_hours * 60 * _MINUTE)
    idle = min(int(settings.session_idle_minutes * _MINUTE), longest)
    app.state.console = Console(
        place=place_of(settings),
        sessions=Sessions(service.credentials, idle, longest),
        attempts=Attempts(),
        provider=None,
    )
    app.include_router(signing_in.router)
