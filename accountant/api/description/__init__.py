"""What the interface says of itself: the OpenAPI document, its examples, and a page to read."""

from __future__ import annotations

from fastapi import FastAPI

from accountant.api.description import openapi, page


def install(app: FastAPI) -> None:
    """Serves /openapi.json and /docs, both built from the routes on the first request."""
    openapi.install(app)
    page.install(app)
