"""What the framework hands to the calls: the service, whose key a request has, what it asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Request

from accountant.api.quick import Quick
from accountant.api.requests import (
    ADMIN,
    ASK,
    CUSTODY,
    OVERSEE,
    READ,
    SPEND,
    body_of,
    key_from,
    needs_role,
    sound_idempotency_key,
)
from accountant.auth.keys import Key
from accountant.budget.commands import Role
from accountant.budget.errors import Invalid
from accountant.publishing.publisher import Publisher
from accountant.runtime.service import Service


def service_of(request: Request) -> Service:
    """The service behind this app."""
    service: Service = request.app.state.service
    return service


async def _service(request: Request) -> Service:
    """``service_of`` as a dependency: async, since what blocks nothing needs no thread."""
    return service_of(request)


def publisher_of(request: Request) -> Publisher:
    """Who signs for the service behind this app."""
    publisher: Publisher = request.app.state.publisher
    return publisher


async def _quick(request: Request) -> Quick:
    quick: Quick = request.app.state.quick
    return quick


def caller(*roles: Role) -> Callable[..., Key]:
    """A dependency: the caller's key, if it has one of ``roles``."""

    def authenticate(
        request: Request,
        authorization: Annotated[str | None, Header(include_in_schema=False)] = None,
    ) -> Key:
        key = key_from(service_of(request), authorization, "Authorization")
        request.state.client = key.name
        needs_role(key, roles)
        return key

    authenticate.roles = roles  # type: ignore[attr-defined]
    return authenticate


async def known_parameters(request: Request) -> None:
    """Raises Invalid for a query parameter that the call does not have: a misspelt filter would
    silently show everything.
    """
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    for name in request.query_params:
        if name not in known:
            raise Invalid(
                "unknown-parameter",
                f"this call has no parameter {name!r}, only: {', '.join(sorted(known)) or 'none'}",
            )


async def raw_body(request: Request) -> bytes:
    """The body; its size was limited on the way in."""
    return await request.body()


def json_body(data: Annotated[bytes, Depends(raw_body)]) -> dict[str, Any]:
    """``body_of`` as a dependency. Not async: parsing a large body would hold up everybody else."""
    return body_of(data)


async def idempotency_key(request: Request) -> str | None:
    """The Idempotency-Key header: one, of 1 to 200 visible ASCII characters."""
    values = request.headers.getlist("Idempotency-Key")
    if not values:
        return None
    if len(values) > 1 or not sound_idempotency_key(values[0]):
        raise Invalid(
            "malformed-idempotency-key",
            "send one Idempotency-Key of 1 to 200 visible ASCII characters",
        )
    return values[0]


def of_a_population(*tags: str) -> APIRouter:
    """A router for the calls under /v1/populations/{population}."""
    return APIRouter(
        prefix="/v1/populations/{population}",
        dependencies=[Depends(known_parameters)],
        tags=list(tags),
    )


_ID: Final = r"^[a-z0-9][a-z0-9_.-]{0,63}$"
Name = Annotated[str, Path(pattern=_ID, description="the population's name")]
DatasetName = Annotated[str, Path(pattern=_ID)]
GrantId = Annotated[str, Path(pattern=r"^g\d{1,18}$", description="a grant's id")]
EventNumber = Annotated[str, Path(pattern=r"^\d{1,15}$", description="of the event")]
Body = Annotated[dict[str, Any], Depends(json_body)]
Raw = Annotated[bytes, Depends(raw_body)]
Idempotency = Annotated[str | None, Depends(idempotency_key)]

TheQuick = Annotated[Quick, Depends(_quick)]
TheService = Annotated[Service, Depends(_service)]
ThePublisher = Annotated[Publisher, Depends(publisher_of)]
Spender = Annotated[Key, Depends(caller(*SPEND))]
Reader = Annotated[Key, Depends(caller(*READ))]
Asker = Annotated[Key, Depends(caller(*ASK))]
Overseer = Annotated[Key, Depends(caller(*OVERSEE))]
Custodian = Annotated[Key, Depends(caller(*CUSTODY))]
Administrator = Annotated[Key, Depends(caller(*ADMIN))]
