"""Plans: lists that are fixed in advance, and charged as one step at what composition proves.

The only kind that is priced by tight composition, which prices mechanisms itself: so nothing that
the composition of lists is made of is in this file.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Literal

from msgspec.structs import replace
from pydantic import Field

from accountant.privacy import balls
from accountant.privacy.curves import least_known
from accountant.privacy.losses import Loss, pure
from accountant.privacy.mechanisms.amounts import OpenProbability, Positive, millionths_up, plain
from accountant.privacy.mechanisms.base import KIND, Objection, Relation, body, examples
from accountant.privacy.mechanisms.compound import Compound, Parts


class Plan(Compound):
    """Several mechanisms that are fixed in advance, at an (epsilon, delta) for all of them.

    The stated (epsilon, delta) is charged as one step, if the tight composition of the list stays
    within it, in whole numbers (``composition/exact.py``; ``accountant compose --plan`` states it),
    and in the other currencies the smaller of that and of the sum of the parts: a plan costs no
    more than its parts, beside its delta. Preconditions: kinds, scales and counts are fixed when it
    begins (Zhu, Dong, Wang 2022, Thm 10: the questions themselves may depend on earlier answers);
    and once begun it is committed as a whole: stopping early and paying for the part that ran would
    not be sound.
    """

    model_config = examples(
        body("plan", mechanisms=[body("laplace", sensitivity="1", scale="100", count=500)])
        | {"epsilon": "0.95", "delta": "1e-6"}
    )
    kind: Literal["plan"] = Field(description=KIND)
    mechanisms: Parts = Field(description="Everything that will run, each with its own count.")
    epsilon: Positive = Field(description="Epsilon of the whole plan, at delta.")
    delta: OpenProbability = Field(description="Delta of the whole plan.")

    def loss(self, stated: Relation) -> Loss:
        """Return the stated loss, if the plan costs no more, beside the sum of the parts; and that
        sum alone where the plan costs more than it states, or the parts no more in any way.
        """
        parts, epsilon, delta = super().loss(stated), Fraction(self.epsilon), Fraction(self.delta)
        less = parts.epsilon is not None and parts.epsilon <= epsilon and parts.delta <= delta
        proved = None if less else _proved(self, stated)
        if proved is None or proved > epsilon:
            return parts
        found = pure(epsilon, balls.most(delta, parts.delta)).beside(parts)
        return replace(found, squares=least_known([found.squares, parts.squares]))

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Object to an epsilon that the plan does not keep, with the one that it needs."""
        found = super().objections(stated)
        needed = _proved(self, stated)
        if found or (needed is not None and needed <= Fraction(self.epsilon)):
            return found
        if needed is None:
            text = "nothing bounds what this plan costs."
        else:
            text = (
                f"this plan costs epsilon {millionths_up(needed)}, more than the "
                f"{plain(self.epsilon)} stated. State at least that, or a larger delta."
            )
        return (*found, Objection("plan-understated", f"At delta {plain(self.delta)} {text}"))


@lru_cache(maxsize=64)
def _proved(plan: Plan, stated: Relation) -> Fraction | None:
    """Return an epsilon that is proved for the whole list. Only a list that is charged as one step
    may be priced by tight composition, which loads scipy, a quarter of a second.
    """
    from accountant.privacy.composition.plan import proved  # noqa: PLC0415

    return proved(plan.mechanisms, stated, Fraction(plan.delta), enough=Fraction(plan.epsilon))
