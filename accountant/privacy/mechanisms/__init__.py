"""The mechanism catalogue: the cost of each kind of randomised answer, derived from its parameters.

There is one file a family. A new kind is a model in the file of its family, and a line in
``Mechanism``; ``price`` asks it.
"""

from __future__ import annotations

from typing import Annotated, Final, get_args

from pydantic import Field

from accountant.privacy.mechanisms import (
    additive,
    compound,
    learning,
    local,
    selection,
    stated,
    tuning,
)
from accountant.privacy.mechanisms.amounts import Amount, plain, plain_amount
from accountant.privacy.mechanisms.base import MOST_INVOCATIONS, BaseMechanism, Relation
from accountant.privacy.mechanisms.pricing import Priced, Verdict, price
from accountant.privacy.mechanisms.selection import SparseVector

__all__ = [
    "KINDS",
    "MOST_INVOCATIONS",
    "PLAIN",
    "Amount",
    "BaseMechanism",
    "Mechanism",
    "Priced",
    "Relation",
    "SparseVector",
    "Verdict",
    "plain",
    "plain_amount",
    "price",
]

Mechanism = Annotated[
    additive.Laplace
    | additive.DiscreteLaplace
    | additive.Gaussian
    | additive.DiscreteGaussian
    | selection.Exponential
    | selection.PermuteAndFlip
    | local.RandomizedResponse
    | local.UnaryEncoding
    | local.ForcedResponse
    | selection.SparseVector
    | compound.Composed
    | compound.SubsampleAndAggregate
    | compound.ProposeTestRelease
    | compound.MultiplicativeWeights
    | compound.Boosting
    | compound.ReusableHoldout
    | learning.TreeAggregation
    | learning.GaussianMixture
    | tuning.RepeatAndSelect
    | compound.Plan
    | stated.Declared
    | stated.NonPrivate,
    Field(discriminator="kind"),
]

_CLASSES: Final = get_args(get_args(Mechanism)[0])

KINDS: Final = tuple(get_args(each.model_fields["kind"].annotation)[0] for each in _CLASSES)

PLAIN: Final = {name: each for name, each in zip(KINDS, _CLASSES, strict=True) if each.plain}
"""Kinds that need nothing but positive amounts."""

compound.AnyKind.kinds = Mechanism
