"""The page at /docs, rendered from the OpenAPI document. No scripts, nothing external."""

from __future__ import annotations

import json
import re
import shlex
from functools import lru_cache, partial
from typing import Any, Final

from fastapi import FastAPI
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from accountant.api.description.openapi import Schema, document
from accountant.api.description.texts import PROBLEMS, STORY, Example
from accountant.config import shipped

_WIDTH: Final = 96  # Columns of code that fit on the page and on its print
_PLAIN: Final = {
    "string": "text",
    "boolean": "true or false",
    "integer": "whole number",
    "date-time": "time",
}
_LINK: Final = Markup('<a href="#part-{0}">{0}</a>')  # A component's name, linked to its text
_CODE: Final = Markup("<code>{}</code>")


@lru_cache(maxsize=1)
def page(app: FastAPI) -> str:
    """Return the page as HTML."""
    return _rendered("api.html.j2", app)


def contents(app: FastAPI) -> str:
    """Return what the page says, without its frame, for a page of the documentation."""
    return _rendered("api_contents.html.j2", app)


def _rendered(template: str, app: FastAPI) -> str:
    environment = Environment(
        loader=FileSystemLoader(shipped("reports/templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    spec = document(app)
    environment.filters |= {
        "prose": lambda text: _marked(text.split("`"), _CODE),
        "linked": lambda text: _marked(re.split(r"\b([A-Z][A-Za-z]+)\b", text), _LINK),
        "pretty": pretty,
        "curl": curl,
        "type": partial(_type, spec["components"]["schemas"]),
        "name": _name,
    }
    return environment.get_template(template).render(spec=spec, story=STORY, problems=PROBLEMS)


def curl(example: Example) -> str:
    """Return an example as a curl command; ``$URL`` and ``$ADMIN`` … are variables of the shell."""
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
    """Return JSON with each part on one line where it fits. ``before``: columns taken before it."""
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


def _type(schemas: dict[str, Schema], schema: Schema) -> str:
    """Return a type in a few words, or the component's name where it has one."""
    words = partial(_type, schemas)
    match schema:
        case {"$ref": _}:
            name = _name(schema)
            text = words(schemas[name]) if "enum" in schemas[name] else name
        case {"const": value}:
            text = json.dumps(value)
        case {"enum": options}:
            text = " or ".join(map(str, options))
        case {"anyOf": options} | {"oneOf": options}:
            text = " or ".join(dict.fromkeys(map(words, options)))
        case {"type": "array"}:
            text = f"list of {words(schema.get('items', {}))}"
        case {"type": "object", "additionalProperties": dict(values)}:
            text = f"object: name → {words(values)}"
        case {"type": "object", "patternProperties": dict(patterns)}:
            text = f"object: name → {words(next(iter(patterns.values())))}"
        case {"type": "integer", "minimum": low}:
            high = f" to {schema['maximum']:,}" if "maximum" in schema else ""
            text = f"whole number, from {low:,}{high}"
        case _:
            kind: str = schema.get("format") or schema.get("type", "anything")
            text = _PLAIN.get(kind, kind)
    return text


def _name(reference: Schema) -> str:
    return str(reference["$ref"]).rsplit("/", 1)[1]


def _marked(parts: list[str], markup: Markup) -> Markup:
    """Return ``parts``, every second one set in ``markup``."""
    return Markup("").join(
        markup.format(part) if i % 2 else escape(part) for i, part in enumerate(parts)
    )
