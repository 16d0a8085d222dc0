"""The OpenAPI document: what FastAPI knows of the routes, completed with what only we know.

Bodies are read raw and strictly, so FastAPI sees no request schemas; they are the commands' own.
Answers are made from events, so their shapes are written down here, and the tests hold every one
against what the service really answers. Examples come from examples.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import RouteContext, iter_route_contexts
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from accountant.api.access import idempotency_key
from accountant.api.description.answer_shapes import LOSS, PROBLEM, SHAPES, shape
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
from accountant.api.evidence import Erasure
from accountant.budget import commands
from accountant.budget.commands import Role
from accountant.budget.policy import Policy
from accountant.door.messages import MEDIA

Schema = dict[str, Any]

PURPOSE: Final = (
    "Knows how much differential privacy an organisation has spent, and says no in time."
)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a call takes and gives. ``in_path`` names fields that its path already carries."""

    answer: str | None
    command: type[BaseModel] | None = None
    in_path: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    media: tuple[str, ...] = ("application/json",)


OPERATIONS: Final[dict[str, Operation]] = {
    "register_population": Operation(
        "Population", commands.RegisterPopulation, topics=("population",)
    ),
    "show_population": Operation("PopulationInForce"),
    "register_dataset": Operation(
        "Dataset", commands.RegisterDataset, in_path=("id",), topics=("dataset",)
    ),
    "adopt_policy": Operation("AdoptedPolicy", Policy, topics=("policy",)),
    "ask_grant": Operation("Reservation", commands.AskGrant, topics=("data", "asking", "refusal")),
    "list_grants": Operation("OpenGrants", topics=("data", "own")),
    "show_grant": Operation("Grant", topics=("grant", "own")),
    "commit_grant": Operation(
        "Settlement", commands.CommitGrant, in_path=("grant",), topics=("grant", "own", "settling")
    ),
    "release_grant": Operation(
        "Settlement", commands.ReleaseGrant, in_path=("grant",), topics=("grant", "own", "settling")
    ),
    "record_invocations": Operation(
        "Record", commands.RecordInvocations, topics=("data", "asking")
    ),
    "batch": Operation(
        "BatchAnswer",
        commands.BatchRequest,
        topics=("data", "asking", "refusal", "grant", "own", "settling", "batch"),
    ),
    "preview": Operation("Preview", commands.AskGrant, topics=("data", "asking")),
    "open_sparse_vector": Operation(
        "Reservation", commands.OpenSparseVector, topics=("data", "asking", "refusal", "session")
    ),
    "count_answers": Operation(
        "Counted",
        commands.CountAnswers,
        in_path=("grant",),
        topics=("grant", "own", "settling", "session"),
    ),
    "close_sparse_vector": Operation(
        "Settlement",
        commands.CloseSparseVector,
        in_path=("grant",),
        topics=("grant", "own", "settling", "session"),
    ),
    "show_accounts": Operation("Accounts", topics=("data",)),
    "show_report": Operation(None, media=("text/html", "application/json", "text/csv")),
    "list_events": Operation("Events"),
    "show_event": Operation("Event", topics=("event", "own")),
    "show_decision": Operation("DecisionInFull", topics=("event", "judged", "own")),
    "show_checkpoint": Operation(None, topics=("log",), media=("text/plain",)),
    "show_tile": Operation(None, topics=("log", "tile"), media=("application/octet-stream",)),
    "show_receipt": Operation(None, topics=("event", "own"), media=("text/plain",)),
    "erase_texts": Operation("Erased", Erasure, topics=("event", "text")),
    "healthz": Operation("Health"),
    "readyz": Operation("Health", topics=("health",)),
}
"""By operation id, which is the name of the handler."""
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
    schemas = _schemas()
    for method, route in _routes(app):
        call = spec["paths"][route.path_format][method]
        _complete(call, route, schemas)
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


def _complete(call: Schema, route: RouteContext, schemas: dict[str, Schema]) -> None:
    """Adds to FastAPI's account of a call what it cannot know."""
    name, path = route.name or "", route.path_format or ""
    operation = OPERATIONS.get(name, Operation(None))
    roles = _roles(route.dependant)
    takes_key = any(d.call is idempotency_key for d in route.dependant.dependencies)
    needs_key = getattr(operation.command, "needs_key", False)
    story = [example for example in STORY if example.call == name]
    call |= _words(name, route.endpoint, roles)
    if not roles:
        call["security"] = []
    call["parameters"] = [
        *map(_parameter, call.get("parameters", [])),
        *([_idempotency(needs_key)] if takes_key else []),
        _REQUEST_ID,
    ]
    if operation.command is not None:
        call["requestBody"] = _request_body(operation.command, operation.in_path, schemas, story)
    topics = {"every", *operation.topics}
    topics |= {"body"} if operation.command else set()
    topics |= {"json"} if operation.command not in (None, Policy) else set()
    topics |= {"key"} if takes_key else set()
    topics |= {"ledger"} if "{population}" in path and name not in _MAKES_IT else set()
    success = next((s for s in call["responses"] if s.startswith("2")), "200")
    good = {success: _success(operation, int(success), takes_key, story)}
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
    in_path: tuple[str, ...],
    schemas: dict[str, Schema],
    story: list[Example],
) -> Schema:
    name = command.__name__
    schema = schemas[name]
    for field in in_path:
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


def _success(operation: Operation, status: int, takes_key: bool, story: list[Example]) -> Schema:
    media: Schema = {}
    if operation.answer:
        media = {"schema": {"$ref": f"#/components/schemas/{operation.answer}"}}
    examples = _answers(story, status)
    headers = ("X-Request-ID", "Idempotent-Replay") if takes_key else ("X-Request-ID",)
    return {
        "description": SHAPES[operation.answer][0] if operation.answer else "As asked for.",
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": {
            kind: media | ({"examples": examples} if examples else {}) for kind in operation.media
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


def _schemas() -> dict[str, Schema]:
    """All components: commands, the policy file, mechanisms, and the shapes of answers."""
    models = sorted({o.command for o in OPERATIONS.values() if o.command}, key=lambda m: m.__name__)
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
    shapes = {name: shape(*each) for name, each in SHAPES.items()}
    shapes |= {"Loss": LOSS, "Problem": PROBLEM}
    return schemas | shapes
