"""Mechanisms that are made of others: their charge is that of their parts, never declared.

The parts are fixed when the whole begins. They are stated under the relation of the whole, and
carry no claim of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from accountant.privacy.balls import Real, ball
from accountant.privacy.losses import UNBOUNDED, Loss, composed, pure
from accountant.privacy.mechanisms.amounts import NonNegative, Positive
from accountant.privacy.mechanisms.base import KIND, BaseMechanism, Objection
from accountant.privacy.mechanisms.relations import Relation

if TYPE_CHECKING:
    Mechanism = BaseMechanism
else:
    Mechanism = "Mechanism"  # the union of all kinds, which registry.py fills in

MOST_PARTS: Final = 1000
_MOST_LEVELS: Final = 8


def part_of(value: Any) -> Any:
    """A part has no claim, relation or group of its own, is no plan and no bare declaration."""
    if value.kind in ("declared", "non_private", "plan"):
        raise PydanticCustomError(
            "part_kind", "{kind} stands for itself: it cannot be a part", {"kind": value.kind}
        )
    for name in ("claimed", "neighbouring"):
        if getattr(value, name) is not None:
            raise PydanticCustomError(
                "part_field", "{name} belongs to the whole, not to a part", {"name": name}
            )
    if value.group_size != 1:
        raise PydanticCustomError("part_field", "group_size belongs to the whole, not to a part")
    if _levels(value) > _MOST_LEVELS:
        raise PydanticCustomError("part_levels", "mechanisms are nested too deeply")
    return value


def _levels(mechanism: BaseMechanism) -> int:
    parts = mechanism.parts() if isinstance(mechanism, Compound) else ()
    return 1 + max(map(_levels, parts), default=0)


Part = Annotated[Mechanism, AfterValidator(part_of)]
Parts = Annotated[tuple[Part, ...], Field(min_length=1, max_length=MOST_PARTS)]


class Compound(BaseMechanism):
    """What all kinds that are made of others share."""

    @abstractmethod
    def parts(self) -> tuple[BaseMechanism, ...]:
        """The mechanisms that it is made of."""

    def within(self, stated: Relation) -> Relation:
        """The relation that the parts are stated under."""
        return stated

    @property
    def local(self) -> bool:
        """True if some part is."""
        return any(part.local for part in self.parts())

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Those of the parts."""
        inner = self.within(stated)
        return tuple(o for part in self.parts() for o in part.all_objections(inner))


def cost_of(part: BaseMechanism, stated: Relation) -> Loss:
    """All invocations of a part."""
    return (part.cost(stated) or UNBOUNDED).times(part.count)


def all_of(parts: Iterable[BaseMechanism], stated: Relation) -> Loss:
    """All invocations of all ``parts``."""
    return composed([cost_of(part, stated) for part in parts])


class Composed(Compound):
    """Several mechanisms as one, for instance all that is asked of one secret sample.

    Basic composition of epsilons, sums in the other currencies. With ``sampling`` the whole is
    amplified once (five questions on one sample of a hundredth cost five times as much inside, then
    one amplification).
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "composed",
                    "mechanisms": [
                        {"kind": "laplace", "sensitivity": "1", "scale": "1", "count": 5}
                    ],
                    "sampling": {"poisson": "0.01"},
                }
            ]
        }
    )

    kind: Literal["composed"] = Field(description=KIND)
    mechanisms: Parts = Field(description="The parts, in any order; each with its own count.")

    def parts(self) -> tuple[BaseMechanism, ...]:
        """The list."""
        return self.mechanisms

    def loss(self, stated: Relation) -> Loss:
        """The sum."""
        return all_of(self.mechanisms, stated)

    def apart(self) -> Iterator[BaseMechanism]:
        """The parts, unless something is said of the whole."""
        if self.group_size != 1 or self.sampling is not None or self.claimed is not None:
            yield self
            return
        for part in self.mechanisms:
            stated = {"count": part.count * self.count, "neighbouring": self.neighbouring}
            yield from part.model_copy(update=stated).apart()


class SubsampleAndAggregate(Compound):
    """A function of any kind is computed on disjoint blocks of the data, and the results are
    aggregated privately.

    Nissim, Raskhodnikova, Smith 2007; Dwork and Roth 2014, Sec. 7.3. A privacy unit lies in one
    block (or ``blocks_per_unit``), chosen without looking at the others, and the number of blocks
    is fixed: whatever happens to the unit replaces the results of those blocks, so the cost is the
    aggregator's, stated for replacing one block's result; twice that under replace-one.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "subsample_and_aggregate",
                    "aggregator": {"kind": "laplace", "sensitivity": "0.01", "scale": "0.1"},
                }
            ]
        }
    )

    kind: Literal["subsample_and_aggregate"] = Field(description=KIND)
    aggregator: Part = Field(
        description="The mechanism that aggregates the blocks' results; its sensitivity is for "
        "replacing the result of one block."
    )
    blocks_per_unit: int = Field(
        default=1, strict=True, ge=1, le=10**6, description="Blocks that one unit may lie in."
    )

    def parts(self) -> tuple[BaseMechanism, ...]:
        """The aggregator."""
        return (self.aggregator,)

    def within(self, stated: Relation) -> Relation:
        """One block's result is replaced, under either relation."""
        return Relation.REPLACE_ONE

    @property
    def local(self) -> bool:
        """The blocks' results are collected first, so it is not."""
        return False

    def loss(self, stated: Relation) -> Loss:
        """The aggregator's, for as many blocks; who replaces another may lie in other ones."""
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

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "propose_test_release",
                    "distance_scale": "10",
                    "threshold": "200",
                    "release": {"kind": "laplace", "sensitivity": "0.5", "scale": "5"},
                }
            ]
        }
    )

    kind: Literal["propose_test_release"] = Field(description=KIND)
    distance_scale: Positive = Field(
        description="Scale s of the Laplace noise on the distance, in privacy units. "
        "epsilon of the test = 1 / s (Dwork and Lei 2009)."
    )
    threshold: NonNegative = Field(
        description="Noisy distance T above which the release is made, in privacy units. "
        "delta = e^(-T/s) / 2."
    )
    release: Part = Field(
        description="The mechanism of the release; its sensitivity is the proposed bound."
    )

    def parts(self) -> tuple[BaseMechanism, ...]:
        """The release."""
        return (self.release,)

    def loss(self, stated: Relation) -> Loss:
        """1 / s and the release's, with a delta of e^(-T/s) / 2."""
        scale = Fraction(self.distance_scale)
        exponent = Fraction(self.threshold) / scale
        delta = Real(lambda: (-ball(exponent)).exp() / 2)
        return pure(1 / scale, delta) + cost_of(self.release, stated)
