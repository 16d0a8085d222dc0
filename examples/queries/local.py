"""From the local chapter: reports that nobody has to be trusted with, and what they cost.

Each woman randomises her own answer; the collector only ever sees the reports. The same histogram
by a collector who is trusted, with noise added once, is far closer.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from statistics import fmean, median
from typing import Any, Final

import numpy as np

from accountant.queries import Answer
from accountant.queries.local import UnaryEncoding
from examples.queries.charts import bars
from examples.queries.people import RATINGS, WOMEN, survey, women
from examples.queries.results import ASKING, Results, text

SOURCE: Final = "local chapter"
EPSILON: Final = "1"
RUNS: Final = 11


def run(results: Results) -> None:
    """Run all examples of this family."""
    responses(results)
    one_report(results)
    unary(results)
    both(results)
    both_often(results)


def true_counts() -> dict[str, int]:
    """Return how many women say what of their marriage."""
    return {rating: int(np.sum(survey()["said"] == rating)) for rating in RATINGS}


def counts(answer: Answer) -> dict[str, float]:
    """Return the counts of an answer, which are estimates in the local model."""
    return {name: float(getattr(each, "count", each)) for name, each in answer.value.items()}


def farthest(found: Mapping[str, float]) -> float:
    """Return how many women the worst count is off."""
    return max(abs(found[name] - true) for name, true in true_counts().items())


def good(found: Mapping[str, float]) -> str:
    """Return what is shown of a histogram."""
    return f"very good: {text(round(found['very good']))}"


def responses(results: Results) -> None:
    """Collect one randomised response a woman: her rating, or any other."""
    data = women(results.ledgers.women, "affairs")
    answer = data.response("said", RATINGS, epsilon=EPSILON).release(**ASKING)
    results.row(
        data, "randomized response, 5 categories", answer, asked=EPSILON,
        true=good(true_counts()), value=good(counts(answer)), off=farthest(counts(answer)),
        note="the error is that of all five counts at once",
    )  # fmt: skip


def one_report(results: Results) -> None:
    """Show the four steps of unary encoding with one woman: encode, perturb, aggregate, estimate.
    Only the last two are the collector's.
    """
    step = UnaryEncoding.of(len(RATINGS), people=1, epsilon=EPSILON)
    place = RATINGS.index("good")
    encoded = [int(i == place) for i in range(len(RATINGS))]
    [report] = step.ready(np.array([place]))().astype(int).tolist()
    results.tell(
        f"    one report: {encoded} is sent as such a row as {report}; a bit stays 1 with "
        f"probability {text(float(step.p))}, and a 0 becomes 1 with {text(float(step.q))}"
    )


def unary(results: Results) -> None:
    """Collect a row of randomised bits from every woman."""
    data = women(results.ledgers.women, "affairs")
    query = data.unary("said", RATINGS, epsilon=EPSILON)
    answer = query.release(**ASKING)
    found = answer.value["very good"]
    results.row(
        data, "unary encoding", answer, asked=EPSILON, true=good(true_counts()),
        value=good(counts(answer)), off=farthest(counts(answer)),
        note="encoded, perturbed, aggregated and estimated; the standard error of one count is "
        f"{text(found.standard_error)}",
    )  # fmt: skip


def both(results: Results) -> None:
    """Ask for one histogram in both models, at the same epsilon."""
    data = women(results.ledgers.women, "affairs")
    ways = data.both_ways("said", RATINGS, epsilon=EPSILON)
    local, central = ways.release(**ASKING)
    for system, answer in (("beside it: local", local), ("beside it: central", central)):
        results.row(
            data, system, answer, asked=EPSILON, true=good(true_counts()),
            value=good(counts(answer)), off=farthest(counts(answer)), note=ways.why.split(". ")[0],
        )  # fmt: skip
    told: dict[str, Mapping[str, float]] = {
        "truth": true_counts(),
        "local": counts(local),
        "central": counts(central),
    }
    series = {name: [max(each[k], 0.0) for k in RATINGS] for name, each in told.items()}
    title = f"How women rate their marriage, at epsilon {EPSILON}"
    results.picture("local-and-central.svg", bars(title, RATINGS, series))


def both_often(results: Results) -> None:
    """Ask for it many times, and compare how far the shares of the categories are off."""
    data = women(results.ledgers.women, "repeats")
    off: dict[str, list[float]] = {"local": [], "central": []}
    for _ in range(RUNS):
        answers = data.both_ways("said", RATINGS, epsilon=EPSILON).release(**ASKING)
        for name, answer in zip(off, answers, strict=True):
            results.paid(data, answer.receipt)
            off[name].append(percent(counts(answer)))
    local, central = median(off["local"]), median(off["central"])
    results.claim(
        "the local estimate is off by percents, central Laplace by hundredths of a percent",
        f"local {local:.2f} %, central {central:.3f} %, {local / central:.0f} times",
        holds=local > 0.5 and 0.005 < central < 0.1,
        chance="1e-6",
    )


def percent(found: Mapping[str, Any]) -> float:
    """Return the mean error of the shares, in percent."""
    each = [abs(Fraction(found[name]) - true) for name, true in true_counts().items()]
    return 100 * fmean(map(float, each)) / WOMEN
