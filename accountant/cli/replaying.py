"""replay: recompute every total and decision from the events alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from accountant.budget.errors import Invalid, NotFound
from accountant.budget.replay import Finding, Replay, replay
from accountant.cli.asking import show_accounts
from accountant.cli.common import (
    SHOWN,
    JsonOption,
    app,
    local_service,
    out,
    plain,
    print_json,
    progress,
)
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
    head: Annotated[
        str | None, typer.Option(help="the last link you were given; anything else is a finding")
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
        ledger = population or _ledger_of(events)
        result = _run(ledger, ((line, None) for line in events), len(events))
    elif population is not None:
        with local_service(context) as service:
            end = service.head(population)
            if end.sequence == 0:
                raise NotFound("unknown-population", f"no population is called {population!r}")
            stored = ((row.body, row.link) for row in service.stream(population))
            result = _run(population, islice(stored, end.sequence), end.sequence)
            if service.events(population, end.sequence, 1) and service.head(population) == end:
                result.findings.append(Finding(end.sequence, "events stand beyond the head"))
        _ends(result, end.link.hex(), "the head of the database")
    else:
        raise Invalid("what-to-replay", "name a file of events, or a --population of the database")
    if head is not None:
        _ends(result, head.strip().lower(), "the link that was given")
    _show(result, by, anchored=file is None or head is not None, json=json)
    raise typer.Exit(int(bool(result.findings)))


def _ends(result: Replay, link: str, whose: str) -> None:
    if result.head.hex() != link:
        reason = f"the ledger ends with {result.head.hex()}, {whose} is {link}"
        result.findings.append(Finding(result.state.sequence, reason))


def _ledger_of(events: list[bytes]) -> str:
    try:
        return str(orjson.loads(events[0])["ledger"])
    except (IndexError, KeyError, TypeError, ValueError):
        raise Invalid(
            "not-a-ledger", "the first line is no event; name the ledger with --population"
        ) from None


def _run(ledger: str, stored: Iterable[tuple[bytes, bytes | None]], total: int) -> Replay:
    with progress() as bars:
        task = bars.add_task("replaying", total=total)

        def shown() -> Iterator[Replay]:
            for step in replay(ledger, stored):
                bars.advance(task)
                yield step

        return deque(shown(), maxlen=1)[0]


def _show(result: Replay, by: str | None, *, anchored: bool, json: bool) -> None:
    totals: dict[str, Any] = {}
    if result.state.population is not None:
        totals = accounts_json(result.state, by=by)
    if json:
        print_json(
            {
                "ledger": result.state.ledger,
                "events": result.state.sequence,
                "head": result.head.hex(),
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
        + ("" if anchored else " (that no later event was cut off, only a known --head can tell)")
    )
    out.print(plain(f"{result.state.ledger}: {result.state.sequence} events, {verdict}"))
    out.print(plain(f"last link: {result.head.hex()}"))
