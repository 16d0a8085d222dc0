"""Who may call what: API keys with roles."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Request

from accountant.api.items import Items
from accountant.api.strict_json import parse
from accountant.budget.commands import Asked, Command, Role
from accountant.budget.errors import Forbidden, Invalid, Problem
from accountant.keys import Key
from accountant.publishing.publisher import Publisher
from accountant.service import Service

SPEND: Final[tuple[Role, ...]] = ("admin", "pipeline")
READ: Final[tuple[Role, ...]] = ("admin", "pipeline", "officer", "auditor")
ASK: Final[tuple[Role, ...]] = ("admin", "pipeline", "officer")
OVERSEE: Final[tuple[Role, ...]] = ("admin", "officer", "auditor")
CUSTODY: Final[tuple[Role, ...]] = ("admin", "officer")
ADMIN: Final[tuple[Role, ...]] = ("admin",)


_IDEMPOTENCY_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")


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


async def _items(request: Request) -> Items:
    items: Items = request.app.state.items
    return items


def key_from(service: Service, header: str | None, name: str) -> Key:
    """Whose key a header holds. Raises Problem ("unauthenticated")."""
    scheme, _, secret = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise Problem(
            "unauthenticated",
            f"send an API key: {name}: Bearer <key>; `accountant keys create` makes one",
        )
    key = service.credentials.find(secret.strip())
    if key is None:
        raise not_valid(name)
    return key


def not_valid(name: str) -> Problem:
    """What is wrong with a key in the header ``name`` that nobody has."""
    return Problem("unauthenticated", f"the key in {name} is not valid, or was revoked")


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


def needs_role(key: Key, roles: tuple[Role, ...]) -> None:
    """Raises Forbidden unless the key has one of ``roles``."""
    if key.role not in roles:
        raise Forbidden(
            "role-not-allowed",
            f"key {key.name!r} has the role {key.role}; this call needs {' or '.join(roles)}",
        )


def only_own(key: Key, owner: str, what: str) -> None:
    """Raises Forbidden if a pipeline asks for what another client asked for, and why."""
    if key.role == "pipeline" and key.name != owner:
        raise Forbidden("not-your-grant", f"{what} belongs to another client")


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


def body_of(data: bytes) -> dict[str, Any]:
    """The body as a strict JSON object; an empty body is an empty object."""
    document = parse(data) if data.strip() else {}
    if not isinstance(document, dict):
        raise Invalid("malformed-json", "the body must be a JSON object")
    return document


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


def sound_idempotency_key(value: str | None) -> bool:
    """True for none, and for one of 1 to 200 visible ASCII characters."""
    return value is None or _IDEMPOTENCY_KEY.fullmatch(value) is not None


def ask(
    kind: type[Command], key: Key, body: dict[str, Any], idempotency: str | None, **path: Any
) -> Asked:
    """The command in ``body``; names in the path are not accepted in the body too."""
    for name in path:
        if name in body:
            raise Invalid("invalid-request", f"{name} stands in the path, not in the body")
    return Asked(key.name, kind.model_validate(body | path), idempotency)


Body = Annotated[dict[str, Any], Depends(json_body)]
Raw = Annotated[bytes, Depends(raw_body)]
Idempotency = Annotated[str | None, Depends(idempotency_key)]

TheItems = Annotated[Items, Depends(_items)]
TheService = Annotated[Service, Depends(_service)]
ThePublisher = Annotated[Publisher, Depends(publisher_of)]
Spender = Annotated[Key, Depends(caller(*SPEND))]
Reader = Annotated[Key, Depends(caller(*READ))]
Asker = Annotated[Key, Depends(caller(*ASK))]
Overseer = Annotated[Key, Depends(caller(*OVERSEE))]
Custodian = Annotated[Key, Depends(caller(*CUSTODY))]
Administrator = Annotated[Key, Depends(caller(*ADMIN))]
