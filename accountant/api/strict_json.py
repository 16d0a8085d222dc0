"""Strict JSON: numbers become Decimal or int, exactly as they are spelled."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, NoReturn

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
            parse_constant=lambda text: _refuse(f"{text} is no number"),
            object_pairs_hook=_object,
        )
        _check(document, 0)
    except UnicodeDecodeError as error:
        _refuse(f"it is not UTF-8 (byte {error.start})")
    except json.JSONDecodeError as error:
        _refuse(f"{error.msg} at line {error.lineno} column {error.colno}")
    except RecursionError:
        _refuse("it is nested too deeply")
    return document


def _number(kind: type[Decimal | int], text: str) -> Decimal | int:
    if len(text) > 100:
        _refuse("a number has more than 100 characters")
    try:
        return kind(text)
    except InvalidOperation:
        _refuse(f"the number {text} is too large or too small")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for name, value in pairs:
        if name in document:
            _refuse(f"the key {name!r} is given twice")
        document[name] = value
    return document


def _check(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        _refuse(f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            _refuse("a string has half of a surrogate pair")
        if "\x00" in value:
            _refuse("a string has a NUL character")
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, dict):
        for part in (*value, *value.values()):
            _check(part, depth + 1)


def _refuse(reason: str) -> NoReturn:
    raise Invalid("malformed-json", f"this is not acceptable JSON: {reason}") from None
