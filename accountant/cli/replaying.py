"""replay: recompute every total and decision from the events alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from accountant.budget.errors import Invalid, NotFound
from accountant.budget.replay import Finding, Replay, replay
from accountant.budget.state import State
from accountant.cli.asking import show_accounts
from accountant.cli.common import (
    SHOWN,
    JsonOption,
    app,
    local_service,
    out,
    plain,
    print_json,
)
from accountant.cli.progress import progress
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.reporting.statement import accounts_json


@app.command("replay")
def replay_(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(help="events as JSONL, one canonical event a line; needs no database"),
    ] = None,
    population: Annotated[str | None, typer.Option("--population", "-p")] = None,
    by: Annotated[str | None, typer.Option(help="split the totals by this dimension")] = None,
    root: Annotated[
        str | None, typer.Option(help="the root that you were given; any other is a finding")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Take every decision again and add every total up from the events alone.

    Exit code 1 if anything differs from what was recorded.
    """
    if file is not None:
        events = file.read_bytes().split(b"\n")
        if events[-1] == b"":
            events.pop()
        result = _run(population or _ledger_of(events), events, len(events))
    elif population is not None:
        with local_service(context) as service:
            end = service.head(population)
            if end.size == 0:
                raise NotFound("unknown-population", f"no population is called {population!r}")
            stored = (row.body for row in islice(service.stream(population), end.size))
            result = _run(population, stored, end.size)
            if service.events(population, end.size, 1) and service.head(population) == end:
                result.found("events stand beyond the head")
        result.ends(end.root.hex(), "the head of the database")
    else:
        raise Invalid("what-to-replay", "name a file of events, or a --population of the database")
    if root is not None:
        result.ends(root.strip().lower(), "the root that was given")
    _show(result, by, anchored=file is None or root is not None, json=json)
    raise typer.Exit(int(bool(result.replay.findings)))


@dataclass(slots=True)
class _Result:
    """A replay, and the tree that the events make."""

    replay: Replay
    tree: Tree

    def found(self, reason: str) -> None:
        self.replay.findings.append(Finding(self.replay.events, reason))

    def ends(self, root: str, whose: str) -> None:
        if self.tree.root.hex() != root:
            self.found(f"the events have the root {self.tree.root.hex()}, {whose} is {root}")


def _ledger_of(events: list[bytes]) -> str:
    try:
        return str(orjson.loads(events[0])["ledger"])
    except (IndexError, KeyError, TypeError, ValueError):
        raise Invalid(
            "not-a-ledger", "the first line is no event; name the ledger with --population"
        ) from None


def _run(ledger: str, events: Iterable[bytes], total: int) -> _Result:
    tree = Tree()

    def hashed() -> Iterator[bytes]:
        nonlocal tree
        for body in events:
            whole = body if isinstance(body, bytes) else b""  # a database may hand out text
            tree, _ = tree.grown([leaf_hash(whole)])
            yield body

    with progress() as bars:
        task = bars.add_task("replaying", total=total)
        step = Replay(State(ledger))
        for step in replay(ledger, hashed()):
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
        else "every decision was taken again and every total added up again: all agree"
        + ("" if anchored else " (that no later event was cut off, only a known --root can tell)")
    )
    out.print(plain(f"{result.state.ledger}: {result.events} events, {verdict}"))
    out.print(plain(f"root: {root}"))
