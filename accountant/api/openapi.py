"""The OpenAPI document: what FastAPI knows of the routes, completed with what only we know.

Bodies are read raw and strictly, so FastAPI sees no request schemas; they are the commands' own.
Answers are made from events, so their shapes are written down here, and the tests hold every one
against what the service really answers. Examples come from examples.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from inspect import cleandoc
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import RouteContext, iter_route_contexts
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from accountant.api.access import idempotency_key
from accountant.api.examples import STORY, Example
from accountant.api.problems import MEDIA
from accountant.budget import commands
from accountant.budget.commands import Role
from accountant.budget.policy import Policy, Rule
from accountant.budget.selection import Subjects
from accountant.privacy.mechanisms import Amount, Mechanism
from accountant.privacy.units import CURRENCIES

Schema = dict[str, Any]
_REFERENCE: Final = "#/components/schemas/{model}"

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
    "show_grant": Operation("Grant", topics=("grant",)),
    "commit_grant": Operation(
        "Settlement", commands.CommitGrant, in_path=("grant",), topics=("grant", "settling")
    ),
    "release_grant": Operation(
        "Settlement", commands.ReleaseGrant, in_path=("grant",), topics=("grant", "settling")
    ),
    "record_invocations": Operation(
        "Record", commands.RecordInvocations, topics=("data", "asking")
    ),
    "preview": Operation("Preview", commands.AskGrant, topics=("data", "asking")),
    "open_sparse_vector": Operation(
        "Reservation", commands.OpenSparseVector, topics=("data", "asking", "refusal", "session")
    ),
    "count_answers": Operation(
        "Counted",
        commands.CountAnswers,
        in_path=("grant",),
        topics=("grant", "settling", "session"),
    ),
    "close_sparse_vector": Operation(
        "Settlement",
        commands.CloseSparseVector,
        in_path=("grant",),
        topics=("grant", "settling", "session"),
    ),
    "show_accounts": Operation("Accounts", topics=("data",)),
    "show_report": Operation(None, media=("text/html", "application/json", "text/csv")),
    "list_events": Operation("Events"),
    "show_event": Operation("Event", topics=("event",)),
    "show_decision": Operation("DecisionInFull", topics=("event",)),
    "healthz": Operation("Health"),
    "readyz": Operation("Health", topics=("health",)),
}
"""By operation id, which is the name of the handler."""
_MAKES_IT: Final = ("register_population",)
"""Calls that do not need the population to be there."""

_WHOLE_DECISION: Final = {
    "outcome": ("text", "allow, flag or block: the strictest action among the rules that fired"),
    "rules": ("[RuleFinding]", "every rule that was evaluated, those that fired first"),
}
_STAMP: Final = {
    "sequence": ("int", "the event that answers this request"),
    "time": ("time", "when the service stamped that event"),
}
_JUDGED: Final = {
    "charge": ("Charge", "what all mechanisms cost together, per cell"),
    "mechanisms": ("[PricedMechanism]", "what each mechanism costs, in the order asked"),
    "decision": ("Decision", "the rules that were evaluated"),
    **_STAMP,
}
_PEOPLE: Final = {
    "population": ("text", "its name"),
    "privacy_unit": ("text", "who or what is protected"),
    "neighbouring": ("text", "add_or_remove_one or replace_one"),
    "membership": ("text", "public or private"),
    "dimensions": ("{[text]}", "each dimension with its values in order"),
    "cells": ("int", "how many cells the dimensions make"),
    "sequence": ("int", "how many events the ledger has"),
}
_POLICY: Final = {
    "digest": ("text", "SHA-256 of the policy file's text, in hex"),
    "policy": ("text", "its name"),
    "rules": ("[Rule]", "its rules with every default written out"),
}

SHAPES: Final[dict[str, tuple[str, dict[str, tuple[str, str]]]]] = {
    "Charge": (
        "A privacy loss in every currency that is kept.",
        {c.value: ("loss", f"sum of {c.value.replace('_', ' ')}") for c in CURRENCIES},
    ),
    "PricedMechanism": (
        "One mechanism's price.",
        {
            "kind": ("text", "the mechanism's kind"),
            "count": ("int", "invocations"),
            "verdict": (
                "text",
                "how the claim compares with what follows from the stated parameters: consistent, "
                "conservative, understated, unverifiable or unclaimed",
            ),
            "charge": ("Charge", "what is booked for all invocations"),
        },
    ),
    "Comparison": (
        "One inequality: used + charge <= capacity.",
        {
            "currency": ("text", "what is compared"),
            "used": ("loss", "already spent or reserved, at the tightest cell"),
            "charge": ("loss", "what this request would add"),
            "capacity": ("loss", "the most that the rule admits"),
            "holds": ("bool", "whether it fits"),
        },
    ),
    "RuleFinding": (
        "One rule's word. Rules that the policy does not state are called built-in:….",
        {
            "rule": ("text", "the rule's id"),
            "action": ("text", "what it does when it fires: block or flag"),
            "fired": ("bool", "whether it objects"),
            "code": ("text", "the problem code that it stands for"),
            "text": ("text", "the comparison in words"),
            "scope?": ("text", "limit rules: which account"),
            "group?": ("{text}", "limit rules: the tightest cell; empty if all are alike"),
            "limit?": ("Limit", "limit rules: the promise"),
            "gate?": ("text", "limit rules: how losses are added up"),
            "spent_before?": ("loss", "limit rules: epsilon before this request"),
            "spent_after?": ("loss", "limit rules: epsilon if it were admitted"),
            "comparisons?": (
                "[Comparison]",
                "both sides; epsilon or the gate's own currency has to hold, and delta has to",
            ),
        },
    ),
    "Limit": (
        "A promise (epsilon, delta).",
        {
            "epsilon": ("loss", "at most this epsilon"),
            "delta": ("loss", "except with about this probability"),
            "own_delta?": ("loss", "the part of delta kept for the mechanisms' own deltas"),
        },
    ),
    "Sums": (
        "Plain sums, true whatever the gate.",
        {"epsilon": ("loss", "sum of epsilons"), "delta": ("loss", "sum of deltas")},
    ),
    "Decision": (
        "A decision and its id.",
        {"id?": ("text", "d and a sequence"), **_WHOLE_DECISION},
    ),
    "DecisionInFull": (
        "A decision with the request that led to it.",
        {
            "id": ("text", "its id"),
            "type": ("text", "the type of the event that holds it"),
            **_STAMP,
            "client": ("text", "the name of the key that asked"),
            "request": ("object", "the request as the ledger holds it, defaults left out"),
            **_WHOLE_DECISION,
        },
    ),
    "Population": ("A population.", _PEOPLE),
    "PopulationInForce": (
        "A population with its datasets and policy.",
        _PEOPLE
        | {
            "datasets": ("[Dataset]", "the datasets"),
            "policy": ("PolicyInForce?", "the policy in force, if one is adopted"),
        },
    ),
    "PolicyInForce": ("A policy as it was adopted.", _POLICY),
    "AdoptedPolicy": (
        "What adopting a policy has changed.",
        _POLICY
        | {
            "adopted": ("bool", "false if this very policy was in force already"),
            "opens_epoch": ("[text]", "limit rules that begin a new epoch"),
        },
    ),
    "Dataset": (
        "A dataset.",
        {
            "id": ("text", "its short id; grants and rules use it"),
            "namespace": ("text", "OpenLineage namespace"),
            "name": ("text", "OpenLineage name"),
            "owner?": ("text?", "who answers for it"),
            "parents?": ("[text]", "what it was made from"),
        },
    ),
    "Reservation": (
        "Budget that is set aside until the grant is settled or expires.",
        {
            "id": ("text", "the grant's id"),
            "state": ("text", "reserved"),
            "expires": ("time", "from then on it is charged in full"),
            **_JUDGED,
        },
    ),
    "Record": (
        "What has already run, as booked.",
        {"overrun": ("bool", "a rule would have refused it; it is charged all the same")} | _JUDGED,
    ),
    "Preview": (
        "The decision that the request would get now.",
        {
            "decision": ("Decision", "the rules that were evaluated"),
            "charge": ("Charge", "what all mechanisms cost together, per cell"),
            "fits": ("int?", "how many requests like this the limits admit; null: no end"),
            "sequence": ("int", "how many events the ledger has"),
        },
    ),
    "Grant": (
        "A grant as it stands.",
        {
            "id": ("text", "its id"),
            "state": ("text", "reserved, committed, released or expired"),
            "client": ("text", "the name of the key that asked"),
            "dataset": ("text", "the dataset's id"),
            "request": ("object", "the request as the ledger holds it, defaults left out"),
            "opened": ("time", "when it was reserved"),
            "expires": ("time", "when it expires, or would have"),
            "reserved": ("Charge", "what was set aside"),
            "charged": ("Charge?", "what is booked for good; null while it is open"),
            "sequence": ("int", "the event that reserved it"),
            "positives?": ("int", "sessions: positive answers counted"),
            "negatives?": ("int", "sessions: negative answers counted"),
        },
    ),
    "Settlement": (
        "How a grant ended. A commit after the expiry changes nothing and is only noted.",
        {
            "id": ("text", "the grant's id"),
            "state": ("text", "committed, released or expired"),
            "charged?": ("Charge", "what is booked for good"),
            "returned?": ("Charge", "what came back"),
            "note?": ("text", "why nothing changed"),
            **_STAMP,
        },
    ),
    "Counted": (
        "A session's answers so far.",
        {
            "id": ("text", "the session's grant id"),
            "state": ("text", "reserved"),
            "positives": ("int", "positive answers in all"),
            "negatives": ("int", "negative answers in all"),
            **_STAMP,
        },
    ),
    "Balance": (
        "One group's place under one limit.",
        {
            "group": ("text", "a value of the dimension, or everyone"),
            "spent": ("loss", "epsilon spent for good, rounded up"),
            "reserved": ("loss", "epsilon that open grants hold"),
            "remaining": ("loss", "epsilon left, rounded down"),
            "share": ("number", "spent and reserved over the limit, for pictures only"),
            "own_delta": ("loss", "sum of the mechanisms' own deltas"),
            "over": ("bool", "more is spent or reserved than the limit allows"),
            "void": ("bool", "more is spent: the promise is void for this epoch"),
            "sum_of_epsilons": ("loss", "plain sum, true also where the promise is void"),
        },
    ),
    "Account": (
        "One limit rule on one scope.",
        {
            "rule": ("text", "the rule's id"),
            "scope": ("text", "what it is about, in words"),
            "dataset": ("text", "the dataset's id, or * for the total over all"),
            "client": ("text", "the client of a sub-limit, or empty"),
            "action": ("text", "block or flag"),
            "gate": ("text", "how losses are added up"),
            "limit": ("Limit", "the promise"),
            "epoch": ("int", "how often the limit was changed, from 1"),
            "counted_from": ("time", "when this epoch began"),
            "carried": ("bool", "what was used before the epoch still counts in it"),
            "total": ("Balance", "the most charged group, in each currency"),
            "worst_group": ("{text}", "the most charged cell; empty if all are alike"),
            "lifetime": ("Sums", "sums of everything ever booked, whatever the epoch"),
            "groups": ("[Balance]", "one a value of the dimension in `by`"),
        },
    ),
    "Lifetime": (
        "Sums of everything ever booked.",
        {
            "dataset": ("text", "the dataset's id, or * for the total over all"),
            "epsilon": ("loss", "sum of epsilons"),
            "delta": ("loss", "sum of deltas"),
            "groups?": ("[LifetimeGroup]", "one a value of the dimension in `by`"),
        },
    ),
    "LifetimeGroup": (
        "Sums of everything ever booked for one group.",
        {
            "group": ("text", "a value of the dimension"),
            "epsilon": ("loss", "sum of epsilons"),
            "delta": ("loss", "sum of deltas"),
        },
    ),
    "Accounts": (
        "What is spent and what is left.",
        {
            "population": ("text", "its name"),
            "sequence": ("int", "how many events are counted in"),
            "time": ("time", "the last event's stamp"),
            "accounts": ("[Account]", "one a limit rule and scope"),
            "lifetime": ("[Lifetime]", "one a dataset, and the total over all"),
        },
    ),
    "Event": (
        "An event. What else it has depends on its type; its `command` is the request it answers.",
        {
            "ledger": ("text", "the population's name"),
            "sequence": ("int", "its place, from 0"),
            "type": ("text", "what happened, in the past tense, with a version"),
            "time": ("time", "the service's stamp"),
            "by": ("text", "the name of the key that asked"),
            "command": ("object", "the request as it was understood, defaults left out"),
            "…": ("", ""),
        },
    ),
    "LinkedEvent": (
        "An event and the hash that binds it to all before it.",
        {"event": ("Event", "the canonical document"), "link": ("text", "SHA-256 chain, in hex")},
    ),
    "Events": (
        "A page of the ledger.",
        {
            "events": ("[LinkedEvent]", "in order"),
            "last": ("int", "send it as `after` for the next page"),
        },
    ),
    "Health": (
        "Fit to serve.",
        {"status": ("text", "ok or ready"), "version?": ("text", "of the program")},
    ),
}
"""Answers, by name: what each is, and its fields with type and meaning (see ``_type``). A field
with a question mark may be absent; an ellipsis stands for fields that are not listed. The document
does not forbid further fields: an answer may grow."""

_PLAIN: Final[dict[str, Schema]] = {
    "text": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "number": {"type": "number"},
    "time": {"type": "string", "format": "date-time"},
    "object": {"type": "object"},
    "loss": {"$ref": "#/components/schemas/Loss"},
}
LOSS: Final[Schema] = {
    "type": "string",
    "pattern": r"^([0-9]+(\.[0-9]+)?|infinite)$",
    "description": 'A decimal string such as "0.25", or "infinite".',
}
PROBLEM: Final[Schema] = {
    "type": "object",
    "description": "What is wrong and what to do (RFC 9457). Further fields carry the facts.",
    "properties": {
        "type": {
            "type": "string",
            "pattern": "^urn:accountant:problem:[a-z-]+$",
            "description": "its code is what follows the last colon; programs compare this",
        },
        "title": {"type": "string", "description": "the code in words"},
        "status": {"type": "integer", "description": "the HTTP status"},
        "detail": {"type": "string", "description": "what is wrong here, and what to do"},
        "errors": {
            "type": "array",
            "description": "invalid-request: each field with its reason",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "reason": {"type": "string"}},
                "required": ["field", "reason"],
            },
        },
        "decision": {
            "$ref": "#/components/schemas/Decision",
            "description": "refusals: every rule that was evaluated",
        },
        "charge": {
            "$ref": "#/components/schemas/Charge",
            "description": "refusals: what it would have cost",
        },
        "sequence": {"type": "integer", "description": "the event that this is about"},
    },
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": True,
}


@dataclass(frozen=True, slots=True)
class Code:
    """A problem code. ``status`` None: it only occurs inside decisions."""

    status: int | None
    topic: str
    meaning: str


PROBLEMS: Final[dict[str, Code]] = {
    "unauthenticated": Code(401, "every", "No API key was sent, or it is not valid any more."),
    "role-not-allowed": Code(403, "every", "The key's role may not make this call."),
    "unknown-population": Code(404, "ledger", "No population has this name."),
    "no-such-page": Code(404, "nowhere", "No call has this path."),
    "method-not-allowed": Code(405, "nowhere", "The path exists, the method does not."),
    "invalid-request": Code(422, "every", "A field or parameter is wrong; `errors` names each."),
    "http-error": Code(400, "nowhere", "The request is not proper HTTP for this service."),
    "internal-error": Code(500, "every", "A fault of the service. Retry with the same key."),
    "storage-failed": Code(503, "every", "The database did not answer. Retry with the same key."),
    "malformed-json": Code(
        400, "json", "Not JSON, or a key given twice, NaN, or an absurd number."
    ),
    "body-too-large": Code(413, "body", "Split the request."),
    "event-too-large": Code(422, "body", "It would not fit into one event; split the request."),
    "idempotency-key-required": Code(400, "key", "This call can spend: send an Idempotency-Key."),
    "malformed-idempotency-key": Code(400, "key", "1 to 200 visible ASCII characters."),
    "idempotency-key-reused": Code(422, "key", "The key was used for another request."),
    "population-immutable": Code(
        409, "population", "Unit, relation and membership never change; register another."
    ),
    "dimensions-append-only": Code(409, "population", "Values can only be appended."),
    "duplicate-value": Code(422, "population", "A dimension lists a value twice."),
    "too-many-cells": Code(422, "population", "The dimensions make over a million cells."),
    "dataset-immutable": Code(409, "dataset", "The id stands for other data already."),
    "malformed-policy": Code(422, "policy", "The file cannot be adopted; each line is named."),
    "second-name-needed": Code(403, "policy", "Loosening needs another person's key as well."),
    "unknown-dataset": Code(422, "data", "No dataset has this id; register it first."),
    "unknown-dimension": Code(422, "data", "The population has no such dimension."),
    "unknown-group": Code(422, "asking", "The dimension has no such value."),
    "empty-range": Code(422, "asking", "The range ends before it begins, in declared order."),
    "selection-too-complex": Code(422, "asking", "Ask for simpler groups."),
    "no-policy": Code(403, "refusal", "Nothing says yet how much may be spent."),
    "no-limit": Code(403, "refusal", "No limit of the policy covers this dataset."),
    "budget-exceeded": Code(403, "refusal", "A limit would be passed."),
    "mechanism-denied": Code(403, "refusal", "The policy does not admit this kind."),
    "reason-required": Code(403, "refusal", "The policy asks for a purpose or justification."),
    "purpose-denied": Code(403, "refusal", "The purpose is not on the policy's list."),
    "claim-understated": Code(403, "refusal", "The parameters cost more than is claimed."),
    "sparse-vector-broken": Code(403, "refusal", "A variant known not to be private."),
    "monotonic-needs-add-or-remove": Code(
        403, "refusal", "Monotonic answers cost half under add_or_remove_one only."
    ),
    "local-needs-replace-one": Code(403, "refusal", "Local kinds need a replace_one population."),
    "relation-not-derivable": Code(
        403, "refusal", "A replace_one cost says nothing about add_or_remove_one."
    ),
    "private-membership": Code(
        403, "refusal", "With private membership this mechanism can only charge everyone."
    ),
    "unverifiable-claim": Code(None, "decision", "Flags what rests on the client's word alone."),
    "threshold-passed": Code(None, "decision", "Flags that a share of a limit is passed."),
    "unknown-grant": Code(404, "grant", "No grant has this id."),
    "not-your-grant": Code(403, "settling", "Only the key that asked can settle a grant."),
    "grant-settled": Code(409, "settling", "It is committed or released already."),
    "grant-expired": Code(409, "settling", "It has expired and is charged in full."),
    "commit-exceeds-reservation": Code(
        422, "settling", "More than was reserved; record the rest with invocations."
    ),
    "is-a-session": Code(409, "settling", "A sparse vector session is closed, not committed."),
    "session-has-answered": Code(409, "settling", "It has run, so it cannot be released."),
    "one-session": Code(422, "session", "A session has count 1."),
    "not-a-session": Code(409, "session", "This grant is committed, not closed."),
    "nothing-counted": Code(422, "session", "Count at least one answer."),
    "session-exhausted": Code(409, "session", "More positives than the session may give."),
    "unknown-event": Code(404, "event", "The ledger does not have this event."),
    "unknown-decision": Code(404, "event", "That event holds no decision."),
    "not-ready": Code(503, "health", "The service cannot decide; the text says why."),
}
"""Every code that a call can answer or a decision can name, with where it occurs."""


def install(app: FastAPI) -> None:
    """Serves the document at /openapi.json, to everybody."""

    @app.get("/openapi.json", include_in_schema=False)
    def openapi_json() -> JSONResponse:
        return JSONResponse(document(app))


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
    schema = _tidied(given["schema"])
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
    _, top = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REFERENCE
    )
    schemas = {name: _tidied(schema) for name, schema in top["$defs"].items()}
    for schema in schemas.values():
        for name, field in schema.get("properties", {}).items():
            if name in MEANINGS:
                field.setdefault("description", MEANINGS[name])
    for name in _NAMED:
        word, alternatives = _options(name)
        schemas[name] = {"description": _NAMED_MEANING[name], word: _tidied(alternatives)}
    schemas["Mechanism"]["discriminator"] = {"propertyName": "kind"}
    shapes = {name: _shape(*shape) for name, shape in SHAPES.items()}
    shapes |= {"Loss": LOSS, "Problem": PROBLEM}
    return schemas | shapes


_NAMED: Final[dict[str, Any]] = {
    "Amount": Amount,
    "Mechanism": Mechanism,
    "Subjects": Subjects,
    "Rule": Rule,
}
"""Types that pydantic writes out wherever they occur, and that deserve a name."""
_NAMED_MEANING: Final = {
    "Amount": 'An exact decimal, best as a string: "0.1", "1e-6". A JSON number is read as the '
    "decimal that it spells, never through a binary float.",
    "Mechanism": "One randomised answer; `kind` decides which fields there are.",
    "Subjects": "A group of units: a dimension's values, or an inclusive range of them; several "
    "dimensions narrow it; a list of groups is their union.",
    "Rule": "One rule; which of limit, of, mechanisms, require and purposes it has says its kind.",
}


def _tidied(schema: Any) -> Any:
    """Without generated titles and null defaults, and with the named types by reference."""
    if isinstance(schema, list):
        return [_tidied(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    for name in _NAMED:
        schema = _by_name(schema, name)
    return _inside(schema)


def _inside(schema: Schema) -> Schema:
    """``schema`` with everything within it tidied."""
    return {
        key: {name: _tidied(each) for name, each in value.items()}
        if key == "properties"
        else value.replace("``", "`")
        if key == "description"
        else value
        if key in ("examples", "default", "const")
        else _tidied(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and value is None)
    }


@lru_cache
def _options(name: str) -> tuple[str, list[Schema]]:
    """The keyword and the alternatives of a named type, as pydantic writes them."""
    schema = TypeAdapter(_NAMED[name]).json_schema(ref_template=_REFERENCE)
    word = "anyOf" if "anyOf" in schema else "oneOf"
    return word, schema[word]


def _by_name(schema: Schema, name: str) -> Schema:
    """``schema`` with the named type's alternatives replaced by a reference to it."""
    word, options = _options(name)
    nothing = {"type": "null"}
    reference = {"$ref": _REFERENCE.format(model=name)}
    rest = {k: v for k, v in schema.items() if k not in (word, "discriminator")}
    if schema.get(word) == options:
        rest.pop("examples", None)
        return reference | rest
    if schema.get(word) == [*options, nothing]:
        return {"anyOf": [reference, nothing]} | rest
    return schema


MEANINGS: Final = {
    "dataset": "the dataset's short id",
    "owner": "who answers for it",
    "parents": "what it was made from",
    "mechanisms": "which kinds; when committing: the part that was run, as it was asked for",
    "reason": "why nothing was executed",
    "positives": "positive answers since the last count",
    "negatives": "negative answers since the last count; they are free",
    "mechanism": "the session",
    "policy": "its name",
    "rules": "what blocks and what flags",
    "id": "the rule's name, which decisions and accounts show",
    "limit": "the most that any subject group may lose",
    "epsilon": "at most this epsilon",
    "delta": "except with about this probability",
    "own_delta": "the part of delta kept for mechanisms that have a delta themselves; absent: a "
    "tenth, under basic all",
    "gate": "how losses are added up; absent: the default gate, or basic without a delta",
    "action": "what happens when it fires",
    "datasets": "glob over dataset ids",
    "of": "the id of a limit rule",
    "require": "fields that must be given",
    "purposes": "purposes that are accepted, word for word",
}
"""What a field is, by its name, where its model does not say."""


def _shape(description: str, fields: dict[str, tuple[str, str]]) -> Schema:
    listed = {name: field for name, field in fields.items() if name != "…"}
    schema = {
        "type": "object",
        "description": description,
        "properties": {
            name.removesuffix("?"): _type(kind) | {"description": meaning}
            for name, (kind, meaning) in listed.items()
        },
        "required": [name for name in listed if not name.endswith("?")],
    }
    return schema | ({"additionalProperties": True} if "…" in fields else {})


def _type(kind: str) -> Schema:
    """``text``, ``int`` … as they are; [x] a list, {x} a map by name, x? may be null, else a
    component.
    """
    if kind.endswith("?"):
        return {"anyOf": [_type(kind[:-1]), {"type": "null"}]}
    if kind.startswith("["):
        return {"type": "array", "items": _type(kind[1:-1])}
    if kind.startswith("{"):
        return {"type": "object", "additionalProperties": _type(kind[1:-1])}
    return dict(_PLAIN.get(kind) or {"$ref": f"#/components/schemas/{kind}"})
