"""Randomisation on the person's own side, before anything is collected.

These are replace-one quantities: under add-or-remove the very existence of a report shows that its
sender took part, which no amount of noise in the report can hide.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from accountant.privacy.decimals import ln_up
from accountant.privacy.mechanisms.amounts import OpenProbability, ProbabilityBelowOne
from accountant.privacy.mechanisms.base import KIND, BaseMechanism
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.units import Loss


class RandomizedResponse(BaseMechanism):
    """Tells the truth with ``truth_probability``, and otherwise any category, uniformly.

    The uniform pick may hit the truth. epsilon = ln(1 + k t / (1 - t)), so that two coins (t = 1/2,
    k = 2) give ln 3 (Warner 1965; Kairouz, Oh, Viswanath 2016).
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"kind": "randomized_response", "truth_probability": "0.5"}]
        }
    )
    local: ClassVar[bool] = True

    kind: Literal["randomized_response"] = Field(description=KIND)
    truth_probability: ProbabilityBelowOne = Field(
        description="Probability t of giving the true category outright; otherwise one of all the "
        "categories is picked uniformly, the true one included. "
        "epsilon = ln(1 + categories x t / (1 - t)) (Warner 1965)."
    )
    categories: int = Field(
        default=2, strict=True, ge=2, le=10**9, description="Number k of possible answers."
    )

    def loss(self, stated: Relation) -> Loss:
        """ln(1 + k t / (1 - t)) under replace-one, unbounded otherwise."""
        if stated is not Relation.REPLACE_ONE:
            return Loss(None)
        truth = Fraction(self.truth_probability)
        return Loss(ln_up(1 + self.categories * truth / (1 - truth)))


class UnaryEncoding(BaseMechanism):
    """Reports a one-hot vector of bits, each randomised on its own.

    epsilon = ln(p (1 - q) / ((1 - p) q)) (Wang, Blocki, Li, Jha 2017; RAPPOR without memoisation).
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "unary_encoding", "p": "0.5", "q": "0.25"}]}
    )
    local: ClassVar[bool] = True

    kind: Literal["unary_encoding"] = Field(description=KIND)
    p: OpenProbability = Field(
        description="Probability that the one bit that is set is reported as set. "
        "epsilon = ln(p (1 - q) / ((1 - p) q)) (Wang, Blocki, Li, Jha 2017)."
    )
    q: OpenProbability = Field(
        description="Probability that a bit that is not set is reported as set; less than p."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.q >= self.p:
            raise PydanticCustomError("unary_order", "q must be less than p")
        return self

    def loss(self, stated: Relation) -> Loss:
        """ln(p (1 - q) / ((1 - p) q)) under replace-one, unbounded otherwise."""
        if stated is not Relation.REPLACE_ONE:
            return Loss(None)
        p, q = Fraction(self.p), Fraction(self.q)
        return Loss(ln_up(p * (1 - q) / ((1 - p) * q)))
