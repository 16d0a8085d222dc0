"""Refusals of documents name the field, what it may be, and what was given."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from support import make

from accountant.budget.errors import Invalid
from accountant.budget.malformed import reasons
from accountant.budget.policy_file import parse_policy

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
