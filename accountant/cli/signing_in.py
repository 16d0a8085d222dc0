"""signin-link."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from accountant.auth.keys import key_digest
from accountant.auth.links import MINUTES, MOST_MINUTES, Links
from accountant.auth.ring import LINKED
from accountant.budget.commands import Role
from accountant.budget.errors import Invalid
from accountant.cli import common
from accountant.config.identity import PEOPLE
from accountant.console.place import place_of


@common.app.command("signin-link")
def signin_link(
    name: Annotated[str | None, typer.Option(help="who signs in, as events name them")] = None,
    role: Annotated[str | None, typer.Option(help=" or ".join(PEOPLE))] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="a file with your own API key, for a link of your own")
    ] = None,
    minutes: Annotated[
        int, typer.Option(help="how long it can be used", min=1, max=MOST_MINUTES)
    ] = MINUTES,
) -> None:
    """Make a link by which somebody signs in to the console, once, and print its address.

    Name who signs in, and the role; or give the file with your own key: then you sign in as its
    holder. Once there were two people who may confirm, a link of such a role for another person is
    only proposed: it is valid when another person has confirmed it (confirm --keys).
    """
    if (key_file is None) == (name is None or role is None) or (key_file and (name or role)):
        raise Invalid("invalid-request", "say who signs in: --name and --role, or --key-file")
    if role is not None and role not in get_args(Role):
        raise Invalid("unknown-role", f"unknown role {role!r}: " + ", ".join(PEOPLE))
    chosen = common.settings()
    host = f"[{chosen.host}]" if ":" in chosen.host else chosen.host
    origin = place_of(chosen).origin or f"http://{host}:{chosen.port}"
    with common.local_service() as service:
        links = Links(service.credentials)
        if key_file is not None:
            digest = key_digest(key_file.read_text("ascii").strip())
            code, event = links.create_own(digest, minutes)
        else:
            by = common.operator()
            code, event = links.create(str(name), cast("Role", role), by, minutes)
        if event.type != LINKED:
            proposal, _ = service.credentials.proposal(event.sequence)
            command = f"accountant confirm {proposal.sequence} --keys --digest {proposal.digest}"
            common.say(f"it is valid once another person confirms: {command}", "yellow")
    typer.echo(f"{origin}/console/signin/link/{code}")
