"""A careless pipeline: what happens when things are done wrong. Nothing here is to be copied.

It understates, leaves its reason out, wants exact numbers, uses a broken algorithm, runs first and
tells later, and finally dies in the middle of its work. The service refuses what has not happened
yet, records what has, and charges what nobody accounts for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal

from rich.console import Console

from accountant.client import Accountant, Failed, Mechanism, Refused
from accountant.demo.noise import covered, discrete_laplace
from accountant.demo.survey_data import CHILDREN, POPULATION, Survey, load

DATASET = "households"
PURPOSE = "family sizes, in a hurry"
CRASHED = 70
"""The exit code of the simulated crash."""
TTL = 3
console = Console(highlight=False)


class NotRefused(Exception):
    """Something was allowed that must not be."""


def main() -> None:
    """Every carelessness in turn; ends in a crash with exit code 70."""
    survey = load()
    with Accountant.from_environment(POPULATION) as accountant:
        ask_for_too_little(accountant)
        retry(accountant, survey)
        run_first_tell_later(accountant, survey)
        crash(accountant, survey)


def ask_for_too_little(accountant: Accountant) -> None:
    """Four requests that are refused, each for its own reason."""
    honest = discrete_laplace(scale=Decimal(1)).declaration

    def ask(mechanisms: Sequence[Mechanism], purpose: str | None = PURPOSE) -> Callable[[], object]:
        return lambda: accountant.grant(DATASET, mechanisms, purpose=purpose)

    expect_refusal("understated", ask([honest | {"claimed": {"epsilon": "0.1"}}]))
    expect_refusal("no purpose", ask([honest], purpose=None))
    expect_refusal("exact numbers", ask([{"kind": "non_private"}]))
    # Alg. 4 of Lyu, Su, Li 2017: ten positives, but noise and claim as if there were one.
    broken = {
        "kind": "sparse_vector",
        "sensitivity": "1",
        "threshold_scale": "10",
        "comparison_scale": "20",
        "max_positives": 10,
        "claimed": {"epsilon": "0.2"},
    }
    expect_refusal(
        "broken sparse vector",
        lambda: accountant.sparse_vector(DATASET, broken, purpose=PURPOSE),
    )


def expect_refusal(what: str, ask: Callable[[], object]) -> None:
    """Asks, and prints why it is refused."""
    try:
        ask()
    except Refused as refused:
        console.print(f"{what}: {refused.detail}")
        return
    raise NotRefused(what)


def retry(accountant: Accountant, survey: Survey) -> None:
    """Loses the answer and asks again with the same key: the same grant, charged once."""
    noise = discrete_laplace(scale=Decimal(4))
    key = "families-with-children"

    first = accountant.grant(DATASET, [noise.declaration], purpose=PURPOSE, idempotency_key=key)
    again = accountant.grant(DATASET, [noise.declaration], purpose=PURPOSE, idempotency_key=key)
    if again.id != first.id or not again.repeated:
        raise NotRefused("a retry got a second grant")
    with first:
        covered(first.epsilon, [noise.epsilon])
        families = noise.draw(int((survey.column(DATASET, "children") > 0).sum()))
    console.print(f"retry: grant {first.id} both times, charged once; {families} families")
    try:
        accountant.grant(DATASET, [noise.declaration] * 2, purpose=PURPOSE, idempotency_key=key)
    except Failed as failed:
        console.print(f"another question under that key: {failed.detail}")
    else:
        raise NotRefused("another question under a used key")


def run_first_tell_later(accountant: Accountant, survey: Survey) -> None:
    """Runs six counts without asking, and says so afterwards.

    They happened, so they are recorded and charged, and the account says that it is overrun.
    """
    noise = discrete_laplace(scale=Decimal(2))
    children = survey.column(DATASET, "children")[survey.members(education="advanced degree")]
    counts = [noise.draw(int((children == number).sum())) for number in CHILDREN]
    answer = accountant.record(
        DATASET,
        [noise.declaration | {"count": len(counts)}],
        subjects={"education": ["advanced degree"]},
        purpose=PURPOSE,
    )
    if not answer["overrun"]:
        raise NotRefused("an overrun was not noticed")
    charged = answer["charge"]["epsilon"]
    console.print(f"{len(counts)} counts run without asking: recorded, ε {charged}, an overrun")


def crash(accountant: Accountant, survey: Survey) -> None:
    """Draws noise and dies before it can commit; the grant expires, and is charged."""
    noise = discrete_laplace(scale=Decimal(2))
    graduates = survey.members(education="college graduate")
    with accountant.grant(
        DATASET,
        [noise.declaration],
        subjects={"education": ["college graduate"]},
        purpose=PURPOSE,
        ttl_seconds=TTL,
    ) as grant:
        noise.draw(int((survey.column(DATASET, "children")[graduates] > 2).sum()))
        console.print(f"crash with grant {grant.id} open: it expires in {TTL} s and is charged")
        sys.stdout.flush()
        os._exit(CRASHED)


if __name__ == "__main__":
    main()
