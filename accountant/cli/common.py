"""Shared by all commands: options, output, the service on the local database."""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from accountant import __version__
from accountant.config import logs
from accountant.config.settings import Settings
from accountant.reporting.safely import visible

if TYPE_CHECKING:
    from accountant.config.alerts import AlertSettings
    from accountant.config.origins import Origin
    from accountant.notifying.alerting import Way
    from accountant.publishing.publisher import Publisher
    from accountant.runtime.service import Service

SHOWN = 50
"""How many findings or bad lines are listed one by one."""

_CHOSEN: ContextVar[Settings] = ContextVar("settings")

out = Console()
_PIPE = Console(width=10_000)
"""Wider than any table."""
errors = Console(stderr=True, soft_wrap=True)

app = typer.Typer(
    name="accountant",
    help="Keep account of how much differential privacy has been spent. Settings are read from "
    "ACCOUNTANT_* variables; the options below override them. Where ACCOUNTANT_URL is set, "
    "accounts, approvals, approve, confirm, decline, explain, export, preview, proposals, receipt, "
    "report and verify ask that service, unless they are given --local.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

PopulationOption = Annotated[str, typer.Option("--population", "-p", help="name of the population")]
EventOption = Annotated[int, typer.Option(help="the event's sequence", min=0)]
ByOption = Annotated[str | None, typer.Option(help="split the totals by this dimension")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]
LocalOption = Annotated[
    bool, typer.Option("--local", help="read the database even where ACCOUNTANT_URL is set")
]
"""Of the commands that can ask a service as well: ``accountant.__main__`` has looked at it."""


def _version(wanted: bool) -> None:
    if wanted:
        out.print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def _settings(
    home: Annotated[
        Path | None, typer.Option(help="folder of the vault, reports and the default database")
    ] = None,
    database_url: Annotated[
        str | None, typer.Option(help="the database, e.g. sqlite:///var/x.db")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    given = {"ACCOUNTANT_HOME": home, "ACCOUNTANT_DATABASE_URL": database_url}
    logs.only_warnings()
    _CHOSEN.set(
        Settings.from_environment(
            os.environ | {name: str(value) for name, value in given.items() if value is not None}
        )
    )


def settings(**options: Any) -> Settings:
    """Return the settings. Options that were given (not None) override the environment."""
    return replace(_CHOSEN.get(), **{name: v for name, v in options.items() if v is not None})


@contextmanager
def local_service() -> Iterator[Service]:
    """Open the service on the local database, which a running service may be using too."""
    from accountant.runtime.service import Service  # noqa: PLC0415 (half of a second)
    from accountant.store.ledgers import parsed, sqlite_path  # noqa: PLC0415
    from accountant.store.opening import open_ledgers  # noqa: PLC0415
    from accountant.store.snapshots import Snapshots  # noqa: PLC0415
    from accountant.store.vault import Vault  # noqa: PLC0415

    chosen = settings()
    url = chosen.database_url
    if parsed(url).get_backend_name() == "sqlite" and not sqlite_path(url).exists():
        raise ValueError(f"there is no database at {url}; create it with `accountant migrate`")
    service = Service(
        open_ledgers(url),
        vault=Vault(chosen.home),
        snapshots=Snapshots(chosen.home),
        most_waiting=chosen.most_waiting,
        callbacks=callbacks_of(chosen),
        key_days=chosen.key_days,
    )
    try:
        service.ledgers.names()  # fail now if the database is missing or not migrated
        yield service
    finally:
        service.close()


def callbacks_of(chosen: Settings) -> frozenset[Origin]:
    """Return where callbacks may go. Raise ValueError, naming the variable, for what is no host,
    and for hosts without a secret to sign by.
    """
    from accountant.config.origins import origins_of  # noqa: PLC0415
    from accountant.notifying.webhook import secret_of  # noqa: PLC0415

    try:
        found = origins_of(chosen.callback_hosts)
    except ValueError as error:
        raise ValueError(f"ACCOUNTANT_CALLBACK_HOSTS: {error}") from None
    try:
        if found:
            secret_of(chosen.callback_secret)
    except ValueError as error:
        raise ValueError(f"ACCOUNTANT_CALLBACK_SECRET: {error}") from None
    return found


def alerts_of(chosen: Settings) -> tuple[AlertSettings, list[Way]] | None:
    """Return what is told to whom, and how; None if no file says so. Raise ValueError, naming the
    variable.
    """
    if not chosen.alerts:
        return None
    from accountant.config.alerts import alert_settings_of  # noqa: PLC0415
    from accountant.notifying.channels import ways_of  # noqa: PLC0415

    if (found := alert_settings_of(chosen)) is None:
        return None
    try:
        return found, ways_of(found, chosen.origin)
    except ValueError as error:
        raise ValueError(f"ACCOUNTANT_ALERTS: {chosen.alerts}: {error}") from None


def publisher_of(service: Service) -> Publisher:
    """Return the publisher that signs the heads of the service's ledgers."""
    from accountant.publishing.publisher import Publisher  # noqa: PLC0415 (as above)
    from accountant.store.vault import Vault  # noqa: PLC0415

    chosen = settings()
    return Publisher(service, Vault(chosen.home), chosen.origin)


def operator() -> str:
    """Return the name under which events record the user of this machine."""
    try:
        return f"operator:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user may have no name
        return f"operator:uid-{os.getuid()}"


def read_bytes(file: str) -> bytes:
    """Return the bytes of a file, or of standard input for ``-``."""
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


def plain(text: str) -> Text:
    """Return text from a ledger for a terminal: no markup, no control characters."""
    return Text(visible(text))


def show(text: str, style: str | None = None, *, soft_wrap: bool = False) -> None:
    """Print ``plain`` text on standard output; into a file or a pipe each line as it is."""
    out.print(plain(text), style=style, soft_wrap=soft_wrap or not out.is_terminal)


def show_table(table: Table) -> None:
    """Print a table; into a file or a pipe, which have no width, as wide as it is, unless
    ``COLUMNS`` says how wide they are.
    """
    (out if out.is_terminal or "COLUMNS" in os.environ else _PIPE).print(table)


def say(text: str, style: str | None = None) -> None:
    """Print a message, without markup, on standard error."""
    errors.print(text, style=style, markup=False, highlight=False)


def print_json(document: Any) -> None:
    """Print JSON on standard output, unstyled."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
