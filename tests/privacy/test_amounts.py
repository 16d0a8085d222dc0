"""What an amount may look like, and how it is written back."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from accountant.privacy.mechanisms import Amount
from accountant.privacy.mechanisms.amounts import (
    NonNegative,
    OpenProbability,
    Positive,
    Probability,
    ProbabilityBelowOne,
)

AMOUNT: TypeAdapter[Decimal] = TypeAdapter(Amount)


def written(value: Any) -> str:
    """The text that an accepted amount is written back as."""
    return str(json.loads(AMOUNT.dump_json(AMOUNT.validate_python(value))))


@pytest.mark.parametrize(
    ("spelled", "plain"),
    [
        ("0.1", "0.1"),
        ("0.10", "0.1"),
        ("1e-6", "0.000001"),
        ("10", "10"),
        ("1.50E+2", "150"),
        ("+7", "7"),
        ("007", "7"),
        ("-0.0", "0"),
        ("0e-999", "0"),
        ("-2.5", "-2.5"),
        ("1e30", "1" + "0" * 30),
        (10, "10"),
        (10**30, "1" + "0" * 30),
        (Decimal("1e2"), "100"),
        (Decimal("0.1000"), "0.1"),
    ],
)
def test_one_plain_spelling(spelled: Any, plain: str) -> None:
    """Every accepted spelling is written back as the plain decimal, which reads back the same."""
    assert written(spelled) == plain
    assert written(plain) == plain


@given(st.integers(1, 10**40 - 1), st.integers(-30, 30))
def test_digits_survive_exactly(digits: int, adjusted: int) -> None:
    """Up to 40 digits are kept exactly, whatever precision the caller's context has."""
    text = f"{digits}e{adjusted - len(str(digits)) + 1}"
    with localcontext() as context:
        context.prec = 5
        assert AMOUNT.validate_python(written(text)) == Decimal(text)


REFUSED = [
    True,
    0.1,
    float("nan"),
    float("inf"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    Decimal("-Infinity"),
    "nan",
    "Infinity",
    "",
    " 1",
    "1 ",
    "1\n",
    "1_000",
    "1,5",
    "0x10",
    "\u0661",
    ".5",
    "5.",
    "1e",
    "--1",
    "1e31",
    "1e-31",
    "1e99999999999999999999",
    "1." + "1" * 40,
    "9" * 1000,
    10**31,
    10**100_000,
    Decimal("1e400"),
    None,
    [],
    {},
    b"1",
]


@pytest.mark.parametrize(
    "value", REFUSED, ids=lambda v: repr(v)[:20] if not isinstance(v, int) else "int"
)
def test_anything_else_is_refused(value: Any) -> None:
    """Floats, booleans, non-finite, over-long and oddly spelled numbers are refused by rule."""
    with pytest.raises(ValidationError) as refusal:
        AMOUNT.validate_python(value)
    assert 'must be a finite decimal such as "0.1"' in refusal.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Positive, ["1e-30", "5"], ["0", "-1", "-1e-30"]),
        (NonNegative, ["0", "5"], ["-1", "-1e-30"]),
        (Probability, ["0", "0.5", "1"], ["-0.1", "1.1"]),
        (ProbabilityBelowOne, ["0", "0.999"], ["-0.1", "1", "2"]),
        (OpenProbability, ["1e-30", "0.999"], ["0", "1", "-0.5"]),
    ],
)
def test_ranges(kind: Any, good: list[str], bad: list[str]) -> None:
    """Each narrower amount accepts its range and refuses what lies outside."""
    adapter: TypeAdapter[Decimal] = TypeAdapter(kind)
    for text in good:
        assert adapter.validate_python(text) == Decimal(text)
    for text in bad:
        with pytest.raises(ValidationError, match="must be"):
            adapter.validate_python(text)
