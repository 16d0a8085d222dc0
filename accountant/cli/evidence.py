"""export and verify."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.auditing.verify import Verdict, verify
from accountant.cli.common import (
    SHOWN,
    ByOption,
    JsonOption,
    PopulationOption,
    ProcessesOption,
    app,
    errors,
    local_service,
    out,
    plain,
    print_json,
    progress,
    publisher_of,
)
from accountant.publishing.export import covering, write_bundle, write_tiles
from accountant.reporting.statement import accounts_json
from accountant.store.whole import whole


@app.command("export")
def export_(
    file: Annotated[Path, typer.Argument(help="the bundle to write, or the folder with --tiles")],
    population: PopulationOption,
    first: Annotated[int, typer.Option("--from", help="first event", min=0)] = 0,
    last: Annotated[int | None, typer.Option("--to", help="last event", min=0)] = None,
    tiles: Annotated[
        bool,
        typer.Option("--tiles", help="write a folder of plain files that any C2SP client reads"),
    ] = False,
    without_texts: Annotated[
        bool, typer.Option("--without-texts", help="leave out purposes and reasons")
    ] = False,
) -> None:
    """Write a ledger as evidence that can be checked offline, up to a checkpoint signed now."""
    with local_service() as service, progress() as bars:
        publisher = publisher_of(service)
        signed = publisher.sign(population)
        if tiles:
            task = bars.add_task("exporting", total=signed.size)
            write_tiles(file, service.ledgers, population, signed, lambda n: bars.advance(task, n))
        else:
            entries = covering(first, last, signed.size)
            task = bars.add_task("exporting", total=len(entries))
            with service.state(population) as state, whole(file) as handle:
                write_bundle(
                    handle,
                    service.ledgers,
                    population,
                    signed,
                    state,
                    entries,
                    with_texts=not without_texts,
                    told=lambda n: bars.advance(task, n),
                )
    errors.print(f"wrote {file}: checkpoint of {signed.size} events", markup=False, highlight=False)


@app.command("verify")
def verify_(
    bundles: Annotated[
        list[Path], typer.Argument(help="a bundle, or several that continue each other")
    ],
    key: Annotated[
        str | None, typer.Option(help="a verifier key of the ledger, received independently")
    ] = None,
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(help="a checkpoint or receipt kept earlier, which the ledger must continue"),
    ] = None,
    by: ByOption = None,
    processes: ProcessesOption = None,
    json: JsonOption = False,
) -> None:
    """Check a bundle offline: bytes, signatures, every charge, every total, every decision.

    Exit code 1 if there is a finding.
    """
    earlier = [path.read_bytes() for path in checkpoint or []]
    with ExitStack() as stack, progress() as bars:
        handles = [stack.enter_context(path.open("rb")) for path in bundles]
        task = bars.add_task("verifying", total=None)
        verdict = verify(
            handles,
            key=key,
            earlier=earlier,
            processes=processes,
            told=lambda more, of: bars.update(task, advance=more, total=of),
        )
    if json:
        print_json(_document(verdict, by))
    else:
        _show(verdict, anchored=key is not None)
    raise typer.Exit(int(verdict.count > 0))


def _document(verdict: Verdict, by: str | None) -> dict[str, Any]:
    known = verdict.state is not None and verdict.state.population is not None
    return {
        "ledger": verdict.ledger,
        "origin": verdict.origin,
        "size": verdict.size,
        "root": verdict.root,
        "events": verdict.entries,
        "decided": verdict.decided,
        "cosigned": verdict.cosigned,
        "required": verdict.required,
        "keys": verdict.keys,
        "findings": [finding.to_json() for finding in verdict.findings],
        "count": verdict.count,
        "totals": accounts_json(verdict.state, by=by) if known and verdict.state else {},
    }


def _show(verdict: Verdict, *, anchored: bool) -> None:
    for finding in verdict.findings[:SHOWN]:
        text = plain(str(finding)[:400])
        text.stylize("red")
        out.print(text)
    if verdict.count > SHOWN:
        out.print(f"and {verdict.count - SHOWN} more findings (with --json)", style="red")
    lines = [
        f"ledger {verdict.ledger}, signed as {verdict.origin}",
        f"checkpoint of {verdict.size} events, root {verdict.root}",
        *(f"key {known}" for known in verdict.keys),
    ]
    for line in lines:
        out.print(plain(line), soft_wrap=True)  # without line breaks, to be copied
    if verdict.cosigned or verdict.required:
        told = f"cosigned by {verdict.cosigned} witnesses; the policy requires {verdict.required}"
        out.print(plain(told), style="yellow" if verdict.cosigned < verdict.required else None)
    for remark in _remarks(verdict):
        out.print(plain(remark), style="yellow")
    if not anchored and not verdict.count:
        out.print(
            "The keys come from the bundle itself. Compare one with a key that you received "
            "independently, or give that key with --key.",
            style="yellow",
        )
    again = (
        "every charge, total and decision was recomputed"
        if verdict.decided
        else "bytes, order, signatures and sums were checked; to check the decisions, give the "
        "earlier events too: verify FIRST.tar THIS.tar"
    )
    found = "1 finding" if verdict.count == 1 else f"{verdict.count} findings"
    result = found if verdict.count else f"{again}: all agree"
    out.print(plain(f"{verdict.entries} events: {result}"))


def _remarks(verdict: Verdict) -> Iterator[str]:
    """Yield what an auditor should know about a ledger even if everything agrees."""
    custody = verdict.state.custody if verdict.state else None
    if custody and custody.recovered is not None:
        yield (
            f"event {custody.recovered}: the ledger was recovered; signed events were "
            "lost, and what they had spent is carried over (ledger.carried_over.v1)"
        )
    if custody and custody.stopped is not None:
        yield (
            f"event {custody.stopped}: a witness contradicts the ledger, and publication has "
            "stopped since"
        )
