"""What the commands share: options, consoles, the service on the local database."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from accountant import __version__
from accountant.config import logs
from accountant.config.settings import Settings
from accountant.publishing.publisher import Publisher
from accountant.reporting.sanitize import visible
from accountant.runtime.service import Service
from accountant.store.engine import parsed, sqlite_path
from accountant.store.ledgers import Ledgers
from accountant.store.snapshots import snapshots_of
from accountant.store.vault import vault_of

SHOWN = 50
"""Findings or bad lines that are listed one by one."""

out = Console()
errors = Console(stderr=True, soft_wrap=True)

app = typer.Typer(
    name="accountant",
    help="Knows how much privacy has been spent. Settings come from ACCOUNTANT_* variables or "
    "from flags of the same name.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

PopulationOption = Annotated[
    str, typer.Option("--population", "-p", help="the population whose ledger is meant")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON for a script to read")]


def _version(wanted: bool) -> None:
    if wanted:
        out.print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def _settings(
    context: typer.Context,
    home: Annotated[
        Path | None, typer.Option(help="signing keys, reports, the default database")
    ] = None,
    database_url: Annotated[str | None, typer.Option(help="e.g. sqlite:///var/x.db")] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print and exit")
    ] = False,
) -> None:
    env = dict(os.environ)
    if home is not None:
        env["ACCOUNTANT_HOME"] = str(home)
    if database_url is not None:
        env["ACCOUNTANT_DATABASE_URL"] = database_url
    logs.only_warnings()
    context.obj = Settings.from_environment(env)


def settings(context: typer.Context, **changes: Any) -> Settings:
    """The settings, with flags over the environment."""
    found: Settings = context.obj
    return replace(found, **{k: v for k, v in changes.items() if v is not None})


@contextmanager
def local_service(context: typer.Context) -> Iterator[Service]:
    """The service on the local database, whether or not it is being served too."""
    chosen = settings(context)
    url = chosen.database_url
    if parsed(url).get_backend_name() == "sqlite" and not sqlite_path(url).exists():
        raise ValueError(f"there is no database at {url}; make it with `accountant migrate`")
    service = Service(
        Ledgers(url),
        vault=vault_of(chosen.home),
        snapshots=snapshots_of(chosen.home),
        most_waiting=chosen.most_waiting,
    )
    try:
        service.ledgers.names()  # a database that is not there, or not migrated, is an error now
        yield service
    finally:
        service.close()


def publisher_of(context: typer.Context, service: Service) -> Publisher:
    """Who signs and publishes the heads of the service's ledgers."""
    chosen = settings(context)
    return Publisher(service, vault_of(chosen.home), chosen.origin)


def operator() -> str:
    """Whoever sits at this machine, as events name them."""
    try:
        return f"operator:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user without a name
        return f"operator:uid-{os.getuid()}"


def plain(text: str) -> Text:
    """Text from a ledger for a terminal: no markup, and no control characters."""
    return Text(visible(text))


def print_json(document: Any) -> None:
    """JSON on standard output, unstyled."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
