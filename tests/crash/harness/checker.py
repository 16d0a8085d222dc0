"""Compares, after any disaster, what clients were told with what the ledger says.

* Every answer stands: its event is there, once, and says what was asked and answered.
* What was refused without a decision, and what nobody asked, left no event.
* What never got an answer happened once or not at all.
* The events replay without a finding, hash to the ledger's head, and their stamps never go back.
* At no event of the ledger is a limit exceeded by one unit; this is counted here, by itself, and
  the replayed account must say the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import cells_of, last_replay

from accountant.budget.state import State
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.store.ledgers import Ledgers
from harness.deployment import POPULATION, Deployment
from harness.pipelines import Pipeline, Request

NANO = 10**9
LIMITS = {"d": ("narrow", NANO)}
"""Per dataset, the rule of the pipelines' policy that can be used up, and its limit in units."""
CALLED = {
    "ask_grant": "/grants",
    "commit_grant": "/grants/{grant}/commit",
    "release_grant": "/grants/{grant}/release",
    "record_invocations": "/invocations",
    "open_sparse_vector": "/sparse-vector",
}
"""Where each command of the clients came in."""


@dataclass(frozen=True)
class Checked:
    """A ledger that passed: its events, and the state that they lead to."""

    bodies: list[bytes]
    events: list[dict[str, Any]]
    state: State


def check(
    deployment: Deployment,
    clients: Sequence[Pipeline],
    limits: dict[str, tuple[str, int]] = LIMITS,
) -> Checked:
    """Reads the ledger and compares. Raises AssertionError at the first thing that is wrong."""
    bodies = stored(deployment.database_url)
    events = [json.loads(body) for body in bodies]
    result = last_replay(POPULATION, bodies)
    assert result.findings == []
    stamps = [event["time"] for event in events]
    assert stamps == sorted(stamps), "a stamp goes back"
    _compare(events, clients)
    spent(events, result.state, limits)
    return Checked(bodies, events, result.state)


def stored(url: str, ledger: str = POPULATION) -> list[bytes]:
    """Every event's bytes; they are counted from 0, hash to their leaves, and those to the head."""
    ledgers = Ledgers(url)
    try:
        rows = list(ledgers.stream(ledger))
        head = ledgers.head(ledger)
    finally:
        ledgers.close()
    assert [row.sequence for row in rows] == list(range(len(rows)))
    assert all(row.leaf == leaf_hash(row.body) for row in rows)
    assert Tree().grown(row.leaf for row in rows)[0] == head
    return [row.body for row in rows]


def _compare(events: Sequence[dict[str, Any]], clients: Sequence[Pipeline]) -> None:
    by_key: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events:
        if "key" in event:
            place = (event["by"], event["key"])
            assert place not in by_key, f"answered twice: {place}"
            by_key[place] = event
    for client in clients:
        assert client.complaints == []
        for request in client.requests:
            event = by_key.pop((client.who, request.key), None)
            if event is not None:
                asked(event, request)
            if request.status is not None:
                answered(event, request)
    assert not by_key, f"nobody asked for {list(by_key)}"


def asked(event: dict[str, Any], request: Request) -> None:
    """The event holds what was asked; texts are sealed in it, and defaults left out."""
    command = event["command"]
    assert CALLED[command["type"]].format(grant=command.get("grant")) == request.path
    for name in ("dataset", "mechanisms", "mechanism"):
        assert command.get(name) == request.body.get(name), (command, request)


def answered(event: dict[str, Any] | None, request: Request) -> None:
    """The answer is what the event says; without a decision there is neither."""
    answer = json.loads(request.answer)
    if request.status not in (200, 201) and "decision" not in answer:
        assert event is None, f"refused without an event: {request}"
        return
    assert event is not None, f"lost: {request}"
    assert answer["sequence"] == event["sequence"]
    assert answer.get("decision") == event.get("decision")
    refused = request.status == 403
    assert refused == (event["type"] == "grant.refused.v1")
    assert refused or answer["time"] == event["time"]


def spent(
    events: Sequence[dict[str, Any]], state: State, limits: dict[str, tuple[str, int]]
) -> dict[str, int]:
    """What is spent and reserved of each limited dataset, in units of epsilon; never too much."""
    sums = dict.fromkeys(limits, 0)
    of_grant: dict[str, str] = {}
    for event in events:
        kind, command = event["type"], event.get("command", {})
        if kind in ("grant.reserved.v1", "invocation.recorded.v1"):
            of_grant[event.get("grant", "")] = dataset = command["dataset"]
            change = int(event["total"]["epsilon"])
        elif "returned" in event:
            dataset, change = of_grant[event["grant"]], -int(event["returned"]["epsilon"])
        else:
            continue
        if dataset in sums:
            sums[dataset] += change
            assert 0 <= sums[dataset] <= limits[dataset][1], event
    for dataset, (rule, _) in limits.items():
        kept = [a for k, a in state.accounts.items() if (k.rule, k.dataset) == (rule, dataset)]
        assert [cells_of(a.used)[0][0] for a in kept] == [sums[dataset]][: len(kept)]
        assert kept or not sums[dataset]
    return sums


def verified(deployment: Deployment, folder: Path) -> None:
    """A bundle is exported, signed, and passes ``accountant verify``."""
    bundle = folder / "bundle.zip"
    bundle.unlink(missing_ok=True)
    deployment.command("export", str(bundle), "--population", POPULATION)
    deployment.command("verify", str(bundle))
