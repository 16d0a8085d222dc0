"""A required field: fires when a request leaves out its purpose or its justification."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from accountant.budget.rules.base import Compared, Finding, ScopedByPurpose, Told, View
from accountant.budget.rules.scope import either

if TYPE_CHECKING:
    from accountant.budget.commands import Sealed


class RequireRule(ScopedByPurpose):
    """Fires when a request leaves out one of the named fields."""

    field: ClassVar[str] = "require"
    code: ClassVar[str] = "reason-required"
    reads: ClassVar[frozenset[str]] = frozenset({"covers", "purpose", "justification"})

    require: Annotated[list[Literal["purpose", "justification"]], Field(min_length=1)]

    @model_validator(mode="after")
    def _not_of_itself(self) -> RequireRule:
        if self.purposes and "purpose" in self.require:
            raise ValueError(
                "it is about requests that state one of its purposes, and cannot require a "
                "purpose of them: leave out purposes, or require justification only"
            )
        return self

    def compare(self, view: View) -> Compared | None:
        """Check that no named field is absent or blank."""
        if not view.covers(self):
            return None
        return self.compared(any(blank(getattr(view, name)) for name in self.require))

    def words(self, compared: Compared, told: Told) -> Finding:
        """Render the required fields, and those missing."""
        missing = [name for name in self.require if blank(told.command.get(name))]
        required = f"(required: {', '.join(self.require)})"
        if not missing:
            return self.finding(compared, f"nothing is missing {required}")
        absent = " and no ".join(missing)
        return self.finding(compared, f"the request states no {absent} {required}")

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        return f"On {self.data}, any request without a {either(self.require)}"


def blank(text: str | Sealed | dict[str, str] | None) -> bool:
    """Return True if nothing of ``text`` can be seen. A blank text is never sealed."""
    if text is not None and not isinstance(text, str):
        return False
    if text and text[0].isalnum():
        return False
    return all(unicodedata.category(c)[0] in "ZC" for c in text or "")
