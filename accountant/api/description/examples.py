"""The story that the documentation tells: a request and an answer of every call, from story.yaml.

The tests send the requests to a running service and compare its answers with those of the story.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from accountant.api.description import data
from accountant.budget.commands import Role

CLIENTS: Final[Mapping[Role, str]] = {
    "admin": "steward",
    "pipeline": "visits",
    "officer": "privacy-office",
    "auditor": "audit",
}
"""The name of each role's API key, which is the client's name in events."""


@dataclass(frozen=True, slots=True)
class Example:
    """One request and its answer. ``call`` is the operation's id, ``by`` the role of the API key,
    None for no key. ``answer`` is JSON or text, None where only the media type is documented.
    """

    call: str
    title: str
    request: str
    status: int
    by: Role | None = None
    answer: Any = None
    body: dict[str, Any] | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


STORY: Final = tuple(Example(**example) for example in data("story"))
"""In order: each example builds on those before it."""
