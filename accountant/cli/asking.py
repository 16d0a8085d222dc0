"""accounts, preview, report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from accountant.api.strict_json import parse
from accountant.budget.commands import AskGrant
from accountant.budget.errors import Invalid
from accountant.cli.common import (
    JsonOption,
    PopulationOption,
    app,
    errors,
    local_service,
    out,
    plain,
    print_json,
    publisher_of,
)
from accountant.reporting.files import FORMATS, rendered, report_of, write_whole
from accountant.reporting.statement import accounts_json


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
    from accountant.api.answers import preview_view  # noqa: PLC0415 (imported late: with Starlette)

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
