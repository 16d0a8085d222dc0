"""Validation errors of a document, field by field, in plain words."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from pydantic import ValidationError

from accountant.budget.commands import IDENTIFIER, ITEMS
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
}
_OBJECT: Final = "must be an object"
_LIST: Final = "must be a list"
_NUMBER: Final = "must be a number"
_WHOLE: Final = "must be a whole number"
_TRUTH: Final = "must be true or false"
_TIME: Final = "must be a time such as 2026-11-24T10:00:00Z"
_KINDS: Final = {
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dict_type": _OBJECT,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "string_type": "must be a text",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "decimal_type": _NUMBER,
    "decimal_parsing": _NUMBER,
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "datetime_type": _TIME,
    "datetime_parsing": _TIME,
    "datetime_from_date_parsing": _TIME,
    "timezone_aware": f"{_TIME}, with its zone",
}
"""Of values that are of another kind: pydantic's words name classes of Python."""
_NAME: Final = "must be a name of small letters, digits, dots, dashes and underscores, at most 64"
_FORMS: Final = {
    r"^\d{1,2}(\.\d+)?%$": 'must be a percentage below 100, such as "80%"',
    f"^{IDENTIFIER}$": f"{_NAME}, which begins with a letter or digit",
    f"^{IDENTIFIER}/{IDENTIFIER}$": "must be a population and a dataset of it: people/visits",
    r"^[0-9a-f]{64}$": "must be a SHA-256 digest: 64 hexadecimal digits",
    r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$": (
        "must be a time in UTC such as 2026-11-24T10:00:00Z"
    ),
    r"^\d{4}-\d\d-\d\d$": "must be a day such as 2027-03-31",
    r"^[A-Za-z0-9.:-]{1,253}$": "must be the name or the address of a host",
    r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}$": (
        "must be an address such as officers@example.org"
    ),
    r"^https?://[^\s]+$": "must be an address that begins with http:// or https://",
    r"^[^\x00-\x1f\x7f]+$": "must not be empty, nor have line ends or control characters",
    r"^([2-9]|[1-9][0-9]{1,5})$": "must be a whole order from 2 to 999999",
    r"^g\d{1,18}$": "must be the id of a grant, such as g42",
    r"^[dg]\d{1,18}$": "must be the id of a decision or a grant, such as d42 or g42",
    r"^\d{1,15}$": "must be a whole number of at most 15 digits",
    r"^([a-z0-9][a-z0-9_.-]{0,63}/)?g\d{1,18}$": (
        "must be the id of a grant, such as g42, or people/g42 with its population"
    ),
    r"^[0-9A-Za-z-]{1,64}$": "must be a UUID, or another id of letters, digits and dashes",
    "^(START|RUNNING|COMPLETE|ABORT|FAIL|OTHER)$": (
        "must be START, RUNNING, COMPLETE, ABORT, FAIL or OTHER"
    ),
    r"^((items\.[0-9]{1,3}\.)?(justification|purpose|reason)|confirms\.reason)$": (
        "must be purpose, justification or reason; in a batch with its item: items.3.purpose"
    ),
}
"""What the forms of texts mean; a test finds those that are missing here."""


def reasons(error: ValidationError) -> list[dict[str, str]]:
    """Return ``field`` and ``reason`` of each error of a validation, at most ``MOST``."""
    return told(error.errors(include_url=False))


def told(errors: Sequence[Any], place: int = 0) -> list[dict[str, str]]:
    """Do as ``reasons``, of pydantic's errors; a field's name begins at a ``place`` of its path."""
    return [
        {"field": field_name(item["loc"][place:]), "reason": reason(item)} for item in errors[:MOST]
    ]


def in_one_line(found: list[dict[str, str]], whole: str) -> str:
    """Return the first reasons as text; ``whole`` names the document, where no field is named."""
    return "; ".join(f"{f['field'] or whole}: {f['reason']}" for f in found[:5])


def reason(item: Any) -> str:
    """Return one of pydantic's errors as text that names the remedy."""
    if item["type"] == "string_pattern_mismatch":
        pattern = item["ctx"]["pattern"]
        form = _FORMS.get(pattern, f"does not have the form {pattern}")
        return form + _shown(item.get("input"))
    if message := _MESSAGES.get(item["type"]):
        return message.format(**item.get("ctx", {}))
    said = str(item["msg"]).removeprefix("Value error, ")
    plain = re.sub(r"^(Input|List|String|Dictionary|Tuple) should ", "must ", said)
    return _KINDS.get(item["type"], plain) + _shown(item.get("input"))


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
