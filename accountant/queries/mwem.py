"""Multiplicative weights with the exponential mechanism, offline: synthetic data for a list of
questions.

Hardt, Ligett, McSherry, *A simple and practical algorithm for differentially private data release*,
NIPS 2012. Each round chooses a question on which the synthetic data err much, measures it with
noise, and moves the data towards the measurement. The answer is the average over the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from accountant.client.amounts import Amount
from accountant.client.mechanisms import Mechanism, mechanism
from accountant.queries.arguments import whole_number
from accountant.queries.budgets import Budget
from accountant.queries.choices import Exponential
from accountant.queries.compounds import part
from accountant.queries.multiplicative import Synthetic, average
from accountant.queries.query import Error, Query
from accountant.queries.records import Records
from accountant.queries.steps import Draw, Laplace, Step, apart
from accountant.queries.universe import MOST_RECORDS, Counts, Linear, Universe, as_float, exactly


def mwem(
    data: Records,
    columns: Mapping[str, Sequence[Any] | None],
    questions: Sequence[Any],
    *,
    records: int,
    epsilon: Amount,
    rounds: int,
) -> Query:
    """Describe synthetic data over the categories of ``columns`` that answer the ``questions``
    (weights of the cells, or what ``Universe.where`` makes). ``records``: how many records there
    are, from public knowledge or a released count; no privacy depends on it.

    The value of the answer is a ``Weighted``. Raise ValueError for what makes no sense.
    """
    budget, universe = Budget.of(data, epsilon), Universe.of(data, columns)
    total = whole_number("records", records, 1, MOST_RECORDS)
    times = whole_number("rounds", rounds, 1, 10**6)
    step = Mwem.costing(
        budget.amount,
        data.unit().of_sum(Fraction(0), Fraction(1)),
        budget.stated,
        questions=universe.all_linear(questions),
        rounds=times,
        records=total,
    )
    counts = universe.counts(data)

    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        how = (
            "2n (ln |X| / T)^(1/2) and the noise of choice and measurement, over all questions "
            "(Hardt, Ligett, McSherry 2012, Theorem 2.2)"
        )
        condition = f"there are {step.records} records"
        return Error(step.within(1 - confidence), confidence, "records", how, condition)

    return Query(
        "mwem", data.charged, (step,), lambda: [counts], lambda drawn: drawn[0], bounds, data.notes
    )  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class Weighted:
    """Synthetic data, and what was measured: the place of each chosen question, and its noisy
    answer.
    """

    synthetic: Synthetic
    measured: tuple[tuple[int, float], ...]

    def answer(self, question: Linear) -> float:
        """Return how many of the synthetic records count."""
        return self.synthetic.answer(question)


@dataclass(frozen=True, kw_only=True)
class Mwem(Step):
    """All rounds. ``scale`` is that of a measurement."""

    kind: ClassVar[str] = "multiplicative_weights"

    questions: tuple[Linear, ...] = field(repr=False)
    rounds: int
    records: int
    selection: Exponential
    measurement: Laplace

    @classmethod
    def costing(
        cls,
        epsilon: Fraction,
        sensitivity: Fraction,
        neighbouring: str | None,
        *,
        questions: tuple[Linear, ...],
        rounds: int,
        records: int,
    ) -> Mwem:
        """Return the step that costs at most ``epsilon``: half of a round's part for its choice,
        half for its measurement. The score is by how much the synthetic data err.
        """
        each = epsilon / (2 * rounds)
        scale = Exponential.scale_costing(each, sensitivity, monotonic=False)
        measurement = Laplace.costing(each, sensitivity)
        return cls(
            sensitivity=sensitivity,
            scale=measurement.scale,
            neighbouring=neighbouring,
            questions=questions,
            rounds=rounds,
            records=records,
            selection=Exponential(sensitivity, scale, outcomes=len(questions)),
            measurement=measurement,
        )

    @property
    def mechanism(self) -> Mechanism:
        """What is sent to the service."""
        return mechanism(
            self.kind,
            rounds=self.rounds,
            selection=part(self.selection.mechanism),
            measurement=part(self.measurement.mechanism),
            neighbouring=self.neighbouring,
        )

    def ready(self, value: Counts) -> Draw:
        """Return the draw of all rounds on the histogram. Scores are whole numbers of 2^-20, which
        floats hold exactly, so that a record changes none by more than the sensitivity.
        """
        true = [question.of(value) for question in self.questions]
        for parts in true:
            as_float(parts)
            self.measurement.ready(exactly(parts))
        start = Synthetic.uniform(value.size, self.records)
        scores = self._scores(true, start)
        self.selection.ready(scores)

        def draw() -> Weighted:
            synthetic, histograms, measured = start, [], []
            for _ in range(self.rounds):
                histograms.append(synthetic)
                chosen = self.selection.ready(self._scores(true, synthetic))()
                number = self.measurement.ready(exactly(true[chosen]))()
                measured.append((chosen, number))
                synthetic = self._moved(synthetic, self.questions[chosen], number)
            return Weighted(average(histograms), tuple(measured))

        return draw

    def _scores(self, true: Sequence[int], synthetic: Synthetic) -> list[float]:
        pairs = zip(true, self.questions, strict=True)
        return [as_float(abs(parts - each.on(synthetic.cells))) for parts, each in pairs]

    def _moved(self, synthetic: Synthetic, question: Linear, number: float) -> Synthetic:
        """Return the data moved by e^((m - q(A)) q(x) / 2n)."""
        inside = min(max(number, 0.0), float(self.records))
        return synthetic.moved(question, (inside - synthetic.answer(question)) / (2 * self.records))

    def within(self, beta: float) -> float:
        """Return the most by which the answer to any of the questions errs, except with probability
        ``beta``, half of it for all choices and half for all measurements.

        In a round whose choice falls short of the largest error e by s, and whose measurement errs
        by m, the relative entropy falls by ((e - s)^2 - m^2) / (2n)^2 at least, and it begins with
        ln |X| at most. So the mean of e over T rounds, which bounds the error of the average, is at
        most 2n (ln |X| / T)^(1/2) + m + s (Hardt, Ligett, McSherry 2012, Theorem 2.2).
        """
        short = self.selection.within(apart(beta / 2, self.rounds))
        off = self.measurement.within(apart(beta / 2, self.rounds))
        size = self.questions[0].weights.size
        return 2 * self.records * math.sqrt(math.log(size) / self.rounds) + off + short
