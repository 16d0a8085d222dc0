"""The application: middleware, health, documentation, and the calls."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from accountant import __version__
from accountant.api import description, problems
from accountant.api.access import TheService
from accountant.api.around import Around
from accountant.api.evidence import router as evidence
from accountant.api.hot import Hot
from accountant.api.routes import router
from accountant.publishing.publisher import Publisher
from accountant.service import Service
from accountant.settings import Settings


class App(FastAPI):
    """The framework's application behind what surrounds every request: what is plainly in order
    never reaches it.
    """

    def surround(self, service: Service, max_body_bytes: int) -> None:
        """Puts the service in front."""
        self._door = Around(Hot(super().__call__, service), max_body_bytes)

    def build_middleware_stack(self) -> ASGIApp:
        """Without the framework's answer to what nobody has foreseen: ``Around`` has a better one,
        the same on every way.
        """
        stack = super().build_middleware_stack()
        return stack.app if isinstance(stack, ServerErrorMiddleware) else stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection."""
        await self._door(scope, receive, send)


def create_app(service: Service, settings: Settings, publisher: Publisher | None = None) -> FastAPI:
    """The HTTP door of ``service``; ``publisher`` signs as the settings say, if none is given."""
    app = App(
        title="accountant",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.surround(service, settings.max_body_bytes)
    app.state.service = service
    app.state.publisher = publisher or Publisher(service, settings.vault, settings.origin)
    app.state.public_log = settings.public_log
    problems.install(app)

    @app.exception_handler(RequestValidationError)
    async def _parameters(_: Request, error: RequestValidationError) -> JSONResponse:
        reasons = [f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors()]
        return problems.problem("invalid-request", 422, "; ".join(reasons))

    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok", "version": __version__}

    @app.get("/readyz", tags=["health"])
    def readyz(service: TheService) -> dict[str, str]:
        """The service can decide: the database can be read and written to."""
        service.ready()
        return {"status": "ready"}

    app.include_router(router)
    app.include_router(evidence)
    description.install(app)
    return app
