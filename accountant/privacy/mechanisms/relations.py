"""Neighbouring relations, and the amplification by sampling that each of them admits."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from typing import Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from accountant.privacy.losses import UNBOUNDED, Loss
from accountant.privacy.mechanisms.amounts import Record, SamplingRate, exactly_one


class Relation(StrEnum):
    """A neighbouring relation. Losses stated under different ones never add up."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"


def convert(loss: Loss, stated: Relation, wanted: Relation) -> Loss:
    """Return ``loss`` under the relation ``wanted``; unbounded from replace-one to
    add-or-remove-one: data sets of two sizes are never one replacement apart. To replace one unit
    is to remove one and to add one, a group of two: 2 epsilon, (1 + e^epsilon) delta, 4 rho, 2 mu.
    """
    if stated is wanted:
        return loss
    return UNBOUNDED if stated is Relation.REPLACE_ONE else loss.group(2)


class Drawn(Record):
    """``sample`` units drawn without replacement out of ``of``, whose number is public."""

    sample: int = Field(strict=True, ge=1, le=10**12, description="Units in the sample.")
    of: int = Field(strict=True, ge=1, le=10**12, description="Units that there are, publicly.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.sample > self.of:
            raise PydanticCustomError("sample_size", "sample must not be larger than of")
        return self


class Sampling(Record):
    """How the sample is drawn. Preconditions: privacy units are sampled, not their records; the
    sample is drawn anew for each invocation, and its members stay secret.
    """

    poisson: SamplingRate | None = None
    """Each unit is in the sample with this probability, independently; under add_or_remove_one
    (Balle, Barthe, Gaboardi 2018, Thm 8)."""
    without_replacement: Drawn | None = None
    """A sample of fixed size out of a public number of units; under replace_one (Balle, Barthe,
    Gaboardi 2018, Thm 9)."""

    _one = exactly_one("sampling_kind", "poisson", "without_replacement")

    @property
    def rate(self) -> Fraction:
        """The probability that a unit is in the sample."""
        if self.without_replacement is not None:
            return Fraction(self.without_replacement.sample, self.without_replacement.of)
        return Fraction(self.poisson or 1)

    def applied(self, loss: Loss, stated: Relation) -> Loss:
        """Return the amplified loss; unbounded where no theorem covers the relation."""
        if self.misplaced(stated):
            return UNBOUNDED
        return loss.sampled(self.rate, poisson=self.poisson is not None)

    def misplaced(self, stated: Relation) -> str | None:
        """Return why nothing is known under the relation ``stated``; None if something is."""
        if self.poisson is not None and stated is Relation.REPLACE_ONE:
            return (
                "Poisson sampling amplifies what is stated under add_or_remove_one: state the "
                "mechanism and its sensitivity under that relation."
            )
        if self.poisson is None and stated is Relation.ADD_OR_REMOVE_ONE:
            return (
                "Sampling without replacement out of a public number amplifies what is stated "
                "under replace_one: state the mechanism under it, in a replace_one population."
            )
        return None
