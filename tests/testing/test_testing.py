"""The ledger for pipelines' own unit tests: the same rules, nothing to set up, nothing kept."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from accountant.client import Client, Failed, Refused, laplace
from accountant.testing import async_ledger, ledger

POLICY = """
policy: strict
rules:
  - {id: total, limit: {epsilon: 3}, gate: basic}
  - {id: reasons, require: [purpose]}
"""


def dashboard(visits: Client) -> int:
    """A pipeline as its author wrote it: two counts of epsilon 0.25."""
    with visits.grant("visits", [laplace(1, 4, count=2)]):
        return 42


def test_a_pipeline_is_tested_against_the_real_rules() -> None:
    """What it spends is seen, and what is too much is refused as in production."""
    with ledger(epsilon=1) as visits:
        assert dashboard(visits) == 42
        assert visits.accounts()["limit"].total.spent == Decimal("0.5")
        with pytest.raises(Refused, match="is more than the limit 1"):
            visits.grant("visits", [laplace(1, 1)])


def test_every_ledger_begins_unspent() -> None:
    """One test cannot spend what another has."""
    for _ in range(2):
        with ledger() as visits:
            assert visits.accounts()["limit"].total.spent == 0
            dashboard(visits)


def test_a_policy_of_ones_own_holds() -> None:
    """A policy file is adopted as it is, with the datasets and dimensions that are named."""
    people = {"country": ["KR", "JP"]}
    with ledger(POLICY, datasets=["a", "b"], dimensions=people) as book:
        with pytest.raises(Refused, match="purpose"):
            book.grant("a", [laplace(1, 4)])
        book.grant("b", [laplace(1, 4)], subjects={"country": ["KR"]}, purpose="test")
        with pytest.raises(Failed, match="unknown-dataset"):
            book.grant("visits", [laplace(1, 4)], purpose="test")


def test_the_asynchronous_client_has_one_too() -> None:
    """A pipeline that awaits is tested alike."""

    async def work() -> Decimal:
        async with async_ledger(epsilon=2) as visits:
            async with visits.grant("visits", [laplace(1, 1)]):
                pass
            return (await visits.accounts())["limit"].total.spent

    assert asyncio.run(work()) == 1


def test_options_are_the_clients(tmp_path: Path) -> None:
    """A spool or a patience can be tried, too."""
    with ledger(spool=tmp_path / "spool") as visits:
        assert visits.record("visits", [laplace(1, 4)]) is not None
        assert visits.deliver().sent == 0
