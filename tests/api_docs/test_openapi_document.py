"""The OpenAPI document is complete, consistent with the code, and stable."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from fastapi import FastAPI
from story_runner import Told

import accountant
from accountant.api.app import create_app
from accountant.api.description.openapi import calls_of, document
from accountant.api.description.texts import PROBLEMS
from accountant.api.problems import _STATUS_OF_CODE
from accountant.budget.commands import Role
from accountant.budget.malformed import _FORMS
from accountant.config.settings import Settings
from accountant.privacy.mechanisms import KINDS

ROOMS = (
    "auth",
    "runtime",
    "api",
    "door",
    "budget",
    "ledger",
    "privacy",
    "publishing",
    "reporting/filing.py",
    "store",
)
NO_CODES: frozenset[str] = frozenset(
    {
        "key-from-later", "proposal-differs",
        "already-revalued", "batch-digest", "batch-open", "engine-order", "idempotency-key",
        "date-time", "key-exists", "key-used", "malformed-account",
        "malformed-checkpoint", "malformed-key", "malformed-key-name", "no-cache", "no-key",
        "not-due", "not-stopped", "nothing-lost", "origin-fixed", "origin-used",
        "clock-believed", "connection", "content-encoding", "content-length", "content-type",
        "door-keys", "keep-alive", "no-store", "transfer-encoding", "x-request-id",
        "unknown-key", "clock-differs", "write-ahead-log-not-copied",
        "key-days", "key-hours", "key-population",
        "provider-unavailable", "too-many-sign-ins", "unknown-role",
    }
)  # fmt: skip
"""Problems that only the command line, pages or the service's own jobs can meet, headers and their
values.
"""


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """An application that serves no request."""
    return create_app(None, Settings(), None)


@pytest.fixture(scope="module")
def spec(app: FastAPI) -> dict[str, Any]:
    """The document."""
    return document(app)


@pytest.fixture(scope="module")
def calls(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every call by its operation id."""
    return {c["operationId"]: c for p in spec["paths"].values() for c in p.values()}


def test_operation_ids_never_change(calls: dict[str, Any]) -> None:
    """Programs are generated from these names: the list only grows."""
    assert {
        "register_population", "show_population", "register_dataset", "adopt_policy", "ask_grant",
        "show_grant", "commit_grant", "release_grant", "record_invocations", "preview",
        "open_sparse_vector", "count_answers", "close_sparse_vector", "show_accounts",
        "show_report", "list_events", "show_event", "show_decision", "healthz", "readyz",
        "show_checkpoint", "show_tile", "show_receipt", "show_evidence", "erase_texts", "batch",
    } <= set(calls)  # fmt: skip


def test_every_call_says_what_it_gives(app: FastAPI) -> None:
    """An answer of JSON has a model: without one it would have no schema."""
    for name, call in calls_of(app).items():
        assert call.gives is not None or call.media != "application/json", name


def test_calls_that_can_spend_require_a_key(app: FastAPI, calls: dict[str, Any]) -> None:
    """Idempotency-Key is required exactly where the command needs one."""
    for name, call in calls.items():
        header = next((p for p in call["parameters"] if p["name"] == "Idempotency-Key"), None)
        needs = getattr(calls_of(app)[name].takes, "needs_key", False) and name != "preview"
        assert bool(header and header["required"]) == needs, name


def test_roles_are_those_of_the_code(calls: dict[str, Any]) -> None:
    """Each call but health names its roles, in words and for programs."""
    for name, call in calls.items():
        assert bool(call["x-roles"]) == ("health" not in call["tags"]), name
        assert set(call["x-roles"]) <= set(get_args(Role))
        assert all(role in call["description"] for role in call["x-roles"])
        assert call.get("security") == (None if call["x-roles"] else [])


def test_every_mechanism_kind_is_there_with_units_and_source(spec: dict[str, Any]) -> None:
    """The catalogue in the document is the catalogue of the program."""
    parts = spec["components"]["schemas"]
    names = [s["$ref"].rsplit("/", 1)[1] for s in parts["Mechanism"]["oneOf"]]
    assert tuple(parts[n]["properties"]["kind"]["const"] for n in names) == KINDS
    for name in names:
        fields = parts[name]["properties"].values()
        assert all(field.get("description") for field in fields), name
        assert parts[name]["examples"], name


def test_every_field_has_a_meaning(spec: dict[str, Any]) -> None:
    """No field of a request or an answer is left to the reader's imagination."""
    for name, part in spec["components"]["schemas"].items():
        for field, schema in part.get("properties", {}).items():
            assert schema.get("description"), (name, field)


def test_every_reference_leads_somewhere(spec: dict[str, Any]) -> None:
    """No $ref dangles, and nothing is defined that nothing refers to."""
    parts = spec["components"]
    there = {
        f"#/components/{kind}/{name}" for kind in ("schemas", "headers") for name in parts[kind]
    }
    found = set(references(spec))
    assert found <= there
    assert there - found == set()


def references(value: Any) -> Iterator[str]:
    """Every $ref below ``value``."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref":
                yield item
            else:
                yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_fields_of_the_path_are_not_in_the_body(spec: dict[str, Any]) -> None:
    """A grant's and a dataset's id stand in the path; the door refuses them in the body."""
    parts = spec["components"]["schemas"]
    for name in ("CommitGrant", "ReleaseGrant", "CountAnswers", "CloseSparseVector"):
        assert "grant" not in parts[name]["properties"]
        assert "grant" not in parts[name].get("required", ())
    assert "id" not in parts["RegisterDataset"]["properties"]


def test_every_problem_code_of_the_program_is_documented() -> None:
    """Every kebab-case string in the code that can become a problem's code is in the list."""
    said = set(codes_in_the_code())
    assert said - set(PROBLEMS) - NO_CODES == set(), "document these in problem_codes.yaml"
    assert set(PROBLEMS) - said == set(), "no code says these any more"


def codes_in_the_code() -> Iterator[str]:
    """Strings like ``budget-exceeded``, and the first argument of every problem raised."""
    package = Path(accountant.__file__).parent
    described = set((package / "api" / "description").glob("*.py"))
    for room in ROOMS:
        files = [package / room] if room.endswith(".py") else sorted((package / room).rglob("*.py"))
        for file in files:
            if file not in described:
                yield from _codes(ast.parse(file.read_text(encoding="utf-8")))


def _codes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Problem"), args=[ast.Constant(value=str(code)), *_]):
                yield code
            case ast.Constant(value=str(text)) if re.fullmatch(r"[a-z]+(-[a-z]+)+", text):
                yield text


def test_statuses_in_the_list_are_those_that_are_answered() -> None:
    """The list agrees with the door where the door has a status for the code itself."""
    for code, status in _STATUS_OF_CODE.items():
        assert PROBLEMS[code].status == status, code


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "", None, "unknown-population"),
        ("GET", "/grants/g7", None, "unknown-population"),
        ("PUT", "/policy", "rules: []", "malformed-policy"),
        ("PUT", "", "{", "malformed-json"),
        ("PUT", "", "{}", "invalid-request"),
        ("POST", "/grants", "{}", "invalid-request"),
    ],
)
def test_a_problem_has_its_documented_status(
    told: Told, method: str, path: str, body: str | None, code: str
) -> None:
    """A sample of mistakes is answered with the status that the list states."""
    headers = {"Authorization": f"Bearer {told.secrets['admin']}"}
    answer = told.http.request(
        method, f"/v1/populations/nowhere{path}", headers=headers, content=body
    )
    assert answer.json()["type"] == f"urn:accountant:problem:{code}"
    assert answer.status_code == PROBLEMS[code].status


def test_the_document_is_served_to_everybody(told: Told) -> None:
    """Neither the document nor the page asks for a key."""
    assert told.http.get("/openapi.json").json()["openapi"].startswith("3.1")
    assert told.http.get("/docs").headers["content-type"].startswith("text/html")
    assert told.http.get("/", follow_redirects=False).headers["location"] == "/docs"


def forms(schema: Any) -> Iterator[str]:
    """The forms of texts that are asked for in a part of the document."""
    if isinstance(schema, dict):
        if "pattern" in schema and "maxLength" not in schema:
            yield schema["pattern"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from forms(part)


def test_every_form_of_a_text_is_told_in_words(app: FastAPI) -> None:
    """No answer shows a regular expression: each form in addresses and bodies has its words. Those
    of headers and of answers are told elsewhere, or never.
    """
    spec = document(app)
    calls = [call for methods in spec["paths"].values() for call in methods.values()]
    placed = [one for call in calls for one in call.get("parameters", ())]
    asked = set(forms([one for one in placed if one["in"] != "header"]))
    asked |= set(forms(spec["components"]["schemas"]))
    answers = {r"^([0-9]+(\.[0-9]+)?|infinite)$", "^urn:accountant:problem:[a-z-]+$"}
    assert r"^g\d{1,18}$" in asked
    assert asked - answers <= set(_FORMS)
