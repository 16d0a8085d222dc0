"""The page that compares this service with its peers says what the workloads say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import tables
from bench.peers.emulated import any_order, at_once, in_rounds
from bench.peers.pricing import shares
from bench.peers.rows import ROWS
from bench.peers.workload import Ask, Workload

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "against-its-peers.md"


def test_a_table_has_a_dash_for_what_was_not_measured() -> None:
    """What is not among the results is a dash, and published numbers stand beside their orders."""
    text = tables.rendered({"W1": {"requests": 20_079, "one by one": 10_263}})
    first, *_ = [line for line in text.splitlines() if line.startswith("| W1 | `over")]
    assert first == "| W1 | `over: 84d` | 20,079 | 10,263 | – | – | – | – | – |"
    assert "| W1 | dominant share | 16,162 | – | – | – |" in text
    assert "| W1 | ILP by round | 16,271 | – | – | – |" in text


def test_text_between_marks_is_replaced() -> None:
    """Only what is between the marks changes; a page without marks is refused."""
    page = f"a\n{tables.BEGIN}\nold\n{tables.END}\nb\n"
    assert tables.replaced(page, "new") == f"a\n{tables.BEGIN}\n\nnew\n\n{tables.END}\nb\n"
    with pytest.raises(ValueError, match="has no"):
        tables.replaced("a", "new")


def test_the_page_has_every_workload() -> None:
    """Each workload that runs has a row in the page's tables, and a line that says what it is."""
    page = PAGE.read_text()
    inside = page.partition(tables.BEGIN)[2].partition(tables.END)[0]
    for name in ROWS:
        assert f"| {name} |" in inside
        assert name in page.partition("## The workloads")[2]


def test_any_order_may_be_another_one_each_time() -> None:
    """The peers' rule admits what fits at some order, where a fixed order of these refuses."""
    gaussian = {"kind": "gaussian", "sensitivity": "1", "scale": "4"}
    asks = tuple(Ask(0, gaussian, ((range(1),),)) for _ in range(40))
    workload = Workload("forty", "none", {"block": 1}, "limit: {epsilon: 3}, gate: basic", asks)
    each = [len(at_once(workload, any_order(workload, 3, 1e-7, (a,)))) for a in (8, 16, 32)]
    assert len(at_once(workload, any_order(workload, 3, 1e-7, (8, 16, 32)))) == max(each)


def test_rounds_unlock_a_twelfth_a_week() -> None:
    """In the first round after a block has come a twelfth of it may be used, with slack 0.4 a
    little more, and after twelve rounds all.
    """
    laplace = {"kind": "laplace", "sensitivity": "1", "scale": "100"}
    asks = tuple(
        Ask(week * 10, laplace, ((range(11, 12),),)) for week in range(12) for _ in "x" * 20
    )
    workload = Workload("weeks", "none", {"block": 12}, "limit: {epsilon: 1.2}, gate: basic", asks)
    taken = in_rounds(workload, shares(workload), "arrival", 10, window=12)
    assert [sum(place // 20 == week for place in taken) for week in range(12)] == [10] * 12
    early = in_rounds(workload, shares(workload), "arrival", 10, window=12, slack=0.4)
    assert sum(place < 20 for place in early) == 14
