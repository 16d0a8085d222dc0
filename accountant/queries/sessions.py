"""Sparse vector sessions: many threshold questions, of which only positive answers cost.

::

    questions = sessions.sparse_vector(survey, threshold=100, epsilon=0.5, positives=3)
    questions.error(0.95, questions=500), questions.cost()        # nothing is spent yet
    with questions.open(purpose="outbreaks") as session:
        for district in districts:
            if session.ask(survey.where(district=district)):
                ...

The session reserves its whole cost. Every answer is counted with the service before it is shown;
``ask_all`` counts many at once. When the block ends well the session is closed, and the epsilon of
unused positives comes back. After an exception, or an answer that could not be counted, it stays
open and expires, charged in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final, Self, Unpack

from accountant.client.amounts import Amount
from accountant.client.calls import Settles
from accountant.client.mechanisms import Mechanism
from accountant.client.results import Preview, Settlement
from accountant.queries.arguments import confidence as sensible
from accountant.queries.arguments import rational, whole_number
from accountant.queries.budgets import Budget
from accountant.queries.exact import number, positive
from accountant.queries.frame import Column, listed
from accountant.queries.paid import ByAnswer
from accountant.queries.query import CONFIDENCE, Asking, Charged, Error, Reasons, Receipt
from accountant.queries.records import Records
from accountant.queries.sparse import Outcome, Running, SparseVector

MOST_POSITIVES: Final = 10**6
MOST_QUESTIONS: Final = 10**9

Measure = Callable[[Mapping[str, Column]], Any]
"""A number about the selected records, which come as columns by name."""
Question = Records | Measure
"""Records to count, or what to work out from all of them."""


def sparse_vector(
    data: Records,
    *,
    threshold: Amount,
    epsilon: Amount,
    positives: int,
    numbers: bool = False,
    sensitivity: Amount | None = None,
    columns: Sequence[str] = (),
    monotonic: bool = False,
) -> Comparing:
    """Describe a session that says of each question whether its answer is about ``threshold`` or
    more, until so many ``positives``. With ``numbers`` a positive comes with a noisy number, for a
    third of the epsilon.

    Without a ``sensitivity`` the questions count records: each is a selection from ``data``, as
    ``data.where(...)`` makes it. With one they are functions of the named ``columns`` that return a
    number, of which one privacy unit, with all its records, changes none by more than that; it is
    the caller's word, as is ``monotonic`` then (one more unit can only raise all answers, or only
    lower them all).

    Nothing is spent. Raise ValueError for what makes no sense.
    """
    budget, level = Budget.of(data, epsilon), number("the threshold", threshold)
    most = whole_number("positives", positives, 1, MOST_POSITIVES)
    unit = data.unit()
    if monotonic and not unit.present:
        raise ValueError(
            "answers are monotonic only where a unit comes or goes; replacing one moves them both "
            "ways: leave monotonic out"
        )
    if sensitivity is None and (columns or monotonic):
        raise ValueError(
            "columns and monotonic go with functions: say by sensitivity how much a unit changes "
            "their answers"
        )
    counts = sensitivity is None
    one = Fraction(1)
    reach = (
        replace(unit, fixed=False).of_sum(Fraction(0), one)
        if sensitivity is None
        else positive("the sensitivity", sensitivity)
    )
    what = SparseVector.costing(
        budget.amount,
        reach,
        most,
        numbers=numbers,
        monotonic=unit.present if counts else monotonic,
        neighbouring=budget.stated,
        whole=counts,
    )
    names = listed(columns)
    read = dict(zip(names, data.raw(*names), strict=True)) if names else {}
    return Comparing(data.charged, what, level, data, None if counts else read, data.notes)


@dataclass(frozen=True, slots=True)
class Comparing:
    """What a session will run and cost; nothing is drawn and nothing spent before ``open``."""

    on: Charged
    what: SparseVector
    threshold: Fraction
    data: Records = field(repr=False)
    read: Mapping[str, Column] | None = field(repr=False)
    """The columns that functions read; None where questions count records."""
    notes: tuple[str, ...] = ()

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What will run, as the service will be told."""
        return (self.what.mechanism,)

    def error(self, confidence: float = CONFIDENCE, *, questions: int) -> Error:
        """Return how far an answer has to be from the threshold so that it is certainly, with this
        ``confidence`` for so many ``questions`` at once, told on the right side of it.
        """
        beta = 1 - sensible(confidence)
        amount = self.what.within(beta, whole_number("questions", questions, 1, MOST_QUESTIONS))
        how = "the quantiles of the threshold's noise and of the largest noise of all comparisons"
        return Error(amount, confidence, "units of the answers", how)

    def numbers(self, confidence: float = CONFIDENCE) -> Error:
        """Return how far off the published numbers are, all of them at once."""
        amount = self.what.numbers_within(1 - sensible(confidence))
        how = "the quantile of the noise, for all numbers at once"
        return Error(amount, confidence, "units of the answers", how)

    def cost(self, **reasons: Unpack[Reasons]) -> Preview:
        """Return what the ledger would decide now, and what is reserved if no positive is left."""
        on = self.on
        return on.ledger.preview(on.dataset, self.mechanisms, subjects=on.subjects, **reasons)

    def open(self, **asking: Unpack[Asking]) -> Comparisons:
        """Ask for the whole cost and return the session. Raise Refused if it is not granted."""
        running, on = self.what.begin(self.threshold), self.on
        session = on.ledger.sparse_vector(
            on.dataset, self.what.mechanism, subjects=on.subjects, **asking
        )
        return Comparisons(self, running, ByAnswer(on, session))

    def answer(self, question: Question) -> Fraction:
        """Return the exact answer to a question. Raise ValueError for one that is not covered."""
        if self.read is None:
            return Fraction(self._selected(question).rows())
        if not callable(question):
            raise ValueError("this session answers functions of its columns, and no selections")
        return rational(question(self.read))

    def _selected(self, question: Question) -> Records:
        ours = self.data
        if not isinstance(question, Records):
            raise ValueError(
                "this session counts records: ask it about a selection, as where() makes it; for "
                "other questions say by sensitivity how much a unit changes their answers"
            )
        same = (
            question.table is ours.table
            and (question.name, question.people) == (ours.name, ours.people)
            and question.records_per_unit == ours.records_per_unit
            and question.unit_column == ours.unit_column
        )
        if not same:
            raise ValueError("the question is about other data than the session is charged to")
        for name, values in ours.groups.items():
            if not set(question.groups.get(name, ("",))) <= set(values):
                raise ValueError(
                    f"the session is charged to {', '.join(values)} as {name!r}: ask about a "
                    "selection from these"
                )
        return question


class Comparisons:
    """An open session. Use it as a context manager; several threads may."""

    def __init__(self, what: Comparing, running: Running, paid: ByAnswer) -> None:
        self._what, self._running, self._paid = what, running, paid

    @property
    def left(self) -> int:
        """How many positives are left."""
        return self._running.left

    @property
    def positives(self) -> int:
        """How many the service has counted."""
        return self._paid.session.positives

    @property
    def negatives(self) -> int:
        """How many the service has counted."""
        return self._paid.session.negatives

    @property
    def receipt(self) -> Receipt:
        """Where the charge is in the ledger: of the whole session, or what is left when closed."""
        return self._paid.receipt

    @property
    def settlement(self) -> Settlement | None:
        """What was charged, once the session is closed."""
        return self._paid.settlement

    def ask(self, question: Question) -> Outcome:
        """Return whether the answer is above. Raise SessionOver after the last positive."""
        [found] = self.ask_all([question])
        return found

    def ask_all(self, questions: Sequence[Question]) -> list[Outcome]:
        """Return the answers to questions that do not depend on each other's answers, up to the
        last positive: there may be fewer answers than questions. They are counted at once.

        Every exact answer is worked out before the first noise is drawn: a question that cannot be
        answered costs nothing.
        """
        values = [self._what.answer(question) for question in questions]
        with self._paid.lock:
            self._running.check(values)
            if not values:
                return []
            self._paid.drawing()
            found = self._running.ask_all(values)
            above = sum(outcome.above for outcome in found)
            self._paid.count(above, len(found) - above)
            return found

    def close(self, **more: Unpack[Settles]) -> Settlement:
        """End the session and return what is charged; what was not used comes back. A policy may
        ask for a second person's key where that is much.
        """
        return self._paid.close(**more)

    def __enter__(self) -> Self:
        self._paid.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._paid.__exit__(kind, error, trace)
