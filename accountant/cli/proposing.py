"""proposals, confirm, decline: what takes a second person, beside the database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from accountant.auth.keys import Key, key_digest
from accountant.budget.commands import ConfirmChange, DeclineChange, DeclineGrant, Envelope
from accountant.budget.decide.proposing import why
from accountant.budget.depletion import told_of
from accountant.budget.errors import Forbidden, Invalid, Problem
from accountant.budget.policy import Policy
from accountant.budget.proposals import Proposal, after
from accountant.cli import common
from accountant.ledger.events import Event, rfc3339
from accountant.runtime.service import Service

Population = Annotated[
    str | None, typer.Option("--population", "-p", help="name of the population")
]
Keys = Annotated[bool, typer.Option("--keys", help="those of API keys")]
_BESIDE: Final = {"recover": "recover --confirm", "accept_time": "accept-time --confirm"}
"""What is confirmed by a command of its own, at the machine."""
_MOST_DIGITS: Final = 15
Number = Annotated[int, typer.Argument(help="the proposal's number", min=0)]
Digest = Annotated[str, typer.Option(help="the digest of the proposal that you read")]
KeyFile = Annotated[
    Path | None,
    typer.Option(help="a file with your own API key, whose name is then recorded as yours"),
]


@common.app.command()
def proposals(
    population: Population = None,
    keys: Keys = False,
    json: common.JsonOption = False,
    local: common.LocalOption = False,
) -> None:
    """List changes, or keys, that wait for a second person."""
    with common.local_service() as service:
        if about := _about(population, keys=keys):
            found, now = service.proposals(about)
        else:
            found, now = service.credentials.proposals()
        shown = [document(one) | _new_keys(service, one.by) for one in found if one.is_open(now)]
    if json:
        common.print_json(shown)
        return
    for one in shown:
        show_proposal(one, about)
    if not shown:
        common.show("nothing waits for a second person")


@common.app.command()
def confirm(
    proposal: Number,
    digest: Digest,
    population: Population = None,
    keys: Keys = False,
    reason: Annotated[str | None, typer.Option(help="why; recorded")] = None,
    key_file: KeyFile = None,
    local: common.LocalOption = False,
) -> None:
    """Confirm another person's proposal."""

    def close(service: Service, about: str | None, by: str, key: Key | None) -> Event:
        command = ConfirmChange(proposal=proposal, digest=digest, reason=reason)
        if about is None:
            return service.confirm_key(proposal, digest, by, key, reason)
        asked = Envelope(by, command)
        return service.confirm(about, asked, key).events[-1]

    _close(proposal, "confirmed", _about(population, keys=keys), key_file, close)


@common.app.command()
def decline(
    proposal: Annotated[str, typer.Argument(help="a proposal's number, or a request such as g42")],
    reason: Annotated[str, typer.Option(help="why; recorded")],
    population: Population = None,
    keys: Keys = False,
    digest: Annotated[
        str | None, typer.Option(help="of a request: the digest of what you read")
    ] = None,
    key_file: KeyFile = None,
    local: common.LocalOption = False,
) -> None:
    """Decline a proposal, or withdraw your own; or decline a request that waits for a person."""
    about = _about(population, keys=keys)
    if about is not None and proposal.startswith("g"):
        _decline_request(proposal, about, digest, reason, key_file)
        return
    if not (proposal.isascii() and proposal.isdigit() and len(proposal) <= _MOST_DIGITS):
        raise Invalid("unknown-proposal", f"{proposal!r} is no proposal: write 7, or g42")
    number = int(proposal)

    def close(service: Service, about: str | None, by: str, key: Key | None) -> Event:
        if about is None:
            return service.decline_key(number, by, reason)
        command = DeclineChange(proposal=number, reason=reason)
        return service.execute(about, Envelope(by, command)).events[-1]

    _close(number, "declined", about, key_file, close)


def _decline_request(
    grant: str, population: str, digest: str | None, reason: str, key_file: Path | None
) -> None:
    if digest is None:
        raise Invalid("approval-digest", "a request is declined by its digest: --digest")
    command = DeclineGrant(grant=grant, digest=digest, reason=reason)
    with common.local_service() as service:
        by, key = person(service, key_file, population)
        [*_, event] = service.confirm(population, Envelope(by, command), key).events
    common.show(f"{grant}: declined, event {event.sequence}")


def _about(population: str | None, *, keys: bool) -> str | None:
    """Return the population whose proposals are meant, None for those of keys. Raise Invalid."""
    if keys == (population is not None):
        raise Invalid("invalid-request", "say whose proposals: --population, or --keys")
    return population


def _close(
    proposal: int,
    how: str,
    about: str | None,
    key_file: Path | None,
    close: Callable[[Service, str | None, str, Key | None], Event],
) -> None:
    with common.local_service() as service:
        event = close(service, about, *person(service, key_file, about))
    common.show(f"proposal {proposal}: {how}, event {event.sequence} ({event.type})")


def person(
    service: Service, key_file: Path | None, population: str | None
) -> tuple[str, Key | None]:
    """Return who confirms or declines in a population, None for keys: the holder of a key, or the
    user of this machine. Raise Problem for a key that is not valid, or may not.
    """
    if key_file is None:
        return common.operator(), None
    secret, keys = key_file.read_text("ascii").strip(), service.credentials
    if (key := keys.find(secret)) is None:
        raise Problem("unauthenticated", keys.why_not(key_digest(secret), f"the key in {key_file}"))
    if key.role not in ("admin", "officer"):
        raise Forbidden("role-not-allowed", f"{key.name} is no admin or officer")
    key.check_scope(population)
    return key.name, key


def _new_keys(service: Service, by: str) -> dict[str, Any]:
    from accountant.api.views import new_keys  # noqa: PLC0415 (the models of all answers)

    found = new_keys(service, by)
    return {"new_keys": found} if found else {}


def proposal_of(event: Event) -> dict[str, Any]:
    """Return what an event proposes for a program."""
    return document(after({}, event)[event.sequence])


def document(one: Proposal) -> dict[str, Any]:
    """Return a proposal for a program."""
    adopts = one.command["type"] == "adopt_policy"
    return {
        "proposal": one.sequence,
        "digest": one.digest,
        "by": one.by,
        "time": rfc3339(one.time),
        "change": dict(one.command),
        "effect": dict(one.effect),
        "why": why(one.effect),
        "expires": rfc3339(one.expires),
        **(told_of(Policy.stored(one.command["policy"])) if adopts else {}),
    }


def show_proposal(one: dict[str, Any], about: str | None, *, json: bool = False) -> None:
    """Print a proposal, of a population or of a key, and the command that confirms it."""
    if json:
        common.print_json(one)
        return
    common.show(f"proposal {one['proposal']} by {one['by']}, {one['time']}: {one['why']}")
    for told in one.get("relaxed", ()):
        common.show(f"  {told}")
    for bound in one.get("depletion", ()):
        common.show(f"  {bound['text']}")
    for key in one.get("new_keys", ()):
        told = f"{key['name']} ({key['role']}), made by {one['by']} at {key['made']}"
        common.show(f"  new key: {told}")
    common.show(f"  until {one['expires']}, another person confirms it:")
    confirm = _BESIDE.get(one["change"]["type"], "confirm")
    place = "--keys" if about is None else f"-p {about}"
    command = f"accountant {confirm} {one['proposal']} {place} --digest {one['digest']}"
    common.show(f"  {command}", soft_wrap=True)
