"""From the lecture notes: randomized response, means, data sets, densities, functions, a holdout.

A density or a function is released once, and may then be looked at as often as anybody likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from accountant.queries import definition
from accountant.queries.density import Density
from accountant.queries.local import survey_coins
from accountant.queries.synthetic import data_sets
from examples.queries.charts import Chart
from examples.queries.people import health, mixed, part, patients, survey, women
from examples.queries.results import ASKING, Results, text

SOURCE: Final = "lecture notes"
THETA: Final = "0.75"
CELLS: Final = 256
BINS: Final = 32
HIGH: Final = 60.0
"""The largest index of illnesses."""


def run(results: Results) -> None:
    """Run all examples of this family."""
    randomized_response(results)
    forced_response(results)
    laplace_mean(results)
    nearest_data_set(results)
    densities(results)
    bernstein(results)
    reusable_holdout(results)


def randomized_response(results: Results) -> None:
    """Let every woman answer whether she had an affair, truly with probability theta."""
    data = women(results.ledgers.women, "affairs")
    answer = data.response("affair", [0, 1], theta=THETA).release(**ASKING)
    estimate, true = answer.value[1], int(survey()["affair"].sum())
    results.row(
        data, "randomized response", answer, asked="1.098612289", true=true, value=estimate.count,
        note=f"theta {THETA}, hence epsilon ln 3; of R reports out of n the estimator is "
        f"(R - n (1 - theta)) / (2 theta - 1), with a standard error of "
        f"{text(estimate.standard_error)}",
    )  # fmt: skip


def forced_response(results: Results) -> None:
    """Try the survey in which a coin may force a yes, and never a no. It is refused."""
    reason = ""
    try:
        survey_coins("0.5", "0.5", "0")
    except ValueError as refused:
        reason = str(refused)
    worst = definition.worst({"yes": {"yes": 1}, "no": {"yes": "0.5", "no": "0.5"}})
    results.free("forced response", true="infinite ε", answer="refused", note=reason)
    results.claim(
        "forced response is refused, since a no proves the truth",
        f"{worst.output!r} is possible for {worst.one!r} alone",
        holds="forced response" in reason and worst.ratio is None and worst.output == "no",
        chance="0",
    )


def laplace_mean(results: Results) -> None:
    """Release a mean. How many women answered is public, so that it takes one noisy number."""
    data = women(results.ledgers.women, "affairs")
    query = data.mean("affair", epsilon="0.1")
    answer = query.release(**ASKING)
    results.row(
        data, "Laplace mean", answer, asked="0.1", true=float(survey()["affair"].mean()),
        note=f"the share of women who had an affair, from {len(query.mechanisms)} noisy sum",
    )  # fmt: skip


def nearest_data_set(results: Results) -> None:
    """Choose a data set of ten ratings, of all that there are, by its distance from the women's
    ratings (Kolmogorov and Smirnov). It is synthetic data that may be published.
    """
    data = women(results.ledgers.women, "affairs")
    candidates = list(data_sets([1, 2, 3, 4, 5], 10))
    query = data.nearest("rating", candidates, epsilon="0.5")
    answer = query.release(**ASKING)
    [scores] = query.values()
    best, chosen = int(np.argmax(scores)), candidates.index(answer.value)
    results.row(
        data, "exponential mechanism, data sets", answer, asked="0.5",
        true=" ".join(map(str, candidates[best])), value=" ".join(map(str, answer.value)),
        off=scores[best] - scores[chosen],
        note=f"{len(candidates):,} data sets of ten ratings; the nearest is {text(-scores[best])} "
        "records away",
    )  # fmt: skip


def densities(results: Results) -> None:
    """Estimate the density of the index of illnesses in three ways, and draw synthetic records."""
    values = health()["illness"].clip(0, HIGH)
    data = patients(results.ledgers.patients, "health")

    answer = data.histogram_density("illness", bins=BINS, epsilon="0.1").release(**ASKING)
    found: Density = answer.value
    true = np.histogram(values, BINS, (0, HIGH))[0] / len(values)
    synthetic = found.sample(10_000, seed=1)
    results.row(
        data, "histogram density", answer, asked="0.1", true=f"mean {text(values.mean())}",
        value=f"synthetic mean {text(float(synthetic.mean()))}",
        off=float(np.abs(found.shares - true).max()),
        note=f"{BINS} bins; 10,000 synthetic records are drawn from it, at no further cost",
    )  # fmt: skip

    series = data.series_density("illness", terms=12, epsilon="0.5", points=CELLS).release(**ASKING)
    exact = cosines(values, 12)
    results.row(
        data, "orthogonal series density", series, asked="0.5",
        true=f"mean {text(mean_of(Density.nearest(0, HIGH, exact)))}",
        value=f"mean {text(mean_of(series.value))}",
        off=float(np.sqrt(CELLS * ((series.value.shares - exact) ** 2).sum())),
        note="12 cosines; the truth is the series without noise",
    )  # fmt: skip

    curves = patients(results.ledgers.patients, "curves")
    kernel = curves.kernel_density("illness", bandwidth=2, rho="0.001", points=CELLS)
    smooth = kernel.release(**ASKING)
    plain = smoothed(values, smooth.value.points, 2.0)
    results.row(
        curves, "Gaussian process on a kernel density", smooth, asked="0.001", currency="rho",
        true=f"highest {text(float(plain.max()))}",
        value=f"highest {text(float(smooth.value.heights.max()))}",
        off=float(np.abs(smooth.value.heights - plain).max()),
        note="bandwidth 2; a whole curve for the price of one number; the truth is the estimate "
        "without noise",
    )  # fmt: skip

    chart = Chart("The density of the index of illnesses", (0, HIGH), (0, 0.16), "index")
    chart.line("truth (32 bins)", *steps(Density(0, HIGH, true)))
    chart.line("histogram", *steps(found))
    chart.line("series", series.value.middles, series.value.heights)
    chart.line("kernel", smooth.value.points, smooth.value.heights)
    results.picture("densities.svg", chart.svg())


def cosines(values: Any, terms: int) -> Any:
    """Return the cells of the series without noise: the estimate that noise is added to."""
    at = (np.arange(CELLS) + 0.5) / CELLS
    found = np.ones(CELLS)
    for j in range(1, terms + 1):
        found += 2 * np.cos(np.pi * j * values / HIGH).mean() * np.cos(np.pi * j * at)
    return found / CELLS


def smoothed(values: Any, points: Any, bandwidth: float) -> Any:
    """Return the kernel density estimate without noise; a record counts at the next point."""
    cells = np.minimum((values / HIGH * len(points)).astype(int), len(points) - 1)
    counts = np.bincount(cells, minlength=len(points))
    kernel = np.exp(-(((points[:, None] - points) / bandwidth) ** 2) / 2)
    return kernel @ counts / (len(values) * bandwidth * np.sqrt(2 * np.pi))


def mean_of(density: Density) -> float:
    """Return the mean of a density."""
    return float(density.middles @ density.shares)


def steps(density: Density) -> tuple[Any, Any]:
    """Return the corners of a density's line."""
    return np.repeat(density.edges, 2)[1:-1], np.repeat(density.heights, 2)


def bernstein(results: Results) -> None:
    """Release a whole function: at t, how many patients stay below t visits, smoothed. It is then
    a polynomial that answers at any t.
    """

    def below(visits: Any, t: float) -> Any:
        return 1 / (1 + np.exp(np.clip(visits - t, -50, 50)))

    data = patients(results.ledgers.patients, "health")
    answer = data.function(
        ["visits"], below, within=(0, 1), axes=[(0, 20)], degree=24, epsilon="0.5"
    ).release(**ASKING)
    at = np.linspace(0, 20, 201)
    visits = health()["visits"]
    true = np.array([below(visits, t).sum() for t in at])
    told = np.array([answer.value(t) for t in at])
    # The error is that of the noise: the polynomial of the exact values is what it is compared to.
    grid = [below(visits, t).sum() for t in np.linspace(0, 20, 25)]
    plain = np.array([type(answer.value)(((0.0, 20.0),), np.array(grid))(t) for t in at])
    results.row(
        data, "Bernstein mechanism", answer, asked="0.5", true=f"at 5: {text(float(true[50]))}",
        value=f"at 5: {text(float(told[50]))}", off=float(np.abs(told - plain).max()),
        note="patients below t visits, smoothed: a polynomial of degree 24, asked at 201 points; "
        f"without noise it is off by {text(float(np.abs(plain - true).max()))} at most",
    )  # fmt: skip
    chart = Chart("Patients below t visits, smoothed", (0, 20), (0, 21_000), "t")
    chart.line("truth", at, true)
    chart.line("Bernstein polynomial, epsilon 0.5", at, told)
    results.picture("function.svg", chart.svg())


def reusable_holdout(results: Results) -> None:
    """Check a rule that was learnt by heart from half of the records against the other half. The
    training half counts as public here; the holdout is what is protected and paid for.
    """
    table = mixed(health())
    half = len(table["visits"]) // 2
    training, rest = part(table, slice(0, half)), part(table, slice(half, None))
    rule = by_heart(training)

    def right(rows: Mapping[str, Any]) -> Any:
        return (rule(rows) == (rows["visits"] > 1)).astype(float)

    def base(rows: Mapping[str, Any]) -> Any:
        return (rows["visits"] > 1).astype(float)

    data = patients(results.ledgers.patients, "health", rest)
    columns = ["illness", "payment", "limit", "health", "visits"]
    holdout = data.reusable_holdout(
        training, columns, threshold="0.05", epsilon="0.5", budget=2, records=half
    )
    with holdout.open(**ASKING) as session:
        learnt, rate = session.ask(right), session.ask(base)
    true, seemed = float(right(rest).mean()), float(right(training).mean())
    results.row(
        data, "reusable holdout", (holdout.error(questions=2), session.receipt), asked="0.5",
        true=true, value=learnt.value,
        note=f"how often a rule learnt by heart is right: {text(seemed)} of the training records",
    )  # fmt: skip
    results.claim(
        "the holdout finds out what was learnt by heart, and passes what holds",
        f"training says {text(seemed)}, the holdout {text(learnt.value)}, truth {text(true)}",
        holds=learnt.overfitted and abs(learnt.value - true) < 0.03 and not rate.overfitted,
        chance="1e-9",
    )


def by_heart(training: Mapping[str, Any]) -> Any:
    """Return a rule that says of a record whether the patient goes to the doctor more than once: as
    most of the training records do that are alike in everything else.
    """

    def alike(rows: Mapping[str, Any]) -> list[Any]:
        names = ("illness", "payment", "limit", "health")
        return list(zip(*(rows[name].tolist() for name in names), strict=True))

    seen: dict[Any, list[bool]] = {}
    for key, often in zip(alike(training), training["visits"] > 1, strict=True):
        seen.setdefault(key, []).append(bool(often))
    return lambda rows: np.array([np.mean(seen.get(key, [False])) >= 0.5 for key in alike(rows)])
