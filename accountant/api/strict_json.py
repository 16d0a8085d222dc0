"""Strict JSON: numbers become Decimal or int, exactly as they are spelled."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

from accountant.budget.errors import Invalid

MAX_DEPTH: Final = 32


def parse(data: bytes) -> Any:
    """Read one JSON document. Raise Invalid ("malformed-json") for duplicate keys, NaN,
    infinities, lone surrogates, absurd numbers or nesting, and anything that is not JSON.
    """
    try:
        document = json.loads(
            data.decode("utf-8"),
            parse_float=partial(_number, Decimal),
            parse_int=partial(_number, int),
            parse_constant=_constant,
            object_pairs_hook=_object,
        )
        _check(document, 0)
    except UnicodeDecodeError as error:
        raise _malformed(f"it is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise _malformed(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise _malformed("it is nested too deeply") from None
    return document


def _number(kind: type[Decimal | int], text: str) -> Decimal | int:
    if len(text) > 100:
        raise _malformed("a number has more than 100 characters")
    try:
        return kind(text)
    except InvalidOperation:
        raise _malformed(f"the number {text} is too large or too small") from None


def _constant(text: str) -> Any:
    raise _malformed(f"{text} is no number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for name, value in pairs:
        if name in document:
            raise _malformed(f"the key {name!r} is given twice")
        document[name] = value
    return document


def _check(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _malformed(f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        _text(value)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _text(key)
            _check(item, depth + 1)


def _text(value: str) -> None:
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise _malformed("a string has half of a surrogate pair")
    if "\x00" in value:
        raise _malformed("a string has a NUL character")


def _malformed(reason: str) -> Invalid:
    return Invalid("malformed-json", f"this is not acceptable JSON: {reason}")
