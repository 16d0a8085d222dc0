"""Dependencies of the handlers (service, key, body), and their description (``Call``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, Header, Path, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from accountant.api.answers import respond
from accountant.api.requests import SPEND, ask, body_of, key_from, sound_idempotency_key
from accountant.auth.keys import Key
from accountant.budget.commands import Command, Role
from accountant.budget.errors import Forbidden, Invalid
from accountant.publishing.publisher import Publisher
from accountant.reporting.desk import Desk
from accountant.runtime.service import Service

Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Call:
    """Describe a handler for the documentation; used as its decorator. Texts are lists of words."""

    gives: Any = None  # A class of ``accountant.api.models``; None where the answer is not JSON
    takes: type[BaseModel] | None = None  # The model of the body
    within: str = ""  # The fields of the body that stand in the path
    topics: str = ""  # Of problems that it may meet (``description/problem_codes.yaml``)
    media: str = "application/json"  # The types of the answer
    proposes: bool = False  # It may take a second person: 202 and a proposal
    waits: bool = False  # It may wait, for budget or a person: 202

    def __call__(self, handler: Handler) -> Handler:
        """Attach the description to the handler."""
        handler.call = self  # type: ignore[attr-defined]
        return handler


def _of_the_app(name: str) -> Any:
    """Return a dependency: an attribute of the app's state. Async, since it needs no thread."""

    async def found(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(found)


TheService = Annotated[Service, _of_the_app("service")]
TheDesk = Annotated[Desk, _of_the_app("desk")]
ThePublisher = Annotated[Publisher, _of_the_app("publisher")]
Authorization = Annotated[str | None, Header(include_in_schema=False)]


def caller(*roles: Role, anywhere: bool = False) -> Callable[..., Key]:
    """Return a dependency: the caller's key, which must have one of ``roles``, and reach the
    population in the path, or all populations if it names none. No call gets a key in another way,
    so none can forget its scope; one about the key itself is ``anywhere``.
    """

    def authenticate(
        request: Request, service: TheService, authorization: Authorization = None
    ) -> Key:
        key = key_from(service, authorization, "Authorization")
        request.state.client = key.name
        if key.role not in roles:
            needs = " or ".join(roles)
            text = f"key {key.name!r} has the role {key.role}; this call needs {needs}"
            raise Forbidden("role-not-allowed", text)
        population = request.path_params.get("population")
        if population is not None or not anywhere:
            key.check_scope(population)
        return key

    authenticate.roles = roles  # type: ignore[attr-defined]
    return authenticate


async def known_parameters(request: Request) -> None:
    """Raise Invalid for an unknown query parameter: a misspelt filter would show everything."""
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    for name in request.query_params:
        if name not in known:
            raise Invalid(
                "unknown-parameter",
                f"this call has no parameter {name!r}, only: {', '.join(sorted(known)) or 'none'}",
            )


async def raw_body(request: Request) -> bytes:
    """Return the body; its size was limited on the way in."""
    return await request.body()


def json_body(data: Annotated[bytes, Depends(raw_body)]) -> dict[str, Any]:
    """Return the body as JSON. Not async: parsing a large body would block the event loop."""
    return body_of(data)


async def idempotency_key(request: Request) -> str | None:
    """Return the Idempotency-Key, if one is sent. Raise Invalid unless it is valid."""
    values = request.headers.getlist("Idempotency-Key")
    if not values:
        return None
    if len(values) > 1 or not sound_idempotency_key(values[0]):
        raise Invalid(
            "malformed-idempotency-key",
            "send one Idempotency-Key of 1 to 200 visible ASCII characters",
        )
    return values[0]


def of_a_population(tag: str) -> APIRouter:
    """Return a router for calls under /v1/populations/{population}."""
    known = [Depends(known_parameters)]
    return APIRouter(prefix="/v1/populations/{population}", dependencies=known, tags=[tag])


OVERSEE: Final[tuple[Role, ...]] = ("admin", "officer", "auditor")
_ID: Final = r"^[a-z0-9][a-z0-9_.-]{0,63}$"
Name = Annotated[str, Path(pattern=_ID, description="the population's name")]
DatasetName = Annotated[str, Path(pattern=_ID)]
DimensionPath = Annotated[str, Path(pattern=_ID, description="the name of a dimension")]
GrantId = Annotated[str, Path(pattern=r"^g\d{1,18}$", description="a grant's id")]
EventNumber = Annotated[str, Path(pattern=r"^\d{1,15}$", description="of the event")]
Body = Annotated[dict[str, Any], Depends(json_body)]
Raw = Annotated[bytes, Depends(raw_body)]
Idempotency = Annotated[str | None, Depends(idempotency_key)]
Spender = Annotated[Key, Depends(caller(*SPEND))]
Reader = Annotated[Key, Depends(caller("admin", "pipeline", "officer", "auditor"))]
Asker = Annotated[Key, Depends(caller("admin", "pipeline", "officer"))]
Overseer = Annotated[Key, Depends(caller(*OVERSEE))]
Custodian = Annotated[Key, Depends(caller("admin", "officer"))]
Administrator = Annotated[Key, Depends(caller("admin"))]


def _posted(
    population: Name, key: Spender, body: Body, idempotency: Idempotency, service: TheService
) -> Callable[..., JSONResponse]:
    def answer(kind: type[Command], **path: str) -> JSONResponse:
        command = ask(kind, key, body, idempotency, **path)
        return respond(service, service.execute(population, command))

    return answer


Posted = Annotated[Callable[..., JSONResponse], Depends(_posted)]
"""Executes the command in the body, with its fields in the path; returns the response."""
