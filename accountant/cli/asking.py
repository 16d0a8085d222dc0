"""import, accounts, preview, report."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from accountant.api.answers import preview_view
from accountant.api.strict_json import parse
from accountant.budget.commands import Asked, AskGrant, RecordInvocations
from accountant.budget.errors import Invalid, Problem
from accountant.budget.request import prepare
from accountant.cli.common import (
    JsonOption,
    PopulationOption,
    app,
    errors,
    local_service,
    out,
    print_json,
    progress,
)
from accountant.reporting.files import FORMATS, rendered, report_of, write_whole
from accountant.reporting.statement import accounts_json
from accountant.service import Service

BATCH = 500


@app.command("import")
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="JSONL, one a line")],
    population: PopulationOption,
    client: Annotated[str, typer.Option(help="whose invocations these were")] = "import",
    json: JsonOption = False,
) -> None:
    """Record past invocations from a JSONL file (bodies as for POST …/invocations).

    The whole file is checked first; one bad line and nothing is recorded. Importing a file again,
    or a longer version of it, records only what is new.
    """
    with local_service(context) as service, progress() as bars:
        total = sum(1 for _ in _lines(file))
        checking = bars.add_task("checking", total=total)
        with service.state(population) as state:
            for number, command, _ in _commands(file):
                try:
                    prepare(state, client, command)
                except Problem as problem:
                    raise Invalid(problem.code, f"line {number}: {problem.detail}") from None
                bars.advance(checking)
        recording = bars.add_task("recording", total=total)
        counts: Counter[str] = Counter(recorded=0, already_there=0, overruns=0)
        asked = (Asked(client, command, key) for _, command, key in _commands(file))
        while batch := list(islice(asked, BATCH)):
            for answer in service.execute_all(population, batch):
                counts["already_there" if answer.repeated else "recorded"] += 1
                counts["overruns"] += int(answer.events[0].body["overrun"])
            bars.advance(recording, len(batch))
    if json:
        print_json(dict(counts))
    else:
        out.print(
            f"recorded {counts['recorded']} invocations ({counts['overruns']} over budget); "
            f"{counts['already_there']} were there already",
            highlight=False,
        )


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.strip()


def _commands(file: Path) -> Iterator[tuple[int, RecordInvocations, str]]:
    """(line number, command, idempotency key): the key is the line's digest and how often the same
    line has come before, so that a file can be imported again and two equal lines both count.
    """
    seen: Counter[str] = Counter()
    for number, line in _lines(file):
        digest = sha256(line).hexdigest()
        seen[digest] += 1
        try:
            command = RecordInvocations.model_validate(parse(line))
        except Problem as problem:
            raise Invalid(problem.code, f"line {number}: {problem.detail}") from None
        except ValueError as error:
            raise Invalid("invalid-request", f"line {number}: {error}") from None
        yield number, command, f"import:{digest}:{seen[digest]}"


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
    table = Table(title=f"{document['population']} at event {document['sequence']}")
    for name in ("rule", "scope", "group"):
        table.add_column(name)
    for name in ("limit", "spent", "reserved", "remaining"):
        table.add_column(f"{name} ε", justify="right")
    for line in document["accounts"]:
        for balance in [line["total"], *line["groups"]]:
            style = "red" if balance["over"] else None
            table.add_row(
                line["rule"],
                line["scope"],
                balance["group"],
                line["limit"]["epsilon"],
                balance["spent"],
                balance["reserved"],
                balance["remaining"],
                style=style,
            )
    out.print(table)
    for row in document["lifetime"]:
        name = "all datasets, one person" if row["dataset"] == "*" else row["dataset"]
        out.print(f"lifetime, {name}: ε {row['epsilon']}, δ {row['delta']}", highlight=False)


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
            out.print(f"  {mark:>5}  {rule['rule']}: {rule['text']}", highlight=False, markup=False)
        fits = document["fits"]
        out.print(f"requests like this that fit: {'no end' if fits is None else fits}")
    raise typer.Exit(int(decision["outcome"] == "block"))


def read_bytes(file: str) -> bytes:
    """The bytes of a file, or of standard input for ``-``."""
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


@app.command()
def report(
    context: typer.Context,
    population: PopulationOption,
    form: Annotated[str, typer.Option("--format", help="html, json or csv")] = "html",
    to: Annotated[Path | None, typer.Option("--out", help="default: standard output")] = None,
) -> None:
    """Write the compliance report."""
    if form not in FORMATS:
        raise Invalid("unknown-format", f"no report format is called {form!r}: html, json or csv")
    with local_service(context) as service:
        text = _rendered(service, population, form)
    if to is None:
        typer.echo(text, nl=False)
        return
    write_whole(to, text)
    errors.print(f"wrote {to}", markup=False, highlight=False)


def _rendered(service: Service, population: str, form: str) -> str:
    return rendered(report_of(service, population), form)
