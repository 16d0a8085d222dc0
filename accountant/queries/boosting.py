"""Boosting for queries: synopses of questions drawn by weight, of which the median answers all.

Dwork, Rothblum, Vadhan, *Boosting and differential privacy*, FOCS 2010; Dwork and Roth 2014, Sec.
6. A round draws some questions by their weights, answers these with noise, and makes a synopsis
that agrees with the noisy answers. Then the weight grows of questions that the synopsis gets wrong.

The weight of a question after rounds 1 .. t is e^(S / scale), where S adds up, over the rounds, how
far its error |d| lies beyond ``fine``, cut at ``width``. A record changes each |d| by the
sensitivity, and S by t times that. So a draw is the exponential mechanism with score S. (In the
paper's terms lambda = fine, mu = width, and the weight is e^(-alpha sum of a) with a = 1 up to
lambda, -1 beyond lambda + mu and a line between them, so alpha = width / (2 scale).)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np

from accountant.client.amounts import Amount
from accountant.client.mechanisms import Mechanism, mechanism
from accountant.queries.arguments import whole_number
from accountant.queries.budgets import Budget
from accountant.queries.choices import Exponential
from accountant.queries.compounds import part
from accountant.queries.exact import decimal_above, number
from accountant.queries.multiplicative import Synthetic
from accountant.queries.query import CONFIDENCE, Error, Query
from accountant.queries.records import Records
from accountant.queries.steps import Draw, Laplace, Step, apart
from accountant.queries.universe import (
    MOST_RECORDS,
    PARTS,
    Counts,
    Linear,
    Universe,
    as_float,
    exactly,
)

_FITS: Final = 5
"""How often a synopsis is moved towards each noisy answer; it costs no privacy."""
_ENOUGH: Final = 1e-6
"""How near to them is near enough, as a share of all records."""


def boosting(
    data: Records,
    columns: Mapping[str, Sequence[Any] | None],
    questions: Sequence[Any],
    *,
    records: int,
    epsilon: Amount,
    rounds: int,
    draws: int,
    fine: Amount | None = None,
) -> Query:
    """Describe answers to all ``questions`` (weights of cells, or what ``Universe.where`` makes)
    from ``rounds`` synopses of so many ``draws`` each. ``records``: how many records there are,
    from public knowledge or a released count; no privacy depends on it. ``fine``: the error of a
    synopsis that is no reason for more weight, by default that of its noise.

    There have to be more than 2 ln(questions) rounds. The value of the answer is a ``Boosted``.
    Raise ValueError for what makes no sense.
    """
    budget, universe = Budget.of(data, epsilon), Universe.of(data, columns)
    step = Boosting.costing(
        budget.amount,
        data.unit().of_sum(Fraction(0), Fraction(1)),
        budget.stated,
        questions=universe.all_linear(questions),
        rounds=whole_number("rounds", rounds, 1, 10**6),
        draws=whole_number("draws", draws, 1, 10**4),
        records=whole_number("records", records, 1, MOST_RECORDS),
        fine=None if fine is None else number("fine", fine),
    )
    counts = universe.counts(data)

    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        how = "fine + width (Dwork, Rothblum, Vadhan 2010, Theorem 4.1)"
        condition = (
            f"each synopsis is within {float(step.fine):.6g} on a share of 1/2 + {step.edge:.3f} "
            "of the weight"
        )
        return Error(step.within(1 - confidence), confidence, "records", how, condition)

    return Query(
        "boosting", data.charged, (step,), lambda: [counts], lambda drawn: drawn[0], bounds,
        data.notes,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Round:
    """What a round published: the questions drawn, by place, and their noisy answers."""

    drawn: tuple[int, ...]
    told: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Boosted:
    """The median answer to each question, and all that was published to get there."""

    answers: tuple[float, ...]
    rounds: tuple[Round, ...]


@dataclass(frozen=True, kw_only=True)
class Boosting(Step):
    """All rounds. ``scale`` is that of the noise of a synopsis."""

    kind: ClassVar[str] = "boosting"

    questions: tuple[Linear, ...] = field(repr=False)
    rounds: int
    draws: int
    records: int
    fine: Fraction
    """The error of a synopsis up to which a question gains no weight, in whole 2^-20."""
    width: Fraction
    """How far beyond that the weight grows, in whole 2^-20."""
    draw: Exponential
    base: Laplace

    @classmethod
    def costing(
        cls,
        epsilon: Fraction,
        sensitivity: Fraction,
        neighbouring: str | None,
        *,
        questions: tuple[Linear, ...],
        rounds: int,
        draws: int,
        records: int,
        fine: Fraction | None = None,
    ) -> Boosting:
        """Return the step that costs at most ``epsilon``, half of a round's part for all its draws
        and half for its synopsis. The scores of the last round change by (T - 1) times the
        sensitivity, which is charged in every round. Raise ValueError for too few rounds.
        """
        if rounds <= 2 * math.log(len(questions) + 1) or rounds < 2:
            least = math.floor(2 * math.log(len(questions) + 1)) + 1
            raise ValueError(
                f"{rounds} rounds are too few for {len(questions)} questions: take {least} or more"
            )
        each = epsilon / (2 * rounds)
        moves = (rounds - 1) * sensitivity
        scale = Exponential.scale_costing(each / draws, moves, monotonic=False)
        base = Laplace.costing(each, draws * sensitivity, None, draws)
        edge = _edge(len(questions), rounds)
        width = float(scale) * math.log((1 + 2 * edge) / (1 - 2 * edge))
        if fine is None:
            fine = Fraction(base.within(apart(1 - CONFIDENCE, rounds)))
        if fine < 0:
            raise ValueError(f"fine is an error, and not below 0 as {float(fine)}")
        return cls(
            sensitivity=sensitivity,
            scale=base.scale,
            neighbouring=neighbouring,
            questions=questions,
            rounds=rounds,
            draws=draws,
            records=records,
            fine=_whole(fine),
            width=_whole(Fraction(width)),
            draw=Exponential(decimal_above(moves), scale, outcomes=len(questions)),
            base=base,
        )

    @property
    def edge(self) -> float:
        """The edge eta over 1/2 that a synopsis has to have: T > ln |Q| / (2 eta^2)."""
        return _edge(len(self.questions), self.rounds)

    @property
    def mechanism(self) -> Mechanism:
        """What is sent to the service."""
        return mechanism(
            self.kind,
            rounds=self.rounds,
            draws=self.draws,
            draw=part(self.draw.mechanism),
            base=part(self.base.mechanism),
            neighbouring=self.neighbouring,
        )

    def ready(self, value: Counts) -> Draw:
        """Return the draw of all rounds on the histogram. Scores are whole numbers of 2^-20, which
        floats hold exactly.
        """
        true = [question.of(value) for question in self.questions]
        largest = max(true, key=abs)
        self.base.ready([exactly(largest)] * self.draws)
        as_float(largest)
        as_float(int(self.width * PARTS) * self.rounds)
        self.draw.ready([0.0] * len(true))

        def draw() -> Boosted:
            scores, rounds, synopses = [0] * len(true), [], []
            for _ in range(self.rounds):
                chooser = self.draw.ready([as_float(score) for score in scores])
                drawn = tuple(chooser() for _ in range(self.draws))
                told = self.base.ready([exactly(true[place]) for place in drawn])()
                synopsis = self._synopsis(value.size, drawn, told)
                scores = [
                    score + self._beyond(abs(parts - ours))
                    for score, parts, ours in zip(scores, true, synopsis, strict=True)
                ]
                rounds.append(Round(drawn, tuple(told)))
                synopses.append(synopsis)
            medians = np.median(np.array(synopses, dtype=np.float64), axis=0) / PARTS
            return Boosted(tuple(medians.tolist()), tuple(rounds))

        return draw

    def _beyond(self, error: int) -> int:
        """Return how far an error lies beyond ``fine``, cut at ``width``, in parts."""
        return min(max(error - int(self.fine * PARTS), 0), int(self.width * PARTS))

    def _synopsis(self, cells: int, drawn: Sequence[int], told: Sequence[float]) -> list[int]:
        """Return the answers, in parts, of synthetic data that agree with the noisy answers, as
        far as multiplicative weights get. It is made from these alone.
        """
        synthetic = Synthetic.uniform(cells, self.records)
        known = [
            (self.questions[place], min(max(answer, 0.0), float(self.records)))
            for place, answer in zip(drawn, told, strict=True)
        ]
        enough = max(float(self.fine) / 4, _ENOUGH * self.records)
        for _ in range(_FITS * len(known)):
            off = [answer - synthetic.answer(question) for question, answer in known]
            worst = max(range(len(off)), key=lambda i: abs(off[i]))
            if abs(off[worst]) <= enough:
                break
            question, _ = known[worst]
            synthetic = synthetic.moved(question, _newton(synthetic, question, off[worst]))
        return [question.on(synthetic.cells) for question in self.questions]

    def within(self, beta: float) -> float:
        """Return fine + width: every median is within it, if every synopsis is within ``fine`` on a
        share of 1/2 + ``edge`` of the weight. (If the median errs by more, at least half of the
        synopses err by more than fine + width, so that the question's weight is 1 or more; but all
        weights together are at most |Q| (1 - 4 edge^2)^(T/2) <= |Q| e^(-2 edge^2 T) < 1.) That
        synopses of a sample are as good on all questions is the base generator's part of the
        theorem, and is not proved here, so ``beta`` does not count.
        """
        return float(self.fine + self.width)


def _newton(synthetic: Synthetic, question: Linear, off: float) -> float:
    """Return the exponent that would move an answer by ``off`` if its slope stayed what it is: the
    variance of the question on the data.
    """
    shares, weights = question.shares, synthetic.cells / synthetic.total
    mean = float(weights @ shares)
    variance = float(weights @ (shares - mean) ** 2)
    step = off / (synthetic.total * variance) if variance > 0 else math.copysign(1, off)
    return min(max(step, -1.0), 1.0)


def _edge(questions: int, rounds: int) -> float:
    return math.sqrt(math.log(questions + 1) / (2 * rounds))


def _whole(value: Fraction) -> Fraction:
    """Return the next whole number of parts."""
    return Fraction(math.ceil(value * PARTS), PARTS)
