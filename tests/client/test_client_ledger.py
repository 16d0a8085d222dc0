"""The ledger as it arrives: checked byte by byte. And the client's own independence."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from accountant.client import ChainBroken
from accountant.client.ledger import chained

if TYPE_CHECKING:
    from conftest import Served

LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "4"}
STRANGE = 'naïve 편향 \U0001f600 "quoted" \\ / \b\f\n\r\t\x01\x1f\x7f\u2028'


def page(served: Served, population: str) -> list[dict[str, Any]]:
    """The events as the service sends them."""
    answer = httpx2.get(
        f"{served.url}/v1/populations/{population}/events",
        headers={"Authorization": f"Bearer {served.keys['auditor']}"},
    )
    return list(answer.json()["events"])


def test_bytes(served: Served) -> None:
    """The client has every event's canonical bytes exactly, whatever characters are in them."""
    population = served.population()
    with served.client(population) as accountant:
        accountant.record("visits", [LAPLACE], purpose=STRANGE)
    with served.client(population, "auditor") as auditor:
        events = list(auditor.events())
    assert events[-1].content["command"]["purpose"] == STRANGE
    for sequence, event in enumerate(events):
        answer = httpx2.get(
            f"{served.url}/v1/populations/{population}/events/{sequence}",
            headers={"Authorization": f"Bearer {served.keys['auditor']}"},
        )
        assert event.data == answer.content


def test_pages(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger longer than a page arrives whole and in order."""
    population = served.population()
    with served.client(population) as accountant:
        for _ in range(5):
            accountant.record("visits", [LAPLACE], purpose="test")
    monkeypatch.setattr("accountant.client.accounts.PAGE", 3)
    with served.client(population, "auditor") as auditor:
        assert [event.content["sequence"] for event in auditor.events()] == list(range(8))


@pytest.mark.parametrize("change", ["value", "link", "gone", "swapped"])
def test_tampering(served: Served, change: str) -> None:
    """A changed, missing or moved event breaks the chain."""
    events = copy.deepcopy(page(served, served.population()))
    assert len(list(chained([events]))) == 3
    match change:
        case "value":
            events[1]["event"]["command"]["name"] = "other"
        case "link":
            events[1]["link"] = events[0]["link"]
        case "gone":
            del events[1]
        case _:
            events[0], events[1] = events[1], events[0]
    with pytest.raises(ChainBroken):
        list(chained([events]))


def test_stands_alone() -> None:
    """The client imports nothing else of the project, and of third parties only httpx2's."""
    script = (
        "import sys; bare = set(sys.modules); import httpx2; theirs = set(sys.modules)\n"
        "import accountant.client; ours = set(sys.modules) - theirs\n"
        "top = {m.partition('.')[0] for m in ours} - set(sys.stdlib_module_names)\n"
        "inside = {m for m in ours if m.startswith('accountant.')}\n"
        "assert top == {'accountant'}, top\n"
        "assert all(m.startswith('accountant.client') for m in inside), inside\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
