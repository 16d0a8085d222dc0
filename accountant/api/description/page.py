"""GET /docs: the manual, one page made from the OpenAPI document. No scripts, nothing external."""

from __future__ import annotations

import json
import re
import shlex
from functools import lru_cache
from typing import Any, Final

from fastapi import FastAPI
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from accountant.api.description.examples import STORY, Example
from accountant.api.description.openapi import PURPOSE, document
from accountant.api.description.problem_codes import PROBLEMS
from accountant.config import shipped

Schema = dict[str, Any]

TOPICS: Final[dict[str, tuple[str, str]]] = {
    "registering": (
        "Registering",
        "Who is protected, which data there are, and how much may be spent.",
    ),
    "spending": ("Spending", "Ask first, run the query, then say what was run."),
    "sparse vector": (
        "Sparse vector sessions",
        "Many threshold questions at the price of the few that are answered above.",
    ),
    "reading": ("Reading", "What is spent and left, why a request was refused, and the ledger."),
    "evidence": (
        "Evidence",
        "What proves that the ledger is what it was: signed checkpoints, the log as any C2SP "
        "client reads it, and receipts to keep. `accountant export` writes it all as one file.",
    ),
    "health": ("Health", "For whoever runs the service."),
}
"""The chapters, by tag, in order; tags that are not named follow under their own names."""

WHERE: Final = {
    "every": "any call",
    "nowhere": "no call at all",
    "ledger": "calls on a population that must exist",
    "body": "calls with a body",
    "json": "calls with a JSON body",
    "key": "calls that take an Idempotency-Key",
    "population": "registering a population",
    "dataset": "registering a dataset",
    "policy": "adopting a policy",
    "data": "calls that name a dataset or a dimension",
    "asking": "calls that name subjects",
    "refusal": "grants and sessions that are refused; also named in decisions",
    "decision": "decisions only",
    "grant": "calls on a grant",
    "settling": "commit, release, answers, close",
    "session": "sparse vector sessions",
    "batch": "batches",
    "own": "settling a grant; reading what is another client's with a pipeline's key",
    "event": "calls on an event, a decision or a receipt",
    "judged": "reading a decision",
    "text": "erasing texts",
    "log": "the log",
    "tile": "tiles of the log",
    "health": "readiness",
}
ELSEWHERE: Final = {
    "Amount": "amounts",
    "Loss": "amounts",
    "Subjects": "groups",
    "Mechanism": "mechanisms",
    "SparseVector": "kind-sparse_vector",
    "Exponential": "kind-exponential",
    "Rule": "policies",
    "AskGrantItem": "ask_grant",
    "CommitGrantItem": "commit_grant",
    "ReleaseGrantItem": "release_grant",
    "RecordInvocationsItem": "record_invocations",
    "Reservation": "ask_grant",
    "Settlement": "commit_grant",
    "Record": "record_invocations",
}
"""Where a component is described, if not under its own name."""
DETAILS: Final = ("Norms", "Claim", "Sampling", "Drawn", "DpEvent", "Sampler")
"""What fields of mechanisms are made of."""
_WIDTH: Final = 96
"""Columns of code that the page and its print hold."""


def page(app: FastAPI) -> str:
    """The page as HTML."""
    return _rendered(json.dumps(document(app)))


@lru_cache(maxsize=4)
def _rendered(spec: str) -> str:
    environment = Environment(
        loader=FileSystemLoader(shipped("reports/templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = _prose
    environment.filters["linked"] = _linked
    return environment.get_template("api.html.j2").render(_contents(json.loads(spec)))


def _contents(spec: Schema) -> dict[str, Any]:
    """Everything that the template shows."""
    book = Book(spec)
    calls = [
        book.call(method, path, call)
        for path, methods in spec["paths"].items()
        for method, call in methods.items()
    ]
    tags = list(dict.fromkeys([*TOPICS, *(call["tag"] for call in calls)]))
    chapters = [
        {
            "id": tag.replace(" ", "-"),
            "title": TOPICS.get(tag, (tag.capitalize(), ""))[0],
            "about": TOPICS.get(tag, ("", ""))[1],
            "calls": [call for call in calls if call["tag"] == tag],
        }
        for tag in tags
    ]
    return {
        "version": spec["info"]["version"],
        "purpose": PURPOSE,
        "chapters": [chapter for chapter in chapters if chapter["calls"]],
        "start": [
            {"summary": next(c for c in calls if c["id"] == e.call)["summary"], "curl": _curl(e)}
            for e in _first_steps()
        ],
        "mechanisms": book.mechanisms(),
        "common": book.common(),
        "range": book.component("Range"),
        "details": [book.component(name) for name in DETAILS],
        "rules": [book.component(n) for n in book.options("Rule")],
        "rule_parts": [book.component(n) for n in book.parts_of_rules()],
        "answers": [book.component(n) for n in book.shared()],
        "problems": [
            {"code": code, "status": p.status or "–", "where": WHERE[p.topic], "meaning": p.meaning}
            for code, p in PROBLEMS.items()
        ],
    }


def _first_steps() -> list[Example]:
    """The shortest way from nothing to a grant that is settled."""
    wanted = ("register_population", "register_dataset", "adopt_policy", "ask_grant")
    first = [next(e for e in STORY if e.call == name) for name in wanted]
    return [*first, next(e for e in STORY if e.call == "commit_grant")]


class Book:
    """Reads the OpenAPI document for people."""

    def __init__(self, spec: Schema) -> None:
        self._schemas: dict[str, Schema] = spec["components"]["schemas"]

    def call(self, method: str, path: str, call: Schema) -> dict[str, Any]:
        """One call, as the template shows it."""
        success, *refusals = call["responses"].items()
        examples = [e for e in STORY if e.call == call["operationId"]]
        answer = next(iter(success[1]["content"].values())).get("schema")
        about = [p for p in call["description"].split("\n\n") if not p.startswith("Roles:")]
        return {
            "id": call["operationId"],
            "tag": call.get("tags", ["other"])[0],
            "method": method.upper(),
            "path": path,
            "summary": call["summary"].rstrip("."),
            "about": [p for p in about if p != "No key is needed."],
            "roles": call["x-roles"],
            "parameters": [self._parameter(p) for p in call["parameters"]],
            "request": self.fields(
                _name(next(iter(call["requestBody"]["content"].values()))["schema"])
            )
            if "requestBody" in call
            else [],
            "examples": [
                {
                    "title": e.title,
                    "curl": _curl(e),
                    "status": e.status,
                    "answer": e.answer if isinstance(e.answer, str | None) else pretty(e.answer),
                }
                for e in examples
            ],
            "status": success[0],
            "media": list(success[1]["content"]),
            "answer": self.component(_name(answer)) if answer else None,
            "refusals": [(s, r["description"].split(", ")) for s, r in refusals],
        }

    def _parameter(self, given: Schema) -> dict[str, Any]:
        schema = given["schema"]
        return {
            "name": given["name"],
            "place": {"path": "in the path", "query": "after ?", "header": "header"}[given["in"]],
            "required": given["required"],
            "type": self.type(schema),
            "meaning": given.get("description", ""),
            "default": _spelled(schema.get("default")),
        }

    def component(self, name: str) -> dict[str, Any]:
        """A named schema: what it is and its fields."""
        schema = self._schemas[name]
        about = [" ".join(p.split()) for p in schema.get("description", "").split("\n\n")]
        return {"name": name, "about": about, "fields": self.fields(name)}

    def fields(self, name: str) -> list[dict[str, Any]]:
        """The fields of a named schema, required ones first."""
        schema = self._schemas[name]
        required = schema.get("required", [])
        fields = [
            {
                "name": field,
                "required": field in required,
                "type": self.type(each),
                "meaning": each.get("description", ""),
                "default": _spelled(each.get("default")),
            }
            for field, each in schema.get("properties", {}).items()
        ]
        return sorted(fields, key=lambda f: not f["required"])

    def type(self, schema: Schema) -> str:
        """A type in a few words; a component's name where it has one."""
        if "$ref" in schema:
            return self._named(_name(schema))
        if "const" in schema:
            return json.dumps(schema["const"])
        if "enum" in schema:
            return " or ".join(map(str, schema["enum"]))
        if options := schema.get("anyOf", schema.get("oneOf")):
            return " or ".join(dict.fromkeys(map(self.type, options)))
        return self._plain(schema)

    def _plain(self, schema: Schema) -> str:
        match schema:
            case {"type": "array"}:
                return f"list of {self.type(schema.get('items', {}))}"
            case {"type": "object", "additionalProperties": dict(values)}:
                return f"object: name → {self.type(values)}"
            case {"type": "object", "patternProperties": dict(patterns)}:
                return f"object: name → {self.type(next(iter(patterns.values())))}"
            case {"type": "integer"}:
                return "whole number" + _span(schema)
            case {"type": "string", "format": "date-time"}:
                return "time"
        words = {"string": "text", "boolean": "true or false"}
        kind = str(schema.get("type", "anything"))
        return words.get(kind, kind)

    def _named(self, name: str) -> str:
        schema = self._schemas[name]
        return self.type(schema) if "enum" in schema else name

    def options(self, name: str) -> list[str]:
        """The names of a component's alternatives."""
        schema = self._schemas[name]
        return [_name(option) for option in schema.get("oneOf") or schema["anyOf"]]

    def parts_of_rules(self) -> list[str]:
        """The components that rules have as fields."""
        kinds = map(self._schemas.__getitem__, self.options("Rule"))
        fields = [field for kind in kinds for field in kind["properties"].values()]
        named = [option for f in fields for option in (f, *f.get("anyOf", ())) if "$ref" in option]
        found = dict.fromkeys(map(_name, named))
        return [name for name in found if name not in ELSEWHERE]

    def common(self) -> list[dict[str, Any]]:
        """The fields that every kind of mechanism has, which are all that the plainest one has."""
        kind, *rest = self.fields("NonPrivate")
        return [kind | {"type": "one of those above"}, *rest]

    def mechanisms(self) -> list[dict[str, Any]]:
        """The catalogue: each kind with its own parameters, and an example."""
        common = {field["name"] for field in self.common()}
        rows = []
        for name in self.options("Mechanism"):
            row = self.component(name)
            row["kind"] = self._schemas[name]["properties"]["kind"]["const"]
            row["fields"] = [f for f in row["fields"] if f["name"] not in common]
            example = self._schemas[name]["examples"][0]
            row["example"] = pretty({"kind": row["kind"]} | example)
            rows.append(row)
        return rows

    def shared(self) -> list[str]:
        """Parts of answers that several calls have in common, in reading order."""
        names = (
            "Charge",
            "PricedMechanism",
            "Decision",
            "RuleFinding",
            "Comparison",
            "Contributors",
            "Contribution",
            "Flag",
            "WouldFit",
            "OpenGrant",
            "Limit",
            "Sums",
        )
        more = (
            "Dataset",
            "PolicyInForce",
            "Account",
            "Balance",
            "Rung",
            "Lifetime",
            "LifetimeGroup",
        )
        return [*names, *more, "Publication", "Witness", "LoggedEvent", "Event"]


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[1]


def _span(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and high is None:
        return ""
    return f", {low:,} to {high:,}" if high is not None else f", from {low:,}"


def _curl(example: Example) -> str:
    """The example as a curl command; ``$URL`` and ``$ADMIN`` … stand for the reader's own."""
    method, path = example.request.split(" ", 1)
    url = f"$URL{path}"
    lines = [f'curl -X {method} "{url}"' if method != "GET" else f'curl "{url}"']
    if example.by:
        lines.append(f'-H "Authorization: Bearer ${example.by.upper()}"')
    headers = dict(example.headers)
    if isinstance(example.body, dict):
        headers["Content-Type"] = "application/json"
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
    if example.body is not None:
        body = example.body if isinstance(example.body, str) else pretty(example.body)
        lines.append(f"--data-binary {shlex.quote(body)}")
    return " \\\n  ".join(lines)


def pretty(value: Any, indent: int = 0, before: int = 0) -> str:
    """JSON with everything on one line that fits there; ``before`` is what stands left of it."""
    line = json.dumps(value, ensure_ascii=False)
    if indent + before + len(line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {pretty(v, indent + 2, len(k) + 5)}" for k, v in value.items()]
    else:
        parts = [pretty(item, indent + 2, 1) for item in value]
    inner = "\n" + " " * (indent + 2)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}{inner}{f',{inner}'.join(parts)}\n{' ' * indent}{closing}"


def _spelled(default: Any) -> str | None:
    """A default as JSON spells it; None where there is nothing worth saying."""
    if default is None or default in ([], {}):
        return None
    return default if isinstance(default, str) else json.dumps(default)


def _linked(text: str) -> Markup:
    """A type in words, with each component's name leading to where it is described."""
    parts = re.split(r"\b([A-Z][A-Za-z]+)\b", text)
    return Markup("").join(
        Markup('<a href="#{}">{}</a>').format(ELSEWHERE.get(part, f"part-{part}"), part)
        if i % 2
        else escape(part)
        for i, part in enumerate(parts)
    )


def _prose(text: str) -> Markup:
    """Text with `code` in its place."""
    parts = str(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if i % 2 else escape(part)
        for i, part in enumerate(parts)
    )
