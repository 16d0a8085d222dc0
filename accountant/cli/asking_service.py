"""The commands that ask a service, in the list of all commands.

``accountant.__main__`` hands them to ``accountant.client.command_line``, which needs nothing of the
service; here they are reached only behind options of the database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from accountant.budget.errors import Invalid
from accountant.cli import common
from accountant.client.command_line.parsers import BESIDE_THE_DATABASE
from accountant.client.command_line.parsers import COMMANDS as OF_A_SERVICE

_PANEL: Final = "Commands that ask a service (set ACCOUNTANT_URL)"


def _listed(name: str) -> Callable[[], None]:
    def command() -> None:
        raise Invalid("asks-a-service", f"{name} asks a service: write nothing before it")

    return command


for _name, _command in OF_A_SERVICE.items():
    if _name not in BESIDE_THE_DATABASE:
        listed = common.app.command(
            _name,
            help=_command.summary,
            rich_help_panel=_PANEL,
            add_help_option=False,
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        )
        listed(_listed(_name))
