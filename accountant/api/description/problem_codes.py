"""The codes of problem_codes.yaml: all that a call can answer or a decision can name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml


class Code(NamedTuple):
    """A problem code. ``status`` is None where the code only occurs inside decisions."""

    status: int | None
    meaning: str
    topic: str
    where: str
    """The calls that may meet it, in words."""


_FILE: Final = Path(__file__).with_suffix(".yaml")
_TOPICS: Final[dict[str, Any]] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
PROBLEMS: Final = {
    code: Code(status, meaning, topic, said["where"])
    for topic, said in _TOPICS.items()
    for code, (status, meaning) in said["codes"].items()
}
"""Every code, by topic."""
