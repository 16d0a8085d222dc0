"""The mechanism catalogue: one line a kind.

A new kind is a model in the file of its family, and a line here.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, get_args

from pydantic import Field

from accountant.privacy.mechanisms import (
    additive,
    compound,
    gaussian,
    local,
    plan,
    rounds,
    selection,
    sparse_vector,
    stated,
)

Mechanism = Annotated[
    additive.Laplace
    | additive.DiscreteLaplace
    | gaussian.Gaussian
    | gaussian.DiscreteGaussian
    | selection.Exponential
    | selection.PermuteAndFlip
    | local.RandomizedResponse
    | local.UnaryEncoding
    | local.ForcedResponse
    | sparse_vector.SparseVector
    | compound.Composed
    | compound.SubsampleAndAggregate
    | compound.ProposeTestRelease
    | rounds.MultiplicativeWeights
    | rounds.Boosting
    | rounds.ReusableHoldout
    | plan.Plan
    | stated.Declared
    | stated.NonPrivate,
    Field(discriminator="kind"),
]

_CLASSES: Final = get_args(get_args(Mechanism)[0])

KINDS: Final[tuple[str, ...]] = tuple(
    get_args(kind.model_fields["kind"].annotation)[0] for kind in _CLASSES
)

PLAIN: Final[dict[str, Any]] = {
    name: kind for name, kind in zip(KINDS, _CLASSES, strict=True) if kind.plain
}
"""Kinds that need nothing but positive amounts."""

for _kind in _CLASSES:
    if issubclass(_kind, compound.Compound):  # its parts are of any kind, these included
        _kind.model_rebuild(_types_namespace={"Mechanism": Mechanism})
