"""The call by which Prometheus reads the service."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from accountant.api.access import Call, Overseer, TheService, known_parameters

router = APIRouter(tags=["monitoring"], dependencies=[Depends(known_parameters)])


@router.get("/metrics")
@Call(media="text/plain application/openmetrics-text")
def metrics(
    key: Overseer,
    service: TheService,
    request: Request,
    parts: Annotated[
        bool, Query(description="with accounts that only divide a limit, such as clients'")
    ] = False,
) -> Response:
    """Show budgets, decisions and the state of the service as Prometheus reads them, in its text
    format or, if it asks for that, as OpenMetrics.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415 seldom needed
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

    from accountant.reporting.metrics import ServiceCollector  # noqa: PLC0415

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(ServiceCollector(service, parts=parts))
    encode, media = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(registry), media_type=media, headers={"Cache-Control": "no-store"})
