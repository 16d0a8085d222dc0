"""The bodies of requests, without what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Mechanism = Mapping[str, Any]
"""A mechanism as the service's OpenAPI document describes it; amounts are decimal strings."""

Group = Mapping[str, Sequence[str] | Mapping[str, str]]
Subjects = Group | Sequence[Group]
"""Whom a charge concerns: ``{"age": ["20-24"]}``, a range with from and to, or a list of these."""


def grant_item(
    dataset: str,
    mechanisms: Sequence[Mechanism],
    *,
    subjects: Subjects | None = None,
    purpose: str | None = None,
    justification: str | None = None,
    ttl_seconds: int | None = None,
) -> dict[str, Any]:
    """A grant as an item of a batch."""
    more = {"mechanisms": mechanisms, "ttl_seconds": ttl_seconds}
    body = asking(dataset, subjects, purpose, justification, **more)
    return {"type": "ask_grant"} | body


def commit_item(grant: str, mechanisms: Sequence[Mechanism] | None = None) -> dict[str, Any]:
    """The commit of a grant as an item of a batch: of all, or of the listed part."""
    part = {} if mechanisms is None else {"mechanisms": mechanisms}
    return {"type": "commit_grant", "grant": grant} | part


def release_item(grant: str, reason: str) -> dict[str, Any]:
    """The release of a grant as an item of a batch."""
    return {"type": "release_grant", "grant": grant, "reason": reason}


def record_item(
    dataset: str,
    mechanisms: Sequence[Mechanism],
    *,
    subjects: Subjects | None = None,
    purpose: str | None = None,
    justification: str | None = None,
    ran_at: str | None = None,
) -> dict[str, Any]:
    """What has already run, as an item of a batch."""
    more = {"mechanisms": mechanisms, "ran_at": ran_at}
    body = asking(dataset, subjects, purpose, justification, **more)
    return {"type": "record_invocations"} | body


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
