"""The base of all mechanisms: their common fields, and the methods that pricing calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, LiteralString, NamedTuple

from pydantic import ConfigDict, Discriminator, Field, StringConstraints, Tag, field_validator
from pydantic_core import PydanticCustomError

from accountant.privacy import balls
from accountant.privacy.balls import Number
from accountant.privacy.engine import former_under, in_force
from accountant.privacy.losses import UNBOUNDED, Loss, pure
from accountant.privacy.mechanisms.amounts import NonNegative, Positive, Probability, Record
from accountant.privacy.mechanisms.relations import Relation, Sampling
from accountant.privacy.units import Currency, show, units_up

MOST_INVOCATIONS: Final = 10**9
LARGEST_GROUP: Final = 10**6

Count = Annotated[int, Field(strict=True, ge=1, le=MOST_INVOCATIONS)]
SmallCount = Annotated[int, Field(strict=True, ge=1, le=LARGEST_GROUP)]

KIND: Final = "What was done; decides which other fields there are."

ShortText = Annotated[
    str, StringConstraints(strict=True, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")
]


class Objection(NamedTuple):
    """A reason to refuse a request: ``code`` is for programs, ``text`` for people."""

    code: str
    text: str


def body(kind: str, **fields: Any) -> dict[str, Any]:
    """Return a mechanism as a request writes it."""
    return {"kind": kind, **fields}


def examples(*bodies: dict[str, Any]) -> ConfigDict:
    """Return the configuration of a model with these examples in its schema."""
    return ConfigDict(json_schema_extra={"examples": list(bodies)})


def forbidden(field: LiteralString, why: LiteralString) -> Any:
    """Return a validator that refuses any value of ``field``."""
    code = f"{field.removesuffix('ed')}_misplaced"

    def check(value: Any) -> Any:
        if value is not None:
            raise PydanticCustomError(code, f"is not allowed here: {why}")
        return value

    return field_validator(field)(check)


class Norms(Record):
    """The most by which one privacy unit can change the answer, by norm."""

    l1: Positive | None = Field(default=None, description="Sum of the absolute changes.")
    l2: Positive | None = Field(default=None, description="Euclidean length of the change.")


def _shape(value: Any) -> str:
    return ":norms" if isinstance(value, dict | Norms) else ":amount"


Sensitivity = Annotated[
    Annotated[Positive, Tag(":amount")] | Annotated[Norms, Tag(":norms")], Discriminator(_shape)
]


class Claim(Record):
    """The client's own figure for one invocation, under the mechanism's own relation."""

    epsilon: NonNegative = Field(description="Natural-log epsilon of one invocation.")
    delta: Probability = Field(default=Decimal(0), description="Delta of one invocation.")


class Sampler(Record):
    """The software that drew the noise: information from which nothing is derived."""

    library: ShortText = Field(description="Name of the library.")
    version: ShortText = Field(description="Its version.")


class BaseMechanism(Record, ABC):
    """One randomised answer, or ``count`` independent ones with the same parameters."""

    plain: ClassVar[tuple[str, ...]] = ()
    """The required fields, if a positive amount in each makes a valid mechanism."""

    kind: str = Field(description=KIND)
    count: Count = 1
    """Invocations, each with fresh noise and each charged."""
    neighbouring: Relation | None = None
    """The relation under which sensitivity and claim are stated. Absent: the population's."""
    group_size: SmallCount = 1
    """How many of the records that `neighbouring` adds, removes or replaces one of belong to one
    privacy unit at most: 1 if sensitivity is stated for the whole unit."""
    sampling: Sampling | None = None
    """The mechanism runs on a fresh, secret random sample of the privacy units, drawn anew for each
    invocation. Several answers on one sample are one `composed`."""
    claimed: Claim | None = None
    """What the client believes one invocation to cost. The larger of this and the derivation is
    booked; a claim below the derivation is refused."""
    sampler: Sampler | None = None
    """The software that drew the noise. Information only."""

    @property
    def local(self) -> bool:
        """True if it randomises on the person's side: only a replace-one quantity exists."""
        return False

    @abstractmethod
    def loss(self, stated: Relation) -> Loss | None:
        """Return the cost of one invocation, on the whole data and for one record, under the
        relation ``stated``: never below the truth; None if nothing can be derived.
        """

    def cost(self, stated: Relation, beside: Loss | None = None) -> Loss | None:
        """Return the cost of one invocation to one privacy unit, sampling and group size included,
        at the point of its privacy curve that compares with the claim ``beside``, if given.
        """
        corrected = former_under(self.kind, in_force())
        if corrected is not None:
            loss = corrected(self, stated)
        elif beside is not None and beside.delta and self.group_size == 1:
            rate = self.sampling.rate if self.sampling else Fraction(1)
            loss = self.loss_at(balls.least(Fraction(1), beside.delta / rate), stated)
        else:
            loss = self.loss(stated)
        if loss is not None and self.sampling is not None:
            loss = UNBOUNDED if self.local else self.sampling.applied(loss, stated)
        return None if loss is None else loss.group(self.group_size)

    def loss_at(self, delta: Number, stated: Relation) -> Loss | None:
        """Return ``loss``, at the point ``delta`` of its curve if it has one."""
        return self.loss(stated)

    def worth(self, claim: Loss, derived: Loss) -> Loss:
        """Return the loss in every currency that the client's larger ``claim`` stands for."""
        return derived if claim.epsilon is None else pure(claim.epsilon, claim.delta)

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Return the objections to the parameters themselves, whatever the claim."""
        return ()

    def all_objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Return those, and the objections to the sampling."""
        found = self.objections(stated)
        if self.sampling is None:
            return found
        code, text = "sampling-relation", self.sampling.misplaced(stated)
        if self.local:
            code = "local-sample"
            text = (
                "Reports that people randomise themselves are not amplified by sampling: whoever "
                "collects them sees who is in the sample."
            )
        return (*found, Objection(code, text)) if text else found

    def claim(self) -> Loss | None:
        """Return the client's own figure for one invocation, under its stated relation."""
        claim = self.claimed
        return Loss(Fraction(claim.epsilon), Fraction(claim.delta)) if claim else None

    def understated(self, claim: Loss, derived: Loss) -> Objection:
        """Return the objection to a ``claim`` below the ``derived`` loss."""
        return Objection(
            "claim-understated",
            f"The claim ({in_words(claim)}) is below what the stated parameters cost "
            f"({in_words(derived)}). Claim at least that, leave the claim out, or correct the "
            "parameters.",
        )


def in_words(loss: Loss) -> str:
    """Return a loss in words, rounded up in its last digit as it would be booked."""
    epsilon, delta = "unbounded", show(units_up(loss.delta, Currency.DELTA), Currency.DELTA)
    if loss.epsilon is not None:
        epsilon = show(units_up(loss.epsilon, Currency.EPSILON), Currency.EPSILON)
    return f"epsilon {epsilon}, delta {delta}"


def norm(sensitivity: Decimal | Norms, wanted: str) -> Fraction | None:
    """Return the sensitivity in the norm ``wanted``, if given; a bare amount is every norm."""
    value = getattr(sensitivity, wanted) if isinstance(sensitivity, Norms) else sensitivity
    return None if value is None else Fraction(value)
