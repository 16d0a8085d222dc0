"""From the introduction to the definition: what epsilon promises, and whether a mechanism keeps it.

Nothing here is drawn, so nothing is spent: probabilities are public, and worked out exactly.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from accountant.queries.definition import beliefs, check, worst
from accountant.queries.picture import picture
from examples.queries.results import Results, text

SOURCE: Final = "introduction"
EPSILONS: Final = ("0.1", "0.5", "1", "3")
THETA: Final = Fraction(3, 4)
PRIOR: Final = Fraction(1, 3)
"""Somebody thinks that one woman in three had an affair."""

RESPONSE: Final = {
    "yes": {"yes": THETA, "no": 1 - THETA},
    "no": {"yes": 1 - THETA, "no": THETA},
}
"""The probability of each report for each true answer."""


def run(results: Results) -> None:
    """Run all examples of this family."""
    posterior(results)
    checker(results)


def posterior(results: Results) -> None:
    """Bound what anybody believes after an answer by what they believed before, and compare with
    what somebody does believe after a randomised report (Bayes).
    """
    results.picture("beliefs.svg", picture(EPSILONS))
    epsilon = str(math.ceil(math.log(3) * 1e9) / 1e9)
    least, most = beliefs(PRIOR, epsilon)
    after = {
        report: PRIOR * RESPONSE["yes"][report]
        / (PRIOR * RESPONSE["yes"][report] + (1 - PRIOR) * RESPONSE["no"][report])
        for report in ("yes", "no")
    }  # fmt: skip
    shown = f"{text(float(after['no']))} to {text(float(after['yes']))}"
    results.free(
        "posterior bounds", true=shown, answer=f"{text(least)} to {text(most)}",
        note="belief in an affair after a report at epsilon ln 3, for somebody who believed 1/3 "
        "before: by Bayes, and the bounds; beliefs.svg has them for every prior",
    )  # fmt: skip
    results.claim(
        "no report moves a belief beyond the bounds, and a report moves it as far as they are",
        f"beliefs {shown}, bounds {text(least)} to {text(most)}",
        holds=least <= after["no"] <= least + 1e-6 and most - 1e-6 <= after["yes"] <= most,
        chance="0",
    )


def checker(results: Results) -> None:
    """Check the definition for randomized response, at its epsilon and just below."""
    above, below = "1.0986123", "1.0986122"
    keeps, breaks = check(RESPONSE, above), check(RESPONSE, below)
    found = worst(RESPONSE)
    ratio = float(found.ratio or 0)
    results.free(
        "checker of the definition", true=f"ln 3 = {math.log(3):.9f}",
        answer=f"ln {text(ratio)}: kept at {above}, broken at {below}",
        note="randomized response with theta 3/4, in exact fractions",
    )  # fmt: skip
    leaky: dict[str, dict[str, int | str]] = {
        "yes": {"yes": 1},
        "no": {"yes": "0.999", "no": "0.001"},
    }
    with_delta = check(leaky, 1, "0.001"), check(leaky, 1, "0.0009")
    results.claim(
        "the checker tells mechanisms that keep the definition from such that do not",
        f"epsilon ln {text(ratio)}; a leak of probability 0.001 needs delta {with_delta[1].delta}",
        holds=(
            keeps.holds and not breaks.holds and found.ratio == 3
            and with_delta[0].holds and not with_delta[1].holds
        ),
        chance="0",
    )  # fmt: skip
