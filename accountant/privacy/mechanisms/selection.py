"""Selection by noisy scores, and the sparse vector technique, which selects by a noisy threshold.

The sparse vector technique answers many threshold questions, of which only positive answers cost.
Source: Lyu, Su, Li, *Understanding the sparse vector technique for differential privacy*, PVLDB
10(6), 2017. Their Algorithm 7 is the sound one; Algorithms 3 to 6 are published variants that are
not private as claimed. These are recognised from the declared noise and refused.
"""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from typing import Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from accountant.privacy.losses import UNBOUNDED, Loss, bounded_range, pure
from accountant.privacy.mechanisms.amounts import NonNegative, Positive
from accountant.privacy.mechanisms.base import (
    KIND,
    Count,
    Objection,
    Relation,
    Sensitive,
    body,
    convert,
    examples,
    in_words,
)

BROKEN: Final = "sparse-vector-broken"
_ROUNDING: Final = Fraction(9999, 10000)  # A claim rounded in its fifth digit pays for one positive


def _misplaced(monotonic: bool, stated: Relation) -> tuple[Objection, ...]:
    if not monotonic or stated.present:
        return ()
    text = (
        "Only adding or removing one unit moves all monotonic answers in the same direction; "
        "replacing one moves them both ways. State the mechanism under add_or_remove_one, or drop "
        "`monotonic`."
    )
    return (Objection("monotonic-needs-add-or-remove", text),)


class _Selection(Sensitive):
    sensitivity: Positive
    """The most by which one privacy unit can change any one score, in score units."""
    scale: Positive
    """Divisor of the scores in exp(score / scale), in score units. epsilon = 2 x sensitivity /
    scale (McSherry and Talwar 2007; McKenna and Sheldon 2020)."""
    monotonic: bool = Field(default=False, strict=True)
    """True if one more unit can only raise all scores, or only lower them all, as with counts;
    halves epsilon, under add_or_remove_one only."""

    def epsilon(self, stated: Relation) -> Fraction:
        """Return 2 x sensitivity / scale, half for monotonic scores under add-or-remove-one."""
        halved = self.monotonic and stated.present
        return (1 if halved else 2) * Fraction(self.sensitivity) / Fraction(self.scale)

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Object to ``monotonic`` under replace-one."""
        return _misplaced(self.monotonic, stated)


class Exponential(_Selection):
    """Picks a candidate with probability proportional to exp(score / scale).

    McSherry and Talwar 2007: epsilon = 2 x sensitivity / scale. If adding a unit can only raise all
    scores, or only lower them (``monotonic``), epsilon = sensitivity / scale under
    add-or-remove-one; under replace-one the mark is objected to and the full price is booked. Its
    log probabilities move within a range of epsilon, so rho = eps^2 / 8 (``bounded_range``).
    """

    model_config = examples(body("exponential", sensitivity="1", scale="20"))
    kind: Literal["exponential"] = Field(description=KIND)

    def loss(self, stated: Relation) -> Loss:
        """Return a bounded range of epsilon."""
        return bounded_range(self.epsilon(stated))


class PermuteAndFlip(_Selection):
    """Visits the candidates in random order and takes one with probability
    exp((score - best) / scale); the same as the best score with exponential noise of ``scale``.

    McKenna and Sheldon 2020; Ding et al. 2021. Purely epsilon-private, as the exponential mechanism
    with the same scale, but not of bounded range. Monotonic scores: raising one score by Delta
    multiplies the chance that it wins by e^(Delta / scale) at most (the tail of exponential noise),
    and raising all the others divides it by no more.
    """

    model_config = examples(body("permute_and_flip", sensitivity="1", scale="20"))
    kind: Literal["permute_and_flip"] = Field(description=KIND)

    def loss(self, stated: Relation) -> Loss:
        """Return a pure epsilon."""
        return pure(self.epsilon(stated))


class Releases(StrEnum):
    """The data that are published with a positive answer."""

    ABOVE_BELOW = "above_below"
    FRESH_NOISY_ANSWER = "fresh_noisy_answer"
    NOISY_COMPARISON = "noisy_comparison"


class SparseVector(Sensitive):
    """Compares noisy answers with one noisy threshold, up to ``max_positives`` positives (c).

    Lyu, Su, Li 2017, Alg. 7 and Theorems 4 and 5: eps1 + eps2 + eps3 with eps1 = sensitivity /
    threshold_scale, eps2 = 2 c sensitivity / comparison_scale (without the 2 if monotonic, under
    add-or-remove-one) and eps3 = c sensitivity / answer_scale for numeric answers. Preconditions:
    the threshold noise is drawn once, each comparison has fresh noise, the session ends at the c-th
    positive, and numeric answers have noise of their own. ``count`` counts sessions.
    """

    model_config = examples(
        body("sparse_vector", sensitivity="1", threshold_scale="20")
        | {"comparison_scale": "400", "max_positives": 10}
    )
    kind: Literal["sparse_vector"] = Field(description=KIND)
    sensitivity: Positive
    """The most by which one privacy unit can change any one answer, in its units."""
    threshold_scale: NonNegative
    """Scale of the Laplace noise on the threshold, drawn once per session, in units of the answers.
    0 = none, which is refused with the reason (Lyu, Su, Li 2017)."""
    comparison_scale: NonNegative
    """Scale of the fresh Laplace noise on each answer that is compared, in units of the answers. 0
    = none, which is refused with the reason (Lyu, Su, Li 2017, Alg. 5)."""
    answer_scale: NonNegative | None = None
    """Scale of the fresh Laplace noise on the number released with each positive, in units of the
    answers; given exactly when `releases` is fresh_noisy_answer."""
    max_positives: Count | None
    """Positives (c) after which the session stops. null = no cut-off, which is refused with the
    reason (Lyu, Su, Li 2017, Algs. 5 and 6)."""
    monotonic: bool = Field(default=False, strict=True)
    """True if one more unit can only raise all answers, or only lower them all, as with counts;
    halves the comparisons' cost, under add_or_remove_one only."""
    releases: Releases = Releases.ABOVE_BELOW
    """What a positive publishes: only that it is above; also a number with noise of its own; or the
    very number that was compared, which is refused with the reason (Lyu, Su, Li 2017, Alg. 3)."""

    @model_validator(mode="after")
    def _answers(self) -> Self:
        fresh = self.releases is Releases.FRESH_NOISY_ANSWER
        if fresh and self.answer_scale is None:
            raise PydanticCustomError(
                "answer_scale_missing", "answer_scale is required for fresh_noisy_answer"
            )
        if not fresh and self.answer_scale is not None:
            raise PydanticCustomError(
                "answer_scale_misplaced", "answer_scale goes with fresh_noisy_answer only"
            )
        return self

    def loss(self, stated: Relation) -> Loss:
        """Return eps1 + eps2 + eps3, all c positives included."""
        return self._after(self.max_positives or 0, stated)

    def loss_after(self, positives: int, population: Relation) -> Loss:
        """Return the realised loss of one session after ``positives``, in the population's
        relation; unbounded where the loss of the whole session is.

        eps1 + positives / c x (eps2 + eps3): an ex-post bound, true along the path taken, hence
        good for adding up epsilons and for nothing else. Negatives are free; eps1 is spent as soon
        as the session opens. The loss of a sampled session is known only at its end.
        """
        if not 0 <= positives <= (self.max_positives or positives):
            raise ValueError(f"positives must be from 0 to {self.max_positives}, not {positives}")
        stated = self.neighbouring or population
        if self.sampling is None:
            loss = self._after(positives, stated)
        else:
            loss = self.sampling.applied(self.loss(stated), stated)
        return convert(loss.group(self.group_size), stated, population)

    def _after(self, positives: int, stated: Relation) -> Loss:
        """Return the loss of ``positives``, each with its comparison and numeric answer."""
        if self._defects():
            return UNBOUNDED
        width = Fraction(self.sensitivity)
        halved = self.monotonic and stated.present
        comparison = (1 if halved else 2) * width / Fraction(self.comparison_scale)
        answer = width / Fraction(self.answer_scale) if self.answer_scale else Fraction(0)
        threshold = width / Fraction(self.threshold_scale)
        return pure(threshold + positives * (comparison + answer))

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Object to parameters without a bound, and to ``monotonic`` under replace-one."""
        broken = tuple(Objection(BROKEN, text) for text in self._defects())
        return broken + _misplaced(self.monotonic, stated)

    def understated(self, claim: Loss, derived: Loss) -> Objection:
        """Explain a claim that pays for at least one positive, but not for c, on its own."""
        c, width = self.max_positives, Fraction(self.sensitivity)
        scales = (self.threshold_scale, self.comparison_scale, self.answer_scale)
        # The least price of one positive in any reading, so also without the factor 2.
        one = sum((width / Fraction(scale) for scale in scales if scale), Fraction(0))
        low = claim.epsilon is None or claim.epsilon < one * _ROUNDING
        if c is None or c == 1 or low:
            return super().understated(claim, derived)
        return Objection(
            BROKEN,
            f"At this comparison noise every one of the {c} positives costs again: "
            f"{in_words(derived)} in all. The claim ({in_words(claim)}) pays for fewer, as if the "
            "noise grew with max_positives (Lyu, Su, Li 2017, Alg. 4). Scale the comparison noise "
            f"with {c}, lower max_positives, or claim the whole.",
        )

    def _defects(self) -> list[str]:
        """Return one explanation for each parameter that makes the loss unbounded."""
        return [text for (field, value), text in _DEFECTS.items() if getattr(self, field) == value]


_DEFECTS: Final = {
    ("comparison_scale", 0): (
        "The comparisons have no noise (comparison_scale 0): the threshold noise is drawn only "
        "once, and enough answers reveal the data (Lyu, Su, Li 2017, Alg. 5)."
    ),
    ("threshold_scale", 0): (
        "The threshold has no noise (threshold_scale 0): every negative answer then costs as much "
        "as a positive one, and their number is not bounded."
    ),
    ("releases", Releases.NOISY_COMPARISON): (
        "The noisy number that was compared is itself released (noisy_comparison). It bounds the "
        "noisy threshold, which the free negatives rely on staying hidden; release a number with "
        "fresh noise instead (Lyu, Su, Li 2017, Alg. 3)."
    ),
    ("max_positives", None): (
        "There is no cut-off (max_positives null): every positive costs, and their number is not "
        "bounded (Lyu, Su, Li 2017, Algs. 5 and 6)."
    ),
    ("answer_scale", 0): "The numbers released with positives have no noise (answer_scale 0).",
}
