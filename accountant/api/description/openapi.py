"""The OpenAPI document: FastAPI's account of the routes, completed.

Handlers read bodies raw and strictly, so FastAPI sees no request schemas: they come from the
commands, those of answers from accountant.api.models, examples from texts.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import RouteContext, iter_route_contexts
from pydantic import BaseModel

from accountant.api.access import Call, idempotency_key
from accountant.api.description.schemas import REFERENCE, Schema, components, tidied
from accountant.api.description.texts import PROBLEMS, STORY, TEXTS, Example
from accountant.api.models.spending import Problem
from accountant.budget.commands import Role
from accountant.budget.policy import Policy
from accountant.door.messages import MEDIA

PURPOSE: Final = (
    "Knows how much differential privacy an organisation has spent, and says no in time."
)
_REGISTERS: Final = "register_population"
"""The call that needs no population of its path's name."""


def document(app: FastAPI) -> Schema:
    """Return the OpenAPI 3.1 document of ``app``; it is made once."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app)
    return app.openapi_schema


def _document(app: FastAPI) -> Schema:
    spec = get_openapi(title=app.title, version=app.version, summary=PURPOSE, routes=app.routes)
    schemas = schemas_of(app)
    for method, route in _routes(app):
        _complete(spec["paths"][route.path_format][method], route, schemas)
    spec["components"] = {"schemas": dict(sorted(schemas.items())), **TEXTS["document"]}
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
    """Return the description of each handler, by the operation's id. Raise AttributeError."""
    return {route.name or "": route.endpoint.call for _, route in _routes(app)}  # type: ignore[union-attr]


def _complete(call: Schema, route: RouteContext, schemas: dict[str, Schema]) -> None:
    """Add to FastAPI's account of a call what FastAPI cannot know."""
    name, path = route.name or "", route.path_format or ""
    described: Call = route.endpoint.call  # type: ignore[union-attr]
    inner = list(_dependencies(route.dependant))
    roles: tuple[Role, ...] = next((one.roles for one in inner if hasattr(one, "roles")), ())
    takes_key = idempotency_key in inner
    story = [example for example in STORY if example.call == name]
    summary, _, rest = cleandoc(route.endpoint.__doc__ or "").partition("\n\n")
    about = f"Roles: {', '.join(roles)}." if roles else "No key is needed."
    call |= {
        "operationId": name,
        "summary": " ".join(summary.split()),
        "description": "\n\n".join(" ".join(text.split()) for text in (rest, about) if text),
        "x-roles": list(roles),
    }
    if not roles:
        call["security"] = []
    given = [_parameter(one) for one in call.get("parameters", [])]
    given.sort(key=lambda one: path.find(one["name"]) if one["in"] == "path" else len(path))
    if takes_key:
        given.append(
            TEXTS["parameters"]["Idempotency-Key"]
            | {"required": getattr(described.takes, "needs_key", False)}
        )
    call["parameters"] = [*given, TEXTS["parameters"]["X-Request-ID"]]
    if described.takes is not None:
        call["requestBody"] = _request_body(described.takes, described.within, schemas, story)
    topics = {"every", *described.topics.split()}
    topics |= {"body"} if described.takes else set()
    topics |= {"json"} if described.takes not in (None, Policy) else set()
    topics |= {"key"} if takes_key else set()
    topics |= {"ledger"} if "{population}" in path and name != _REGISTERS else set()
    success = next((s for s in call["responses"] if s.startswith("2")), "200")
    good = {success: _success(described, success, takes_key, story)}
    call["responses"] = good | _refusals(topics, bool(roles), story)


def _dependencies(dependant: Any) -> Iterator[Any]:
    """Yield the functions that a handler depends on, directly or not."""
    for one in dependant.dependencies:
        yield one.call
        yield from _dependencies(one)


def _parameter(given: Schema) -> Schema:
    """Return FastAPI's parameter without titles, and without a null that no URL can spell."""
    schema: Schema = tidied(given["schema"], {})
    schema.pop("description", None)
    options = [s for s in schema.get("anyOf", ()) if s.get("type") != "null"]
    if len(options) == 1:
        schema = {k: v for k, v in schema.items() if k != "anyOf"} | options[0]
    return given | {"schema": schema}


def _request_body(
    model: type[BaseModel], within: str, schemas: dict[str, Schema], story: list[Example]
) -> Schema:
    """Return the body of a call; its schema loses the fields that stand in the path."""
    schema = schemas[model.__name__]
    for field in within.split():
        schema.get("properties", {}).pop(field, None)
        schema["required"] = [f for f in schema.get("required", ()) if f != field]
    sent = [(e, e.body) for e in story]
    if model is Policy:  # a file, in YAML as in the examples, or in JSON
        content = _content(model, ["application/yaml"], sent)
        content |= _content(model, ["application/json"], [])
    else:
        content = _content(model, ["application/json"], sent)
    return {"required": bool(schema.get("required")), "content": content}


def _success(described: Call, status: str, takes_key: bool, story: list[Example]) -> Schema:
    headers = ("X-Request-ID", "Idempotent-Replay") if takes_key else ("X-Request-ID",)
    about = cleandoc(described.gives.__doc__) if described.gives else "As asked for."
    return {
        "description": " ".join(about.split()),
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": _content(described.gives, described.media.split(), _answers(story, status)),
    }


def _refusals(topics: set[str], with_key: bool, story: list[Example]) -> dict[str, Schema]:
    """Return a response for each status that a problem may have here."""
    codes: dict[int, list[str]] = {}
    for code, problem in PROBLEMS.items():
        keyless = with_key or code in ("internal-error", "not-ready")
        if problem.status is not None and problem.topic in topics and keyless:
            codes.setdefault(problem.status, []).append(code)
    return {
        str(status): {
            "description": ", ".join(codes[status]),
            "content": _content(Problem, [MEDIA], _answers(story, str(status))),
        }
        for status in sorted(codes)
    }


def _answers(story: list[Example], status: str) -> list[tuple[Example, Any]]:
    return [(e, e.answer) for e in story if str(e.status) == status]


def _content(model: Any, media: list[str], examples: list[tuple[Example, Any]]) -> Schema:
    """Return the content of a body in each media type: its schema, if it has one, and examples."""
    content: Schema = {"schema": {"$ref": REFERENCE.format(model=model.__name__)}} if model else {}
    found = {
        _slug(example.title): {"summary": example.title, "value": value}
        for example, value in examples
        if value is not None
    }
    if found:
        content["examples"] = found
    return dict.fromkeys(media, content)


def _slug(title: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def schemas_of(app: FastAPI) -> dict[str, Schema]:
    """Return all components by name, for the registered kinds of rules and mechanisms."""
    calls = list(calls_of(app).values())
    requests = {one.takes: None for one in calls if one.takes}
    return components(requests, [one.gives for one in calls if one.gives] + [Problem])
