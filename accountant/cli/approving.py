"""approvals and approve: requests that wait for a person, beside the database."""

from __future__ import annotations

from typing import Annotated

import typer

from accountant.budget.commands import ApproveGrant, Envelope
from accountant.cli import common
from accountant.cli.proposing import KeyFile, person

Grant = Annotated[str, typer.Argument(help="the id of the request, such as g42")]


@common.app.command()
def approvals(
    population: common.PopulationOption,
    json: common.JsonOption = False,
    local: common.LocalOption = False,
) -> None:
    """List requests that wait for a person, with what each would do."""
    from accountant.api.views import approval_view  # noqa: PLC0415
    from accountant.client.command_line.words import approval  # noqa: PLC0415

    with common.local_service() as service:
        shown = [
            approval_view(service, population, one) for one in service.approvals(population, 1_000)
        ]
    if json:
        common.print_json(shown)
        return
    for one in shown:
        for line in approval(dict(one), population):
            common.show(line, soft_wrap=True)
    if not shown:
        common.show("no request waits for a person")


@common.app.command()
def approve(
    grant: Grant,
    population: common.PopulationOption,
    digest: Annotated[str, typer.Option(help="the digest of the request that you read")],
    reason: Annotated[str | None, typer.Option(help="why; recorded")] = None,
    key_file: KeyFile = None,
    local: common.LocalOption = False,
) -> None:
    """Approve another person's request."""
    command = ApproveGrant(grant=grant, digest=digest, reason=reason)
    with common.local_service() as service:
        by, key = person(service, key_file, population)
        [*_, event] = service.confirm(population, Envelope(by, command), key).events
    common.show(f"{grant}: approved, and granted as g{event.sequence}")
