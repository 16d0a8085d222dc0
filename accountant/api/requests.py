"""Parse requests: authentication, body, command. Imports no web framework."""

from __future__ import annotations

import re
from typing import Any, Final

from accountant.api.quick import Quick
from accountant.api.strict_json import parse
from accountant.auth.keys import Credentials, Key, key_digest
from accountant.budget.commands import BatchRequest, Command, Envelope, Role, decided_in
from accountant.budget.errors import Forbidden, Invalid, Problem
from accountant.door.keys import NO_KEY, secret_of, wrong_key
from accountant.runtime.service import Service

QUICK: Final = Quick()
SPEND: Final[tuple[Role, ...]] = ("admin", "pipeline")  # The roles that may spend
_IDEMPOTENCY_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")


def key_from(service: Service, header: str | None, name: str) -> Key:
    """Return the key in the header ``name``. Raise Problem ("unauthenticated")."""
    secret = secret_of(header or "")
    if not secret:
        raise Problem("unauthenticated", NO_KEY.format(name))
    keys, digest = service.credentials, key_digest(secret)
    keys.refresh()
    if (key := keys.remembered(digest)) is None:
        raise not_valid(keys, digest, name)
    keys.use(digest)
    return key


def not_valid(keys: Credentials, digest: str, name: str) -> Problem:
    """Return the problem of a key in the header ``name`` that is unknown, or has expired."""
    return Problem("unauthenticated", wrong_key(keys, digest, name))


def narrowed_to(key: Key) -> str | None:
    """Return the client whose affairs a key may see; None for a key that may see everybody's."""
    return key.name if key.role == "pipeline" else None


def only_own(key: Key, owner: str, what: str) -> None:
    """Raise Forbidden if the key is a pipeline's and the object belongs to another client."""
    if narrowed_to(key) not in (None, owner):
        raise Forbidden("not-your-grant", f"{what} belongs to another client")


def body_of(data: bytes) -> dict[str, Any]:
    """Return the body as a strict JSON object; an empty body is an empty object."""
    document = parse(data) if data.strip() else {}
    if not isinstance(document, dict):
        raise Invalid("malformed-json", "the body must be a JSON object")
    return document


def sound_idempotency_key(value: str | None) -> bool:
    """Return whether there is no key, or one of 1 to 200 visible ASCII characters."""
    return value is None or _IDEMPOTENCY_KEY.fullmatch(value) is not None


def read_batch(key: Key, body: bytes) -> tuple[list[Envelope], list[int]]:
    """Return the items of a batch and their places in the list, in the order of deciding."""
    try:
        return QUICK.batch(key.name, body)
    except Exception:  # noqa: BLE001 the models report every error
        items = BatchRequest.model_validate(body_of(body)).commands()
        order = decided_in(items)
        return [Envelope(key.name, items[place]) for place in order], order


def ask(
    kind: type[Command], key: Key, body: dict[str, Any], idempotency: str | None, **path: Any
) -> Envelope:
    """Return the command in ``body``. Raise Invalid for a field that stands in the path."""
    for name in path:
        if name in body:
            raise Invalid("invalid-request", f"{name} stands in the path, not in the body")
    return Envelope(key.name, kind.model_validate(body | path), idempotency)
