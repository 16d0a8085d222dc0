"""Local randomisation: each person randomises an answer before anything is collected.

Only replace-one bounds it: under add-or-remove-one the very existence of a report shows that its
sender took part, which no noise in the report can hide.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from accountant.privacy import balls
from accountant.privacy.balls import Number
from accountant.privacy.curves import curve_of_response
from accountant.privacy.losses import UNBOUNDED, Loss, pure
from accountant.privacy.mechanisms.amounts import OpenProbability, ProbabilityBelowOne, exactly_one
from accountant.privacy.mechanisms.base import (
    KIND,
    BaseMechanism,
    Count,
    Objection,
    Relation,
    SmallCount,
    body,
    examples,
    forbidden,
)


class _Local(BaseMechanism):
    _no_sampling = forbidden("sampling", "whoever collects the reports sees who is in the sample")

    local: ClassVar[bool] = True

    def epsilon(self) -> Number | None:
        """Return epsilon under replace-one; None, as here, if it has no bound."""
        return None

    def loss(self, stated: Relation) -> Loss:
        """Return a pure loss under replace-one, an unbounded one otherwise."""
        epsilon = self.epsilon() if stated is Relation.REPLACE_ONE else None
        return UNBOUNDED if epsilon is None else pure(epsilon)


class RandomizedResponse(_Local):
    """One of k categories, reported at random.

    Either (``truth_probability`` t) tells the truth with probability t and otherwise any category,
    uniformly, which may hit the truth: epsilon = ln(1 + k t / (1 - t)), so that two coins (t = 1/2,
    k = 2) give ln 3. Or (``theta``) reports the true category with probability theta and otherwise
    one of the others, uniformly: epsilon = |ln(theta (k - 1) / (1 - theta))| (Warner 1965; Kairouz,
    Oh, Viswanath 2016). Where one answer is given only if it is true, see ``forced_response``.
    """

    model_config = examples(
        body("randomized_response", truth_probability="0.5"),
        body("randomized_response", theta="0.75", categories=4),
    )
    kind: Literal["randomized_response"] = Field(description=KIND)
    truth_probability: ProbabilityBelowOne | None = None
    """Probability t of giving the true category outright; otherwise one of all the categories is
    picked uniformly, the true one included. Give this or theta."""
    theta: OpenProbability | None = None
    """Probability of reporting the true category; otherwise one of the others is picked uniformly.
    Give this or truth_probability."""
    categories: int = Field(default=2, strict=True, ge=2, le=10**9)
    """Number k of possible answers."""

    _one = exactly_one("response_kind", "truth_probability", "theta")

    @property
    def chances(self) -> tuple[Fraction, Fraction]:
        """The probabilities of the true category, and of any one of the others."""
        if self.theta is not None:
            true = Fraction(self.theta)
        else:
            truth = Fraction(self.truth_probability or 0)
            true = truth + (1 - truth) / self.categories
        return true, (1 - true) / (self.categories - 1)

    def epsilon(self) -> Number:
        """Return the logarithm of the larger probability over the smaller."""
        if self.theta is not None:
            top, bottom = self.theta.as_integer_ratio()
            true, other = top * (self.categories - 1), bottom - top
        else:
            top, bottom = (self.truth_probability or Decimal(0)).as_integer_ratio()
            true, other = bottom - top + top * self.categories, bottom - top
        return balls.log(Fraction(max(true, other), min(true, other)))

    def loss(self, stated: Relation) -> Loss:
        """Return a pure loss under replace-one, with the curve of k categories: only the two in
        which two people differ tell anything.
        """
        found, epsilon = super().loss(stated), self.epsilon()
        if found is UNBOUNDED or self.categories == 2:
            return found
        return pure(epsilon, curve=curve_of_response(epsilon, sum(self.chances, Fraction(0))))


class ForcedResponse(_Local):
    """Tails answers YES whatever the truth, heads (``truth_probability`` t) answers truly.

    The one-sided forced response of surveys (Boruch 1971; Fox and Tracy 1986). It is not private: a
    NO is never forced, so it proves the truth. P(NO) is t where the truth is NO and 0 where it is
    YES; their ratio has no bound, whatever the coin. It is recognised in order to be refused.
    """

    model_config = examples(body("forced_response", truth_probability="0.5"))
    kind: Literal["forced_response"] = Field(description=KIND)
    truth_probability: OpenProbability
    """Probability t of answering truly; otherwise the answer is YES. At every t a NO proves the
    truth: epsilon is unbounded, which is refused with the reason."""

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Object always: no parameter makes it private."""
        text = (
            "A NO is never forced, so it proves the truth: no finite epsilon describes it. Let "
            "tails pick YES or NO by a second coin: that is randomized_response, at epsilon ln 3 "
            "with two fair coins."
        )
        return (Objection("forced-response", text),)


class UnaryEncoding(_Local):
    """Reports a vector of bits, each randomised on its own; a value sets ``hashes`` of them.

    epsilon = h ln(p (1 - q) / ((1 - p) q)) (Wang, Blocki, Li, Jha 2017). With ``memoised`` f it is
    RAPPOR (Erlingsson, Pihur, Korolova 2014): the bits are randomised once and for all (each is
    replaced by a fair coin with probability f), and ``reports`` reports are made from them. Any
    number of reports loses at most 2 h ln((1 - f/2) / (f/2)), and n reports at most n times what
    one loses (their Thms 1 and 2; the smaller is taken).
    """

    model_config = examples(
        body("unary_encoding", p="0.5", q="0.25"),
        body("unary_encoding", p="0.75", q="0.5", hashes=2, memoised="0.5", reports=365),
    )
    kind: Literal["unary_encoding"] = Field(description=KIND)
    p: OpenProbability = Field(description="Probability that a set bit is reported as set.")
    q: OpenProbability
    """Probability that a bit that is not set is reported as set; less than p."""
    hashes: SmallCount = Field(default=1, description="Bits that a value sets, at most.")
    memoised: OpenProbability | None = None
    """RAPPOR's f: probability that a bit is replaced by a fair coin, once and for all, before any
    report is made."""
    reports: Count = 1
    """Reports made of one memoised value; more than 1 needs `memoised`."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.q >= self.p:
            raise PydanticCustomError("unary_order", "q must be less than p")
        if self.reports > 1 and self.memoised is None:
            raise PydanticCustomError(
                "unary_reports", "reports needs memoised; without it, each report is a count"
            )
        return self

    def epsilon(self) -> Number:
        """Return the loss of the two bits (for each hash) in which two values differ."""
        p, q = Fraction(self.p), Fraction(self.q)
        if self.memoised is None:
            return self.hashes * _of_two_bits(p, q)
        f = Fraction(self.memoised)
        coin = f / 2 * (p + q)
        again = self.reports * _of_two_bits(coin + (1 - f) * p, coin + (1 - f) * q)
        return balls.least(again, balls.log((2 - f) / f) * 2) * self.hashes


def _of_two_bits(p: Fraction, q: Fraction) -> Number:
    return balls.log(p * (1 - q) / ((1 - p) * q))
