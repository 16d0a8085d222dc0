"""What the interface says of itself: the OpenAPI document, its examples, and a page to read.

Imported late, when somebody first reads it: a service starts without.
"""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse


def install(app: FastAPI) -> None:
    """Serves /openapi.json and /docs to everybody, both built from the routes on the first request;
    sends visitors of / to /docs.
    """

    @app.get("/openapi.json", include_in_schema=False)
    def openapi_json() -> JSONResponse:
        from accountant.api.description.openapi import document  # noqa: PLC0415

        return JSONResponse(document(app))

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        from accountant.api.description.page import page  # noqa: PLC0415

        return HTMLResponse(page(app))

    @app.get("/", include_in_schema=False)
    def home() -> RedirectResponse:
        return RedirectResponse("/docs")
