"""Frozen ledgers: every outcome, booked integer and total is what it was (README.md)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, islice

import driver
import pytest
import stored
from comparing import EXACT, Difference, Json, Slack, differences, in_comparisons
from counting import WANTED, covered
from effort import HEAVY

CORRECTED = ("corrections",)
"""Families of a program in which a bound was corrected."""
SHOWN = 20
FEWEST = 3
EVERY = 1 if HEAVY else 4
"""CI replays every fourth ledger of a family; ``make test-thorough`` replays all."""
EVERY_TEXT = 1 if HEAVY else 3
"""Likewise of the policies' texts, of which there are 1,800, each in a random form."""


@pytest.mark.parametrize("family", stored.families())
def test_every_ledger_comes_out_as_it_is_stored(family: str) -> None:
    """What is asked again in the same order has the same outcomes and leaves the same totals."""
    found: list[str] = []
    with driver.corrected_laplace() if family in CORRECTED else nullcontext():
        for ledger in stored.read(family, EVERY):
            found += islice(replayed(ledger), 3)
            if len(found) >= SHOWN:
                break
    assert not found, "\n".join(found)


def replayed(ledger: Json, slack: Slack = EXACT) -> Iterator[str]:
    """What differs: ledger, request, field, expected and got."""
    made = driver.Ledger()
    for number, step in enumerate(ledger["steps"]):
        where = f"{ledger['name']}, request {number} ({step['ask']['command']['type']})"
        yield from (f"{where}: {difference}" for difference in _differing(made, step, slack))


def _differing(made: driver.Ledger, step: Json, slack: Slack) -> Iterator[Difference]:
    asked = step["ask"]
    found, compared = made.ask(asked)
    groups = [one.get("subjects") for one in asked.get("items", [asked["command"]])]
    union = any(isinstance(group, list) for group in groups)
    yield from differences(step["found"], found, slack, "found")
    yield from in_comparisons(step.get("compared", []), compared, slack, union=union)
    if "totals" in step:
        yield from differences(step["totals"], made.totals(), slack, "totals")


def test_policy_files_are_read_as_they_were() -> None:
    """The text of each policy means the rules that the ledger holds, with all defaults."""
    read: dict[str, Json] = {}
    for step in _steps():
        policy = step["ask"]["command"].get("policy")
        if policy is not None:
            read.setdefault(step["ask"]["text"], policy)
    for text, policy in islice(read.items(), 0, None, EVERY_TEXT):
        assert driver.policy_of(text) == policy
    assert len(read) > 1_800


def test_the_corpus_covers_everything() -> None:
    """Every command, event, rule, mechanism, gate and problem occurs, and there is enough of it."""
    counted = covered(chain.from_iterable(map(stored.read, stored.families())))
    assert counted["ledger", ""] >= 200
    assert counted["judged", ""] >= 15_000
    assert {thing for thing in WANTED if counted[thing] < FEWEST} == set()


def _steps() -> Iterator[Json]:
    for ledger in chain.from_iterable(map(stored.read, stored.families())):
        yield from ledger["steps"]
