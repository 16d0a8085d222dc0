"""Schemas of requests, as pydantic writes them and people can read them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pydantic import TypeAdapter

from accountant.budget.population.selection import Subjects
from accountant.budget.rules import KINDS, AnyRule
from accountant.privacy.mechanisms import Amount, Mechanism

Schema = dict[str, Any]
REFERENCE: Final = "#/components/schemas/{model}"

NAMED: Final[dict[str, Any]] = {
    "Amount": Amount,
    "Mechanism": Mechanism,
    "Subjects": Subjects,
    "Rule": AnyRule,
}
"""Types that pydantic writes out wherever they occur, and that deserve a name."""
NAMED_MEANING: Final = {
    "Amount": 'An exact decimal, best as a string: "0.1", "1e-6". A JSON number is read as the '
    "decimal that it spells, never through a binary float.",
    "Mechanism": "One randomised answer; `kind` decides which fields there are.",
    "Subjects": "A group of units: a dimension's values, or an inclusive range of them; several "
    "dimensions narrow it; a list of groups is their union.",
    "Rule": "One rule; the field that only its kind has says which kind it is.",
}


def tidied(schema: Any) -> Any:
    """Without generated titles and null defaults, and with the named types by reference."""
    if isinstance(schema, list):
        return [tidied(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    for name in NAMED:
        schema = _by_name(schema, name)
    return _inside(schema)


def _inside(schema: Schema) -> Schema:
    """``schema`` with everything within it tidied."""
    return {
        key: {name: tidied(each) for name, each in value.items()}
        if key == "properties"
        else value.replace("``", "`")
        if key == "description"
        else value
        if key in ("examples", "default", "const")
        else tidied(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and value is None)
    }


def options_of(name: str) -> tuple[str, list[Schema]]:
    """The keyword and the alternatives of a named type, as pydantic writes them."""
    return _options(name, tuple(KINDS))


@lru_cache
def _options(name: str, rule_kinds: tuple[str, ...]) -> tuple[str, list[Schema]]:
    schema = TypeAdapter(NAMED[name]).json_schema(ref_template=REFERENCE)
    word = "anyOf" if "anyOf" in schema else "oneOf"
    return word, schema[word]


def _by_name(schema: Schema, name: str) -> Schema:
    """``schema`` with the named type's alternatives replaced by a reference to it."""
    word, options = options_of(name)
    nothing = {"type": "null"}
    reference = {"$ref": REFERENCE.format(model=name)}
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
    "reason": "why",
    "grant": "the grant's id",
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
    "witnesses": "who is asked to confirm each checkpoint",
    "required": "so many of them have to agree before a checkpoint counts as published",
    "url": "where the witness answers",
    "key": "the verifier key that it cosigns with",
    "at_most": "the most that one request may cost, as plain sums",
    "purposes": "purposes that are accepted, word for word",
}
"""What a field is, by its name, where its model does not say."""
