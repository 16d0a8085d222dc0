"""proposals, confirm, decline: what takes a second person, beside the database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.auth.keys import Key
from accountant.budget.commands import ConfirmChange, DeclineChange, Envelope
from accountant.budget.decide.proposing import why
from accountant.budget.depletion import told_of
from accountant.budget.errors import Forbidden, Problem
from accountant.budget.policy import Policy
from accountant.budget.proposals import digest_of
from accountant.cli import common
from accountant.ledger.events import Event, rfc3339
from accountant.runtime.service import Service

Number = Annotated[int, typer.Argument(help="the proposal's number", min=0)]
Digest = Annotated[str, typer.Option(help="the digest of the proposal that you read")]
KeyFile = Annotated[
    Path | None,
    typer.Option(help="a file with your own API key, whose name is then recorded as yours"),
]


@common.app.command()
def proposals(
    population: common.PopulationOption,
    json: common.JsonOption = False,
    local: common.LocalOption = False,
) -> None:
    """List changes that wait for a second person."""
    with common.local_service() as service:
        found, now = service.proposals(population)
        waiting = [one.sequence for one in found if one.is_open(now)]
        shown = [proposal_of(service.event(population, number)) for number in waiting]
    if json:
        common.print_json(shown)
        return
    for one in shown:
        show_proposal(one, population)
    if not shown:
        common.show("nothing waits for a second person")


@common.app.command()
def confirm(
    proposal: Number,
    population: common.PopulationOption,
    digest: Digest,
    key_file: KeyFile = None,
    local: common.LocalOption = False,
) -> None:
    """Confirm another person's proposal."""
    command = ConfirmChange(proposal=proposal, digest=digest)
    with common.local_service() as service:
        by, key = person(service, key_file)
        [*_, event] = service.confirm(population, Envelope(by, command), key).events
    common.show(f"proposal {proposal}: confirmed, event {event.sequence} ({event.type})")


@common.app.command()
def decline(
    proposal: Number,
    population: common.PopulationOption,
    reason: Annotated[str, typer.Option(help="why; recorded")],
    key_file: KeyFile = None,
    local: common.LocalOption = False,
) -> None:
    """Decline a proposal, or withdraw your own."""
    command = DeclineChange(proposal=proposal, reason=reason)
    with common.local_service() as service:
        by, _ = person(service, key_file)
        [event] = service.execute(population, Envelope(by, command)).events
    common.show(f"proposal {proposal}: declined, event {event.sequence}")


def person(service: Service, key_file: Path | None) -> tuple[str, Key | None]:
    """Return who confirms or declines: the holder of a key, or the user of this machine. Raise
    Problem for a key that is not valid, Forbidden for one that may not.
    """
    if key_file is None:
        return common.operator(), None
    key = service.credentials.find(key_file.read_text("ascii").strip())
    if key is None:
        raise Problem("unauthenticated", f"the key in {key_file} is not valid")
    if key.role not in ("admin", "officer"):
        raise Forbidden("role-not-allowed", f"{key.name} is no admin or officer")
    return key.name, key


def proposal_of(event: Event) -> dict[str, Any]:
    """Return a proposal for a program."""
    command = event.body["command"]
    adopts = command["type"] == "adopt_policy"
    return {
        "proposal": event.sequence,
        "digest": digest_of(event.to_bytes()),
        "by": event.by,
        "time": rfc3339(event.time),
        "change": event.body["command"],
        "effect": event.body["effect"],
        "why": why(event.body["effect"]),
        "expires": event.body["expires"],
        **(told_of(Policy.stored(command["policy"])) if adopts else {}),
    }


def show_proposal(one: dict[str, Any], population: str, *, json: bool = False) -> None:
    """Print a proposal, and the command that confirms it."""
    if json:
        common.print_json(one)
        return
    common.show(f"proposal {one['proposal']} by {one['by']}, {one['time']}: {one['why']}")
    for told in one.get("relaxed", ()):
        common.show(f"  {told}")
    for bound in one.get("depletion", ()):
        common.show(f"  {bound['text']}")
    common.show(f"  until {one['expires']}, another person confirms it:")
    confirm = "recover --confirm" if one["change"]["type"] == "recover" else "confirm"
    command = f"accountant {confirm} {one['proposal']} -p {population} --digest {one['digest']}"
    common.show(f"  {command}", soft_wrap=True)
