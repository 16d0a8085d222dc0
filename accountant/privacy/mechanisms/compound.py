"""Mechanisms made of others. Their charge follows from their parts and is never declared.

The parts are fixed when the whole begins. They are stated under the relation of the whole, and
carry no claim of their own.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from accountant.privacy.balls import Real, ball
from accountant.privacy.losses import UNBOUNDED, Loss, composed, pure
from accountant.privacy.mechanisms.amounts import (
    NonNegative,
    Positive,
)
from accountant.privacy.mechanisms.base import (
    KIND,
    BaseMechanism,
    Count,
    Objection,
    Relation,
    SmallCount,
    body,
    examples,
)
from accountant.privacy.mechanisms.selection import Exponential, Releases, SparseVector

_MOST_LEVELS: Final = 8


class PartOfAnyKind:
    """Reads a part as a mechanism of any kind, the compound ones included."""

    kinds: ClassVar[Any]
    """The union of all kinds, which ``__init__.py`` fills in."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(cls.kinds)


def base_of(value: Any) -> Any:
    """Check a part that may also be declared, by its epsilon."""
    declared = value.kind == "declared" and value.epsilon is not None
    return value if declared and value.group_size == 1 else part_of(value)


def part_of(value: Any) -> Any:
    """Check that a part has no claim, relation or group, is no plan and no bare declaration."""
    if value.kind in ("declared", "non_private", "plan"):
        raise PydanticCustomError(
            "part_kind", "{kind} stands for itself: it cannot be a part", {"kind": value.kind}
        )
    for name in ("claimed", "neighbouring", "group_size"):
        if getattr(value, name) not in (None, 1):
            raise PydanticCustomError(
                "part_field", "{name} belongs to the whole, not to a part", {"name": name}
            )
    if _levels(value) > _MOST_LEVELS:
        raise PydanticCustomError("part_levels", "mechanisms are nested too deeply")
    return value


def _levels(mechanism: BaseMechanism) -> int:
    parts = mechanism.parts() if isinstance(mechanism, Compound) else ()
    return 1 + max(map(_levels, parts), default=0)


Part = Annotated[BaseMechanism, PartOfAnyKind, AfterValidator(part_of)]
Base = Annotated[BaseMechanism, PartOfAnyKind, AfterValidator(base_of)]
Parts = Annotated[tuple[Part, ...], Field(min_length=1, max_length=1000)]


class Compound(BaseMechanism):
    """The base of all kinds that are made of others."""

    def parts(self) -> tuple[BaseMechanism, ...]:
        """Return the mechanisms that it is made of: those among its fields."""
        values = (value if isinstance(value, tuple) else (value,) for value in vars(self).values())
        return tuple(part for each in values for part in each if isinstance(part, BaseMechanism))

    @property
    def local(self) -> bool:
        """True if some part is."""
        return any(part.local for part in self.parts())

    def loss(self, stated: Relation) -> Loss:
        """Return the sum of the parts."""
        return composed([cost_of(part, stated) for part in self.parts()])

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Return those of the parts."""
        return tuple(o for part in self.parts() for o in part.all_objections(stated))


def cost_of(part: BaseMechanism, stated: Relation) -> Loss:
    """Return the cost of all invocations of a part, or what it declares."""
    return (part.cost(stated) or part.claim() or UNBOUNDED).times(part.count)


class Composed(Compound):
    """Several mechanisms as one, for instance all questions to one secret sample.

    Basic composition of epsilons, sums in the other currencies. With ``sampling`` the whole is
    amplified once: five questions to one sample cost five times as much inside it.
    """

    model_config = examples(
        body("composed", mechanisms=[body("laplace", sensitivity="1", scale="1", count=5)])
        | {"sampling": {"poisson": "0.01"}}
    )
    kind: Literal["composed"] = Field(description=KIND)
    mechanisms: Parts = Field(description="The parts, in any order; each with its own count.")


class SubsampleAndAggregate(Compound):
    """A function of any kind on disjoint blocks of the data; the results are aggregated privately.

    Nissim, Raskhodnikova, Smith 2007; Dwork and Roth 2014, Sec. 7.3. A privacy unit lies in one
    block (or ``blocks_per_unit``), chosen without looking at the others, and the number of blocks
    is fixed: a change of the unit replaces the results of those blocks only, so the cost is the
    aggregator's, stated for replacing one block's result; twice that under replace-one.
    """

    model_config = examples(
        body("subsample_and_aggregate", aggregator=body("laplace", sensitivity="0.01", scale="0.1"))
    )
    kind: Literal["subsample_and_aggregate"] = Field(description=KIND)
    aggregator: Part
    """The mechanism that aggregates the blocks' results; its sensitivity is for replacing the
    result of one block."""
    blocks_per_unit: SmallCount = Field(default=1, description="Blocks that one unit may lie in.")
    local: ClassVar[bool] = False  # the blocks' results are collected first

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Return those of the aggregator: one block's result is replaced, under either relation."""
        return super().objections(Relation.REPLACE_ONE)

    def loss(self, stated: Relation) -> Loss:
        """Return the aggregator's, for as many blocks; a replacement may lie in other blocks."""
        touched = self.blocks_per_unit * (2 if stated is Relation.REPLACE_ONE else 1)
        return cost_of(self.aggregator, Relation.REPLACE_ONE).group(touched)


class ProposeTestRelease(Compound):
    """Proposes a bound on the local sensitivity, tests privately how far the data are from
    violating it, and releases with noise for that bound only if they are far.

    Dwork and Lei 2009; Dwork and Roth 2014, Sec. 7.2. The distance has sensitivity 1 and gets
    Laplace noise of ``distance_scale`` s; the release happens if it exceeds ``threshold`` T. If
    either of two neighbours respects the bound, the release is as private as its noise; if neither
    does, both distances are 0 and it happens with probability e^(-T/s) / 2 at most: a delta.
    """

    model_config = examples(
        body("propose_test_release", distance_scale="10", threshold="200")
        | {"release": body("laplace", sensitivity="0.5", scale="5")}
    )
    kind: Literal["propose_test_release"] = Field(description=KIND)
    distance_scale: Positive
    """Scale s of the Laplace noise on the distance, in privacy units. epsilon of the test = 1 / s
    (Dwork and Lei 2009)."""
    threshold: NonNegative
    """Noisy distance T above which the release is made, in privacy units. delta = e^(-T/s) / 2."""
    release: Part
    """The mechanism of the release; its sensitivity is the proposed bound."""

    def loss(self, stated: Relation) -> Loss:
        """Return 1 / s and the release's, with a delta of e^(-T/s) / 2."""
        scale = Fraction(self.distance_scale)
        exponent = Fraction(self.threshold) / scale
        delta = Real(lambda: (-ball(exponent)).exp() / 2)
        return composed([pure(1 / scale, delta), cost_of(self.release, stated)])


class MultiplicativeWeights(Compound):
    """Private multiplicative weights, in rounds, or online behind a sparse vector.

    Offline (MWEM; Hardt, Ligett, McSherry 2012): each of ``rounds`` selects the worst question and
    measures it. Online (Hardt and Rothblum 2010; Dwork and Roth 2014, Sec. 4.2): ``updates`` is the
    session that finds the questions on which the synthetic data err and answers them; all other
    questions cost nothing.
    """

    model_config = examples(
        body("multiplicative_weights", rounds=10)
        | {"selection": body("exponential", sensitivity="1", scale="40")}
        | {"measurement": body("laplace", sensitivity="1", scale="20")}
    )
    kind: Literal["multiplicative_weights"] = Field(description=KIND)
    rounds: SmallCount | None = Field(default=None, description="Rounds, offline.")
    selection: Part | None = None
    """How each round picks a question, offline."""
    measurement: Part | None = None
    """How each round answers it, offline."""
    updates: Annotated[SparseVector, AfterValidator(part_of)] | None = None
    """The sparse vector session with numeric answers, online."""

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

    def loss(self, stated: Relation) -> Loss:
        """Return all rounds, or the whole session."""
        return super().loss(stated).times(self.rounds or 1)


class Boosting(Compound):
    """Boosting for queries: each round draws questions by their weight and runs a base synopsis.

    Dwork, Rothblum, Vadhan 2010; Dwork and Roth 2014, Sec. 6. The questions of a round are drawn
    with probabilities that depend on the data through the weights: each draw is an exponential
    mechanism, whose score is the exponent of the weight.
    """

    model_config = examples(
        body("boosting", rounds=20, draws=30)
        | {"draw": body("exponential", sensitivity="0.01", scale="20")}
        | {"base": body("laplace", sensitivity="1", scale="200")}
    )
    kind: Literal["boosting"] = Field(description=KIND)
    rounds: SmallCount = Field(description="Rounds.")
    draws: SmallCount = Field(description="Questions drawn in each round.")
    draw: Annotated[Exponential, AfterValidator(part_of)]
    """One draw: sensitivity of the weight's exponent, scale as for exponential."""
    base: Base = Field(description="The base synopsis generator of a round, or its declared loss.")

    def loss(self, stated: Relation) -> Loss:
        """Return rounds x (draws x draw + base)."""
        drawn = cost_of(self.draw, stated).times(self.draws)
        return composed([drawn, cost_of(self.base, stated)]).times(self.rounds)


class ReusableHoldout(Compound):
    """Thresholdout: a holdout set that is asked many times, and answers with noise of its own only
    where training and holdout disagree, ``budget`` times at most.

    Dwork, Feldman, Hardt, Pitassi, Reingold, Roth 2015: sparse vector with numeric answers whose
    threshold noise is drawn again after each such answer, so ``budget`` sessions of one positive.
    """

    model_config = examples(
        body("reusable_holdout", sensitivity="0.0001", threshold_scale="0.02")
        | {"comparison_scale": "0.04", "answer_scale": "0.01", "budget": 50}
    )
    kind: Literal["reusable_holdout"] = Field(description=KIND)
    sensitivity: Positive
    """The most by which one unit can change a holdout average: 1 / its size for functions from 0 to
    1."""
    threshold_scale: Positive = Field(description="Scale of the Laplace noise on the threshold.")
    comparison_scale: Positive
    """Scale of the Laplace noise on each disagreement that is compared."""
    answer_scale: Positive
    """Scale of the fresh Laplace noise on a holdout average that is given out."""
    budget: Count = Field(description="Disagreements after which no more is answered.")

    def parts(self) -> tuple[BaseMechanism, ...]:
        """Return one session of one positive."""
        names = ("sensitivity", "threshold_scale", "comparison_scale", "answer_scale")
        shared = {name: getattr(self, name) for name in names}
        releases = Releases.FRESH_NOISY_ANSWER
        session = SparseVector(kind="sparse_vector", max_positives=1, releases=releases, **shared)
        return (session,)

    def loss(self, stated: Relation) -> Loss:
        """Return as many sessions as the budget."""
        [session] = self.parts()
        return cost_of(session, stated).times(self.budget)
