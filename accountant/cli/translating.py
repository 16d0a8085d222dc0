"""dp-event: mechanisms as a DpEvent tree, for tools that speak dp_accounting's language."""

from __future__ import annotations

from typing import Annotated

import typer

from accountant.budget.errors import Invalid
from accountant.cli.common import app, print_json
from accountant.cli.composing import read_mechanisms
from accountant.privacy.mechanisms import Relation
from accountant.privacy.mechanisms.dp_event_writer import dp_event_of


@app.command("dp-event")
def dp_event(
    file: Annotated[str, typer.Argument(help='{"mechanisms": [ … ]}; - reads standard input')],
    neighbouring: Annotated[
        Relation, typer.Option(help="the relation of the population")
    ] = Relation.ADD_OR_REMOVE_ONE,
) -> None:
    """Write a list of mechanisms as one DpEvent of the dp_accounting library, as JSON.

    The other way needs no command: DpEvents are accepted wherever mechanisms are.
    """
    mechanisms = read_mechanisms(file)
    try:
        print_json(dp_event_of(mechanisms, neighbouring))
    except ValueError as error:
        raise Invalid("no-dp-event", str(error)) from None
