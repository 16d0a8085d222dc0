"""The tutorial's second page ends with a released answer, on the ledger of its first page."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support import Served, World
from test_tutorial import first_ledger

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tutorial/first-answer.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.+?)^```", PAGE, re.DOTALL | re.MULTILINE)
EXPORTS = dict(re.findall(r"^export (\w+)=(\S+)$", PAGE, re.MULTILINE))


@pytest.fixture
def told(
    world: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> tuple[dict[str, Any], str]:
    """What the page's names stand for in the end, and what it prints, in an empty folder."""
    there = first_ledger(world())
    served = Served(there.service, there.settings, there.publisher)
    stands_for = {"http://127.0.0.1:8321": f"http://127.0.0.1:{served.port}"}
    stands_for |= {"$PIPELINE": there.secrets["pipeline"]}
    for name, value in EXPORTS.items():
        monkeypatch.setenv(name, stands_for.get(value, value))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, "first-answer.md", "exec"), names)  # noqa: S102 our own page
    names["ledger"].close()
    served.close()
    return names, capsys.readouterr().out


def test_the_page_ends_with_an_answer(told: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    """Its blocks run as they stand: the answer is near the truth, Japan alone has paid for it, the
    proof is kept, and what is too much is refused.
    """
    names, printed = told
    table, answer = names["table"], names["answer"]
    true = table["minutes"][table["country"] == "JP"].clip(0, 120).mean()
    assert abs(answer.value - true) < 5 * answer.error.amount
    assert names["spent"] == {"CH": Decimal(0), "JP": Decimal("0.7"), "KR": Decimal(0)}
    assert answer.receipt.charge["epsilon"] == Decimal("0.2")
    proof = (tmp_path / "first-answer.tlog-proof").read_bytes()
    assert proof.startswith(b"c2sp.org/tlog-proof@v1")
    lines = printed.splitlines()
    assert lines[0] == "allow 0.2"
    assert 3 < float(lines[1]) < 5
    assert 1.8 < float(lines[2]) / float(lines[1]) < 2.3
    assert "0.7 used + 0.5 asked = 1.2 is more than the limit 1" in printed
    assert "it would fit now" in printed


def test_the_page_exports_what_the_client_reads() -> None:
    """The address, the key and the population, and nothing else."""
    assert set(EXPORTS) == {"ACCOUNTANT_URL", "ACCOUNTANT_KEY", "ACCOUNTANT_POPULATION"}
