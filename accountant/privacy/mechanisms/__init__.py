"""The mechanism catalogue: what each kind of randomised answer costs, derived from its parameters.

One module per family. ``price`` is the only question that the rest of the program asks, apart from
``SparseVector.loss_after`` for open sessions. A new kind is one more model in a family module and
one more member of ``Mechanism``.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from accountant.privacy.mechanisms.additive import DiscreteLaplace, Gaussian, Laplace
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
from accountant.privacy.mechanisms.local import RandomizedResponse, UnaryEncoding
from accountant.privacy.mechanisms.pricing import CLAIM_SLACK, Priced, Verdict, price
from accountant.privacy.mechanisms.relations import Relation, convert
from accountant.privacy.mechanisms.selection import Exponential
from accountant.privacy.mechanisms.sparse_vector import Releases, SparseVector
from accountant.privacy.mechanisms.stated import Declared, NonPrivate

Mechanism = Annotated[
    Laplace
    | DiscreteLaplace
    | Gaussian
    | Exponential
    | RandomizedResponse
    | UnaryEncoding
    | SparseVector
    | Declared
    | NonPrivate,
    Field(discriminator="kind"),
]

KINDS: Final = (
    "laplace",
    "discrete_laplace",
    "gaussian",
    "exponential",
    "randomized_response",
    "unary_encoding",
    "sparse_vector",
    "declared",
    "non_private",
)

__all__ = [
    "CLAIM_SLACK",
    "KINDS",
    "Amount",
    "BaseMechanism",
    "Claim",
    "Declared",
    "DiscreteLaplace",
    "Exponential",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "NonNegative",
    "NonPrivate",
    "Norms",
    "Objection",
    "OpenProbability",
    "Positive",
    "Priced",
    "Probability",
    "ProbabilityBelowOne",
    "RandomizedResponse",
    "Relation",
    "Releases",
    "Sampler",
    "SparseVector",
    "UnaryEncoding",
    "Verdict",
    "convert",
    "plain",
    "price",
]
