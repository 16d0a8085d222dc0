"""Operations on a ledger itself (erase, accept-time, revalue, recover) and its publication
(publish, resume-publication, receipt, fleet).
"""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from accountant.budget.commands import AcceptTime, ConfirmChange, Envelope, ResumePublication
from accountant.budget.custody.revaluation import Corrections
from accountant.budget.errors import Invalid, NotFound
from accountant.cli import common
from accountant.cli.progress import progress
from accountant.cli.proposing import KeyFile, person, proposal_of, show_proposal
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.engine import FORMER
from accountant.publishing import recovery
from accountant.runtime.clock import wall_clock
from accountant.runtime.service import Service
from accountant.store.ledgers import StoreError
from accountant.store.vault import Vault

_PATIENCE: Final = 30.0
"""Seconds that an erasure waits for readers of the database to end."""
_PAUSE: Final = 3.0
"""Seconds between two attempts; nothing else can be written during an attempt."""
_STILL_THERE: Final = (
    "but another process kept reading the database, so the text may still be found in its "
    "write-ahead log (the file that ends in -wal). It goes when that reader has ended and all "
    "services on this database have been stopped; erasing again has no effect"
)

Confirm = Annotated[int | None, typer.Option(help="the number of another person's proposal", min=0)]
Digest = Annotated[
    str | None, typer.Option(help="with --confirm: the digest of the proposal that you read")
]


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
    reason: Annotated[
        str | None, typer.Option(help="why the clock is right, to propose it; recorded")
    ] = None,
    confirm: Confirm = None,
    digest: Digest = None,
    key_file: KeyFile = None,
) -> None:
    """Accept this machine's clock, by two people who each compare it with another one.

    With --reason it is proposed, with --confirm and --digest another person's proposal is made,
    within a day. Until then nothing is granted and nothing expires.
    """
    _one_of_two(reason, confirm, digest)
    clock = rfc3339(wall_clock())
    with common.local_service() as service:
        by, key = person(service, key_file, population)
        if reason is not None:
            asked = Envelope(by, AcceptTime(clock=clock, reason=reason))
            [event] = service.execute(population, asked).events
            show_proposal(proposal_of(event), population)
            return
        command = ConfirmChange.model_validate({"proposal": confirm, "digest": digest})
        asked = Envelope(by, command.model_copy(update={"clock": clock}))
        event = service.confirm(population, asked, key).events[-1]
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
    with common.local_service() as service, progress() as bars:
        size = service.adopt_engine(population, by=common.operator())
        task = bars.add_task("reading", total=size)
        for row in islice(service.stream(population), size):
            corrections.take(Event.from_bytes(row.body))
            bars.advance(task)
        due = corrections.due(service.state(population))
        task = bars.add_task("booking", total=len(due))
        for booked in due:
            service.execute(population, Envelope(common.operator(), booked.command(reason)))
            bars.advance(task)
    common.show(f"{len(due)} charges were corrected")


@common.app.command()
def recover(
    population: common.PopulationOption,
    reason: Annotated[str | None, typer.Option(help="what happened; recorded")] = None,
    confirm: Confirm = None,
    digest: Digest = None,
    key_file: KeyFile = None,
) -> None:
    """Open a new epoch when the database no longer continues the last signed head.

    With --reason it is proposed, with --confirm and --digest another person's proposal is made.
    What was spent by the last signed head stays spent, open grants are charged, and the log
    continues under another origin and key. Restart the service afterwards.
    """
    chosen = common.settings()
    vault = Vault(chosen.home)
    _one_of_two(reason, confirm, digest)
    with common.local_service() as service:
        by, key = person(service, key_file, population)
        if reason is not None:
            event = recovery.propose(service.ledgers, vault, population, by=by, reason=reason)
            show_proposal(proposal_of(event), population)
            return
        command = ConfirmChange.model_validate({"proposal": confirm, "digest": digest})
        asked = Envelope(by, command)
        signed = recovery.confirm(service.ledgers, vault, chosen.origin, population, asked, key)
    typer.echo(signed.full.decode(), nl=False)
    common.say(
        "recovered: a new epoch is open; restart the service. The database also lost what was done "
        "to keys and texts since its backup: keys that were revoked are valid again (accountant "
        "keys list), and texts that were erased are back (accountant erase)"
    )


def _one_of_two(reason: str | None, confirm: int | None, digest: str | None) -> None:
    """Raise Invalid unless it is proposed with a reason, or confirmed with a digest."""
    if (reason is None) == (confirm is None) or (digest is None) != (confirm is None):
        raise Invalid("invalid-request", "give --reason to propose, or --confirm with --digest")


@common.app.command()
def publish(population: common.PopulationOption) -> None:
    """Sign the ledger's head, ask the witnesses to cosign it, and print the checkpoint.

    Exit code 1 if too few witnesses have cosigned it, or if publication is stopped.
    """
    with common.local_service() as service:
        publisher = common.publisher_of(service)
        published = publisher.publish(population)
        signed = published or publisher.sign(population)
        stopped = service.state(population).custody.stopped
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
def receipt(
    population: common.PopulationOption,
    event: common.EventOption,
    local: common.LocalOption = False,
) -> None:
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
            "not-installed",
            f"{missing.name} is not installed: pip install 'privacy-accountant[fleet]'",
        ) from None
    with common.local_service() as service, progress() as bars:
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
