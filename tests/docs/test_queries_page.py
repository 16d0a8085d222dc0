"""The page on queries runs as it stands, on the tutorial's ledger."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support import Served, World

from accountant.client import Client, Registrar
from accountant.queries.dataset import Dataset

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/answer-a-query.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.+?)^```", PAGE, re.DOTALL | re.MULTILINE)
DESCRIBED = {
    "Query", "collecting.BothWays", "sessions.Comparing", "holdout.Holdout",
    "weights.OnlineWeights", "features.Search",
}  # fmt: skip
"""What the methods return that describe something to ask."""
POLICY = """
policy: first
rules:
  - {id: lifetime, limit: {epsilon: "1"}, action: block}
  - {id: no-raw-numbers, mechanisms: [non_private], action: block}
"""


@pytest.fixture
def told(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, Any], str]:
    """What the page's names stand for in the end, and what it prints."""
    there = world()
    served = Served(there.service, there.settings, there.publisher)
    url = f"http://127.0.0.1:{served.port}"
    with Registrar(url, there.secrets["admin"], "visitors") as registrar:
        registrar.register(
            privacy_unit="visitor",
            neighbouring="add_or_remove_one",
            membership="public",
            dimensions={"country": ["CH", "JP", "KR"]},
        )
        registrar.dataset("visits", namespace="postgres://warehouse", name="public.visits")
        first = registrar.policy(POLICY)
    with Registrar(url, there.secrets["officer"], "visitors") as officer:
        officer.confirm(first["proposal"], first["digest"])
    monkeypatch.setenv("ACCOUNTANT_URL", url)
    monkeypatch.setenv("ACCOUNTANT_KEY", there.secrets["pipeline"])
    monkeypatch.setenv("ACCOUNTANT_POPULATION", "visitors")
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, "answer-a-query.md", "exec"), names)  # noqa: S102 our own page
    account = names["ledger"].accounts(by="country")["lifetime"]
    names["spent"] = {group.group: group.spent for group in account.groups}
    names["ledger"].close()
    served.close()
    return names, capsys.readouterr().out


def test_the_page_ends_with_answers(told: tuple[dict[str, Any], str]) -> None:
    """Its answers are near the truth, are charged to whom the page says, and come with a proof."""
    names, printed = told
    assert isinstance(names["ledger"], Client)
    table, answer = names["table"], names["answer"]
    true = table["minutes"][table["country"] == "JP"].clip(0, 120).mean()
    assert abs(answer.value - true) < 5 * answer.error.amount
    assert names["proof"].startswith(b"c2sp.org/tlog-proof@v1")
    session = names["session"].receipt.charge["epsilon"]
    assert 0 < session <= Decimal("0.1")
    everyone = Decimal("0.4") + session
    assert names["spent"] == {"CH": everyone, "JP": everyone + Decimal("0.1"), "KR": everyone}
    assert [each["kind"] for each in names["query"].mechanisms] == ["laplace", "discrete_laplace"]
    assert "laplace sensitivity 60 scale 1200" in printed
    assert "0.1 10" in printed
    assert "column 'device' has no bounds, so one visitor could change the answer" in printed
    assert "charged to everyone" in printed
    for kind in ("histogram {", "quantile ", "choice "):
        assert kind in printed


def test_the_page_lists_what_may_be_asked() -> None:
    """The table of the page names each kind of query that a dataset can be asked, and no other."""
    rows = re.findall(r"^\| (`.+?) \| .+ \| .+ \|$", PAGE, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    kinds = {
        name
        for name, value in inspect.getmembers(Dataset, callable)
        if getattr(value, "__annotations__", {}).get("return") in DESCRIBED
    }
    assert listed == kinds
