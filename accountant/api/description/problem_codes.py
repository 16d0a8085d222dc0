"""The codes of problem_codes.yaml: all that a call can answer or a decision can name."""

from __future__ import annotations

from typing import Final, NamedTuple

from accountant.api.description import data


class Code(NamedTuple):
    """A problem code. ``status`` is None where the code only occurs inside decisions."""

    status: int | None
    meaning: str
    topic: str
    where: str
    """The calls that may meet it, in words."""


PROBLEMS: Final = {
    code: Code(status, meaning, topic, said["where"])
    for topic, said in data("problem_codes").items()
    for code, (status, meaning) in said["codes"].items()
}
"""Every code, by topic."""
