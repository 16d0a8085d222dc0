"""The bodies of requests, without what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Mechanism = Mapping[str, Any]
"""A mechanism as the service's OpenAPI document describes it; amounts are decimal strings."""

Group = Mapping[str, Sequence[str] | Mapping[str, str]]
Subjects = Group | Sequence[Group]
"""Whom a charge concerns: ``{"age": ["20-24"]}``, a range with from and to, or a list of these."""


def asking(
    dataset: str,
    subjects: Subjects | None,
    purpose: str | None,
    justification: str | None,
    **more: Any,
) -> dict[str, Any]:
    """The body of a request about a dataset; None means: not sent."""
    body: dict[str, Any] = {
        "dataset": dataset,
        "subjects": subjects,
        "purpose": purpose,
        "justification": justification,
        **more,
    }
    return {name: value for name, value in body.items() if value is not None}
