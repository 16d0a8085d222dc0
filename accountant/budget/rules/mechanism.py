"""A denied mechanism: fires when a request uses one of the kinds."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from accountant.budget.rules.base import Compared, Finding, ScopedByPurpose, Told, View
from accountant.budget.rules.scope import either
from accountant.privacy.mechanisms import KINDS


class MechanismRule(ScopedByPurpose):
    """Fires when a request uses one of the mechanism kinds, by itself or inside another mechanism:
    a denied kind stays denied in a ``composed``, a ``plan`` or any other compound.
    """

    field: ClassVar[str] = "mechanisms"
    code: ClassVar[str] = "mechanism-denied"
    reads: ClassVar[frozenset[str]] = frozenset({"covers", "kinds"})

    mechanisms: Annotated[list[str], Field(min_length=1)]

    @field_validator("mechanisms")
    @classmethod
    def _known(cls, kinds: list[str]) -> list[str]:
        known = ", ".join(KINDS)
        for kind in kinds:
            if kind not in KINDS:
                raise ValueError(f"no mechanism kind is called {kind!r}; there are: {known}")
        return kinds

    def compare(self, view: View) -> Compared | None:
        """Compare the kinds asked for with those denied."""
        if not view.covers(self):
            return None
        return self.compared(not view.kinds.isdisjoint(self.mechanisms))

    def words(self, compared: Compared, told: Told) -> Finding:
        """Render the kinds denied, and those asked for with what they are inside of."""
        asked = [" inside ".join(place) for place in told.places if place[0] in self.mechanisms]
        denied = ", ".join(self.mechanisms)
        if not asked:
            return self.finding(compared, f"no denied kind requested (denied: {denied})")
        return self.finding(compared, f"denied kinds: {denied}; requested: {', '.join(asked)}")

    def sentence(self, unit: str) -> str:
        """Describe the rule for a report."""
        return f"On {self.data}, any request that uses the kind {either(self.mechanisms)}"
