"""Private multiplicative weights, online: synthetic data answer nearly all questions for free.

Hardt and Rothblum, *A multiplicative weights mechanism for privacy-preserving data analysis*, FOCS
2010; Dwork and Roth 2014, Sec. 4.2. A sparse vector session compares by how much the synthetic
histogram errs on each question with a threshold. If it seems little, the synthetic answer is
given. Else a noisy true answer is given, and the histogram is moved towards it.

What is charged is the session: the error |f(x) - f(y)| on a public histogram y changes by no more
than f(x) does, and the number that is published with a positive has fresh noise on f(x) itself.
All else is made from these outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self, Unpack

from accountant.client.amounts import Amount
from accountant.client.mechanisms import Mechanism, mechanism
from accountant.client.results import Preview
from accountant.queries.arguments import confidence as sensible
from accountant.queries.arguments import whole_number
from accountant.queries.budgets import Budget
from accountant.queries.compounds import part
from accountant.queries.exact import positive
from accountant.queries.multiplicative import Synthetic
from accountant.queries.paid import ByAnswer, Whole
from accountant.queries.query import CONFIDENCE, Asking, Charged, Error, Reasons, Receipt
from accountant.queries.records import Records
from accountant.queries.sessions import MOST_QUESTIONS
from accountant.queries.sparse import Running, SparseVector
from accountant.queries.universe import MOST_RECORDS, PARTS, Counts, Linear, Universe, exactly


def online_weights(
    data: Records,
    columns: Mapping[str, Sequence[Any] | None],
    *,
    records: int,
    epsilon: Amount,
    updates: int,
    threshold: Amount | None = None,
    questions: int = 1000,
) -> OnlineWeights:
    """Describe online multiplicative weights over the categories of ``columns``.

    ``records``: how many records there are, from public knowledge or from a count that was
    released; it scales the synthetic data, and no privacy depends on it. ``updates``: the number of
    noisy answers after which it ends. ``threshold``: the error of the synthetic data above which a
    question is answered from the data. By default it is the least for which so many updates
    suffice for so many ``questions``, by the theorem that ``error`` names; a smaller one errs less
    and may end sooner.

    Nothing is spent. Raise ValueError for what makes no sense.
    """
    budget, universe = Budget.of(data, epsilon), Universe.of(data, columns)
    total, most = (
        whole_number("records", records, 1, MOST_RECORDS),
        whole_number("updates", updates, 1, 10**6),
    )
    reach = data.unit().of_sum(Fraction(0), Fraction(1))
    what = SparseVector.costing(
        budget.amount, reach, most, numbers=True, neighbouring=budget.stated
    )
    beta, asked = (1 - CONFIDENCE) / 2, whole_number("questions", questions, 1, MOST_QUESTIONS)
    if threshold is None:
        mended = math.hypot(total * _gap(universe, most), what.numbers_within(beta))
        level = Fraction(what.within(beta, asked) + mended)
    else:
        level = positive("the threshold", threshold)
    counts = universe.counts(data)
    what.place(max(int(counts.sum()), total))
    return OnlineWeights(data.charged, what, level, universe, counts, total, data.notes)


def _gap(universe: Universe, updates: int) -> float:
    """Return the error, as a share of all records, that so many exact updates always mend."""
    return 2 * math.sqrt(math.log(universe.size) / updates)


@dataclass(frozen=True, slots=True)
class OnlineWeights:
    """What will run and cost; nothing is drawn and nothing spent before ``open``."""

    on: Charged
    what: SparseVector
    threshold: Fraction
    universe: Universe
    counts: Counts = field(repr=False)
    records: int
    notes: tuple[str, ...] = ()

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What will run, as the service will be told."""
        updates, relation = part(self.what.mechanism), self.what.neighbouring
        return (mechanism("multiplicative_weights", updates=updates, neighbouring=relation),)

    def error(self, confidence: float = CONFIDENCE, *, questions: int) -> Error:
        """Return a bound on the error of all answers, to so many ``questions``, while it lasts.

        With half of the probability of failure each, no comparison is off by more than a, and no
        number by more than b. Then synthetic answers err by threshold + a, and the others by b. An
        update is made only where the data err by d = threshold - a or more, and lowers the relative
        entropy, which begins with ln |X| at most, by (d^2 - b^2) / (2 records)^2. So the updates
        never run out if that is at least ln |X| / updates (Hardt and Rothblum 2010; Dwork and Roth
        2014, Theorem 4.10; the update is that of Hardt, Ligett, McSherry 2012). ``records`` has to
        be right for this.
        """
        beta, level = (1 - sensible(confidence)) / 2, float(self.threshold)
        off = self.what.within(beta, whole_number("questions", questions, 1, MOST_QUESTIONS))
        told = self.what.numbers_within(beta)
        mended = math.hypot(self.records * _gap(self.universe, self.what.positives), told)
        lasts = level - off >= mended * (1 - 1e-9)
        how = "threshold and noise; the updates " + (
            "suffice, whatever is asked" if lasts else "may run out before"
        )
        condition = f"there are {self.records} records"
        return Error(max(level + off, told), confidence, "records", how, condition)

    def cost(self, **reasons: Unpack[Reasons]) -> Preview:
        """Return what the ledger would decide now, and the charge."""
        on = self.on
        return on.ledger.preview(on.dataset, self.mechanisms, subjects=on.subjects, **reasons)

    def open(self, *, give_back: bool = False, **asking: Unpack[Asking]) -> Weights:
        """Ask for the whole cost and return the session. Raise Refused if it is not granted.

        It is charged whole as ``multiplicative_weights`` once a question was asked. With
        ``give_back`` it is a sparse vector session of the service, of the same cost: each update
        is counted before its answer is shown, and the epsilon of those that were not made comes
        back.
        """
        learner, on = Learner(self, self.what.begin(self.threshold)), self.on
        if give_back:
            told = self.what.mechanism
            session = on.ledger.sparse_vector(on.dataset, told, subjects=on.subjects, **asking)
            return Weights(self.universe, learner, ByAnswer(on, session))
        grant = on.ledger.grant(
            on.dataset, self.mechanisms, tracked=True, subjects=on.subjects, **asking
        )
        return Weights(self.universe, learner, Whole(on, grant))


@dataclass(frozen=True, slots=True)
class Estimate:
    """The answer to a question."""

    value: float
    updated: bool
    """It is a noisy true answer, and the synthetic data were moved towards it."""


class Learner:
    """Synthetic data beside a session that has begun; it asks no ledger."""

    def __init__(self, what: OnlineWeights, running: Running) -> None:
        self._counts, self.running = what.counts, running
        self.synthetic = Synthetic.uniform(what.universe.size, what.records)

    def ask(self, question: Linear) -> Estimate:
        """Answer one question. With data B of n records, synthetic data A and a noisy answer m, the
        update is by e^((m - q(A)) q(x) / 2n): it lowers the relative entropy by ((q(B) - q(A))^2 -
        (m - q(B))^2) / 4n^2 at least (Hardt, Ligett, McSherry 2012, Appendix A).
        """
        true, ours = question.of(self._counts), question.on(self.synthetic.cells)
        outcome = self.running.ask(exactly(abs(true - ours)), exactly(true))
        if outcome.number is None:
            return Estimate(ours / PARTS, updated=False)
        total = self.synthetic.total
        inside = min(max(outcome.number, 0.0), total)
        self.synthetic = self.synthetic.moved(question, (inside - ours / PARTS) / (2 * total))
        return Estimate(float(outcome.number), updated=True)


class Weights:
    """An open session over synthetic data. Use it as a context manager."""

    def __init__(self, universe: Universe, learner: Learner, paid: ByAnswer | Whole) -> None:
        self._universe, self._learner, self._paid = universe, learner, paid

    @property
    def synthetic(self) -> Synthetic:
        """The synthetic data as they are: public, and free to ask."""
        return self._learner.synthetic

    @property
    def left(self) -> int:
        """How many updates are left."""
        return self._learner.running.left

    @property
    def receipt(self) -> Receipt:
        """Where the charge is in the ledger."""
        return self._paid.receipt

    def ask(self, question: Any) -> Estimate:
        """Return how many records count, by the weights that ``question`` gives to the cells (or
        what ``universe.where`` makes). Raise SessionOver after the last update: ``synthetic``
        then still answers.
        """
        [found] = self.ask_all([question])
        return found

    def ask_all(self, questions: Sequence[Any]) -> list[Estimate]:
        """Return the answers to several questions, up to the last update: there may be fewer
        answers than questions. A question that makes no sense raises ValueError, and costs nothing.
        """
        asked = [self._universe.linear(question) for question in questions]
        with self._paid.lock:
            self._learner.running.check()
            if not asked:
                return []
            self._paid.drawing()
            found = [self._learner.ask(question) for question in asked if self.left]
            updates = sum(estimate.updated for estimate in found)
            self._paid.count(updates, len(found) - updates)
            return found

    def __enter__(self) -> Self:
        self._paid.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._paid.__exit__(kind, error, trace)
