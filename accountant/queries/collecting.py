"""Collections of randomised reports, one from each person: each collection is one grant.

Everyone in the group pays for one report. The reports are what is released: whoever randomises
beside the data draws them here; people whose own devices do can run the same steps of ``local.py``
there, with ``people=1``, and the collector asks for the grant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Unpack

import numpy as np

from accountant.client.amounts import Amount
from accountant.queries import frame, sums
from accountant.queries.budgets import Budget
from accountant.queries.local import Places, RandomizedResponse, Reports, UnaryEncoding
from accountant.queries.query import CONFIDENCE, Answer, Asking, Error, Query
from accountant.queries.records import Records

_BEFORE = "Hoeffding's or Bernstein's bound on the coins of all people, whatever they answer"
_AFTER = "Bernstein's bound on the coins of all people, with the variance that the estimates allow"


def response(
    data: Records,
    column: str,
    categories: Sequence[Any] | None = None,
    *,
    theta: Amount | None = None,
    truth_probability: Amount | None = None,
    epsilon: Amount | None = None,
) -> Query:
    """Return the query for one randomised response a person. Its answer maps each of the
    ``categories`` to an ``Estimate`` of how many people have it. Every value of the column has to
    be one of them. Raise ValueError for what cannot be collected.
    """
    people, names = _people(data), data.categories(column, categories)
    budget = None if epsilon is None else Budget.of(data, epsilon).amount
    step = RandomizedResponse.of(
        len(names), people, theta=theta, truth_probability=truth_probability, epsilon=budget
    )
    places = _places(data, column, names)
    if lost := int(np.count_nonzero(places < 0)):
        raise ValueError(
            f"{lost} of {people} people have none of the categories, and everybody has to report "
            'one: add a category for the rest, such as "other", or take unary encoding'
        )
    return _collection(data, "response", step, places, names)


def unary(
    data: Records,
    column: str,
    categories: Sequence[Any] | None = None,
    *,
    p: Amount | None = None,
    q: Amount | None = None,
    epsilon: Amount | None = None,
) -> Query:
    """Return the query for one randomised row of bits a person, a bit a category. Its answer maps
    categories to estimates. Who has none of the ``categories`` is counted nowhere.
    """
    people, names = _people(data), data.categories(column, categories)
    budget = None if epsilon is None else Budget.of(data, epsilon).amount
    step = UnaryEncoding.of(len(names), people, p=p, q=q, epsilon=budget)
    return _collection(data, "unary", step, _places(data, column, names), names)


def _collection(
    data: Records, kind: str, step: Reports, places: Places, names: Sequence[Any]
) -> Query:
    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        if drawn is None:
            return Error(step.within(1 - confidence), confidence, "records", _BEFORE)
        return Error(step.within_of(drawn[0], 1 - confidence), confidence, "records", _AFTER)

    return Query(
        kind, data.charged, (step,), lambda: [places],
        lambda drawn: dict(zip(names, step.estimates(drawn[0]), strict=True)), bounds, data.notes,
    )  # fmt: skip


def _people(data: Records) -> int:
    """Return how many people report. Raise ValueError unless it is public who does: a report shows
    that somebody sent it, and no noise in it hides that.
    """
    person = data.people.unit
    if data.people.relation != "replace_one":
        raise ValueError(
            f"{data.people.name} is protected under {data.people.relation}: that a {person} sent a "
            "report at all would show that they are there, and no noise in the report hides it. "
            "Local reports need a population that is registered under replace_one"
        )
    if data.narrow:
        raise ValueError(
            f"who is in the group is private in {data.people.name}, and a report would show it: "
            "collect from the whole population"
        )
    if data.records_per_unit is not None:
        raise ValueError(
            f"each {person} sends exactly one report: give a table with exactly one row a "
            f"{person}, without records_per_unit"
        )
    if data.filters:
        raise ValueError(
            f"that a {person} sends a report would show their {', '.join(data.filters)}: let "
            "everybody report, or make a category of it"
        )
    if data.missing != "refuse":
        raise ValueError(
            f"that a {person} sends no report would show that their value is missing: make a "
            "category of it"
        )
    data.check_somebody()
    return data.rows()


def _places(data: Records, column: str, names: Sequence[Any]) -> Places:
    [values] = data.raw(column)
    if column in data.people.dimensions:
        values = frame.as_text(values)
    return frame.categorised(values, names)


@dataclass(frozen=True, slots=True)
class BothWays:
    """One histogram asked for in both models at the same epsilon. Each costs by itself."""

    local: Query
    central: Query
    people: int
    why: str
    """Why the local one is worse, with this histogram's numbers."""

    def errors(self, confidence: float = CONFIDENCE) -> tuple[Error, Error]:
        """Return the errors of both, local first, before anything is spent."""
        return self.local.error(confidence), self.central.error(confidence)

    def release(self, **asking: Unpack[Asking]) -> tuple[Answer, Answer]:
        """Release both, local first: two grants."""
        if asking.get("idempotency_key") is not None:
            raise ValueError("these are two grants, and one idempotency key is for one of them")
        return self.local.release(**asking), self.central.release(**asking)


def both_ways(
    data: Records, column: str, categories: Sequence[Any] | None = None, *, epsilon: Amount
) -> BothWays:
    """Return a histogram in the local and in the central model, with the same ``epsilon``.

    The local one is a response where there are k < 3 e^epsilon + 2 categories, else unary encoding:
    which of the two has less variance (Wang et al. 2017). The central one is ``histogram``. Raise
    ValueError for what cannot be collected.
    """
    people, names = _people(data), data.categories(column, categories)
    budget = Budget.of(data, epsilon)
    few = 2 <= len(names) < 3 * math.exp(min(float(budget.amount), 100.0)) + 2
    local = (response if few else unary)(data, column, names, epsilon=epsilon)
    central = sums.histogram(data, column, names, epsilon, None)
    return BothWays(local, central, people, _why(local, central, people, budget.amount))


def _why(local: Query, central: Query, people: int, epsilon: Fraction) -> str:
    here, there, root = local.error().amount, central.error().amount, math.sqrt(people)
    return (
        f"At epsilon {float(epsilon):g} every count is within {here:.4g} people in the local model "
        f"and within {there:.4g} in the central one, at 95 %: {here / there:.3g} times as far off. "
        f"In the local model each of {people} people adds a random error of their own to a count, "
        f"and independent errors add up to the root of their number: {here / root:.3g} x "
        f"{root:.4g}. In the central model noise is added once to each count, however many people "
        "there are. So the error of a share falls only as 1 / root(n) in the local model, and as "
        "1 / n in the central one. What that buys: nobody has to be trusted with a true answer."
    )
