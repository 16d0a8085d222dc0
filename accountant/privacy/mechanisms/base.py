"""The base of all mechanisms: common fields, relations, sampling, and what pricing calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from operator import itemgetter
from typing import Annotated, Any, ClassVar, Final, LiteralString, NamedTuple, Self

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    TypeAdapter,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from accountant.privacy import balls
from accountant.privacy.balls import Number
from accountant.privacy.conversions import at_least
from accountant.privacy.engine import former_under, in_force
from accountant.privacy.losses import UNBOUNDED, Loss, pure
from accountant.privacy.mechanisms.amounts import (
    NonNegative,
    Positive,
    Probability,
    Record,
    SamplingRate,
    exactly_one,
)
from accountant.privacy.units import Currency, show, units_up

MOST_INVOCATIONS: Final = 10**9
LARGEST_GROUP: Final = 10**6
MOST_UNITS: Final = 8
"""Further units of a population."""

Count = Annotated[int, Field(strict=True, ge=1, le=MOST_INVOCATIONS)]
SmallCount = Annotated[int, Field(strict=True, ge=1, le=LARGEST_GROUP)]

KIND: Final = "What was done; decides which other fields there are."

ShortText = Annotated[str, Field(strict=True, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]


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


class Relation(StrEnum):
    """A neighbouring relation. Losses stated under different ones never add up."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"
    """One unit is there, or an empty one stands in its place, which contributes nothing; the number
    of units, and the place of each, are public (Kairouz et al. 2021, Def. 1.1)."""

    @property
    def present(self) -> bool:
        """True if one unit is there or not, false if it is exchanged for another."""
        return self is not Relation.REPLACE_ONE


def convert(loss: Loss, stated: Relation, wanted: Relation) -> Loss:
    """Return ``loss`` under the relation ``wanted``; unbounded where nothing follows: data sets of
    two sizes are never one replacement apart, nor is an empty unit in one of them.

    To replace one unit is to remove one and to add one, or to empty one and to fill it, a group of
    two: 2 epsilon, (1 + e^epsilon) delta, 4 rho, 2 mu. An empty unit is to a mechanism that is
    stated under add_or_remove_one one that is not there.
    """
    if stated is wanted:
        return loss
    if stated.present and wanted is Relation.REPLACE_ONE:
        return loss.replaced()
    return loss if wanted is Relation.ZERO_OUT and stated.present else UNBOUNDED


class Drawn(Record):
    """``sample`` units drawn without replacement out of ``of``, whose number is public."""

    sample: int = Field(strict=True, ge=1, le=10**12, description="Units in the sample.")
    of: int = Field(strict=True, ge=1, le=10**12, description="Units that there are, publicly.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.sample > self.of:
            raise PydanticCustomError("sample_size", "sample must not be larger than of")
        return self


class Truncated(Record):
    """A Poisson sample that is cut to a largest size, by drawing a part of it at random."""

    rate: SamplingRate = Field(description="The probability that a unit is in the sample.")
    of: int = Field(strict=True, ge=1, le=10**12, description="Units that there are, at most.")
    at_most: int = Field(strict=True, ge=1, le=10**12, description="The largest size of a sample.")


class Sampling(Record):
    """How the sample is drawn. Preconditions: the sample is drawn anew for each invocation, and its
    members stay secret; units are sampled, or their records, each independently, if `group_size`
    says that a unit has several.
    """

    poisson: SamplingRate | None = None
    """Each unit is in the sample with this probability, independently; under add_or_remove_one
    (Balle, Barthe, Gaboardi 2018, Thm 8)."""
    without_replacement: Drawn | None = None
    """A sample of fixed size out of a public number of units; under replace_one (Balle, Barthe,
    Gaboardi 2018, Thm 9)."""
    truncated: Truncated | None = None
    """A Poisson sample of which a random part is taken where it is larger than `at_most`; under
    add_or_remove_one."""
    allocation: SmallCount | None = None
    """One invocation is so many steps, and each unit takes part in exactly one of them, at random
    (Feldman and Shenfeld 2025); under add_or_remove_one. A step may depend on earlier answers."""

    _one = exactly_one("sampling_kind", "poisson", "without_replacement", "truncated", "allocation")

    @property
    def rate(self) -> Fraction:
        """The probability that a unit is in the sample."""
        if self.without_replacement is not None:
            return Fraction(self.without_replacement.sample, self.without_replacement.of)
        if self.truncated is not None:
            return Fraction(self.truncated.rate)
        return Fraction(self.poisson or 1)

    @property
    def cut(self) -> Number:
        """The most that it is likely that the others fill a sample of a largest size."""
        cut = self.truncated
        return Fraction(0) if cut is None else at_least(cut.at_most, cut.of - 1, Fraction(cut.rate))

    @property
    def fixed(self) -> bool:
        """True if the number of units that take part is public."""
        return self.without_replacement is not None

    def applied(self, loss: Loss, stated: Relation) -> Loss:
        """Return the amplified loss; unbounded where no theorem covers the relation."""
        if self.misplaced(stated):
            return UNBOUNDED
        if self.allocation is not None:
            return loss.allocated(self.allocation)
        if self.truncated is not None:
            return loss.truncated(self.rate, self.cut)
        return loss.sampled(self.rate, poisson=not self.fixed)

    def misplaced(self, stated: Relation) -> str | None:
        """Return why nothing is known under the relation ``stated``; None if something is."""
        if not self.fixed and stated is Relation.REPLACE_ONE:
            return (
                "Poisson sampling and allocation amplify what is stated under add_or_remove_one: "
                "state the mechanism and its sensitivity under that relation. In a replace_one "
                "population it is charged for one unit removed and another added."
            )
        if self.fixed and stated.present:
            return (
                "Sampling without replacement out of a public number amplifies what is stated "
                "under replace_one: state the mechanism under it, in a replace_one population."
            )
        return None


class Norms(Record):
    """The most by which one privacy unit can change the answer, by norm."""

    l1: Positive | None = Field(default=None, description="Sum of the absolute changes.")
    l2: Positive | None = Field(default=None, description="Euclidean length of the change.")


Sensitivity = Annotated[
    Annotated[Positive, Tag(":amount")] | Annotated[Norms, Tag(":norms")],
    Discriminator(lambda value: ":norms" if isinstance(value, dict | Norms) else ":amount"),
]


_PER: Final[TypeAdapter[dict[str, Decimal | Norms]]] = TypeAdapter(
    Annotated[
        dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")], Sensitivity],
        Field(min_length=1, max_length=MOST_UNITS),
    ],
    config=ConfigDict(defer_build=True),
)


def _read_per(value: Any) -> tuple[tuple[str, Decimal | Norms], ...] | None:
    """Return sensitivities by unit, sorted: documents have objects, our own models tuples."""
    if value is None:
        return None
    found = _PER.validate_python(dict(value) if isinstance(value, tuple) else value)
    return tuple(sorted(found.items(), key=itemgetter(0)))


def _write_per(found: tuple[tuple[str, Decimal | Norms], ...] | None) -> Any:
    return found and _PER.dump_python(dict(found), mode="json", exclude_defaults=True)


class _DescribedPer:
    """Describes sensitivities by unit, in a JSON schema, without references to definitions."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _: Any, __: Any) -> dict[str, Any]:
        found = _PER.json_schema()
        norms = found.pop("$defs")["Norms"]

        def without(part: Any) -> Any:
            if not isinstance(part, dict):
                return [without(one) for one in part] if isinstance(part, list) else part
            return norms if "$ref" in part else {name: without(one) for name, one in part.items()}

        return {"anyOf": [without(found), {"type": "null"}]}


SensitivityPer = Annotated[
    tuple[tuple[str, Decimal | Norms], ...] | None,
    PlainValidator(_read_per),
    PlainSerializer(_write_per),
    _DescribedPer,
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


class Sensitive(BaseMechanism):
    """The base of the kinds whose sensitivity may be stated for further units, too."""

    norm: ClassVar[str] = "l1"
    sensitivity: Sensitivity
    sensitivity_per: SensitivityPer = None
    """Sensitivity for one of the population's further units, by its name, such as {"person-day":
    1}. Absent: what follows from the whole charge (further_units.py). Whatever else is stated of
    one unit, such as `monotonic`, then holds of this unit as well."""

    @model_validator(mode="after")
    def _on_no_sample(self) -> Self:
        if self.sensitivity_per is None:
            return self
        if self.sampling is not None:
            raise PydanticCustomError(
                "sensitivity_per_sampled",
                "sensitivity_per does not go with sampling: a sample of units does not hide what "
                "a part of one changes",
            )
        if any(norm(value, self.norm) is None for _, value in self.sensitivity_per):
            raise PydanticCustomError(
                "sensitivity_per_norm",
                "sensitivity_per needs the {norm} sensitivity of each unit",
                {"norm": self.norm},
            )
        return self


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
