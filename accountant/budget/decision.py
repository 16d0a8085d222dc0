"""Decisions as values: what each rule said, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

Action = Literal["flag", "block"]
Outcome = Literal["allow", "flag", "block"]
_STRICTNESS: Final[dict[Outcome, int]] = {"allow": 0, "flag": 1, "block": 2}
MAX_DETAIL: Final = 24_000
"""Bytes of a decision; an event has 65,535 in all."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's word. ``code`` says what it would refuse the request for."""

    rule: str
    action: Action
    fired: bool
    code: str
    text: str
    numbers: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As it stands in a decision."""
        return {
            "rule": self.rule,
            "action": self.action,
            "fired": self.fired,
            "code": self.code,
            "text": self.text,
        } | self.numbers


@dataclass(frozen=True, slots=True)
class Decision:
    """All findings; the outcome is the strictest action that fired."""

    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Outcome:
        """allow, flag or block."""
        fired: list[Outcome] = [f.action for f in self.findings if f.fired]
        return max(fired, key=_STRICTNESS.__getitem__, default="allow")

    def to_json(self) -> dict[str, Any]:
        """As an event holds it: fired rules first, among them the strictest first, and what is
        wrong with the request itself before what is used up.

        What would not fit into an event is named without its numbers, the least important first.
        """
        ordered = sorted(
            self.findings,
            key=lambda f: (not f.fired, -_STRICTNESS[f.action], f.code == "budget-exceeded"),
        )
        rules, size = [], 0
        for finding in ordered:
            whole = finding.to_json()
            size += len(orjson.dumps(whole))
            short = {k: whole[k] for k in ("rule", "action", "fired", "code")}
            rules.append(whole if size <= MAX_DETAIL else short | {"text": "details left out"})
        return {"outcome": self.outcome, "rules": rules}
