"""The components of the OpenAPI document: schemas of requests and answers, as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NotRequired, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema
from typing_extensions import is_typeddict

from accountant.api.description.texts import TEXTS
from accountant.budget.population.selection import Subjects
from accountant.budget.rules import AnyRule
from accountant.privacy.mechanisms import Amount, Mechanism

Schema = dict[str, Any]
REFERENCE: Final = "#/components/schemas/{model}"
_STORED: Final = ("Positions", "Sealed")
"""Components that stand for long lists and free texts in events, and never in requests."""


def components(requests: Iterable[type[BaseModel]], answers: Iterable[Any]) -> dict[str, Schema]:
    """Return all components by name, for the registered kinds of rules and mechanisms."""
    named = {"Amount": Amount, "Mechanism": Mechanism, "Subjects": Subjects, "Rule": AnyRule}
    alternatives = {name: _alternatives(kind) for name, kind in named.items()}
    schemas = _of_answers({one.__name__: one for one in answers}, alternatives)
    schemas |= _of_requests(list(requests), alternatives)
    for name, (word, options) in alternatives.items():
        text = TEXTS["components"][name]
        schemas[name] = {"description": text, word: tidied(options, alternatives)}
    schemas["Mechanism"]["discriminator"] = {"propertyName": "kind"}
    return schemas


Alternatives = dict[str, tuple[str, list[Schema]]]
"""The keyword and the alternatives of types that pydantic writes out wherever they occur."""


def _alternatives(kind: Any) -> tuple[str, list[Schema]]:
    schema = TypeAdapter(kind).json_schema(ref_template=REFERENCE)
    word = "anyOf" if "anyOf" in schema else "oneOf"
    return word, schema[word]


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
    for name, model in _named_within(models.values()).items():
        for field, hint in get_type_hints(model, include_extras=True).items():
            inner = hint.__args__[0] if get_origin(hint) is NotRequired else hint
            texts = [one for one in getattr(inner, "__metadata__", ()) if isinstance(one, str)]
            if texts:
                schemas[name]["properties"][field]["description"] = texts[-1]
    return schemas


def _named_within(types: Iterable[Any]) -> dict[str, Any]:
    """Return the models among ``types`` and in their fields, by name."""
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
