"""What is gone or tighter in a surface that may only grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

LEAST = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}
MOST = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}
TIGHT = LEAST | MOST | {"pattern", "enum", "const", "additionalProperties", "uniqueItems"}
"""What keeps values out of a schema that is there."""


def lost(old: Any, new: Any, where: str = "", asked: bool = True) -> Iterator[str]:
    """Says of each thing in ``old`` that ``new`` does not have, where it was.

    ``asked``: it describes what others send, where a field that is newly required keeps out what
    they sent so far; else what they get, where one that is not required any more fails them.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _object(old, new, where, asked)
    elif isinstance(old, list) and isinstance(new, list):
        for one in old:
            if one not in new and not any(_kept(one, other, asked) for other in new):
                yield f"{where}: {one!r} is gone"
    elif old != new:
        yield f"{where}: {old!r} is now {new!r}"


def _kept(old: Any, new: Any, asked: bool) -> bool:
    return isinstance(old, dict) and isinstance(new, dict) and not any(lost(old, new, "", asked))


def _object(old: dict[str, Any], new: dict[str, Any], where: str, asked: bool) -> Iterator[str]:
    for name, value in old.items():
        place = f"{where}/{name}"
        if name == "required" and isinstance(value, list):
            yield from _required(set(value), set(new.get(name, ())), place, asked)
        elif name in TIGHT and name not in new and asked:
            continue
        elif name not in new:
            yield f"{place} is gone"
        elif name in LEAST | MOST and not isinstance(value, dict):
            tighter = new[name] > value if name in LEAST else new[name] < value
            if asked and tighter:
                yield f"{place}: {value} is now {new[name]}"
        else:
            yield from lost(value, new[name], place, asked)
    if "required" not in old and asked and isinstance(new.get("required"), list):
        yield from _required(set(), set(new["required"]), f"{where}/required", asked)
    if asked and ("type" in old or "$ref" in old or "anyOf" in old):
        for name in (TIGHT - old.keys()) & new.keys():
            yield f"{where}/{name}: {new[name]!r} is new"


def _required(old: set[str], new: set[str], where: str, asked: bool) -> Iterator[str]:
    for name in sorted(new - old if asked else old - new):
        yield f"{where}: {name} is {'now' if asked else 'no longer'} required"
