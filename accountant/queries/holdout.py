"""A reusable holdout (Thresholdout): it says anew and anew whether what was found in training data
holds, and wears out only where it does not.

Dwork, Feldman, Hardt, Pitassi, Reingold, Roth, *The reusable holdout: preserving validity in
adaptive data analysis*, Science 349, 2015. A question is a mean. If its values on training and
holdout differ by less than a noisy threshold, the training value is given back. Else the holdout
value is, with noise, and the threshold is drawn anew: sparse vector sessions of one positive each.

The training values are given as they are: the training data have to be public, or their people's
privacy is paid for elsewhere. What is charged is the privacy of those in the holdout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self, Unpack

import numpy as np

from accountant.client.amounts import Amount
from accountant.client.mechanisms import Mechanism, mechanism
from accountant.client.results import Preview
from accountant.queries.arguments import MOST_RECORDS, whole_number
from accountant.queries.arguments import confidence as sensible
from accountant.queries.budgets import Budget
from accountant.queries.exact import clipped, decimal_above, exact_sum, positive
from accountant.queries.frame import Column, Frame, listed
from accountant.queries.paid import Whole
from accountant.queries.query import CONFIDENCE, Asking, Charged, Error, Reasons, Receipt
from accountant.queries.records import Records
from accountant.queries.sessions import MOST_QUESTIONS
from accountant.queries.sparse import SessionOver, SparseVector

Columns = Mapping[str, Column]
Values = Callable[[Columns], Any]
"""One number from 0 to 1 a record, from that record alone; records come as columns by name."""


def reusable_holdout(
    data: Records,
    training: Any,
    columns: Sequence[str],
    *,
    threshold: Amount,
    epsilon: Amount,
    budget: int,
    records: int | None = None,
) -> Holdout:
    """Describe a holdout of ``data`` for ``training``, a table with the same ``columns``, which
    answers until training and holdout have differed by about ``threshold`` so often as ``budget``
    says. ``records``: what sums over the holdout are divided by, public; needed where the number of
    its records is private.

    Nothing is spent. Raise ValueError for what makes no sense.
    """
    amount, most = Budget.of(data, epsilon), whole_number("budget", budget, 1, 10**6)
    level, unit, names = positive("the threshold", threshold), data.unit(), listed(columns)
    if not names:
        raise ValueError("say by columns what the questions read")
    if records is None and not unit.fixed:
        raise ValueError(
            "how many records the holdout has is private: say by records what to divide by, from "
            "public knowledge"
        )
    size = data.rows() if records is None else whole_number("records", records, 1, MOST_RECORDS)
    reach = unit.of_sum(Fraction(0), Fraction(1)) / size
    what = SparseVector.costing(
        amount.amount / most, reach, 1, numbers=True, neighbouring=amount.stated
    )
    what.begin(level)  # so that nothing fails later
    what.place(Fraction(data.rows(), size))
    ours = dict(zip(names, data.raw(*names), strict=True))
    table = Frame.of(training)
    theirs = {name: table.column(name) for name in names}
    return Holdout(data.charged, what, level, most, size, ours, theirs, data.notes)


@dataclass(frozen=True, slots=True)
class Holdout:
    """What will run and cost; nothing is drawn and nothing spent before ``open``."""

    on: Charged
    what: SparseVector
    """One of the sessions."""
    threshold: Fraction
    budget: int
    size: int
    ours: Columns = field(repr=False)
    theirs: Columns = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What will run, as the service will be told."""
        what = self.what
        told = mechanism(
            "reusable_holdout",
            sensitivity=decimal_above(what.sensitivity),
            threshold_scale=what.threshold_scale,
            comparison_scale=what.comparison_scale,
            answer_scale=what.answer_scale,
            budget=self.budget,
            neighbouring=what.neighbouring,
            sampler=what.mechanism["sampler"],
        )
        return (told,)

    def error(self, confidence: float = CONFIDENCE, *, questions: int) -> Error:
        """Return a bound on how far the answers are from the holdout's own means, for so many
        ``questions``, while it lasts: threshold and noise. How far these are from the means of the
        population they were drawn from is what the paper's Theorem 25 says.
        """
        beta, asked = (
            (1 - sensible(confidence)) / 2,
            whole_number("questions", questions, 1, MOST_QUESTIONS),
        )
        kept = float(self.threshold) + self.what.within(beta, asked, self.budget)
        told = self.what.numbers_within(beta, self.budget)
        how = "threshold and noise of all comparisons, or the noise of the answers"
        return Error(max(kept, told), confidence, "units of the mean", how)

    def cost(self, **reasons: Unpack[Reasons]) -> Preview:
        """Return what the ledger would decide now, and the charge."""
        on = self.on
        return on.ledger.preview(on.dataset, self.mechanisms, subjects=on.subjects, **reasons)

    def open(self, **asking: Unpack[Asking]) -> Thresholdout:
        """Ask for the whole cost. Raise Refused if it is not granted. All of it is charged once a
        question was asked.
        """
        checker, on = Checker(self), self.on
        grant = on.ledger.grant(
            on.dataset, self.mechanisms, tracked=True, subjects=on.subjects, **asking
        )
        return Thresholdout(checker, Whole(on, grant))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a question."""

    value: float
    overfitted: bool
    """Training and holdout differ: the value is the holdout's, with noise."""


class Checker:
    """A holdout that has begun: one session of one positive after the other. It asks no ledger."""

    def __init__(self, what: Holdout) -> None:
        self._what, self.left = what, what.budget
        self.running = what.what.begin(what.threshold)

    def means(self, question: Values) -> tuple[Fraction, Fraction]:
        """Return the exact means of a question on holdout and training. Raise ValueError for what
        are no numbers.
        """
        what = self._what
        rows = len(next(iter(what.theirs.values())))
        return _sum(question, what.ours) / what.size, _sum(question, what.theirs) / rows

    def ask(self, ours: Fraction, theirs: Fraction) -> Verdict:
        """Compare two means. Raise SessionOver when the budget is used up."""
        self.check()
        outcome = self.running.ask(abs(ours - theirs), ours)
        if outcome.number is None:
            return Verdict(float(theirs), overfitted=False)
        self.left -= 1
        self.running = self._what.what.begin(self._what.threshold)
        return Verdict(float(outcome.number), overfitted=True)

    def check(self) -> None:
        """Raise SessionOver when the budget is used up."""
        if not self.left:
            times = self._what.budget
            raise SessionOver(f"the holdout is used up: it has answered {times} times")


class Thresholdout:
    """An open holdout. Use it as a context manager."""

    def __init__(self, checker: Checker, paid: Whole) -> None:
        self._checker, self._paid = checker, paid

    @property
    def left(self) -> int:
        """How many answers from the holdout are left."""
        return self._checker.left

    @property
    def receipt(self) -> Receipt:
        """Where the charge is in the ledger."""
        return self._paid.receipt

    def ask(self, question: Values) -> Verdict:
        """Return the mean of ``question`` over the records, of which one counts from 0 to 1 each.
        Raise SessionOver when the budget is used up, ValueError for what are no such numbers.
        """
        means = self._checker.means(question)
        with self._paid.lock:
            self._checker.check()
            self._paid.drawing()
            return self._checker.ask(*means)

    def __enter__(self) -> Self:
        self._paid.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._paid.__exit__(kind, error, trace)


def _sum(question: Values, columns: Columns) -> Fraction:
    values, rows = np.asarray(question(columns)), len(next(iter(columns.values())))
    if values.shape != (rows,) or values.dtype.kind not in "biuf":
        raise ValueError(f"a question has one number a record, {rows} in all")
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("a question gives a record a number that is not finite")
    return exact_sum(clipped(numbers, Fraction(0), Fraction(1)))
