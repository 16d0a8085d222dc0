"""The survey team: asks sensitive questions so that no single answer can be believed.

Two of its three questions are randomised on each woman's own side, before anything is collected; a
woman sends one randomised report, so she loses the epsilon of one, however many women answer. The
third is a sparse vector session: hundreds of threshold questions to the collected answers, of which
only the few answered "above" cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from itertools import product

from rich.console import Console

from accountant.client import Accountant
from accountant.demo.noise import FLIPS, AboveThreshold, covered, two_coins, unary_encoding
from accountant.demo.survey_data import (
    DIMENSIONS,
    POPULATION,
    RATINGS,
    WOMEN,
    Survey,
    labels,
    load,
)

console = Console(highlight=False)
OFFICE = 550
"""A threshold must come from outside the data: a counselling office wants so many to open for."""
BATCH = 50


def main() -> None:
    """Runs the three questions."""
    survey = load()
    with Accountant.from_environment(POPULATION) as accountant:
        ask_about_affairs(accountant, survey)
        ask_for_ratings(accountant, survey)
        look_for_offices(accountant, survey)


def ask_about_affairs(accountant: Accountant, survey: Survey) -> None:
    """Two coins (Warner 1965): the truth with probability 1/2, else a coin's answer. ε = ln 3."""
    coins = two_coins()
    with accountant.grant(
        "affairs",
        [coins.declaration],
        purpose="survey: share of women who had an affair",
    ) as grant:
        covered(grant.epsilon, [coins.epsilon])
        answers = survey.column("affairs", "affairs") > 0
        reports = [coins.draw(bool(answer)) for answer in answers]
    yes = sum(reports) / WOMEN
    # Reported yes = 1/4 + truth / 2; turned round, the chance of the coins is turned round too.
    estimate = (yes - 0.25) / 0.5
    error = 1.96 * math.sqrt(yes * (1 - yes) / WOMEN) / 0.5
    console.print(
        f"had an affair: {estimate:.1%} ± {error:.1%}, from reports of which each may be a coin's; "
        f"ε {grant.epsilon} (true, shown because the data are public: {answers.mean():.1%})"
    )


def ask_for_ratings(accountant: Accountant, survey: Survey) -> None:
    """One bit per category, each flipped now and then: unary encoding. ε = 2 ln(5/3)."""
    bits = unary_encoding(len(RATINGS))
    with accountant.grant(
        "marriages",
        [bits.declaration],
        purpose="survey: how marriages are rated",
    ) as grant:
        covered(grant.epsilon, [bits.epsilon])
        ratings = survey.column("marriages", "rate_marriage")
        one_hot = {rating: tuple(int(i == rating) for i in range(5)) for rating in range(5)}
        reports = [bits.draw(one_hot[int(rating) - 1]) for rating in ratings]
    sums = [sum(column) / WOMEN for column in zip(*reports, strict=True)]
    shares = [(share - FLIPS) / (1 - 2 * FLIPS) for share in sums]
    error = 1.96 * math.sqrt(FLIPS * (1 - FLIPS) / WOMEN) / (1 - 2 * FLIPS)
    console.print(f"ratings of marriages, each ± {error:.1%} (true); ε {grant.epsilon}:")
    for i, (name, share) in enumerate(zip(RATINGS, shares, strict=True)):
        console.print(f"  {name:>9}: {share:6.1%} ({(ratings == i + 1).mean():.1%})")


def look_for_offices(accountant: Accountant, survey: Survey) -> None:
    """Asks of every subgroup whether at least ``OFFICE`` women in it had an affair."""
    session_noise = AboveThreshold(
        OFFICE, threshold_scale=Decimal(8), comparison_scale=Decimal(16), positives=5
    )
    affairs = survey.column("affairs", "affairs") > 0
    above: list[str] = []
    with accountant.sparse_vector(
        "affairs",
        session_noise.declaration,
        purpose="survey: where to open counselling offices",
    ) as session:
        covered(session.epsilon, [session_noise.epsilon])
        uncounted = {"above": 0, "below": 0}
        for group in _subgroups():
            answer = session_noise.ask(float((affairs & survey.members(**group)).sum()))
            uncounted[answer] += 1
            if answer == "above":
                above.append(", ".join(group.values()))
            # Counted before anybody sees them; if this process dies before, the session expires
            # and is charged whole.
            if sum(uncounted.values()) == BATCH or session_noise.left == 0:
                session.count(positives=uncounted["above"], negatives=uncounted["below"])
                uncounted = {"above": 0, "below": 0}
            if session_noise.left == 0:
                break
        if any(uncounted.values()):
            session.count(positives=uncounted["above"], negatives=uncounted["below"])
        settled = session.close()
    asked = session.positives + session.negatives
    console.print(
        f"{asked} questions whether {OFFICE} women of a subgroup had an affair: "
        f"{session.positives} above ({'; '.join(above) or 'none'}), {session.negatives} below"
    )
    charged = Decimal(settled["charged"]["epsilon"])
    console.print(
        f"  reserved ε {session.epsilon}, charged {charged}, given back "
        f"{session.epsilon - charged} for positives that were not used; negatives are free"
    )


def _subgroups() -> Iterator[dict[str, str]]:
    """Every combination of education, age and occupation, also of two or one of them."""
    wholes = [["", *labels(dimension)] for dimension in DIMENSIONS]
    for values in product(*wholes):
        group = {d: value for d, value in zip(DIMENSIONS, values, strict=True) if value}
        if group:
            yield group


if __name__ == "__main__":
    main()
