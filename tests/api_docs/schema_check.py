"""A checker for the part of JSON Schema that the OpenAPI document uses; it knows no other.

It is stricter in one thing: an object may only have the properties that are listed, unless others
are expressly allowed. Readers of answers must bear new fields; the tests must notice them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
_SAYS_NOTHING = {"description", "examples", "default", "title", "discriminator", "format"}
_KNOWN = _SAYS_NOTHING | {
    "$ref", "type", "const", "enum", "anyOf", "oneOf", "properties", "required", "items",
    "additionalProperties", "patternProperties", "pattern", "minLength", "maxLength", "minItems",
    "maxItems", "maxProperties", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "propertyNames",
}  # fmt: skip


def errors(schema: Any, value: Any, components: dict[str, Any], at: str = "$") -> Iterator[str]:
    """Where and how ``value`` departs from ``schema``. An unknown keyword is an error too."""
    if schema is True:
        return
    if unknown := set(schema) - _KNOWN:
        yield f"{at}: unknown keywords {sorted(unknown)}"
    if "$ref" in schema:
        yield from errors(components[schema["$ref"].rsplit("/", 1)[1]], value, components, at)
    yield from _alternatives(schema, value, components, at)
    if "const" in schema and value != schema["const"]:
        yield f"{at}: is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: is none of {schema['enum']}"
    kind = schema.get("type")
    wrong_bool = isinstance(value, bool) and kind != "boolean"
    if kind is not None and (wrong_bool or not isinstance(value, _TYPES[kind])):
        yield f"{at}: {value!r} is no {kind}"
        return
    yield from _bounds(schema, value, at)
    if isinstance(value, dict):
        yield from _object(schema, value, components, at)
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            yield from errors(schema["items"], item, components, f"{at}[{i}]")


def _alternatives(schema: Any, value: Any, components: dict[str, Any], at: str) -> Iterator[str]:
    for word, most in (("anyOf", 99), ("oneOf", 1)):
        if word in schema:
            good = sum(not list(errors(s, value, components, at)) for s in schema[word])
            if not 1 <= good <= most:
                yield f"{at}: {good} alternatives fit"


def _bounds(schema: Any, value: Any, at: str) -> Iterator[str]:
    if isinstance(value, str | list | dict):
        word = {str: "Length", list: "Items", dict: "Properties"}[type(value)]
        if not schema.get(f"min{word}", 0) <= len(value) <= schema.get(f"max{word}", len(value)):
            yield f"{at}: has {len(value)}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{at}: {value!r} does not match {schema['pattern']}"
    number = isinstance(value, int | float)
    if number and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at}: {value} is out of range"


def _object(
    schema: Any, value: dict[str, Any], components: dict[str, Any], at: str
) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}: lacks {name}"
    for name, item in value.items():
        found = [schema["properties"][name]] if name in schema.get("properties", {}) else []
        found += [s for p, s in schema.get("patternProperties", {}).items() if re.search(p, name)]
        rest = schema.get("additionalProperties", "properties" not in schema)
        if not found and rest is False:
            yield f"{at}: must not have {name}"
        if not found and isinstance(rest, dict):
            found = [rest]
        for each in found:
            yield from errors(each, item, components, f"{at}.{name}")
