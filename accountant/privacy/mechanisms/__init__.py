"""The mechanism catalogue: what each kind of randomised answer costs, derived from its parameters.

One module per family. ``price`` is the only question that the rest of the program asks, apart from
``SparseVector.loss_after`` for open sessions. A new kind is one more model in a family module and
one more member of ``Mechanism``.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from accountant.privacy.losses import Loss
from accountant.privacy.mechanisms.additive import DiscreteLaplace, Laplace
from accountant.privacy.mechanisms.amounts import (
    Amount,
    NonNegative,
    OpenProbability,
    Positive,
    Probability,
    ProbabilityBelowOne,
    plain,
)
from accountant.privacy.mechanisms.base import BaseMechanism, Claim, Norms, Objection, Sampler
from accountant.privacy.mechanisms.compound import (
    Composed,
    Compound,
    ProposeTestRelease,
    SubsampleAndAggregate,
)
from accountant.privacy.mechanisms.gaussian import DiscreteGaussian, Gaussian
from accountant.privacy.mechanisms.local import RandomizedResponse, UnaryEncoding
from accountant.privacy.mechanisms.plan import Plan
from accountant.privacy.mechanisms.pricing import CLAIM_SLACK, Priced, Verdict, price
from accountant.privacy.mechanisms.relations import Relation, convert
from accountant.privacy.mechanisms.rounds import Boosting, MultiplicativeWeights, ReusableHoldout
from accountant.privacy.mechanisms.sampling import Sampling
from accountant.privacy.mechanisms.selection import Exponential, PermuteAndFlip
from accountant.privacy.mechanisms.sparse_vector import Releases, SparseVector
from accountant.privacy.mechanisms.stated import Declared, NonPrivate

Mechanism = Annotated[
    Laplace
    | DiscreteLaplace
    | Gaussian
    | DiscreteGaussian
    | Exponential
    | PermuteAndFlip
    | RandomizedResponse
    | UnaryEncoding
    | SparseVector
    | Composed
    | SubsampleAndAggregate
    | ProposeTestRelease
    | MultiplicativeWeights
    | Boosting
    | ReusableHoldout
    | Plan
    | Declared
    | NonPrivate,
    Field(discriminator="kind"),
]

KINDS: Final = (
    "laplace",
    "discrete_laplace",
    "gaussian",
    "discrete_gaussian",
    "exponential",
    "permute_and_flip",
    "randomized_response",
    "unary_encoding",
    "sparse_vector",
    "composed",
    "subsample_and_aggregate",
    "propose_test_release",
    "multiplicative_weights",
    "boosting",
    "reusable_holdout",
    "plan",
    "declared",
    "non_private",
)

for _compound in (
    Composed,
    SubsampleAndAggregate,
    ProposeTestRelease,
    MultiplicativeWeights,
    Boosting,
    Plan,
):  # their parts are of any kind, these included
    _compound.model_rebuild(_types_namespace={"Mechanism": Mechanism})

__all__ = [
    "CLAIM_SLACK",
    "KINDS",
    "Amount",
    "BaseMechanism",
    "Boosting",
    "Claim",
    "Composed",
    "Compound",
    "Declared",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "Gaussian",
    "Laplace",
    "Loss",
    "Mechanism",
    "MultiplicativeWeights",
    "NonNegative",
    "NonPrivate",
    "Norms",
    "Objection",
    "OpenProbability",
    "PermuteAndFlip",
    "Plan",
    "Positive",
    "Priced",
    "Probability",
    "ProbabilityBelowOne",
    "ProposeTestRelease",
    "RandomizedResponse",
    "Relation",
    "Releases",
    "ReusableHoldout",
    "Sampler",
    "Sampling",
    "SparseVector",
    "SubsampleAndAggregate",
    "UnaryEncoding",
    "Verdict",
    "convert",
    "plain",
    "price",
]
