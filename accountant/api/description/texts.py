"""The texts of the description, which are data in YAML beside the code: problem codes, examples.

The examples are one story, in order: a request and an answer of every call, each building on those
before it. The tests send the requests to a running service and compare its answers with the story.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from accountant import __version__
from accountant.budget.commands import Role


def _data(name: str) -> Any:
    """Return the contents of the data file ``name``; $VERSION stands for the program's version."""
    text = Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text.replace("$VERSION", __version__))


TEXTS: Final = _data("texts")  # Parts of the OpenAPI document that no model and no handler holds


class Code(NamedTuple):
    """A problem code. ``status`` is None where the code only occurs inside decisions."""

    status: int | None
    meaning: str
    topic: str
    where: str  # The calls that may meet it, in words


PROBLEMS: Final = {
    code: Code(status, meaning, topic, said["where"])
    for topic, said in _data("problem_codes").items()
    for code, (status, meaning) in said["codes"].items()
}


@dataclass(frozen=True, slots=True)
class Example:
    """One request and its answer."""

    call: str  # The operation's id
    title: str
    request: str
    status: int
    by: Role | None = None  # The role of the API key; None for no key
    answer: Any = None  # JSON or text; None where only the media type is documented
    body: dict[str, Any] | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


STORY: Final = tuple(Example(**example) for example in _data("story"))
