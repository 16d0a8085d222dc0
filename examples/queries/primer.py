"""From the primer: counts, sums, moments, correlations, choices and quantiles.

Every query goes the same way: describe it, release it, use the answer. ``release`` asks the service
for the budget, draws the noise and commits; the answer has a value, its 95 % error and a receipt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from statistics import median
from typing import Any, Final

import numpy as np

from accountant.queries import Dataset, Query
from examples.queries.charts import Chart
from examples.queries.people import PLANS, health, mixed, part, patients
from examples.queries.results import ASKING, Results, text

SOURCE: Final = "primer"
RUNS: Final = 41
"""So often a correlation is asked for at each size."""
SIZES: Final = (1_000, 10_000)
FINEST: Final = Fraction(1, 2**32 - 1)
"""The step of a line of 2^32 points from 0 to 1."""
CLOSE: Final = 0.000_06


def run(results: Results) -> None:
    """Run all examples of this family."""
    data = patients(results.ledgers.patients, "health")
    counts_and_sums(results, data)
    moments(results, data)
    correlations(results, data)
    choices(results, data)
    quantiles(results, data)
    correlations_of_few(results)


def counts_and_sums(results: Results, data: Dataset) -> None:
    """Count patients, and add up their visits. A sum needs bounds, to which values are clamped."""
    table = health()
    answer = data.where(health="poor").count(epsilon="0.1").release(**ASKING)
    true = int(np.sum(table["health"] == "poor"))
    results.row(
        data, "noisy count", answer, asked="0.1", true=true,
        note="patients in poor health; health is no registered dimension, so everyone is charged",
    )  # fmt: skip

    answer = data.sum("visits", epsilon="0.1").release(**ASKING)
    visits = table["visits"].clip(0, 20)
    results.row(
        data, "clamped sum", answer, asked="0.1", true=int(visits.sum()),
        note=f"visits, clamped to 20 a year; without clamping there are {table['visits'].sum():,}",
    )  # fmt: skip


def moments(results: Results, data: Dataset) -> None:
    """Release the mean and what comes with it. How many records there are is private, so that each
    is a quotient of noisy sums, which share the epsilon.
    """
    visits = health()["visits"].clip(0, 20)
    asked: dict[str, tuple[Callable[[], Query], float]] = {
        "mean": (lambda: data.mean("visits", epsilon="0.1"), visits.mean()),
        "second moment": (
            lambda: data.second_moment("visits", epsilon="0.1"),
            (visits**2.0).mean(),
        ),
        "variance": (lambda: data.variance("visits", epsilon="0.1"), visits.var()),
        "standard deviation": (
            lambda: data.standard_deviation("visits", epsilon="0.1"),
            visits.std(),
        ),
    }
    for name, (query, true) in asked.items():
        answer = query().release(**ASKING)
        results.row(data, name, answer, asked="0.1", true=float(true), note="of visits")


def correlations(results: Results, data: Dataset) -> None:
    """Release a correlation in two ways: from noisy sums, and by how many records would have to
    change for it to be another.
    """
    true = correlation(data)
    query = data.pearson("limit", "payment", epsilon="0.1")
    answer = query.release(**ASKING)
    results.row(
        data, "Pearson correlation, noisy sums", answer, asked="0.1", true=true,
        note=f"{len(query.mechanisms)} sums at a sixth of the epsilon each: of limit, payment, "
        "their squares, their product, and the number of records",
    )  # fmt: skip

    query = data.correlation("limit", "payment", epsilon="0.1")
    answer = query.release(**ASKING)
    # The error is in records that would have to change, so that is what the answer is off by.
    results.row(
        data, "correlation, exponential mechanism", answer, asked="0.1", true=true,
        off=float(short(query, answer.value)),
        note="the score of a value is minus the records that must change for it; so is the error",
    )  # fmt: skip


def short(query: Query, chosen: float) -> float:
    """Return by how much the score of the chosen correlation falls short of the best one."""
    [scores] = query.values()
    middles = np.linspace(-1, 1, len(scores))
    return float(max(scores) - scores[int(np.argmin(np.abs(middles - chosen)))])


def choices(results: Results, data: Dataset) -> None:
    """Choose by a score of one's own: the plan whose patients go to the doctor most often in all.
    One more record raises one score by at most 20 visits, and lowers none.
    """

    def visits(rows: Mapping[str, Any], plan: str) -> float:
        return float(rows["visits"][rows["plan"] == plan].clip(0, 20).sum())

    plans = list(PLANS.values())
    answer = data.choose(
        plans, visits, sensitivity=20, monotonic=True, columns=["visits", "plan"], epsilon="0.1"
    ).release(**ASKING)
    scores = {plan: visits(health(), plan) for plan in plans}
    best = max(scores, key=lambda plan: scores[plan])
    results.row(
        data, "exponential mechanism, own score", answer, asked="0.1", true=best,
        off=scores[best] - scores[answer.value],
        note="the plan with most visits",
    )  # fmt: skip


def quantiles(results: Results, data: Dataset) -> None:
    """Release quantiles: a choice among all points, in intervals of equal score, without rounding.

    The payments are concentrated: as shares of a million dollars, which is the only bound that is
    known, the middle half lies within a thousandth. There are 2^32 points between the bounds.
    """
    shares = np.sort(health()["share"])
    query = data.median("share", epsilon="0.1", step=FINEST)
    answer = query.release(**ASKING)
    true = float(np.median(shares))
    results.row(
        data, "median", answer, asked="0.1", true=true,
        off=ranks(shares, answer.value, 0.5, float(FINEST)),
        note="of payments as shares of 1,000,000 dollars, among 2^32 points",
    )  # fmt: skip
    # A point at so many ranks is e^(-ranks / 10) times as likely as the median: a rank changes by a
    # half at most, and the scale is 2 / 2 / epsilon.
    away = min(abs(np.searchsorted(shares, true + side) - len(shares) / 2)
               for side in (-CLOSE, CLOSE))  # fmt: skip
    results.claim(
        f"the median of concentrated data is within {CLOSE:.5f}",
        f"off by {abs(answer.value - true):.2g}",
        holds=abs(answer.value - true) <= CLOSE,
        chance=f"{2**32 * np.exp(-float(away) / 10):.0e}",
    )
    for share in ("0.25", "0.9"):
        answer = data.quantile("illness", share, epsilon="0.1").release(**ASKING)
        values = np.sort(health()["illness"].clip(0, 60))
        results.row(
            data, f"quantile {share}", answer, asked="0.1",
            true=float(np.quantile(values, float(share))),
            off=ranks(values, answer.value, float(share), 60 / 2**20),
            note="of the index of illnesses, among 2^20 points",
        )  # fmt: skip


def ranks(ordered: Any, found: float, share: float, step: float) -> float:
    """Return how many records lie between a point and the quantile. Records count at the point next
    to them, and points are a ``step`` apart.
    """
    rank, half = share * len(ordered), step / 2
    below = np.searchsorted(ordered, found - half)
    upto = np.searchsorted(ordered, found + half, side="right")
    return float(max(below - rank, rank - upto, 0))


def correlations_of_few(results: Results) -> None:
    """Ask for the same correlation of 1,000 records and of 10,000, many times: the noise is the
    same, and so it is ten times as much for each of the few.
    """
    table, off, stated = mixed(health()), {}, {}
    chart = Chart(
        "The correlation at epsilon 0.1: of 1,000 records and of 10,000", (0, RUNS), (-1, 1), "run"
    )
    for size in SIZES:
        data = patients(results.ledgers.patients, "repeats", part(table, slice(0, size)))
        query, true = data.pearson("limit", "payment", epsilon="0.1"), correlation(data)
        answers = [query.release(**ASKING) for _ in range(RUNS)]
        for answer in answers:
            results.paid(data, answer.receipt)
        off[size] = median(abs(answer.value - true) for answer in answers)
        stated[size] = median(answer.error.amount for answer in answers)
        chart.dots(f"{size:,}", range(RUNS), [float(answer.value) for answer in answers])
    chart.line("truth", [0, RUNS], [true, true])
    results.picture("correlation.svg", chart.svg())
    few, many = SIZES
    results.claim(
        "1,000 records are too noisy for the correlation at epsilon 0.1: most answers are off by "
        "more than 0.03, and their stated error is larger than the correlation",
        f"median off by {text(off[few])}, stated {text(stated[few])}, truth {text(true)}",
        holds=off[few] > 0.03 and stated[few] > true,
        chance="1e-6",
    )
    results.claim(
        "10,000 are fine: most answers are off by less than 0.03, and state less than 0.25",
        f"median off by {text(off[many])}, stated {text(stated[many])}",
        holds=off[many] < 0.03 and stated[many] < 0.25,
        chance="1e-8",
    )


def correlation(data: Dataset) -> float:
    """Return the true correlation of limit and payment."""
    return float(np.corrcoef(data.table.column("limit"), data.table.column("payment"))[0, 1])
