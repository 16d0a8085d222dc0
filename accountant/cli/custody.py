"""publish, receipt, erase, accept-time, revalue, recover: what is done about a ledger itself."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import islice
from typing import Annotated, Final

import typer

from accountant.budget.commands import AcceptTime, Envelope, ResumePublication
from accountant.budget.custody.revaluation import Corrections
from accountant.budget.errors import Invalid
from accountant.cli.common import (
    PopulationOption,
    app,
    errors,
    local_service,
    operator,
    out,
    publisher_of,
    settings,
)
from accountant.cli.progress import progress
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.engine import FORMER
from accountant.publishing.recovery import recover
from accountant.runtime.clock import wall_clock
from accountant.runtime.service import Service
from accountant.store.ledgers import StoreError
from accountant.store.vault import vault_of

_PATIENCE: Final = 30.0
"""Seconds that an erasure waits for those who still read what was."""
_PAUSE: Final = 3.0
"""Seconds between two attempts: while one lasts nobody else can write."""
_STILL_THERE: Final = (
    "but somebody has read the database all the while, so that the text may still be found in its "
    "write-ahead log (the file that ends in -wal). It goes when whoever reads has ended and all "
    "services on this database were stopped; to erase it again would be of no use"
)


@app.command("publish")
def publish_(context: typer.Context, population: PopulationOption) -> None:
    """Sign the ledger's head, ask the witnesses, and print the checkpoint.

    Exit code 1 if too few witnesses have cosigned it, or if publication is stopped.
    """
    with local_service(context) as service:
        publisher = publisher_of(context, service)
        published = publisher.publish(population)
        signed = published or publisher.sign(population)
        with service.state(population) as state:
            stopped = state.custody.stopped
    typer.echo(signed.full.decode(), nl=False)
    if stopped is not None:
        errors.print(f"publication is stopped since event {stopped}", style="red")
    elif published is None:
        errors.print("signed, not published: too few witnesses have cosigned it", style="yellow")
    raise typer.Exit(int(published is None))


@app.command("resume-publication")
def resume_publication(
    context: typer.Context,
    population: PopulationOption,
    reason: Annotated[str, typer.Option(help="what was found, and why it may go on")],
) -> None:
    """Publish again after a witness had contradicted the ledger and somebody has looked."""
    with local_service(context) as service:
        service.execute(population, Envelope(operator(), ResumePublication(reason=reason)))
    errors.print("publication goes on")


@app.command("receipt")
def receipt_(
    context: typer.Context,
    population: PopulationOption,
    event: Annotated[int, typer.Option(help="the event's sequence", min=0)],
) -> None:
    """Print the receipt of an event: inclusion proof and checkpoint (a .tlog-proof)."""
    with local_service(context) as service:
        publisher = publisher_of(context, service)
        signed = publisher.covering(population, service.event(population, event).sequence)
        receipt = publisher.log(population).receipt(event, signed)
    typer.echo(receipt.to_bytes().decode(), nl=False)


@app.command("erase")
def erase_(
    context: typer.Context,
    population: PopulationOption,
    event: Annotated[int, typer.Option(help="the event's sequence", min=0)],
    reason: Annotated[str, typer.Option(help="why; no personal data, please")],
    field: Annotated[
        list[str] | None, typer.Option(help="purpose, justification or reason; default: all")
    ] = None,
) -> None:
    """Erase free texts of an event. Their digests stay, and no spent budget changes."""
    with local_service(context) as service:
        answer = service.erase(population, operator(), event, field, reason)
        fields = " and ".join(answer.events[-1].body["command"]["fields"])
        errors.print(f"erased: {fields} of event {event}", markup=False, highlight=False)
        if not _finished(service):
            errors.print(_STILL_THERE, style="red", markup=False, highlight=False)
            raise typer.Exit(1)


def _finished(service: Service) -> bool:
    """Nobody reads any more what was, after some time."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        with suppress(StoreError):  # others write all the time
            if service.ledgers.finish_erasing():
                return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)


@app.command("accept-time")
def accept_time(
    context: typer.Context,
    population: PopulationOption,
    reason: Annotated[str, typer.Option(help="why the clock is right; it is recorded")],
) -> None:
    """Accept this machine's clock after checking it."""
    clock = rfc3339(wall_clock())
    with local_service(context) as service:
        command = AcceptTime(clock=clock, reason=reason)
        [event] = service.execute(population, Envelope(operator(), command)).events
    errors.print(f"accepted: it is {clock}", markup=False, highlight=False)
    if (stamp := rfc3339(event.time)) != clock:
        errors.print(
            f"the ledger's stamps are ahead: until {stamp} its time stands still, and no grant "
            "expires",
            style="yellow",
            markup=False,
            highlight=False,
        )


@app.command("revalue")
def revalue_(
    context: typer.Context,
    population: PopulationOption,
    kind: Annotated[list[str], typer.Option(help="the mechanism whose bound was corrected")],
    reason: Annotated[str, typer.Option(help="what was wrong; it is recorded")],
) -> None:
    """Book what past charges lack, where a bound was corrected since. History stays as it was."""
    unknown = [name for name in kind if name not in FORMER]
    if unknown:
        known = ", ".join(sorted(FORMER)) or "none so far"
        raise Invalid(
            "never-corrected",
            f"no bound of {' or '.join(unknown)} was ever corrected; corrected bounds: {known}",
        )
    corrections = Corrections(frozenset(kind))
    with local_service(context) as service, progress() as bars:
        size = service.adopt_engine(population, by=operator())
        task = bars.add_task("looking", total=size)
        for row in islice(service.stream(population), size):
            corrections.take(Event.from_bytes(row.body))
            bars.advance(task)
        with service.state(population) as state:
            due = corrections.due(state)
        task = bars.add_task("booking", total=len(due))
        for booked in due:
            service.execute(population, Envelope(operator(), booked.command(reason)))
            bars.advance(task)
    out.print(f"{len(due)} charges were corrected", highlight=False)


@app.command("recover")
def recover_(
    context: typer.Context,
    population: PopulationOption,
    reason: Annotated[str, typer.Option(help="what happened; it is recorded")],
) -> None:
    """Open a new epoch when the database no longer continues what was signed.

    Whatever had been spent by the last signed head stays spent, open grants are charged, and the
    log goes on under another name and key. The service must be started again afterwards.
    """
    chosen = settings(context)
    with local_service(context) as service:
        signed = recover(
            service.ledgers,
            vault_of(chosen.home),
            chosen.origin,
            population,
            by=operator(),
            reason=reason,
        )
    typer.echo(signed.full.decode(), nl=False)
    errors.print(
        "recovered: a new epoch is open; start the service again. What else went back with the "
        "database: keys that were revoked since are valid again (accountant keys list), and texts "
        "that were erased since are back (accountant erase)"
    )
