"""From the slides: functions of any kind, bounds that are proposed, features, and one adversary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from accountant.client import Refused
from accountant.queries import Dataset, Error, collude
from accountant.queries.densities import sum_within
from accountant.queries.steps import Noise
from examples.queries.people import health, patients, survey, women
from examples.queries.results import ASKING, Results, text

SOURCE: Final = "slides"
TARGET: Final = "many"
"""Six visits or more."""


def run(results: Results) -> None:
    """Run all examples of this family."""
    subsample(results)
    data = patients(results.ledgers.patients, "health")
    proposals(results, data)
    features(results)
    one_adversary(results)


def slope(rows: Mapping[str, Any]) -> float:
    """Return the slope of a least-squares line: by how much the share of affairs changes with a
    point of the rating. Nobody knows its sensitivity.
    """
    x = rows["rating"] - rows["rating"].mean()
    spread = float(x @ x)
    return float(x @ rows["affair"]) / spread if spread else math.nan


def subsample(results: Results) -> None:
    """Work it out on 60 disjoint blocks of women, and release the mean with noise. It is compared
    with the mean of the blocks: that blocks differ from the whole is no matter of noise.
    """
    data = women(results.ledgers.women, "affairs")
    query = data.subsample(slope, ["rating", "affair"], ("-0.5", "0.5"), epsilon="1", blocks=60)
    answer = query.release(**ASKING)
    [blocks] = query.values()
    results.row(
        data, "subsample and aggregate", answer, asked="1", true=slope(survey()),
        value=answer.value, off=abs(answer.value - float(np.mean(blocks))),
        note="the slope of affairs on the rating of the marriage; without noise the mean of the "
        f"blocks is {text(float(np.mean(blocks)))}",
    )  # fmt: skip


def proposals(results: Results, data: Dataset) -> None:
    """Propose that one record moves the median of the illnesses by 0.1 at most, test that, and
    release it with noise for 0.1 rather than for 60.
    """
    values = health()["illness"].clip(0, 60)
    first, middle, third = np.quantile(values, [0.25, 0.5, 0.75])
    query = data.propose_test_release("illness", bound="0.1", epsilon="0.5", delta="1e-6")
    answer = query.release(**ASKING)
    results.row(
        data, "propose-test-release, median", answer, asked="0.5", true=float(middle),
        note="of the index of illnesses; no record moves it by more than 0.1, as a test has found",
    )  # fmt: skip
    answer = data.propose_test_release(
        "illness", "interquartile_range", bound="0.2", epsilon="0.5", delta="1e-6"
    ).release(**ASKING)
    results.row(
        data, "propose-test-release, range", answer, asked="0.5", true=float(third - first),
        note="the distance of the quartiles",
    )  # fmt: skip
    refused = data.propose_test_release(
        "payment", "interquartile_range", bound="0.02", epsilon="0.5", delta="1e-6"
    ).release(**ASKING)
    results.paid(data, refused.receipt)
    results.claim(
        "nothing is released by a bound that hardly holds: six records can break it for payments",
        f"the test says {'no' if refused.value is None else 'yes'}",
        holds=refused.value is None,
        chance="1e-5",
    )


def candidates() -> dict[str, Any]:
    """Return fifteen features of a patient, each 0 or 1."""
    table = health()
    found = {
        "limited": table["limited"],
        "fair or poor health": np.isin(table["health"], ["fair", "poor"]).astype(int),
        "free plan": (table["plan"] == "free").astype(int),
    }
    found |= {f"illness over {k}": (table["illness"] > k).astype(int) for k in range(5, 35, 5)}
    found |= {f"limit over {k}": (table["limit"] > k).astype(int) for k in (3, 5, 7)}
    found |= {f"payment over {k}": (table["payment"] > k).astype(int) for k in (3, 5, 6)}
    return found


def features(results: Results) -> None:
    """Find the feature that agrees most often with six visits or more, in two ways."""
    found, many = candidates(), (health()["visits"] >= 6).astype(int)
    table = health() | found | {TARGET: many}
    data = patients(results.ledgers.patients, "health", table)
    agree = {name: int(np.sum(column == many)) for name, column in found.items()}
    best = max(agree, key=lambda name: agree[name])

    answer = data.best_feature(list(found), TARGET, epsilon="0.1").release(**ASKING)
    results.row(
        data, "feature selection, exponential mechanism", answer, asked="0.1", true=best,
        off=float(agree[best] - agree[answer.value]),
        note=f"of {len(found)} features; the best agrees in {agree[best]:,} records",
    )  # fmt: skip

    level = 16_000
    search = data.features_above(list(found), TARGET, threshold=level, epsilon="0.1")
    named = search.release(**ASKING)
    first = next(name for name, count in agree.items() if count >= level)
    wrong = [
        abs(agree[name] - level)
        for name in list(found)[: list(found).index(named.value[0]) + 1 if named.value else None]
        if (agree[name] >= level) != (name in named.value)
    ]
    results.row(
        data, "feature selection, sparse vector", named, asked="0.1", true=first,
        value=", ".join(named.value) or "none", off=float(max(wrong, default=0)),
        note=f"the first that agrees in {level:,} records or more",
    )  # fmt: skip


def one_adversary(results: Results) -> None:
    """Let three analysts ask the same question, each within a share of their own, and average. What
    protects a patient is the limit that counts all of them together: the next one is refused.
    """
    of_each = [patients(client, "shared") for client in results.ledgers.analysts]
    queries = [data.where(health="poor").count(epsilon="0.1") for data in of_each]
    found = collude(queries, **ASKING)
    [step] = queries[0].steps
    if not isinstance(step, Noise):
        raise TypeError("a count has one noisy number")
    off = sum_within(replace(step, size=len(queries)), 0.05) / len(queries)
    error = Error(off, 0.95, "records", "Chernoff's bound on the sum of the noise")
    results.row(
        of_each, "one adversary over all clients",
        (error, [answer.receipt for answer in found.answers]), asked="0.3",
        true=int(np.sum(health()["health"] == "poor")), value=found.average,
        note="the average of three analysts' answers, whose noise has a standard deviation of "
        f"{text(found.together)}; that of one alone has {text(found.alone)}",
    )  # fmt: skip
    refusal = ""
    try:
        queries[0].release(**ASKING)
    except Refused as refused:
        refusal = str(refused)
    left = " and ".join(str(each.total.remaining) for each in found.shares)
    results.claim(
        "three analysts' shares of 0.1 are 0.3 about a patient, and no more is given",
        f"{found.for_everyone} spent by all; {left} left of their shares, and refused all the same",
        holds=str(found.for_everyone) == "0.3" and "everyone" in refusal,
        chance="0",
    )
