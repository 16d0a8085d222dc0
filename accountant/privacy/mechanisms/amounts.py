"""Decimal amounts as they come in and as they are written back: exact, finite, of bounded size."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

MOST_DIGITS: Final = 40
"""Significant digits, trailing zeros not counted."""

LARGEST_EXPONENT: Final = 30
"""An amount other than zero lies between 1e-30 and 1e31 (exclusive), so no sum or power of a few
of them is ever costly to compute."""

_LONGEST_TEXT: Final = 120
_LONGEST_INT: Final = 10**31
_SPELLING: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")

_CANONICAL: Final = re.compile(r"(?:0|[1-9][0-9]{0,19})(?:\.[0-9]{0,17}[1-9])?")
"""Amounts that are in canonical form as they stand: few digits, no exponent, no trailing zeros."""


class Record(BaseModel):
    """A value of several fields: immutable, and without fields that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_ALLOWED: Final = (
    'a finite decimal such as "0.1" or "1e-6", spelled as a string (a JSON number is read as the '
    f"decimal that it spells), with at most {MOST_DIGITS} significant digits and, unless it is "
    f"zero, a size from 1e-{LARGEST_EXPONENT} to below 1e{LARGEST_EXPONENT + 1}"
)


def _refuse() -> PydanticCustomError:
    return PydanticCustomError("amount", "must be {allowed}", {"allowed": _ALLOWED})


def _read(value: Any) -> Decimal:
    """The amount in canonical form. Binary floats are refused: 0.1 is not among them."""
    if type(value) is str and _CANONICAL.fullmatch(value):  # as most are spelled
        return Decimal(value)
    if isinstance(value, bool | float) or not isinstance(value, str | int | Decimal):
        raise _refuse()
    if isinstance(value, str):
        if len(value) > _LONGEST_TEXT or not _SPELLING.fullmatch(value):
            raise _refuse()
        try:
            value = Decimal(value)
        except InvalidOperation:
            raise _refuse() from None
    if isinstance(value, int):
        if abs(value) >= _LONGEST_INT:
            raise _refuse()
        value = Decimal(value)
    if not value.is_finite():
        raise _refuse()
    return _canonical(value)


def plain_amount(value: str) -> Decimal | None:
    """The amount that ``value`` spells, if it is positive and plainly in canonical form."""
    return Decimal(value) if value != "0" and _CANONICAL.fullmatch(value) else None


def _canonical(value: Decimal) -> Decimal:
    """Without trailing zeros after the point, without an exponent, without a negative zero.

    Built from the digits, because arithmetic would round to the caller's context.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise _refuse()
    text = "".join(map(str, digits))
    stripped = text.rstrip("0")
    if not stripped.lstrip("0"):
        return Decimal(0)
    if len(stripped.lstrip("0")) > MOST_DIGITS or abs(value.adjusted()) > LARGEST_EXPONENT:
        raise _refuse()
    exponent += len(text) - len(stripped)
    kept = stripped + "0" * max(exponent, 0)
    return Decimal((sign, tuple(map(int, kept)), min(exponent, 0)))


def plain(value: Decimal) -> str:
    """The decimal without an exponent, as every document of ours spells it."""
    return format(value, "f")


def _at_least_zero(value: Decimal) -> Decimal:
    if value < 0:
        raise PydanticCustomError("amount_range", "must be at least 0")
    return value


def _above_zero(value: Decimal) -> Decimal:
    if value <= 0:
        raise PydanticCustomError("amount_range", "must be greater than 0")
    return value


def _at_most_one(value: Decimal) -> Decimal:
    if not 0 <= value <= 1:
        raise PydanticCustomError("amount_range", "must be from 0 to 1, both included")
    return value


def _below_one(value: Decimal) -> Decimal:
    if not 0 <= value < 1:
        raise PydanticCustomError("amount_range", "must be at least 0 and less than 1")
    return value


def _rate(value: Decimal) -> Decimal:
    if not 0 < value <= 1:
        raise PydanticCustomError("amount_range", "must be greater than 0 and at most 1")
    return value


def _inside(value: Decimal) -> Decimal:
    if not 0 < value < 1:
        raise PydanticCustomError("amount_range", "must be greater than 0 and less than 1")
    return value


_SCHEMA: Final = {
    "anyOf": [
        {"type": "string", "pattern": f"^{_SPELLING.pattern}$", "maxLength": _LONGEST_TEXT},
        {"type": "number"},
    ],
    "examples": ["0.1"],
}

Amount = Annotated[
    Decimal,
    BeforeValidator(_read),
    PlainSerializer(plain, return_type=str),
    WithJsonSchema(_SCHEMA),
]
"""An exact decimal. Equal amounts have one spelling: "0.10" and "1e-1" are both written "0.1"."""

Positive = Annotated[Amount, AfterValidator(_above_zero)]
NonNegative = Annotated[Amount, AfterValidator(_at_least_zero)]
Probability = Annotated[Amount, AfterValidator(_at_most_one)]
ProbabilityBelowOne = Annotated[Amount, AfterValidator(_below_one)]
SamplingRate = Annotated[Amount, AfterValidator(_rate)]
OpenProbability = Annotated[Amount, AfterValidator(_inside)]
