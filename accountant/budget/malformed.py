"""Validation errors of a document, field by field, in plain words."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final

from pydantic import ValidationError

from accountant.budget.commands import ITEMS
from accountant.privacy.mechanisms import KINDS

MOST: Final = 20
"""The most errors in one answer."""

_LONGEST_SHOWN: Final = 60
_TAGS: Final = set(KINDS) | {one.command for kinds in ITEMS.values() for one in kinds}

_MESSAGES: Final = {
    "extra_forbidden": "there is no such field",
    "missing": "is missing",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "union_tag_invalid": "there is no {tag}; there are: {expected_tags}",
    "union_tag_not_found": "must say its {discriminator}",
    "string_pattern_mismatch": "does not have the form {pattern}",
}


def reasons(error: ValidationError) -> list[dict[str, str]]:
    """Return ``field`` and ``reason`` of each error of a validation, at most ``MOST``."""
    return [
        {"field": field_name(item["loc"]), "reason": reason(item)}
        for item in error.errors(include_url=False)[:MOST]
    ]


def in_one_line(found: list[dict[str, str]], whole: str) -> str:
    """Return the first reasons as text; ``whole`` names the document, where no field is named."""
    return "; ".join(f"{f['field'] or whole}: {f['reason']}" for f in found[:5])


def reason(item: Any) -> str:
    """Return one of pydantic's errors as text that names the remedy."""
    message = _MESSAGES.get(item["type"])
    if message is None:
        return str(item["msg"]).removeprefix("Value error, ") + _shown(item.get("input"))
    return message.format(**item.get("ctx", {}))


def _shown(value: Any) -> str:
    """Return the value, if it is short: "must be greater than 0 (it is "-1")"."""
    if not isinstance(value, str | int | float | Decimal):
        return ""
    text = json.dumps(value) if isinstance(value, str | bool) else str(value)
    return f" (it is {text})" if len(text) <= _LONGEST_SHOWN else ""


def field_name(location: tuple[int | str, ...]) -> str:
    """Return the field as clients write it, without pydantic's tags of unions."""
    text = ""
    for before, part in zip((None, *location), location, strict=False):
        tag = isinstance(before, int) or before == "mechanism"
        if str(part).startswith(":") or (tag and part in _TAGS):
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
