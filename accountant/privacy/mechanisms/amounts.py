"""Decimal amounts as they come in and as they are written back: exact, finite, of bounded size."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Annotated, Any, Final, LiteralString

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

MOST_DIGITS: Final = 40  # Significant digits, trailing zeros not counted
LARGEST_EXPONENT: Final = 30  # Amounts but 0 lie from 1e-30 to below 1e31: no power is costly
_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_LONGEST_TEXT: Final = 120
_SPELLING: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")
_CANONICAL: Final = re.compile(r"(?:0|[1-9][0-9]{0,19})(?:\.[0-9]{0,17}[1-9])?")
"""Amounts in canonical form as they stand: few digits, no exponent, no trailing zeros."""
_PLAIN: Final = re.compile(r"(0|[1-9][0-9]{0,19})(?:\.0{1,20}|(\.[0-9]{0,17}[1-9])0{0,20})?")
"""The same, perhaps with trailing zeros."""
_ALLOWED: Final = (
    'a finite decimal such as "0.1" or "1e-6", spelled as a string (a JSON number is read as the '
    f"decimal that it spells), with at most {MOST_DIGITS} significant digits and, unless it is "
    f"zero, a size from 1e-{LARGEST_EXPONENT} to below 1e{LARGEST_EXPONENT + 1}"
)


class Record(BaseModel):
    """An immutable value without unknown fields. The API shows the text under each field.

    A model is made ready when the first value of its kind is read: a request needs one of many.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        found: dict[str, Any] = handler(schema)
        bases = [base for base in reversed(cls.__mro__) if issubclass(base, Record)]
        texts = {name: text for base in bases for name, text in _texts(base).items()}
        for name, field in handler.resolve_ref_schema(found).get("properties", {}).items():
            if (text := field.get("description") or texts.get(name)) is not None:
                field["description"] = " ".join(text.split())
        return found


@cache
def _texts(model: type[Record]) -> dict[str, str]:
    """Return the text under each field of a model, from its source. Pydantic can collect them too
    (use_attribute_docstrings), but parses the sources of all models whenever they are imported.
    """
    [found] = ast.parse(dedent(inspect.getsource(model))).body
    return {
        field.target.id: str(text.value.value)
        for field, text in pairwise(getattr(found, "body", []))
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def exactly_one(code: LiteralString, *fields: LiteralString) -> Any:
    """Return a validator of models that asks for exactly one of ``fields``."""
    text = "give exactly one of " + (" and " if len(fields) == 2 else ", ").join(fields)

    def check(model: Any) -> Any:
        if sum(getattr(model, field) is not None for field in fields) != 1:
            raise PydanticCustomError(code, text)
        return model

    return model_validator(mode="after")(check)


def _read(value: Any) -> Decimal:
    """Return the amount in canonical form. Binary floats are refused: 0.1 is not among them."""
    if type(value) is str and _CANONICAL.fullmatch(value):  # as most are spelled
        return Decimal(value)
    if isinstance(value, str):
        spelled = len(value) <= _LONGEST_TEXT and _SPELLING.fullmatch(value)
        value = Decimal(value) if spelled else None
    elif isinstance(value, int) and not isinstance(value, bool):
        value = Decimal(value) if abs(value) < 10**31 else None
    if isinstance(value, Decimal) and value.is_finite():
        value = _EXACT.normalize(value) if value else Decimal(0)  # zero has no sign here
        digits, exponent = len(value.as_tuple().digits), value.adjusted()
        if digits <= MOST_DIGITS and abs(exponent) <= LARGEST_EXPONENT:
            return Decimal(plain(value))
    raise PydanticCustomError("amount", "must be {allowed}", {"allowed": _ALLOWED})


def plain_amount(value: str) -> str | None:
    """Return the canonical form of a positive amount of few digits without exponent, else None."""
    spelled = _PLAIN.fullmatch(value)
    if spelled is None:
        return None
    whole, fraction = spelled.groups()
    return whole + fraction if fraction else whole if whole != "0" else None


def plain(value: Decimal) -> str:
    """Return the decimal without an exponent, as all our documents spell it."""
    return format(value, "f")


def _range(holds: Callable[[Decimal], bool], text: LiteralString) -> AfterValidator:
    def check(value: Decimal) -> Decimal:
        if holds(value):
            return value
        raise PydanticCustomError("amount_range", text)

    return AfterValidator(check)


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

Positive = Annotated[Amount, _range(lambda x: x > 0, "must be greater than 0")]
NonNegative = Annotated[Amount, _range(lambda x: x >= 0, "must be at least 0")]
Probability = Annotated[Amount, _range(lambda x: 0 <= x <= 1, "must be from 0 to 1, both included")]
ProbabilityBelowOne = Annotated[
    Amount, _range(lambda x: 0 <= x < 1, "must be at least 0 and less than 1")
]
SamplingRate = Annotated[
    Amount, _range(lambda x: 0 < x <= 1, "must be greater than 0 and at most 1")
]
OpenProbability = Annotated[
    Amount, _range(lambda x: 0 < x < 1, "must be greater than 0 and less than 1")
]


def millionths_up(value: Fraction) -> str:
    """Return ``value`` rounded up to a millionth, as a decimal to be stated."""
    return plain(Decimal(math.ceil(value * 10**6)).scaleb(-6))
