"""replay: recompute every total and decision from the events alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer

from accountant.budget.errors import Invalid, NotFound
from accountant.budget.replay import Finding, Replay
from accountant.budget.state import State
from accountant.cli.asking import show_accounts
from accountant.cli.common import (
    SHOWN,
    ByOption,
    JsonOption,
    ProcessesOption,
    app,
    local_service,
    out,
    plain,
    print_json,
    progress,
)
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.reporting.statement import accounts_json
from accountant.workers.replaying import replay_on

_LEAVES: Final = 256
"""Hashes by which the tree grows in one step."""


@app.command("replay")
def replay_(
    file: Annotated[
        Path | None,
        typer.Argument(help="events as JSONL, one canonical event a line; needs no database"),
    ] = None,
    population: Annotated[
        str | None, typer.Option("--population", "-p", help="name of the population")
    ] = None,
    by: ByOption = None,
    root: Annotated[
        str | None, typer.Option(help="the expected root; any other is a finding")
    ] = None,
    processes: ProcessesOption = None,
    json: JsonOption = False,
) -> None:
    """Take every decision again and recompute every total from the events alone.

    Exit code 1 if anything differs from what was recorded.
    """
    if file is not None:
        result = _run(population or _ledger_of(file), _lines(file), _count(file), processes)
    elif population is not None:
        with local_service() as service:
            end = service.head(population)
            if end.size == 0:
                raise NotFound("unknown-population", f"no population is called {population!r}")
            stored = (row.body for row in islice(service.stream(population), end.size))
            result = _run(population, stored, end.size, processes)
            if service.events(population, end.size, 1) and service.head(population) == end:
                result.found("events stand beyond the head")
        result.ends(end.root.hex(), "the head of the database")
    else:
        raise Invalid("what-to-replay", "give a file of events, or a --population of the database")
    if root is not None:
        result.ends(root.strip().lower(), "the root that was given")
    _show(result, by, anchored=file is None or root is not None, json=json)
    raise typer.Exit(int(bool(result.replay.findings)))


@dataclass(slots=True)
class _Result:
    """A replay, and the Merkle tree of its events."""

    replay: Replay
    tree: Tree

    def found(self, reason: str) -> None:
        self.replay.findings.append(Finding(self.replay.events, reason))

    def ends(self, root: str, whose: str) -> None:
        if self.tree.root.hex() != root:
            self.found(f"the events have the root {self.tree.root.hex()}, {whose} is {root}")


def _lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as lines:
        for line in lines:
            yield line.removesuffix(b"\n")


def _count(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


def _ledger_of(file: Path) -> str:
    try:
        return str(orjson.loads(next(_lines(file), b""))["ledger"])
    except (KeyError, TypeError, ValueError):
        raise Invalid(
            "not-a-ledger", "the first line is not an event; name the ledger with --population"
        ) from None


def _run(ledger: str, events: Iterable[bytes], total: int, processes: int | None) -> _Result:
    tree, leaves = Tree(), list[bytes]()

    def hashed() -> Iterator[bytes]:
        nonlocal tree
        for body in events:
            # A database may hand out text.
            leaves.append(leaf_hash(body if isinstance(body, bytes) else b""))
            if len(leaves) == _LEAVES:
                tree, _ = tree.grown(leaves)
                leaves.clear()
            yield body
        tree, _ = tree.grown(leaves)

    with progress() as bars:
        task = bars.add_task("replaying", total=total)
        step = Replay(State(ledger))
        for step in replay_on(ledger, hashed(), total, processes):
            bars.update(task, completed=step.events)
    return _Result(step, tree)


def _show(found: _Result, by: str | None, *, anchored: bool, json: bool) -> None:
    result, root = found.replay, found.tree.root.hex()
    totals: dict[str, Any] = {}
    if result.state.population is not None:
        totals = accounts_json(result.state, by=by)
    if json:
        print_json(
            {
                "ledger": result.state.ledger,
                "events": result.events,
                "root": root,
                "findings": [{"sequence": f.sequence, "reason": f.reason} for f in result.findings],
                "totals": totals,
            }
        )
        return
    if totals:
        show_accounts(totals)
    for finding in result.findings[:SHOWN]:
        reason = finding.reason if len(finding.reason) < 300 else finding.reason[:299] + "…"
        text = plain(f"event {finding.sequence}: {reason}")
        text.stylize("red")
        out.print(text)
    if (more := len(result.findings) - SHOWN) > 0:
        out.print(f"and {more} more findings (all with --json)", style="red")
    verdict = (
        f"{len(result.findings)} findings"
        if result.findings
        else "every decision was taken again and every total recomputed: all agree"
        + ("" if anchored else " (only a known --root shows that no later event was cut off)")
    )
    out.print(plain(f"{result.state.ledger}: {result.events} events, {verdict}"))
    out.print(plain(f"root: {root}"))
