"""fleet: whole ledgers as Parquet tables, for any SQL engine to add up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accountant.budget.errors import Invalid, NotFound
from accountant.cli.common import (
    JsonOption,
    app,
    errors,
    local_service,
    print_json,
    publisher_of,
)
from accountant.cli.progress import progress


@app.command("fleet")
def fleet_(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="the folder to make")],
    population: Annotated[
        list[str] | None,
        typer.Option("--population", "-p", help="only this one; may be given several times"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write ledgers as Parquet tables with the SQL that adds them up, up to checkpoints signed now.

    All populations of the database, unless some are named. docs/reference/fleet.md describes the
    tables.
    """
    try:
        from accountant.publishing.fleet.export import write_fleet  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as missing:
        raise Invalid(
            "not-installed", f"{missing.name} is not installed: pip install 'accountant[fleet]'"
        ) from None
    with local_service(context) as service, progress() as bars:
        publisher = publisher_of(context, service)
        names = sorted(set(population)) if population else service.populations()
        if not names:
            raise NotFound("no-population", "the database has no population to export")
        signed = {name: publisher.sign(name) for name in names}
        task = bars.add_task("exporting", total=sum(head.size for head in signed.values()))
        written = write_fleet(folder, service.ledgers, signed, lambda n: bars.advance(task, n))
    if json:
        print_json({"folder": str(folder), "ledgers": [one._asdict() for one in written]})
        return
    for one in written:
        told = f"{one.ledger}: {one.size} events, {one.charges} charges, root {one.root}"
        errors.print(told, markup=False, highlight=False)
    errors.print(f"wrote {folder}", markup=False, highlight=False)
