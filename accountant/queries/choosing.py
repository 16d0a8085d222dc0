"""The exponential mechanism with a score function of the caller's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accountant.client.amounts import Amount
from accountant.queries.arguments import real
from accountant.queries.budgets import Budget
from accountant.queries.choices import Exponential
from accountant.queries.exact import positive
from accountant.queries.frame import Column, listed
from accountant.queries.query import Error, Query
from accountant.queries.records import Records

Score = Callable[[Mapping[str, Column], Any], float]
"""A score of a candidate on the selected records, which come as columns by name."""


def choose(
    data: Records,
    candidates: Sequence[Any],
    score: Score,
    sensitivity: Amount,
    epsilon: Amount | None,
    *,
    columns: Sequence[str],
    monotonic: bool,
) -> Query:
    """Return the query for a candidate with a high score: each is chosen with probability in
    proportion to e^(score / scale).
    """
    budget, most = Budget.of(data, epsilon), positive("the sensitivity", sensitivity)
    among = listed(candidates)
    if len(among) < 2:
        raise ValueError("a choice is among at least two candidates")
    if monotonic and not data.unit().present:
        raise ValueError(
            "scores are monotonic only where a unit comes or goes; replacing one moves them both "
            "ways: leave monotonic out"
        )
    names = listed(columns)
    read = dict(zip(names, data.raw(*names), strict=True)) if names else {}
    scale = Exponential.scale_costing(budget.amount, most, monotonic=monotonic)
    step = Exponential(most, scale, budget.stated, outcomes=len(among), monotonic=monotonic)

    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        how = "scale ln(N / beta): by how much the score may fall short of the best one"
        return Error(step.within(1 - confidence), confidence, "units of the score", how)

    return Query(
        "choice", data.charged, (step,),
        lambda: [[real(score(read, candidate)) for candidate in among]],
        lambda drawn: among[drawn[0]], bounds, data.notes,
    )  # fmt: skip
