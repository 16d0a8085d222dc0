"""Three pipelines: a survey team and a dashboard as examples, and a careless one as a warning.

Each runs as a program with a key of its own: ``python -m examples.survey.pipelines dashboard``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import islice, product, takewhile
from math import sqrt
from typing import Final

from rich.console import Console
from rich.table import Table

from accountant.client import Client, Failed, Grant, Refused
from examples.survey import noise, survey_data
from examples.survey.survey_data import RATINGS, WOMEN, Survey, labels

OFFICE: Final = 550
"""The women that a counselling office needs. A threshold must come from outside the data."""
BATCH: Final = 50
HURRY: Final = "family sizes, in a hurry"
"""The purpose of the careless pipeline."""
TTL: Final = 3
CRASHED: Final = 70
"""The exit code of the careless pipeline's simulated crash."""
console = Console(highlight=False)


# -- the survey team: sensitive questions, answered so that no single answer can be believed ----


def survey_team(accountant: Client, survey: Survey) -> None:
    """Ask two questions by local noise, and hundreds in one sparse vector session.

    For the first two each woman randomises her own answer before it is collected. She sends one
    report and loses the epsilon of one, however many women answer.
    """
    ask_about_affairs(accountant, survey)
    ask_for_ratings(accountant, survey)
    look_for_offices(accountant, survey)


def ask_about_affairs(accountant: Client, survey: Survey) -> None:
    """Ask with two coins (Warner 1965): the truth with probability 1/2, else a coin's answer."""
    coins, purpose = noise.two_coins(), "survey: share of women who had an affair"
    with accountant.grant("affairs", [coins.declaration], purpose=purpose) as grant:
        answers = survey.column("affairs", "affairs") > 0
        yes = sum(coins.draw(bool(answer)) for answer in answers) / WOMEN
    estimate = (yes - 0.25) / 0.5  # the reported share is 1/4 + truth / 2
    error = 1.96 * sqrt(yes * (1 - yes) / WOMEN) / 0.5
    console.print(
        f"had an affair: {estimate:.1%} ± {error:.1%}, from reports of which each may be a coin's; "
        f"ε {grant.epsilon} (true, shown because the data are public: {answers.mean():.1%})"
    )


def ask_for_ratings(accountant: Client, survey: Survey) -> None:
    """Ask for one bit per category, each flipped at random: unary encoding. ε = 2 ln(5/3)."""
    bits, purpose = noise.unary_encoding(len(RATINGS)), "survey: how marriages are rated"
    with accountant.grant("marriages", [bits.declaration], purpose=purpose) as grant:
        ratings = survey.column("marriages", "rate_marriage")
        reports = [
            bits.draw(tuple(int(rating == value) for value in range(1, len(RATINGS) + 1)))
            for rating in ratings
        ]
    error = 1.96 * sqrt(noise.FLIPS * (1 - noise.FLIPS) / WOMEN) / (1 - 2 * noise.FLIPS)
    console.print(f"ratings of marriages, each ± {error:.1%} (true); ε {grant.epsilon}:")
    for value, (name, ones) in enumerate(
        zip(RATINGS, zip(*reports, strict=True), strict=True), start=1
    ):
        share = (sum(ones) / WOMEN - noise.FLIPS) / (1 - 2 * noise.FLIPS)
        console.print(f"  {name:>9}: {share:6.1%} ({(ratings == value).mean():.1%})")


def look_for_offices(accountant: Client, survey: Survey) -> None:
    """Ask of every subgroup whether at least ``OFFICE`` women in it had an affair."""
    sparse = noise.AboveThreshold(
        OFFICE, threshold_scale=Decimal(8), comparison_scale=Decimal(16), positives=5
    )
    affairs = survey.column("affairs", "affairs") > 0
    purpose = "survey: where to open counselling offices"
    above: list[str] = []
    with accountant.sparse_vector("affairs", sparse.declaration, purpose=purpose) as session:
        answers = (
            (group, sparse.ask(float((affairs & survey.members(**group)).sum())))
            for group in takewhile(lambda _: sparse.left, _subgroups())
        )
        while batch := list(islice(answers, BATCH)):
            found = [", ".join(group.values()) for group, answer in batch if answer]
            # Before the answers are shown. If this process dies, the session is charged in full.
            session.count(positives=len(found), negatives=len(batch) - len(found))
            above += found
        charged = session.close().charged["epsilon"]
    console.print(
        f"{session.positives + session.negatives} questions whether {OFFICE} women of a subgroup "
        f"had an affair: {session.positives} above ({'; '.join(above) or 'none'}), "
        f"{session.negatives} below\n"
        f"  reserved ε {session.epsilon}, charged {charged}, given back "
        f"{session.epsilon - charged} for positives that were not used; negatives are free"
    )


def _subgroups() -> Iterator[dict[str, str]]:
    """Yield every combination of values of one, two or all three dimensions."""
    dimensions = survey_data.DIMENSIONS
    for values in product(*(["", *labels(dimension)] for dimension in dimensions)):
        if any(values):
            yield {d: value for d, value in zip(dimensions, values, strict=True) if value}


# -- the dashboard: good marriages by education, refreshed until the budget is used up ----------


def dashboard(accountant: Client, survey: Survey) -> None:
    """Refresh six counts until a request is refused.

    Each count is charged to its own group only. A woman is in one group for life, so a refresh
    costs her the epsilon of one count (parallel composition). Refreshes add up: a reader can
    average them.
    """
    sampler, purpose = noise.laplace(Decimal(4)), "dashboard: good marriages by education"
    good = survey.column("marriages", "rate_marriage") >= 1 + RATINGS.index("good")
    groups = labels("education")
    truth = {group: int((good & survey.members(education=group)).sum()) for group in groups}
    shown: dict[str, list[float]] = {group: [] for group in groups}
    for number in range(1, 50):
        flagged = 0
        try:
            for group in groups:
                with accountant.grant(
                    "marriages",
                    [sampler.declaration],
                    subjects={"education": [group]},
                    purpose=purpose,
                    justification=f"refresh number {number}",
                ) as grant:
                    noisy = sampler.draw(float(truth[group]))
                # The number may be shown only here, after the commit.
                shown[group].append(noisy)
                flagged += grant.outcome == "flag"
        except Refused as refused:
            console.print(f"refresh {number}: {refused.detail}")
            break
        note = f"; {flagged} grants flagged: nearly used up" if flagged else ""
        console.print(f"refresh {number}: {len(groups)} counts, ε {sampler.epsilon} each{note}")
    console.print("From now on the dashboard shows the last numbers that it could afford:")
    table = Table("education", "first refresh", "last refresh", "true")
    for column in table.columns[1:]:
        column.justify = "right"
    for group, numbers in shown.items():
        table.add_row(group, f"{numbers[0]:.1f}", f"{numbers[-1]:.1f}", str(truth[group]))
    console.print(table)
    console.print("(True numbers are shown only because this is a demonstration on public data.)")


# -- the careless pipeline: nothing here is to be copied ----------------------------------------


class NotRefused(Exception):
    """The service allowed something that it must refuse."""


def careless(accountant: Client, survey: Survey) -> None:
    """Make every mistake in turn, and crash with exit code 70.

    The service refuses requests before the run, records runs after the fact, and charges a grant
    that is never settled.
    """
    children = survey.column("households", "children")
    ask_for_too_little(accountant)
    retry(accountant, int((children > 0).sum()))
    run_without_asking(accountant, children[survey.members(education="advanced degree")].tolist())
    crash(accountant, int((children[survey.members(education="college graduate")] > 2).sum()))


def ask_for_too_little(accountant: Client) -> None:
    """Make four requests that are refused, each for its own reason."""
    honest = noise.discrete_laplace(Decimal(1)).declaration
    # Alg. 4 of Lyu, Su, Li 2017: ten positives, but noise and claim as if there were one.
    broken = {
        "kind": "sparse_vector",
        "sensitivity": "1",
        "threshold_scale": "10",
        "comparison_scale": "20",
        "max_positives": 10,
        "claimed": {"epsilon": "0.2"},
    }
    with expect_refusal("understated"):
        accountant.grant("households", [honest | {"claimed": {"epsilon": "0.1"}}], purpose=HURRY)
    with expect_refusal("no purpose"):
        accountant.grant("households", [honest])
    with expect_refusal("exact numbers"):
        accountant.grant("households", [{"kind": "non_private"}], purpose=HURRY)
    with expect_refusal("broken sparse vector"):
        accountant.sparse_vector("households", broken, purpose=HURRY)


@contextmanager
def expect_refusal(name: str) -> Iterator[None]:
    """Print why the request in the block is refused. Raise NotRefused if it is not."""
    try:
        yield
    except (Refused, Failed) as refused:
        console.print(f"{name}: {refused.detail}")
    else:
        raise NotRefused(name)


def retry(accountant: Client, families: int) -> None:
    """Lose the answer and ask again with the same key: the same grant, charged once."""
    sampler = noise.discrete_laplace(Decimal(4))

    def ask(times: int) -> Grant:
        return accountant.grant(
            "households",
            [sampler.declaration] * times,
            purpose=HURRY,
            idempotency_key="families-with-children",
        )

    first, again = ask(1), ask(1)
    if again.id != first.id or not again.repeated:
        raise NotRefused("a retry got a second grant")
    with first:
        noisy = sampler.draw(families)
    console.print(f"retry: grant {first.id} both times, charged once; {noisy} families")
    with expect_refusal("another question under that key"):
        ask(2)


def run_without_asking(accountant: Client, children: list[float]) -> None:
    """Run six counts and record them afterwards: they are charged, and the limit is overrun."""
    sampler = noise.discrete_laplace(Decimal(2))
    counts = [sampler.draw(children.count(number)) for number in survey_data.CHILDREN]
    answer = accountant.record(
        "households",
        [sampler.declaration | {"count": len(counts)}],
        subjects={"education": ["advanced degree"]},
        purpose=HURRY,
    )
    if answer is None or not answer.overrun:
        raise NotRefused("an overrun was not noticed")
    charged = answer.charge["epsilon"]
    console.print(f"{len(counts)} counts run without asking: recorded, ε {charged}, an overrun")


def crash(accountant: Client, families: int) -> None:
    """Draw noise and die before the commit: the grant expires and is charged."""
    sampler = noise.discrete_laplace(Decimal(2))
    with accountant.grant(
        "households",
        [sampler.declaration],
        subjects={"education": ["college graduate"]},
        purpose=HURRY,
        ttl_seconds=TTL,
    ) as grant:
        sampler.draw(families)
        console.print(f"crash with grant {grant.id} open: it expires in {TTL} s and is charged")
        sys.stdout.flush()
        os._exit(CRASHED)


if __name__ == "__main__":
    programs = {"survey-team": survey_team, "dashboard": dashboard, "careless": careless}
    with Client.from_env(survey_data.POPULATION) as service:
        programs[sys.argv[1]](service, Survey())
