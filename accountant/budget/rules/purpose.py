"""Accepted purposes: fires when a request's purpose is not on the list."""

from __future__ import annotations

from typing import ClassVar

from accountant.budget.rules.base import Compared, Finding, Scoped, Told, View
from accountant.budget.rules.scope import Purposes, either


class PurposeRule(Scoped):
    """Fires when a request's purpose is not on the list."""

    field: ClassVar[str] = "purposes"
    code: ClassVar[str] = "purpose-denied"
    reads: ClassVar[frozenset[str]] = frozenset({"covers", "purpose"})

    purposes: Purposes

    def compare(self, view: View) -> Compared | None:
        """Compare the stated purpose with those accepted."""
        if not view.covers(self):
            return None
        return self.compared(view.purpose not in self.purposes)

    def words(self, compared: Compared, told: Told) -> Finding:
        """Render the accepted purposes, and the stated one unless it is free text."""
        purpose, accepted = told.command.get("purpose"), ", ".join(self.purposes)
        if not compared.fired:
            return self.finding(compared, f"the purpose is {purpose}, which is accepted")
        stated = "no purpose is stated" if purpose is None else "the purpose stated is not accepted"
        return self.finding(compared, f"{stated}; accepted purposes: {accepted}")

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        return f"On {self.data}, any request for a purpose other than {either(self.purposes)}"
