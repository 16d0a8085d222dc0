"""Compares, after any disaster, what clients were told with what the ledger says.

* Every answer stands: its event is there, once, and says what was asked and answered.
* A batch is there whole, or not at all; a refused one is one event.
* A text is there as long as nobody has erased it, and not afterwards.
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

from accountant.budget.sealing import FIELDS, Opened
from accountant.budget.state import State
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.store.ledgers import Text
from accountant.store.opening import open_ledgers
from harness.custodian import Custodian
from harness.deployment import POPULATION, Deployment
from harness.importing import Importing
from harness.pipelines import Pipeline, Request

NANO = 10**9
LIMITS = {"d": ("narrow", NANO)}
"""Per dataset, the rule of the pipelines' policy that can be used up, and its limit in units."""
BOOKED = ("grant.reserved.v1", "invocation.recorded.v1")
ENDED = ("grant.committed.v1", "grant.released.v1", "grant.expired.v1", "sparse_vector.closed.v1")
CALLED = {
    "ask_grant": "/grants",
    "commit_grant": "/grants/{grant}/commit",
    "release_grant": "/grants/{grant}/release",
    "record_invocations": "/invocations",
    "open_sparse_vector": "/sparse-vector",
    "batch": "/batch",
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
    *,
    custodian: Custodian | None = None,
    importing: Importing | None = None,
) -> Checked:
    """Reads the ledger and compares. Raises AssertionError at the first thing that is wrong."""
    bodies, texts = stored(deployment.database_url)
    events = [json.loads(body) for body in bodies]
    result = last_replay(POPULATION, bodies)
    assert result.findings == []
    stamps = [event["time"] for event in events]
    assert stamps == sorted(stamps), "a stamp goes back"
    by_key = keyed(events)
    if importing is not None:
        importing.compare(by_key)
    _compare(events, by_key, clients)
    erased = custodian.compare(events) if custodian is not None else set()
    sealed(events, texts, erased)
    spent(events, result.state, limits)
    return Checked(bodies, events, result.state)


def stored(url: str, ledger: str = POPULATION) -> tuple[list[bytes], list[Text]]:
    """Every event's bytes, which are counted from 0, hash to their leaves, and those to the head;
    and the texts beside them.
    """
    ledgers = open_ledgers(url)
    try:
        rows = list(ledgers.stream(ledger))
        head = ledgers.head(ledger)
        texts = ledgers.texts(ledger, 0, len(rows))
    finally:
        ledgers.close()
    assert [row.sequence for row in rows] == list(range(len(rows)))
    assert all(row.leaf == leaf_hash(row.body) for row in rows)
    assert Tree().grown(row.leaf for row in rows)[0] == head
    return [row.body for row in rows], texts


def keyed(events: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """What was answered under each key, by who asked; no key twice."""
    by_key: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events:
        if "key" in event:
            place = (event["by"], event["key"])
            assert place not in by_key, f"answered twice: {place}"
            by_key[place] = event
    return by_key


def sealed(events: Sequence[dict[str, Any]], texts: Sequence[Text], erased: set[int]) -> None:
    """Every text that an event holds the digest of is there, unless it was erased, and no other."""
    digests = {(t.sequence, t.field): Opened(t.salt, t.text).digest for t in texts}
    for event in events:
        commands = [("", event.get("command", {}))]
        commands += [(f"items.{i}.", item) for i, item in enumerate(event.get("items", ()))]
        for prefix, command in commands:
            if "confirms" in command:  # its texts are the proposal's
                continue
            for field in FIELDS:
                if isinstance(command.get(field), dict) and event["sequence"] not in erased:
                    digest = digests.pop((event["sequence"], prefix + field), None)
                    assert digest == command[field]["sealed"], f"a text is lost: {event}"
    assert not digests, f"texts of nothing, or erased ones: {list(digests)}"


def _compare(
    events: Sequence[dict[str, Any]],
    by_key: dict[tuple[str, str], dict[str, Any]],
    clients: Sequence[Pipeline],
) -> None:
    for client in clients:
        assert not client.complaints, client.complaints[0]
        for request in client.requests:
            event = by_key.pop((client.who, request.key), None)
            items = [] if event is None else asked(events, event, request)
            if request.status is not None:
                answered(event, items, request)
    assert not by_key, f"nobody asked for {list(by_key)}"


def asked(
    events: Sequence[dict[str, Any]], event: dict[str, Any], request: Request
) -> list[dict[str, Any]]:
    """The event holds what was asked; texts are sealed in it, and defaults left out. The events of
    the items, as they were listed.
    """
    command = event["command"]
    assert CALLED[command["type"]].format(grant=command.get("grant")) == request.path
    if command["type"] != "batch":
        _same(command, request.body)
        return []
    listed = request.body["items"]
    order = sorted(range(len(listed)), key=lambda place: listed[place]["type"] == "ask_grant")
    if event["type"] == "batch.refused.v1":
        parts = events[event["sequence"] - event.get("parts", 0) : event["sequence"]]
        runs = [(part["command"]["first"], part["items"]) for part in parts]
        runs.append((event.get("first", 0), event["items"]))
        found, commands = [], [item for _, run in sorted(runs) for item in run]
    else:
        first = event["sequence"] + 1
        found = list(events[first : first + len(listed)])
        assert all(item["batch"] == event["sequence"] for item in found), f"half a batch: {event}"
        commands = [item["command"] for item in found]
    for place, item in zip(order, commands, strict=True):
        _same(item, listed[place])
        assert item["type"] == listed[place]["type"]
    return [item for _, item in sorted(zip(order, found, strict=False), key=lambda pair: pair[0])]


def _same(command: dict[str, Any], body: dict[str, Any]) -> None:
    for name in ("dataset", "mechanisms", "mechanism"):
        assert command.get(name) == body.get(name), (command, body)
    assert body.get("grant") in (None, command.get("grant")), (command, body)


def answered(
    event: dict[str, Any] | None, items: Sequence[dict[str, Any]], request: Request
) -> None:
    """The answer is what the event says; without a decision there is neither."""
    answer = json.loads(request.answer)
    if request.status not in (200, 201) and "decision" not in answer:
        assert event is None, f"refused without an event: {request}"
        return
    assert event is not None, f"lost: {request}"
    assert answer["sequence"] == event["sequence"]
    refused = request.status == 403
    assert refused == (event["type"] in ("grant.refused.v1", "batch.refused.v1"))
    if refused:
        rules = [rule for rule in answer["decision"]["rules"] if rule["fired"]]
        assert [[rule["rule"], rule["code"]] for rule in rules] == event["fired"]
    elif "items" in answer:
        for one, item in zip(answer["items"], items, strict=True):
            _stands(one, item)
    else:
        _stands(answer, event)


def _stands(answer: dict[str, Any], event: dict[str, Any]) -> None:
    """What was answered is what happened."""
    assert (answer["sequence"], answer["time"]) == (event["sequence"], event["time"])
    if event["type"] in BOOKED:
        flags = [[flag["rule"], flag["code"]] for flag in answer["flags"]]
        assert (answer["decision"], flags) == (f"d{event['sequence']}", event.get("fired", []))


def spent(
    events: Sequence[dict[str, Any]], state: State, limits: dict[str, tuple[str, int]]
) -> dict[str, int]:
    """What is spent and reserved of each limited dataset, in units of epsilon; never too much."""
    sums = dict.fromkeys(limits, 0)
    of_grant: dict[str, tuple[str, int]] = {}
    for event in events:
        kind, command = event["type"], event.get("command", {})
        if kind in BOOKED:
            dataset, change = command["dataset"], int(event["total"]["epsilon"])
            of_grant[f"g{event['sequence']}"] = dataset, change
        elif kind in ENDED:
            dataset, held = of_grant[command["grant"]]
            change = int(event.get("charge", {"epsilon": "0"})["epsilon"]) - held
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
