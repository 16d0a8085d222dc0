"""The OpenAPI document: what FastAPI knows of the routes, completed with what only we know.

Bodies are read raw and strictly, so FastAPI sees no request schemas; they are the commands' own.
Those of answers are made from accountant.api.models. Examples come from examples.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import cleandoc
from typing import Any, Final, NotRequired, get_origin, get_type_hints

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import RouteContext, iter_route_contexts
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema
from typing_extensions import is_typeddict

from accountant.api.access import idempotency_key
from accountant.api.call import Call
from accountant.api.description.examples import STORY, Example
from accountant.api.description.problem_codes import PROBLEMS
from accountant.api.description.request_schemas import (
    MEANINGS,
    NAMED,
    NAMED_MEANING,
    REFERENCE,
    options_of,
    tidied,
)
from accountant.api.models.decisions import Problem
from accountant.budget.commands import Role
from accountant.budget.policy import Policy
from accountant.door.messages import MEDIA

Schema = dict[str, Any]

PURPOSE: Final = (
    "Knows how much differential privacy an organisation has spent, and says no in time."
)


_STORED: Final = ("Positions", "Sealed")
"""What long lists and free texts become in an event: nobody sends them."""
_MAKES_IT: Final = ("register_population",)
"""Calls that do not need the population to be there."""


def document(app: FastAPI) -> Schema:
    """The OpenAPI 3.1 document of ``app``; made once, when it is first asked for."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app)
    return app.openapi_schema


def _document(app: FastAPI) -> Schema:
    spec = get_openapi(title=app.title, version=app.version, summary=PURPOSE, routes=app.routes)
    schemas = schemas_of(app)
    for method, route in _routes(app):
        _complete(spec["paths"][route.path_format][method], route, schemas)
    spec["components"] = {
        "schemas": dict(sorted(schemas.items())),
        "securitySchemes": {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "description": "An API key; `accountant keys create --role ROLE --name NAME` "
                "prints one, once.",
            }
        },
        "headers": {
            "X-Request-ID": {
                "description": "the request's id, as sent or as made up; it stands in the logs",
                "schema": {"type": "string"},
            },
            "Idempotent-Replay": {
                "description": "`true` where this is the first answer, given again",
                "schema": {"type": "string", "const": "true"},
            },
        },
    }
    spec["security"] = [{"key": []}]
    spec["x-problems"] = {
        code: {"status": p.status, "topic": p.topic, "meaning": p.meaning}
        for code, p in PROBLEMS.items()
    }
    return spec


def _routes(app: FastAPI) -> Iterator[tuple[str, RouteContext]]:
    for route in iter_route_contexts(app.routes):
        if getattr(route, "include_in_schema", False):
            for method in sorted(route.methods or ()):
                yield method.lower(), route


def calls_of(app: FastAPI) -> dict[str, Call]:
    """What each handler says of itself, by its name, which is the operation's id. Raises
    AttributeError for one that says nothing.
    """
    return {route.name or "": route.endpoint.call for _, route in _routes(app)}  # type: ignore[union-attr]


def _complete(call: Schema, route: RouteContext, schemas: dict[str, Schema]) -> None:
    """Adds to FastAPI's account of a call what it cannot know."""
    name, path = route.name or "", route.path_format or ""
    says: Call = route.endpoint.call  # type: ignore[union-attr]
    roles = _roles(route.dependant)
    takes_key = any(d.call is idempotency_key for d in route.dependant.dependencies)
    needs_key = getattr(says.takes, "needs_key", False)
    story = [example for example in STORY if example.call == name]
    call |= _words(name, route.endpoint, roles)
    if not roles:
        call["security"] = []
    call["parameters"] = [
        *map(_parameter, call.get("parameters", [])),
        *([_idempotency(needs_key)] if takes_key else []),
        _REQUEST_ID,
    ]
    if says.takes is not None:
        call["requestBody"] = _request_body(says.takes, says.within, schemas, story)
    topics = {"every", *says.topics}
    topics |= {"body"} if says.takes else set()
    topics |= {"json"} if says.takes not in (None, Policy) else set()
    topics |= {"key"} if takes_key else set()
    topics |= {"ledger"} if "{population}" in path and name not in _MAKES_IT else set()
    success = next((s for s in call["responses"] if s.startswith("2")), "200")
    good = {success: _success(says, int(success), takes_key, story)}
    call["responses"] = good | _refusals(topics, bool(roles), story)


def _words(name: str, endpoint: Any, roles: tuple[Role, ...]) -> Schema:
    """What the handler's docstring says, and who may call it."""
    summary, _, rest = cleandoc(endpoint.__doc__ or "").partition("\n\n")
    who = f"Roles: {', '.join(roles)}." if roles else "No key is needed."
    paragraphs = [" ".join(text.split()) for text in (rest, who) if text]
    return {
        "operationId": name,
        "summary": " ".join(summary.split()),
        "description": "\n\n".join(paragraphs),
        "x-roles": list(roles),
    }


def _roles(dependant: Any) -> tuple[Role, ...]:
    """The roles that a `caller` dependency admits."""
    return next((d.call.roles for d in dependant.dependencies if hasattr(d.call, "roles")), ())


_REQUEST_ID: Final[Schema] = {
    "name": "X-Request-ID",
    "in": "header",
    "required": False,
    "description": "an id for the logs, of 1 to 128 letters, digits and `_.:-`",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$"},
}


def _idempotency(required: bool) -> Schema:
    return {
        "name": "Idempotency-Key",
        "in": "header",
        "required": required,
        "description": "1 to 200 visible ASCII characters, the same for every retry of a request "
        "and new for every new one; kept for good, for each population and client",
        "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
    }


def _parameter(given: Schema) -> Schema:
    """FastAPI's parameter without titles, and without a null that no URL can spell."""
    schema = tidied(given["schema"])
    schema.pop("description", None)
    options = [s for s in schema.get("anyOf", ()) if s.get("type") != "null"]
    if len(options) == 1:
        schema = {k: v for k, v in schema.items() if k != "anyOf"} | options[0]
    return given | {"schema": schema}


def _request_body(
    command: type[BaseModel],
    within: tuple[str, ...],
    schemas: dict[str, Schema],
    story: list[Example],
) -> Schema:
    name = command.__name__
    schema = schemas[name]
    for field in within:
        schema.get("properties", {}).pop(field, None)
        schema["required"] = [f for f in schema.get("required", ()) if f != field]
    yaml = command is Policy
    media: Schema = {"schema": {"$ref": f"#/components/schemas/{name}"}}
    examples = {
        _slug(e.title): {"summary": e.title, "value": e.body} for e in story if e.body is not None
    }
    return {
        "required": bool(schema.get("required")),
        "content": {"application/yaml": media | {"examples": examples}, "application/json": media}
        if yaml
        else {"application/json": media | {"examples": examples}},
    }


def _success(says: Call, status: int, takes_key: bool, story: list[Example]) -> Schema:
    media: Schema = {}
    if says.gives:
        media = {"schema": {"$ref": REFERENCE.format(model=says.gives.__name__)}}
    examples = _answers(story, status)
    headers = ("X-Request-ID", "Idempotent-Replay") if takes_key else ("X-Request-ID",)
    return {
        "description": " ".join(cleandoc(says.gives.__doc__).split())
        if says.gives
        else "As asked for.",
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": {
            kind: media | ({"examples": examples} if examples else {}) for kind in says.media
        },
    }


def _refusals(topics: set[str], with_key: bool, story: list[Example]) -> dict[str, Schema]:
    """A response for each status that a problem may have here."""
    codes: dict[int, list[str]] = {}
    for code, problem in PROBLEMS.items():
        keyless = with_key or code in ("internal-error", "not-ready")
        if problem.status is not None and problem.topic in topics and keyless:
            codes.setdefault(problem.status, []).append(code)
    responses = {}
    for status in sorted(codes):
        examples = _answers(story, status)
        content = {"schema": {"$ref": "#/components/schemas/Problem"}}
        responses[str(status)] = {
            "description": ", ".join(codes[status]),
            "content": {MEDIA: content | ({"examples": examples} if examples else {})},
        }
    return responses


def _answers(story: list[Example], status: int) -> Schema:
    return {
        _slug(e.title): {"summary": e.title, "value": e.answer}
        for e in story
        if e.status == status and e.answer is not None
    }


def _slug(title: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def schemas_of(app: FastAPI) -> dict[str, Schema]:
    """All components, by name, as the kinds of rules and mechanisms are now."""
    calls = list(calls_of(app).values())
    return _answer_schemas(calls) | _request_schemas(calls)


def _request_schemas(calls: list[Call]) -> dict[str, Schema]:
    """Commands, the policy file, mechanisms."""
    models = sorted({one.takes for one in calls if one.takes}, key=lambda model: model.__name__)
    _, top = models_json_schema([(model, "validation") for model in models], ref_template=REFERENCE)
    parts = {name: part for name, part in top["$defs"].items() if name not in _STORED}
    schemas = {name: tidied(schema) for name, schema in parts.items()}
    for schema in schemas.values():
        for name, field in schema.get("properties", {}).items():
            if name in MEANINGS:
                field.setdefault("description", MEANINGS[name])
    for name in NAMED:
        word, alternatives = options_of(name)
        schemas[name] = {"description": NAMED_MEANING[name], word: tidied(alternatives)}
    schemas["Mechanism"]["discriminator"] = {"propertyName": "kind"}
    return schemas


def _answer_schemas(calls: list[Call]) -> dict[str, Schema]:
    """The models of answers, and what they are made of."""
    models = {one.gives.__name__: one.gives for one in calls if one.gives} | {"Problem": Problem}
    _, top = TypeAdapter.json_schemas(
        [(name, "serialization", TypeAdapter(model)) for name, model in models.items()],
        ref_template=REFERENCE,
    )
    schemas: dict[str, Schema] = tidied(top["$defs"])
    for name, model in _named_within(models.values()).items():
        for field, meaning in _meanings(model).items():
            schemas[name]["properties"][field]["description"] = meaning
    return schemas


def _named_within(types: Iterable[Any]) -> dict[str, Any]:
    """The models among ``types``, and in their fields, by name."""
    found: dict[str, Any] = {}
    waiting = list(types)
    while waiting:
        kind = waiting.pop()
        if not is_typeddict(kind):
            waiting += getattr(kind, "__args__", ())
        elif kind.__name__ not in found:
            found[kind.__name__] = kind
            waiting += get_type_hints(kind).values()
    return found


def _meanings(model: Any) -> dict[str, str]:
    """The text beside the type of each field, if there is one."""
    found = {}
    for name, hint in get_type_hints(model, include_extras=True).items():
        inner = hint.__args__[0] if get_origin(hint) is NotRequired else hint
        said = [one for one in getattr(inner, "__metadata__", ()) if isinstance(one, str)]
        if said:
            found[name] = said[-1]
    return found
