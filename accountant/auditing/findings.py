"""The findings of an audit: every place where the evidence is wrong, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

MOST: Final = 100_000  # Findings that are kept; the rest are only counted
LONGEST: Final = 1_000  # Characters of a reason that are kept: what it quotes may be of any length


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Something that is wrong: at an event, at a member of the bundle, or at both."""

    reason: str
    sequence: int | None = None
    member: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as ``verify --json`` prints it."""
        place: dict[str, Any] = {} if self.sequence is None else {"sequence": self.sequence}
        return place | ({"member": self.member} if self.member else {}) | {"reason": self.reason}

    def __str__(self) -> str:
        where = self.member if self.sequence is None else f"event {self.sequence}"
        return f"{where}: {self.reason}" if where else self.reason


@dataclass(slots=True)
class Findings:
    """All findings of one audit, in the order in which they were met."""

    kept: list[AuditFinding] = field(default_factory=list)
    count: int = 0

    def add(self, reason: str, *, sequence: int | None = None, member: str = "") -> None:
        """Add a finding."""
        self.count += 1
        if len(self.kept) < MOST:
            self.kept.append(AuditFinding(reason[:LONGEST], sequence, member))
