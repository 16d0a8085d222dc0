"""The group of commands about policies."""

from __future__ import annotations

from typing import Annotated

import typer

from accountant.cli import common

policy = typer.Typer(help="Look at policy files, try them, adopt them.", no_args_is_help=True)
common.app.add_typer(policy, name="policy")

File = Annotated[str, typer.Argument(help="a policy file; - reads standard input")]
