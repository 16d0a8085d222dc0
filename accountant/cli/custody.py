"""erase, accept-time, revalue, recover: what an operator does to a ledger itself."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import islice
from typing import Annotated, Final

import typer

from accountant.budget.commands import AcceptTime, Envelope
from accountant.budget.custody.revaluation import Corrections
from accountant.budget.errors import Invalid
from accountant.cli import common
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.engine import FORMER
from accountant.publishing.recovery import recover
from accountant.runtime.clock import wall_clock
from accountant.runtime.service import Service
from accountant.store.ledgers import StoreError
from accountant.store.vault import vault_of

_PATIENCE: Final = 30.0
"""Seconds that an erasure waits for readers of the database to end."""
_PAUSE: Final = 3.0
"""Seconds between two attempts; an attempt keeps everybody else from writing."""
_STILL_THERE: Final = (
    "but another process kept reading the database, so the text may still be found in its "
    "write-ahead log (the file that ends in -wal). It goes when that reader has ended and all "
    "services on this database have been stopped; erasing again has no effect"
)


@common.app.command()
def erase(
    population: common.PopulationOption,
    event: common.EventOption,
    reason: Annotated[str, typer.Option(help="why; do not write personal data here")],
    field: Annotated[
        list[str] | None, typer.Option(help="purpose, justification or reason; default: all")
    ] = None,
) -> None:
    """Erase free texts of an event. Their digests stay, and no spent budget changes."""
    with common.local_service() as service:
        answer = service.erase(population, common.operator(), event, field, reason)
        fields = " and ".join(answer.events[-1].body["command"]["fields"])
        common.say(f"erased: {fields} of event {event}")
        if not _finished(service):
            common.say(_STILL_THERE, "red")
            raise typer.Exit(1)


def _finished(service: Service) -> bool:
    """Return whether, after some time, no copy of the text is left in the database's files."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        with suppress(StoreError):  # other processes are writing
            if service.ledgers.finish_erasing():
                return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)


@common.app.command("accept-time")
def accept_time(
    population: common.PopulationOption,
    reason: Annotated[str, typer.Option(help="why the clock is right; recorded")],
) -> None:
    """Accept this machine's clock after checking it."""
    clock = rfc3339(wall_clock())
    with common.local_service() as service:
        command = AcceptTime(clock=clock, reason=reason)
        [event] = service.execute(population, Envelope(common.operator(), command)).events
    common.say(f"accepted: it is {clock}")
    if (stamp := rfc3339(event.time)) != clock:
        ahead = f"the ledger's stamps are ahead: until {stamp} its time stands still"
        common.say(f"{ahead}, and no grant expires", "yellow")


@common.app.command()
def revalue(
    population: common.PopulationOption,
    kind: Annotated[list[str], typer.Option(help="a mechanism whose bound was corrected")],
    reason: Annotated[str, typer.Option(help="what was wrong; recorded")],
) -> None:
    """Book the difference for past charges whose bound was corrected since. Past events stay."""
    if unknown := [name for name in kind if name not in FORMER]:
        known = ", ".join(sorted(FORMER)) or "none so far"
        raise Invalid(
            "never-corrected",
            f"the bound of {' or '.join(unknown)} was never corrected; corrected bounds: {known}",
        )
    corrections = Corrections(frozenset(kind))
    with common.local_service() as service, common.progress() as bars:
        size = service.adopt_engine(population, by=common.operator())
        task = bars.add_task("reading", total=size)
        for row in islice(service.stream(population), size):
            corrections.take(Event.from_bytes(row.body))
            bars.advance(task)
        with service.state(population) as state:
            due = corrections.due(state)
        task = bars.add_task("booking", total=len(due))
        for booked in due:
            service.execute(population, Envelope(common.operator(), booked.command(reason)))
            bars.advance(task)
    common.show(f"{len(due)} charges were corrected")


@common.app.command("recover")
def recover_(
    population: common.PopulationOption,
    reason: Annotated[str, typer.Option(help="what happened; recorded")],
) -> None:
    """Open a new epoch when the database no longer continues what was signed.

    What was spent by the last signed head stays spent, open grants are charged, and the log
    continues under another origin and key. Restart the service afterwards.
    """
    chosen = common.settings()
    by, vault = common.operator(), vault_of(chosen.home)
    with common.local_service() as service:
        signed = recover(service.ledgers, vault, chosen.origin, population, by=by, reason=reason)
    typer.echo(signed.full.decode(), nl=False)
    common.say(
        "recovered: a new epoch is open; restart the service. The database also lost what was done "
        "to keys and texts since its backup: keys that were revoked are valid again (accountant "
        "keys list), and texts that were erased are back (accountant erase)"
    )
