"""Mechanisms that work in rounds, or until a budget of disagreements is used up."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from accountant.privacy.losses import Loss
from accountant.privacy.mechanisms.amounts import Positive
from accountant.privacy.mechanisms.base import KIND, BaseMechanism
from accountant.privacy.mechanisms.compound import Compound, Part, all_of, cost_of, part_of
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.mechanisms.selection import Exponential
from accountant.privacy.mechanisms.sparse_vector import Releases, SparseVector


class MultiplicativeWeights(Compound):
    """Private multiplicative weights: either rounds of selection and measurement, or online, behind
    a sparse vector.

    Offline (MWEM; Hardt, Ligett, McSherry 2012): each of ``rounds`` selects the worst question and
    measures it. Online (Hardt and Rothblum 2010; Dwork and Roth 2014, Sec. 4.2): ``updates`` is the
    session that finds the questions on which the synthetic data err and answers them; all else
    costs nothing.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "multiplicative_weights",
                    "rounds": 10,
                    "selection": {"kind": "exponential", "sensitivity": "1", "scale": "40"},
                    "measurement": {"kind": "laplace", "sensitivity": "1", "scale": "20"},
                }
            ]
        }
    )

    kind: Literal["multiplicative_weights"] = Field(description=KIND)
    rounds: int | None = Field(
        default=None, strict=True, ge=1, le=10**6, description="Rounds, offline."
    )
    selection: Part | None = Field(
        default=None, description="How each round picks a question, offline."
    )
    measurement: Part | None = Field(
        default=None, description="How each round answers it, offline."
    )
    updates: Annotated[SparseVector, AfterValidator(part_of)] | None = Field(
        default=None, description="The sparse vector session with numeric answers, online."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        offline = [self.rounds, self.selection, self.measurement]
        given = sum(value is not None for value in offline)
        if given not in (0, 3) or (given == 3) == (self.updates is not None):
            raise PydanticCustomError(
                "weights_kind", "give either rounds, selection and measurement, or updates"
            )
        if self.updates is not None and self.updates.releases is Releases.ABOVE_BELOW:
            raise PydanticCustomError(
                "weights_answers", "updates must release fresh_noisy_answer: each update uses one"
            )
        return self

    def parts(self) -> tuple[BaseMechanism, ...]:
        """Selection and measurement, or the session."""
        found = (self.selection, self.measurement, self.updates)
        return tuple(part for part in found if part is not None)

    def loss(self, stated: Relation) -> Loss:
        """All rounds, or the whole session."""
        return all_of(self.parts(), stated).times(self.rounds or 1)


class Boosting(Compound):
    """Boosting for queries: each round draws questions by their weight and runs a base synopsis.

    Dwork, Rothblum, Vadhan 2010; Dwork and Roth 2014, Sec. 6. The questions of a round are drawn
    with probabilities that depend on the data through the weights: each draw is an exponential
    mechanism, whose score is the exponent of the weight.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "boosting",
                    "rounds": 20,
                    "draws": 30,
                    "draw": {"kind": "exponential", "sensitivity": "0.01", "scale": "20"},
                    "base": {"kind": "laplace", "sensitivity": "1", "scale": "200"},
                }
            ]
        }
    )

    kind: Literal["boosting"] = Field(description=KIND)
    rounds: int = Field(strict=True, ge=1, le=10**6, description="Rounds.")
    draws: int = Field(strict=True, ge=1, le=10**6, description="Questions drawn in each round.")
    draw: Annotated[Exponential, AfterValidator(part_of)] = Field(
        description="One draw: sensitivity of the weight's exponent, scale as for exponential."
    )
    base: Part = Field(description="The base synopsis generator of a round.")

    def parts(self) -> tuple[BaseMechanism, ...]:
        """Draw and base."""
        return (self.draw, self.base)

    def loss(self, stated: Relation) -> Loss:
        """Rounds x (draws x draw + base)."""
        drawn = cost_of(self.draw, stated).times(self.draws)
        return (drawn + cost_of(self.base, stated)).times(self.rounds)


class ReusableHoldout(Compound):
    """Thresholdout: a holdout set that is asked many times, and answers with noise of its own only
    where training and holdout disagree, ``budget`` times at most.

    Dwork, Feldman, Hardt, Pitassi, Reingold, Roth 2015: sparse vector with numeric answers whose
    threshold noise is drawn again after each such answer, so ``budget`` sessions of one positive.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "reusable_holdout",
                    "sensitivity": "0.0001",
                    "threshold_scale": "0.02",
                    "comparison_scale": "0.04",
                    "answer_scale": "0.01",
                    "budget": 50,
                }
            ]
        }
    )

    kind: Literal["reusable_holdout"] = Field(description=KIND)
    sensitivity: Positive = Field(
        description="The most by which one unit can change a holdout average: 1 / its size for "
        "functions from 0 to 1."
    )
    threshold_scale: Positive = Field(description="Scale of the Laplace noise on the threshold.")
    comparison_scale: Positive = Field(
        description="Scale of the Laplace noise on each disagreement that is compared."
    )
    answer_scale: Positive = Field(
        description="Scale of the fresh Laplace noise on a holdout average that is given out."
    )
    budget: int = Field(
        strict=True, ge=1, le=10**9, description="Disagreements after which no more is answered."
    )

    def parts(self) -> tuple[BaseMechanism, ...]:
        """One session of one positive."""
        session = SparseVector(
            kind="sparse_vector",
            sensitivity=self.sensitivity,
            threshold_scale=self.threshold_scale,
            comparison_scale=self.comparison_scale,
            answer_scale=self.answer_scale,
            max_positives=1,
            releases=Releases.FRESH_NOISY_ANSWER,
        )
        return (session,)

    def loss(self, stated: Relation) -> Loss:
        """As many sessions as the budget."""
        return cost_of(self.parts()[0], stated).times(self.budget)
