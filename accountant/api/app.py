"""The application: errors, health, documentation, and the calls."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp

from accountant import __version__
from accountant.api import problems
from accountant.api.access import Call, TheService
from accountant.api.answers import ready
from accountant.api.models.reading import Health
from accountant.api.routes import (
    approving,
    keys,
    lineage,
    measuring,
    proposing,
    reading,
    registering,
    spending,
    stating,
)
from accountant.budget.malformed import in_one_line, told
from accountant.config.settings import Settings
from accountant.door.messages import problem
from accountant.publishing.publisher import Publisher
from accountant.reporting.desk import Desk
from accountant.runtime.service import Service


class App(FastAPI):
    """The framework's application. Requests that ``hot.py`` takes do not reach it."""

    def build_middleware_stack(self) -> ASGIApp:
        """Leave out the framework's answer to unforeseen errors: the door answers them."""
        stack = super().build_middleware_stack()
        return stack.app if isinstance(stack, ServerErrorMiddleware) else stack


calls = APIRouter()


@calls.get("/healthz", tags=["health"])
@Call(Health)
async def healthz() -> Health:
    """The process is alive."""
    return {"status": "ok", "version": __version__}


@calls.get("/readyz", tags=["health"])
@Call(Health, topics="health")
def readyz(service: TheService) -> Health:
    """The service can decide: the database can be read and written to."""
    return ready(service)


# As they were built: include_router would build each anew for each app, a third of a start.
for router in (
    *(registering.router, spending.router, spending.sessions),
    *(proposing.router, proposing.keys, keys.router, approving.router),
    *(reading.router, reading.evidence, stating.router),
    *(measuring.router, lineage.router),
):
    calls.routes.extend(router.routes)


# The description is built on the first request, and served to everybody.
@calls.get("/openapi.json", include_in_schema=False)
def openapi_json(request: Request) -> JSONResponse:
    """The API's description."""
    from accountant.api.description.openapi import document  # noqa: PLC0415 seldom read

    return JSONResponse(document(request.app))


@calls.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """The API's description, as a page."""
    from accountant.api.description.page import page  # noqa: PLC0415 seldom read

    return HTMLResponse(page(request.app))


@calls.get("/", include_in_schema=False)
def home() -> RedirectResponse:
    """Where the page is."""
    return RedirectResponse("/docs")


async def _parameters(_: Request, error: RequestValidationError) -> JSONResponse:
    fields = told(error.errors(), place=1)  # after where it stands: path, query or header
    return problem("invalid-request", 422, in_one_line(fields, "the request"), errors=fields)


def create_app(service: Service | None, settings: Settings, publisher: Publisher | None) -> App:
    """Return the HTTP API of ``service``; without one it can only be described."""
    app = App(
        title="accountant", version=__version__, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.state.service = service
    app.state.publisher = publisher
    app.state.desk = Desk(service.ledgers, settings.home) if service else None
    app.state.public_log = settings.public_log
    problems.install(app)
    app.exception_handler(RequestValidationError)(_parameters)
    app.router.routes.extend(calls.routes)
    return app
