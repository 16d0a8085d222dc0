"""The OpenAPI document: FastAPI's account of the routes, completed.

Handlers read bodies raw and strictly, so FastAPI sees no request schemas: they come from the
commands, those of answers from accountant.api.models, examples from texts.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from inspect import cleandoc
from typing import Any, Final, NotRequired, get_origin, get_type_hints

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import RouteContext, iter_route_contexts
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema
from typing_extensions import is_typeddict

from accountant.api.access import Call, idempotency_key
from accountant.api.description.texts import PROBLEMS, STORY, TEXTS, Example
from accountant.api.models import approving, deciding, fields, keys, proposing, reading, spending
from accountant.api.models.deciding import Problem
from accountant.api.models.fields import REFERENCE
from accountant.api.models.proposing import Proposal
from accountant.api.models.spending import Waiting
from accountant.budget.commands import Role
from accountant.budget.policy import Policy
from accountant.budget.population.selection import Subjects
from accountant.budget.rules import AnyRule
from accountant.door.messages import MEDIA
from accountant.privacy.mechanisms import Amount, Mechanism

Schema = dict[str, Any]
Alternatives = dict[str, tuple[str, list[Schema]]]
"""The keyword and the alternatives of types that pydantic writes out wherever they occur."""
_STORED: Final = ("Confirmation", "KeyMade", "Positions", "Sealed")
"""Components that stand for what the service adds, long lists and free texts: in no request."""
PURPOSE: Final = (
    "Knows how much differential privacy an organisation has spent, and says no in time."
)
_REGISTERS: Final = "register_population"  # The call that needs no population of its path's name


def document(app: FastAPI) -> Schema:
    """Return the OpenAPI 3.1 document of ``app``; it is made once."""
    if app.openapi_schema is not None:
        return app.openapi_schema
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
    app.openapi_schema = spec
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
    """Complete FastAPI's description of a call with roles, bodies, answers and problems."""
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
    if described.proposes:
        proposed = Call(Proposal, media=described.media)
        good["202"] = _success(proposed, "202", takes_key, story)
    if described.waits:
        waiting = Call(Waiting, media=described.media)
        good["202"] = _success(waiting, "202", takes_key, story)
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
        re.sub(r"[^a-z0-9]+", "-", example.title.lower()).strip("-"): {
            "summary": example.title,
            "value": value,
        }
        for example, value in examples
        if value is not None
    }
    if found:
        content["examples"] = found
    return dict.fromkeys(media, content)


def schemas_of(app: FastAPI) -> dict[str, Schema]:
    """Return all components by name, for the registered kinds of rules and mechanisms."""
    calls = list(calls_of(app).values())
    answers = {one.gives.__name__: one.gives for one in calls if one.gives} | {
        "Problem": Problem,
        "Waiting": Waiting,
    }
    requests = list(dict.fromkeys(one.takes for one in calls if one.takes))
    named: dict[str, Any] = {"Amount": Amount, "Mechanism": Mechanism}
    named |= {"Subjects": Subjects, "Rule": AnyRule}
    alternatives: Alternatives = {}
    for name, kind in named.items():
        schema = TypeAdapter(kind).json_schema(ref_template=REFERENCE)
        word = "anyOf" if "anyOf" in schema else "oneOf"
        alternatives[name] = word, schema[word]
    schemas = _of_answers(answers, alternatives) | _of_requests(requests, alternatives)
    for name, (word, options) in alternatives.items():
        text = TEXTS["components"][name]
        schemas[name] = {"description": text, word: tidied(options, alternatives)}
    schemas["Mechanism"]["discriminator"] = {"propertyName": "kind"}
    return schemas


def tidied(schema: Any, named: Alternatives) -> Any:
    """Return ``schema`` without titles and null defaults, with references to ``named`` types."""
    if isinstance(schema, list):
        return [tidied(item, named) for item in schema]
    if not isinstance(schema, dict):
        return schema
    for name, (word, options) in named.items():
        schema = _by_name(schema, name, word, options)
    kept: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: tidied(each, named) for name, each in value.items()}
        elif key == "description":
            kept[key] = value.replace("``", "`")
        elif key in ("examples", "const") or (key == "default" and value is not None):
            kept[key] = value
        elif key != "default" and not (key == "title" and isinstance(value, str)):
            kept[key] = tidied(value, named)
    return kept


def _by_name(schema: Schema, name: str, word: str, options: list[Schema]) -> Schema:
    """Return ``schema`` with a reference in place of the alternatives of a named type."""
    nothing = {"type": "null"}
    reference = {"$ref": REFERENCE.format(model=name)}
    rest = {k: v for k, v in schema.items() if k not in (word, "discriminator")}
    if schema.get(word) == options:
        rest.pop("examples", None)
        return reference | rest
    if schema.get(word) == [*options, nothing]:
        return {"anyOf": [reference, nothing]} | rest
    return schema


def _of_requests(models: Sequence[type[BaseModel]], named: Alternatives) -> dict[str, Schema]:
    """Return the models of request bodies, commands and policy, and their parts."""
    _, top = models_json_schema([(model, "validation") for model in models], ref_template=REFERENCE)
    parts = {name: part for name, part in top["$defs"].items() if name not in _STORED}
    schemas: dict[str, Schema] = tidied(parts, named)
    for schema in schemas.values():
        for name, field in schema.get("properties", {}).items():
            if name in TEXTS["fields"]:
                field.setdefault("description", TEXTS["fields"][name])
    return schemas


def _of_answers(models: dict[str, Any], named: Alternatives) -> dict[str, Schema]:
    """Return the models of answers and their parts, with the text beside the type of each field."""
    _, top = TypeAdapter.json_schemas(
        [(name, "serialization", TypeAdapter(model)) for name, model in models.items()],
        ref_template=REFERENCE,
    )
    schemas: dict[str, Schema] = tidied(top["$defs"], named)
    modules = (fields, proposing, keys, approving, deciding, spending, reading)
    for name, model in {k: v for module in modules for k, v in vars(module).items()}.items():
        if name not in schemas or not is_typeddict(model):
            continue
        for field, hint in get_type_hints(model, include_extras=True).items():
            inner = hint.__args__[0] if get_origin(hint) is NotRequired else hint
            texts = [one for one in getattr(inner, "__metadata__", ()) if isinstance(one, str)]
            if texts:
                schemas[name]["properties"][field]["description"] = texts[-1]
    return schemas
