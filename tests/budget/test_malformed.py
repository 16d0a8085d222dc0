"""Refusals of documents name the field, what it may be, and what was given."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError
from support import make

from accountant.budget.commands import COMMANDS
from accountant.budget.errors import Invalid
from accountant.budget.malformed import _FORMS, reasons
from accountant.budget.policy_file import parse_policy
from accountant.budget.rules import KINDS

LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "1"}
EVENT = {"class": "GaussianDpEvent", "fields": {"noise_multiplier": "-3"}}


@pytest.mark.parametrize(
    ("mechanism", "field", "told"),
    [
        (LAPLACE | {"scale": "-2.5"}, "mechanisms[0].scale", 'greater than 0 (it is "-2.5")'),
        (LAPLACE | {"count": 0}, "mechanisms[0].count", "greater than or equal to 1 (it is 0)"),
        (
            LAPLACE | {"sampling": {"poisson": "1.5"}},
            "mechanisms[0].sampling.poisson",
            'greater than 0 and at most 1 (it is "1.5")',
        ),
        (LAPLACE | {"scale": "x" * 100}, "mechanisms[0].scale", "a finite decimal"),
        (
            EVENT,
            "mechanisms",
            "noise_multiplier of GaussianDpEvent: must be greater than 0, not -3",
        ),
    ],
    ids=["scale", "count", "rate", "long", "event"],
)
def test_a_parameter_out_of_range_is_told_with_its_value(
    mechanism: dict[str, Any], field: str, told: str
) -> None:
    """The reader sees which parameter, which range and which value; a long value is left out."""
    with pytest.raises(ValidationError) as refusal:
        make("ask_grant", dataset="d", mechanisms=[mechanism])
    found = {reason["field"]: reason["reason"] for reason in reasons(refusal.value)}
    assert told in found[field]
    assert "xxxx" not in found[field]


def test_a_policy_is_told_likewise() -> None:
    """The line, the field, the range and the value."""
    with pytest.raises(Invalid, match=r"line 3: rules.0.limit.epsilon: .*1E-9.*|line 3.*it is"):
        parse_policy("policy: p\nrules:\n  - {id: a, limit: {epsilon: 0}}\n")


def patterns(schema: Any) -> set[str]:
    """The forms of texts that a JSON schema asks for, but those of amounts, which say so better."""
    if isinstance(schema, list):
        return set().union(*map(patterns, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["pattern"]} if "pattern" in schema and "maxLength" not in schema else set()
    return own.union(*map(patterns, schema.values()))


def test_every_form_of_a_text_is_told_in_words() -> None:
    """No message shows a regular expression: each form in commands and policies has its words."""
    models = [*COMMANDS.values(), *KINDS.values()]
    asked = set().union(*(patterns(model.model_json_schema()) for model in models))
    assert {r"^\d{1,2}(\.\d+)?%$"} < asked
    assert asked <= set(_FORMS)


def test_a_share_is_told_as_a_percentage() -> None:
    """What stands where a percentage belongs is shown beside what may stand there."""
    text = "policy: p\nrules:\n  - {id: a, limit: {epsilon: 1}}\n  - {id: b, of: a, at: 0.8}\n"
    for share in ("0.8", "'half'", "100%"):
        with pytest.raises(
            Invalid, match=r'rules\.1\.at: .*(percentage below 100, such as "80%"|text)'
        ):
            parse_policy(text.replace("0.8", share))


class Inner(BaseModel):
    """A part of a document."""

    at: datetime


class Outer(BaseModel):
    """A document with a value of each kind."""

    part: Inner
    table: dict[str, int]
    listed: list[int]
    word: str
    whole: int
    share: Decimal
    truth: bool
    few: list[int] = Field(max_length=1)
    small: int = Field(le=3)


@pytest.mark.parametrize("wrong", [7.5, "x", [1.5, 2], None, {"at": "yesterday"}])
def test_a_value_of_another_kind_is_told_without_words_of_python(wrong: Any) -> None:
    """What belongs there is told as readers of JSON know it."""
    document = dict.fromkeys(Outer.model_fields, wrong) | {"small": 4, "few": [1, 2]}
    with pytest.raises(ValidationError) as refusal:
        Outer.model_validate(document)
    told = reasons(refusal.value)
    assert told
    for each in told:
        assert each["reason"].startswith("must "), each
        assert not re.search("Input|instance|dictionary|integer|datetime|string", each["reason"])
