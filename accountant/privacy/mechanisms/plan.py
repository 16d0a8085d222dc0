"""Declared plans: a list that is fixed as a whole, composed tightly and charged as one step."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

from pydantic import Field

from accountant.privacy.losses import UNBOUNDED, Loss, pure
from accountant.privacy.mechanisms.amounts import OpenProbability, Positive, plain
from accountant.privacy.mechanisms.base import KIND, Objection, examples
from accountant.privacy.mechanisms.compound import Compound, Parts
from accountant.privacy.mechanisms.relations import Relation

_ROOM: Final = 1 + 1e-7
"""The tight total is computed in binary floats, whose last digits differ between machines; it must
be this much below the stated epsilon, so that all machines come to the same decision."""


class Plan(Compound):
    """Several mechanisms that are fixed in advance, at an (epsilon, delta) for all of them.

    The stated (epsilon, delta) is charged as one step, if the tight composition of the list (its
    privacy loss distribution; ``accountant compose`` prints it) stays below it. Preconditions:
    nothing in the list depends on an answer, and once begun it is committed as a whole: stopping
    early and paying for the part that ran would not be sound.
    """

    model_config = examples(
        {
            "kind": "plan",
            "mechanisms": [{"kind": "laplace", "sensitivity": "1", "scale": "100", "count": 500}],
            "epsilon": "0.95",
            "delta": "1e-6",
        }
    )

    kind: Literal["plan"] = Field(description=KIND)
    mechanisms: Parts = Field(description="Everything that will run, each with its own count.")
    epsilon: Positive = Field(description="Epsilon of the whole plan, at delta.")
    delta: OpenProbability = Field(description="Delta of the whole plan.")

    def loss(self, stated: Relation) -> Loss:
        """Return the stated loss, if the plan costs no more."""
        if _tight(self, stated) * _ROOM > self.epsilon:
            return UNBOUNDED
        return pure(Fraction(self.epsilon), Fraction(self.delta))

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Object to an epsilon that the plan does not keep, with the one that it needs."""
        found = super().objections(stated)
        needed = _tight(self, stated) * _ROOM
        if found or needed <= self.epsilon:
            return found
        if math.isinf(needed):
            text = "nothing bounds what this plan costs."
        else:
            text = (
                f"this plan costs epsilon {math.ceil(needed * 10**6) / 10**6:f}, more than the "
                f"{plain(self.epsilon)} stated. State at least that, or a larger delta."
            )
        return (*found, Objection("plan-understated", f"At delta {plain(self.delta)} {text}"))


@lru_cache(maxsize=64)
def _tight(plan: Plan, stated: Relation) -> float:
    """Return the smallest epsilon that is proved for the whole list.

    Tight composition may only inform, except for a list that is charged as one step; no other price
    imports it. It loads scipy, a quarter of a second, when needed.
    """
    from accountant.privacy.composition.plan import tight  # noqa: PLC0415

    return tight(plan.mechanisms, stated, Fraction(plan.delta)).upper
