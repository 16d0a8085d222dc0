"""publish, resume-publication, receipt, fleet: what a ledger shows to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accountant.budget.commands import Envelope, ResumePublication
from accountant.budget.errors import Invalid, NotFound
from accountant.cli import common


@common.app.command()
def publish(population: common.PopulationOption) -> None:
    """Sign the ledger's head, ask the witnesses to cosign it, and print the checkpoint.

    Exit code 1 if too few witnesses have cosigned it, or if publication is stopped.
    """
    with common.local_service() as service:
        publisher = common.publisher_of(service)
        published = publisher.publish(population)
        signed = published or publisher.sign(population)
        with service.state(population) as state:
            stopped = state.custody.stopped
    typer.echo(signed.full.decode(), nl=False)
    if stopped is not None:
        common.say(f"publication is stopped since event {stopped}", "red")
    elif published is None:
        common.say("signed, not published: too few witnesses have cosigned it", "yellow")
    raise typer.Exit(int(published is None))


@common.app.command("resume-publication")
def resume_publication(
    population: common.PopulationOption,
    reason: Annotated[str, typer.Option(help="what was found, and why publication may resume")],
) -> None:
    """Resume publication after investigating why a witness contradicted the ledger."""
    with common.local_service() as service:
        service.execute(population, Envelope(common.operator(), ResumePublication(reason=reason)))
    common.say("publication resumes")


@common.app.command()
def receipt(population: common.PopulationOption, event: common.EventOption) -> None:
    """Print the receipt of an event: inclusion proof and checkpoint (a .tlog-proof)."""
    with common.local_service() as service:
        publisher = common.publisher_of(service)
        signed = publisher.covering(population, service.event(population, event).sequence)
        proof = publisher.log(population).receipt(event, signed)
    typer.echo(proof.to_bytes().decode(), nl=False)


@common.app.command()
def fleet(
    folder: Annotated[Path, typer.Argument(help="the folder to create")],
    population: Annotated[
        list[str] | None,
        typer.Option("--population", "-p", help="only this population; may be repeated"),
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Write ledgers as Parquet tables with the SQL that adds them up, up to checkpoints signed now.

    Exports every population of the database, unless some are named. docs/reference/fleet.md
    describes the tables.
    """
    try:
        from accountant.publishing.fleet.export import write_fleet  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as missing:
        raise Invalid(
            "not-installed", f"{missing.name} is not installed: pip install 'accountant[fleet]'"
        ) from None
    with common.local_service() as service, common.progress() as bars:
        publisher = common.publisher_of(service)
        names = sorted(set(population)) if population else service.populations()
        if not names:
            raise NotFound("no-population", "the database has no population to export")
        signed = {name: publisher.sign(name) for name in names}
        task = bars.add_task("exporting", total=sum(head.size for head in signed.values()))
        written = write_fleet(folder, service.ledgers, signed, lambda n: bars.advance(task, n))
    if json:
        common.print_json({"folder": str(folder), "ledgers": [one._asdict() for one in written]})
        return
    for one in written:
        common.say(f"{one.ledger}: {one.size} events, {one.charges} charges, root {one.root}")
    common.say(f"wrote {folder}")
