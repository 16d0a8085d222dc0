"""The page on asking from a pipeline does what it says."""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from served import Served

from accountant.client import Client, Refused, Registrar, laplace
from accountant.queries.steps import DiscreteLaplace

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/ask-from-a-pipeline.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.+?)^```", PAGE, re.DOTALL | re.MULTILINE)
SPOOL = "/var/spool/accountant"
VISITS = 1234


class Pipeline:
    """What the page leaves to the reader: numbers to count, a sampler, and who is told."""

    def __init__(self) -> None:
        self.published: list[int] = []
        self.refused: list[Refused] = []
        self.drawn: list[Any] = []

    def names(self) -> dict[str, Any]:
        """The names that the page's code uses without making them."""
        return {
            "sampler": self.sampler,
            "true_answer": VISITS,
            "publish": self.published.append,
            "report": self.refused.append,
            "months": ["January", "February"],
            "draw": self.drawn.append,
            "needed": True,
            "visits_on": lambda day: VISITS,
            "dashboard": self.dashboard,
        }

    def sampler(self, value: int) -> int:
        """Whole-number Laplace noise of scale 10, as the page's count states it."""
        found: int = DiscreteLaplace(Fraction(1), Fraction(10)).ready(value)()
        return found

    def dashboard(self, ledger: Client) -> None:
        """Two counts at epsilon 0.25."""
        for _ in range(2):
            with ledger.grant("visits", [laplace(1, scale=4)]):
                self.published.append(self.sampler(VISITS))


@pytest.fixture
def population(served: Served, monkeypatch: pytest.MonkeyPatch) -> str:
    """A population with a limit of epsilon 1, and what the page sets in the environment."""
    name = served.population()
    monkeypatch.setenv("ACCOUNTANT_URL", served.url)
    monkeypatch.setenv("ACCOUNTANT_KEY", served.keys["pipeline"])
    monkeypatch.setenv("ACCOUNTANT_POPULATION", name)
    return name


def test_the_examples_run_as_they_stand(served: Served, population: str, tmp_path: Path) -> None:
    """In order, in one namespace; only the folder for reports is another. Each is charged what the
    page says: the first, the tracked grant what was used of it, the decorated call, the awaited
    grant, and the report. When nothing is left the first block's refusal is told.
    """
    pipeline = Pipeline()
    names, clients = pipeline.names(), []
    for block in BLOCKS:
        assert block.count(SPOOL) <= 1
        code = block.replace(SPOOL, str(tmp_path / "spool"))
        exec(compile(code, "ask-from-a-pipeline.md", "exec"), names)  # noqa: S102 our own page
        clients.append(names["ledger"])
    assert abs(pipeline.published[0] - VISITS) < 500
    assert pipeline.drawn == ["January", "February", names["total"]]
    assert abs(names["daily_count"]("Monday") - VISITS) < 500
    assert abs(asyncio.run(names["count_visits"]()) - VISITS) < 500
    assert (names["outcome"].sent, names["outcome"].rejected) == (0, [])
    assert names["outcome"].stopped is None
    assert [each["kind"] for each in (names["count"], names["means"])] == ["laplace", "laplace"]

    with served.client(population) as ledger:
        used = Decimal("0.1") + 2 * Decimal("0.025")  # two of twelve means, and the total
        assert ledger.accounts()["lifetime"].total.spent == used + 4 * Decimal("0.1")
        while not pipeline.refused:
            before = len(pipeline.published)
            exec(compile(BLOCKS[0], "ask-from-a-pipeline.md", "exec"), names)  # noqa: S102
            assert (len(pipeline.published) > before) is not bool(pipeline.refused)
        assert ledger.accounts()["lifetime"].total.spent == Decimal("0.95")
    for client in clients:
        if isinstance(client, Client):
            client.close()


def test_the_test_of_a_pipeline_passes() -> None:
    """The page's own test holds for a dashboard that pays for two counts, and fails for one that
    does not.
    """
    [block] = [each for each in BLOCKS if "def test_" in each]
    names = Pipeline().names()
    exec(compile(block, "ask-from-a-pipeline.md", "exec"), names)  # noqa: S102 our own page
    names["test_the_dashboard_pays_for_two_counts"]()
    names["dashboard"] = lambda ledger: None
    with pytest.raises(AssertionError):
        names["test_the_dashboard_pays_for_two_counts"]()


def test_what_ran_is_recorded_as_documented(served: Served, population: str) -> None:
    """The example of recording after the fact: it is charged, and nothing is over the limit."""
    page = (ROOT / "docs/how-to/record-after-the-fact.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(.+?)^```", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(block, "record-after-the-fact.md", "exec"), names)  # noqa: S102 our own page
    assert (names["recorded"].charge["epsilon"], names["recorded"].overrun) == (
        Decimal("0.1"),
        False,
    )
    with served.client(population) as ledger:
        assert ledger.accounts()["lifetime"].total.spent == Decimal("0.1")


def test_the_readme_pays(served: Served, population: str) -> None:
    """The example of the README, on the dataset that it names."""
    with Registrar(served.url, served.keys["admin"], population) as registrar:
        registrar.dataset("usage-visits", namespace=population, name="usage-visits")
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(.+?)^```", page, re.DOTALL | re.MULTILINE)
    pipeline = Pipeline()
    exec(compile(block, "README.md", "exec"), pipeline.names())  # noqa: S102 our own page
    assert len(pipeline.published) == 1
    with served.client(population) as ledger:
        assert ledger.accounts("usage-visits")["lifetime"].total.spent == Decimal("0.05")


def test_the_page_of_the_distribution_pays(served: Served, population: str) -> None:
    """The example that the package index shows."""
    page = (ROOT / "packaging/client/README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(.+?)^```", page, re.DOTALL | re.MULTILINE)
    exec(compile(block, "README.md", "exec"), Pipeline().names())  # noqa: S102 our own page
    with served.client(population) as ledger:
        assert ledger.accounts()["lifetime"].total.spent == Decimal("0.1")
