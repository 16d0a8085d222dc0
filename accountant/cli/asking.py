"""import, accounts, preview, report."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.table import Table

from accountant.api.answers import preview_view
from accountant.api.strict_json import parse
from accountant.budget.commands import Asked, AskGrant, RecordInvocations
from accountant.budget.decide import Repeated, decide
from accountant.budget.errors import Invalid, Problem
from accountant.budget.malformed import in_one_line, reasons
from accountant.budget.state import State
from accountant.cli.common import (
    SHOWN,
    JsonOption,
    PopulationOption,
    app,
    errors,
    local_service,
    out,
    plain,
    print_json,
    progress,
    publisher_of,
)
from accountant.ledger.events import Event
from accountant.reporting.files import FORMATS, rendered, report_of, write_whole
from accountant.reporting.statement import accounts_json

BATCH = 500


@app.command("import")
def import_(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="JSON lines, one invocation each; - reads stdin")],
    population: PopulationOption,
    client: Annotated[str, typer.Option(help="whose invocations these were")] = "import",
    batch: Annotated[
        str | None, typer.Option(help="the name of this import; default: the file's name")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Record past invocations from a file of JSON lines (bodies as for POST …/invocations).

    Everything is checked first; one bad line and nothing is recorded. Importing a file again under
    the same batch and client, or after lines were added at its end, records only what is new. A
    line says when it ran ("ran_at"), or the batch is named: else two days' equal lines would be
    taken for one.
    """
    lines = [(n, line) for n, line in enumerate(read_bytes(file).split(b"\n"), 1) if line.strip()]
    if batch is None and file == "-":
        raise Invalid("unnamed-import", "name what comes from standard input with --batch")
    with local_service(context) as service, progress() as bars:
        checking = bars.add_task("checking", total=len(lines))
        with service.state(population) as state:
            asked = list(
                _checked(state, lines, client, batch, file, lambda: bars.advance(checking))
            )
        recording = bars.add_task("recording", total=len(lines))
        counts: Counter[str] = Counter(recorded=0, already_there=0, overruns=0)
        for first in range(0, len(asked), BATCH):
            part = asked[first : first + BATCH]
            for answer in service.execute_all(population, part):
                counts["already_there" if answer.repeated else "recorded"] += 1
                counts["overruns"] += not answer.repeated and answer.events[0].body["overrun"]
            bars.advance(recording, len(part))
    if json:
        print_json(dict(counts))
    else:
        out.print(
            f"{counts['recorded']} recorded ({counts['overruns']} of them over budget), "
            f"{counts['already_there']} were there already",
            highlight=False,
        )


def _checked(
    state: State,
    lines: list[tuple[int, bytes]],
    client: str,
    batch: str | None,
    file: str,
    advance: Callable[[], None],
) -> Iterator[Asked]:
    """What to ask for each line. Raises Invalid, naming the bad lines, if any would be refused.

    The idempotency key of a line is a digest of the batch's name, the line and all lines before it:
    equal lines both count, a file can be imported again, and one that was changed in the middle is
    recorded anew from there on, for what is new in it cannot be told.
    """
    wrong: list[str] = []
    key = sha256((batch or Path(file).name).encode()).digest()
    for number, line in lines:
        try:
            command = _command(line, named=batch is not None)
            key = sha256(key + Asked(client, command).canonical).digest()
            asked = Asked(client, command, f"import:{key.hex()}")
            for event in _decided(state, asked):
                event.to_bytes()
        except Problem as problem:
            wrong.append(f"line {number}: {problem.detail}")
        except ValidationError as error:
            wrong.append(f"line {number}: {in_one_line(reasons(error), 'the line')}")
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
        else:
            yield asked
        advance()
    if wrong:
        more = f"\nand {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise Invalid("invalid-request", "nothing is recorded:\n" + "\n".join(wrong[:SHOWN]) + more)


def _command(line: bytes, *, named: bool) -> RecordInvocations:
    command = RecordInvocations.model_validate(parse(line))
    if command.ran_at is None and not named:
        raise Invalid("undated-import", "it has no ran_at: add it, or name the import with --batch")
    return command


def _decided(state: State, asked: Asked) -> list[Event]:
    outcome = decide(state, asked, state.time)
    return [] if isinstance(outcome, Repeated) else outcome


@app.command()
def accounts(
    context: typer.Context,
    population: PopulationOption,
    dataset: Annotated[str | None, typer.Option(help="only this dataset")] = None,
    by: Annotated[str | None, typer.Option(help="split by this dimension")] = None,
    json: JsonOption = False,
) -> None:
    """Show per rule what is limited, spent, reserved and left."""
    with local_service(context) as service, service.state(population) as state:
        document = accounts_json(state, dataset, by)
    if json:
        print_json(document)
        return
    show_accounts(document)


def show_accounts(document: dict[str, Any]) -> None:
    """The statement as a table on standard output."""
    table = Table(title=f"ε of {document['population']} at event {document['sequence']}")
    for name in ("rule", "scope", "group"):
        table.add_column(name, overflow="fold")
    for name in ("limit", "spent", "reserved", "left"):
        table.add_column(name, justify="right", overflow="fold")
    for line in document["accounts"]:
        scope = "all datasets" if line["dataset"] == "*" else line["dataset"]
        names = [line["rule"], f"{scope}, {line['client']}" if line["client"] else scope]
        for balance in [line["total"], *line["groups"]]:
            left = "over" if balance["void"] else balance["remaining"]
            cells = [*names, balance["group"], line["limit"]["epsilon"], balance["spent"]]
            cells += [balance["reserved"], left]
            table.add_row(*map(plain, cells), style="red" if balance["over"] else None)
            names = ["", ""]
        table.add_section()
    out.print(table)
    for line in document["accounts"]:
        if len(line["ladder"]) > 1:
            rungs = ", ".join(f"{rung['gate']} {rung['used']}" for rung in line["ladder"])
            out.print(plain(f"{line['rule']}, {line['scope']}, used under every gate: {rungs}"))
    for row in document["lifetime"]:
        name = "all datasets, one person" if row["dataset"] == "*" else row["dataset"]
        out.print(plain(f"lifetime, {name}: ε {row['epsilon']}, δ {row['delta']}"))


@app.command()
def preview(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="a request as for POST …/grants; - reads stdin")],
    population: PopulationOption,
    client: Annotated[str, typer.Option(help="who would ask")] = "preview",
    json: JsonOption = False,
) -> None:
    """Show what a request would be answered, without recording. Exit code 1 if it is blocked."""
    command = AskGrant.model_validate(parse(read_bytes(file)))
    with local_service(context) as service:
        document = preview_view(service.preview(population, client, command))
    decision = document["decision"]
    if json:
        print_json(document)
    else:
        out.print(f"decision: {decision['outcome']}", highlight=False)
        for rule in decision["rules"]:
            mark = rule["action"] if rule["fired"] else "ok"
            out.print(plain(f"  {mark:>5}  {rule['rule']}: {rule['text']}"))
        out.print(f"requests like this that fit: {document['fits']}", highlight=False)
    raise typer.Exit(int(decision["outcome"] == "block"))


def read_bytes(file: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``."""
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


@app.command()
def report(
    context: typer.Context,
    population: PopulationOption,
    form: Annotated[
        str | None, typer.Option("--format", help="html, json or csv; default: as --out ends")
    ] = None,
    to: Annotated[Path | None, typer.Option("--out", help="default: standard output")] = None,
) -> None:
    """Write the compliance report."""
    form = form or (to and to.suffix.removeprefix(".")) or "html"
    if form not in FORMATS:
        raise Invalid("unknown-format", f"no report format is called {form!r}: html, json or csv")
    with local_service(context) as service:
        published = publisher_of(context, service).last_published(population)
        text = rendered(report_of(service, population, published), form)
    if to is None:
        typer.echo(text, nl=False)
        return
    write_whole(to, text)
    errors.print(f"wrote {to}", markup=False, highlight=False)
