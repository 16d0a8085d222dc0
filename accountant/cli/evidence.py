"""export, verify, replay: evidence of a ledger, and checking it."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer

from accountant.auditing.findings import AuditFinding
from accountant.auditing.verify import AuditResult, verify
from accountant.budget.ancestors import LACKS, uncharged
from accountant.budget.commands import Envelope, StateVerification
from accountant.budget.errors import Conflict, Invalid, NotFound
from accountant.budget.replay import Replay
from accountant.budget.state import State
from accountant.cli import common
from accountant.cli.asking import show_accounts
from accountant.cli.progress import progress
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.publishing.export import covering, write_bundle, write_tiles
from accountant.publishing.verified import record_verification
from accountant.reporting.numbers import counted
from accountant.reporting.statement import accounts_json
from accountant.reporting.words import shortened
from accountant.store.whole import whole
from accountant.workers.replaying import replay_on

_MOST_WORDS: Final = 500
"""Characters of the first finding that are recorded."""
_LEAVES: Final = 256
"""Hashes by which the tree grows in one step."""
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        help="processes that decide again; by default one a core, for long ledgers", min=1
    ),
]


@common.app.command()
def export(
    file: Annotated[Path, typer.Argument(help="the bundle to write, or the folder with --tiles")],
    population: common.PopulationOption,
    first: Annotated[int, typer.Option("--from", help="first event", min=0)] = 0,
    last: Annotated[int | None, typer.Option("--to", help="last event", min=0)] = None,
    tiles: Annotated[
        bool,
        typer.Option("--tiles", help="write a folder of plain files that any C2SP client reads"),
    ] = False,
    without_texts: Annotated[
        bool, typer.Option("--without-texts", help="leave out purposes and reasons")
    ] = False,
    local: common.LocalOption = False,
) -> None:
    """Write a ledger as evidence that can be checked offline, up to a checkpoint signed now."""
    with common.local_service() as service, progress() as bars:
        ledgers = service.ledgers
        signed, state = common.publisher_of(service).signed_state(population)
        entries = range(signed.size) if tiles else covering(first, last, signed.size)
        task = bars.add_task("exporting", total=len(entries))
        advance = partial(bars.advance, task)
        if tiles:
            write_tiles(file, ledgers, population, signed, advance)
        else:
            with whole(file) as handle:
                source = ledgers, population, signed, state, entries
                write_bundle(handle, *source, with_texts=not without_texts, progress=advance)
    common.say(f"wrote {file}: checkpoint of {signed.size} events")


@common.app.command("verify")
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
    by: common.ByOption = None,
    processes: ProcessesOption = None,
    record: Annotated[
        bool, typer.Option("--record", help="record the result in the ledger, under your name")
    ] = False,
    json: common.JsonOption = False,
    local: common.LocalOption = False,
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
            progress=lambda more, of: bars.update(task, advance=more, total=of),
        )
    if json:
        names = ("ledger", "origin", "size", "root", "events", "decided", "cosigned", "required")
        document = {name: getattr(verdict, name) for name in (*names, "keys")}
        document["findings"] = [finding.to_json() for finding in verdict.findings]
        document |= {"count": verdict.count, "totals": _totals(verdict.state, by)}
        document["uncharged"] = uncharged(verdict.state.datasets) if verdict.state else {}
        common.print_json(document)
    else:
        _show_verdict(verdict, anchored=key is not None)
    wrong = _recorded(verdict) if record else ""
    raise typer.Exit(int(bool(verdict.count or wrong)))


def _recorded(verdict: AuditResult) -> str:
    """Record the result: at the service that ACCOUNTANT_URL names, under the name of the key; or in
    this machine's database, under the name of its user. Return what is wrong with it, if that is
    not the ledger that was verified.
    """
    reason = str(verdict.findings[0]) if verdict.findings else ""
    if os.environ.get("ACCOUNTANT_URL"):
        from accountant.client.command_line.connecting import connected  # noqa: PLC0415
        from accountant.client.command_line.evidence import record  # noqa: PLC0415

        stated = verdict.size, verdict.root, verdict.count
        with connected(Namespace(population=verdict.ledger), os.environ) as client:
            sequence, wrong = record(client, *stated, decided=verdict.decided, reason=reason)
    else:
        sequence, wrong = _recorded_here(verdict, reason)
    common.say(f"recorded as event {sequence}" + (f": {wrong}" if wrong else ""))
    return wrong


def _recorded_here(verdict: AuditResult, reason: str) -> tuple[int, str]:
    said = {"size": verdict.size, "root": verdict.root, "findings": verdict.count}
    said |= {"decided": verdict.decided, "reason": reason[:_MOST_WORDS] or None}
    with common.local_service() as service:

        def recorded(**more: Any) -> int:
            command = StateVerification.model_validate(said | more)
            asked = Envelope(common.operator(), command)
            return record_verification(service, verdict.ledger, asked).events[-1].sequence

        try:
            return recorded(), ""
        except Conflict as error:
            if error.code != "another-ledger":
                raise
            return recorded(findings=1, reason=error.detail[:_MOST_WORDS]), error.detail


def _totals(state: State | None, by: str | None) -> dict[str, Any]:
    return accounts_json(state, by=by) if state is not None and state.population else {}


def _show_verdict(verdict: AuditResult, *, anchored: bool) -> None:
    _show_findings(verdict.findings, verdict.count)
    lines = [
        f"ledger {verdict.ledger}, signed as {verdict.origin}",
        f"checkpoint of {verdict.size} events, root {verdict.root}",
        *(f"key {key}" for key in verdict.keys),
    ]
    for line in lines:
        common.show(line, soft_wrap=True)  # without line breaks, to be copied
    if verdict.cosigned or verdict.required:
        by = counted(verdict.cosigned, "witness", "witnesses")
        text = f"cosigned by {by}; the policy requires {verdict.required}"
        common.show(text, "yellow" if verdict.cosigned < verdict.required else None)
    custody = verdict.state.custody if verdict.state else None
    if custody and custody.recovered is not None:
        common.show(
            f"event {custody.recovered}: the ledger was recovered; signed events were lost, and "
            "what they had spent is carried over (ledger.carried_over.v1)",
            "yellow",
        )
    for name, others in (uncharged(verdict.state.datasets) if verdict.state else {}).items():
        common.show(LACKS.format(name, ", ".join(others)), "yellow")
    if custody and custody.stopped is not None:
        common.show(
            f"event {custody.stopped}: a witness contradicts the ledger, and publication has "
            "stopped since",
            "yellow",
        )
    if not anchored and not verdict.count:
        common.show(
            "The keys come from the bundle itself. Compare one with a key that you received "
            "independently, or give that key with --key.",
            "yellow",
        )
    again = (
        "every charge, total and decision was recomputed"
        if verdict.decided
        else "bytes, order, signatures and sums were checked; to check the decisions, give the "
        "earlier events too: verify FIRST.tar THIS.tar"
    )
    found = counted(verdict.count, "finding") if verdict.count else f"{again}: all agree"
    common.show(f"{verdict.events} events: {found}")


def _show_findings(findings: Sequence[object], count: int) -> None:
    for finding in findings[: common.SHOWN]:
        common.show(shortened(str(finding), 400), "red")
    if count > common.SHOWN:
        common.show(f"and {count - common.SHOWN} more findings (with --json)", "red")


@common.app.command()
def replay(
    file: Annotated[
        Path | None,
        typer.Argument(help="events as JSONL, one canonical event a line; needs no database"),
    ] = None,
    population: Annotated[
        str | None, typer.Option("--population", "-p", help="name of the population")
    ] = None,
    by: common.ByOption = None,
    root: Annotated[
        str | None, typer.Option(help="the expected root; any other is a finding")
    ] = None,
    processes: ProcessesOption = None,
    json: common.JsonOption = False,
) -> None:
    """Take every decision again and recompute every total from the events alone.

    Exit code 1 if anything differs from the record.
    """
    expected, wrong = {}, []
    if file is not None:
        count = sum(1 for _ in _lines(file))
        step, found = _replayed(population or _ledger_of(file), _lines(file), count, processes)
    elif population is not None:
        with common.local_service() as service:
            end = service.head(population)
            if end.size == 0:
                raise NotFound("unknown-population", f"no population is called {population!r}")
            stored = (row.body for row in islice(service.stream(population), end.size))
            step, found = _replayed(population, stored, end.size, processes)
            if service.events(population, end.size, 1) and service.head(population) == end:
                wrong.append("events stand beyond the head")
        expected["the head of the database"] = end.root.hex()
    else:
        raise Invalid("what-to-replay", "give a file of events, or a --population of the database")
    if root is not None:
        expected["the root that was given"] = root.strip().lower()
    for name, other in expected.items():
        if other != found:
            wrong.append(f"the events have the root {found}, {name} is {other}")
    findings = [AuditFinding(one.reason, one.sequence) for one in step.findings]
    findings += [AuditFinding(reason, step.events) for reason in wrong]
    document = {
        "ledger": step.state.ledger,
        "events": step.events,
        "root": found,
        "findings": [finding.to_json() for finding in findings],
        "totals": _totals(step.state, by),
    }
    if json:
        common.print_json(document)
    else:
        _show_replay(document, findings, anchored=file is None or root is not None)
    raise typer.Exit(int(bool(findings)))


def _lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as lines:
        for line in lines:
            yield line.removesuffix(b"\n")


def _ledger_of(file: Path) -> str:
    try:
        return str(orjson.loads(next(_lines(file), b""))["ledger"])
    except (KeyError, TypeError, ValueError):
        raise Invalid(
            "not-a-ledger", "the first line is not an event; name the ledger with --population"
        ) from None


def _replayed(
    ledger: str, events: Iterable[bytes], total: int, processes: int | None
) -> tuple[Replay, str]:
    """Return the replay of all events, and the root of their tree in hex."""
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
    return step, tree.root.hex()


def _show_replay(
    document: dict[str, Any], findings: Sequence[AuditFinding], *, anchored: bool
) -> None:
    if document["totals"]:
        show_accounts(document["totals"])
    _show_findings(findings, len(findings))
    verdict = "every decision was taken again and every total recomputed: all agree"
    if findings:
        verdict = counted(len(findings), "finding")
    elif not anchored:
        verdict += " (only a known --root shows that no later event was cut off)"
    common.show(f"{document['ledger']}: {document['events']} events, {verdict}")
    common.show(f"root: {document['root']}")
