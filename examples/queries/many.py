"""From the slides: many numbers at once, and hundreds of questions for the price of a few.

The questions are the same for all: how many patients have these values, for each value of one, two
or three of plan, health, limitation and visits. There are 289.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations, product
from typing import Any, Final

import numpy as np

from accountant.queries import Dataset
from examples.queries.charts import Chart
from examples.queries.people import CELLS, PLANS, health, patients
from examples.queries.results import ASKING, Results, text

SOURCE: Final = "slides"
ABOUT: Final = 20_000
"""How many records there are, from public knowledge: the experiment's own reports."""
THRESHOLD: Final = 5_000
SURE: Final = 1 - 1e-9

Group = dict[str, Any]
"""Values of some columns."""


def run(results: Results) -> None:
    """Run all examples of this family."""
    data = patients(results.ledgers.patients, "health")
    vector(results)
    histogram(results, data)
    sparse_vector(results, data, numbers=False)
    sparse_vector(results, data, numbers=True)
    chart = Chart("289 questions: the truth across, the answer up", (0, 20e3), (0, 20e3), "records")
    online_weights(results, data, chart)
    boosting(results, data, chart)
    chart.line("exact", [0, 20e3], [0, 20e3])
    results.picture("questions.svg", chart.svg())


@cache
def groups() -> list[Group]:
    """Return the groups that are asked about. A list of values stands for each column."""
    values = {name: list(PLANS.values()) if of is None else list(of) for name, of in CELLS.items()}
    return [
        dict(zip(names, chosen, strict=True))
        for size in (1, 2, 3)
        for names in combinations(values, size)
        for chosen in product(*(values[name] for name in names))
    ]


@cache
def true_counts() -> list[int]:
    """Return the number of records in each group."""
    table = health()
    return [
        int(np.logical_and.reduce([table[name] == value for name, value in group.items()]).sum())
        for group in groups()
    ]


def vector(results: Results) -> None:
    """Release several sums at once, with Laplace noise of one scale on each."""
    data = patients(results.ledgers.patients, "health")
    columns = ["visits", "payment", "illness"]
    answer = data.sums(columns, epsilon="0.1").release(**ASKING)
    clamped = {"visits": 20, "payment": 8, "illness": 60}
    true = {name: float(health()[name].clip(0, most).sum()) for name, most in clamped.items()}
    results.row(
        data, "vector Laplace", answer, asked="0.1",
        true=", ".join(text(round(each)) for each in true.values()),
        value=", ".join(text(round(each)) for each in answer.value.values()),
        off=max(abs(answer.value[name] - true[name]) for name in columns),
        note="the sums of visits, payment and illness, of which one record changes 88 in all",
    )  # fmt: skip


def histogram(results: Results, data: Dataset) -> None:
    """Release a histogram: the patients of each plan, a registered dimension."""
    answer = data.histogram("plan", epsilon="0.1").release(**ASKING)
    true = {plan: int(np.sum(health()["plan"] == plan)) for plan in PLANS.values()}
    results.row(
        data, "histogram", answer, asked="0.1",
        true=", ".join(map(text, true.values())), value=", ".join(map(text, answer.value.values())),
        off=max(abs(answer.value[plan] - count) for plan, count in true.items()),
        note="patients of each plan; all counts together cost what one does",
    )  # fmt: skip


def sparse_vector(results: Results, data: Dataset, *, numbers: bool) -> None:
    """Ask of each group whether it has 5,000 records or more, and if so, how many. Only a yes
    costs, and what was not used of 20 comes back.
    """
    epsilon = "1" if numbers else "0.5"
    questions = data.sparse_vector(
        threshold=THRESHOLD, epsilon=epsilon, positives=20, numbers=numbers
    )
    error = questions.error(0.95, questions=len(groups()))
    with questions.open(**ASKING) as session:
        told = session.ask_all([data.where(**group) for group in groups()])
    wrong = [abs(count - THRESHOLD) for count, one in zip(true_counts(), told, strict=False)
             if (count >= THRESHOLD) != bool(one)]  # fmt: skip
    above = sum(count >= THRESHOLD for count in true_counts())
    name = "sparse vector with numeric answers" if numbers else "sparse vector"
    off = float(max(wrong, default=0))
    if numbers:
        error = questions.numbers(0.95)
        off = max(abs(one.number - count)
                  for count, one in zip(true_counts(), told, strict=False)
                  if one.number is not None)  # fmt: skip
    results.row(
        data, name, (error, session.receipt), asked=epsilon, true=f"{above} groups above",
        value=f"{sum(map(bool, told))} groups above", off=off,
        note=f"{len(told)} questions about {THRESHOLD:,} records, {len(wrong)} of them told wrong; "
        "the rest of the epsilon came back",
    )  # fmt: skip
    sure = questions.error(SURE, questions=len(groups())).amount
    results.claim(
        f"{name}: every group that is not near the threshold is told right",
        f"{len(told)} questions; near is within {text(sure)}",
        holds=len(told) == len(groups()) and max(wrong, default=0) <= sure,
        chance="1e-6",
    )


def online_weights(results: Results, data: Dataset, chart: Chart) -> None:
    """Answer all questions from synthetic data, which a few noisy answers have corrected."""
    weights = data.online_weights(
        CELLS, records=ABOUT, epsilon="1", updates=40, threshold="2000", questions=len(groups())
    )
    universe = data.universe(CELLS)
    questions = [universe.where(**group) for group in groups()]
    with weights.open(give_back=True, **ASKING) as session:
        told = session.ask_all(questions)
    # After the last update the synthetic data still answer, for nothing.
    rest = [session.synthetic.answer(question) for question in questions[len(told):]]  # fmt: skip
    answers = [each.value for each in told] + rest
    off = [abs(answer - true) for answer, true in zip(answers, true_counts(), strict=True)]
    error = weights.error(0.95, questions=len(groups()))
    results.row(
        data, "private multiplicative weights, online", (error, session.receipt), asked="1",
        true="0 off", value=f"{text(float(np.mean(off)))} off on average",
        off=max(off[: len(told)]),
        note=f"{len(told)} of {len(groups())} questions, {sum(each.updated for each in told)} of "
        f"them answered from the data; the error is of any answer",
    )  # fmt: skip
    chart.dots("online weights", true_counts(), answers)


def boosting(results: Results, data: Dataset, chart: Chart) -> None:
    """Answer all questions by the median of synopses, each made from a few noisy answers. Twenty
    thousand records are few for it: its error grows with the square of the rounds.
    """
    universe = data.universe(CELLS)
    questions = [universe.where(**group) for group in groups()]
    query = data.boosting(CELLS, questions, records=ABOUT, epsilon="2", rounds=13, draws=8)
    answer = query.release(**ASKING)
    told = answer.value.answers
    off = [abs(one - true) for one, true in zip(told, true_counts(), strict=True)]
    results.row(
        data, "boosting for queries", answer, asked="2", true="0 off",
        value=f"{text(float(np.mean(off)))} off on average", off=max(off),
        note="13 rounds of 8 questions; the error is of any answer, if the synopses are as good as "
        "the theorem wants them",
    )  # fmt: skip
    chart.dots("boosting", true_counts(), told)
