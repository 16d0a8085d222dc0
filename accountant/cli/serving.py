"""serve, migrate, keys."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Annotated, cast, get_args

import structlog
import typer
from rich.table import Table
from starlette.types import ASGIApp

from accountant.budget.commands import Role
from accountant.budget.errors import Invalid
from accountant.cli.common import (
    PopulationOption,
    app,
    errors,
    local_service,
    operator,
    out,
    print_json,
    publisher_of,
    settings,
)
from accountant.config import logs
from accountant.config.settings import Settings
from accountant.door.limits import Limits
from accountant.runtime import memory
from accountant.runtime.clock_mark import ClockMark
from accountant.store.engine import shown

_log = structlog.get_logger()
keys = typer.Typer(help="API keys.", no_args_is_help=True)
app.add_typer(keys, name="keys")


@app.command()
def migrate(context: typer.Context) -> None:
    """Create the database, or bring it to the newest schema."""
    # Imported late: Alembic is not needed for anything else.
    from accountant.store.migrate import migrate as run_migrations  # noqa: PLC0415

    chosen = settings(context)
    new = run_migrations(chosen.database_url, chosen.owner_url)
    done = "was created" if new else "is up to date"
    errors.print(
        f"the database {done}: {shown(chosen.database_url)}", markup=False, highlight=False
    )


@app.command()
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="address to bind; default 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="port; default 8321", min=0, max=65535)] = None,
) -> None:
    """Keep the service running."""
    chosen = settings(context, host=host, port=port)
    door = _listen(chosen.host, chosen.port)
    address: tuple[str, int] = door.getsockname()[:2]  # of port 0 the system makes a real one
    with door:  # who asks waits in the kernel's queue until the ledgers are read
        _serve(context, chosen, door, address)


def _serve(
    context: typer.Context, chosen: Settings, door: socket.socket, address: tuple[str, int]
) -> None:
    # Imported late, for the other commands have no door.
    from accountant.api.hot import Hot  # noqa: PLC0415
    from accountant.door.serve import run  # noqa: PLC0415

    logs.configure()
    memory.give_back()
    with local_service(context) as service, ExitStack() as stopping:
        publisher = publisher_of(context, service)
        service.ledgers.check()
        _warn(service.ledgers.excess())
        believed = ClockMark(chosen.home).read()
        service.begin(believed, int(chosen.clock_ahead_hours * 3_600_000_000))
        memory.seldom()
        if not service.credentials.all():
            errors.print("no key exists yet: accountant keys create --role admin --name me")

        def rest() -> ASGIApp:
            """What grants need not wait for: the framework, and the jobs."""
            with memory.not_looked_for():
                from accountant import jobs  # noqa: PLC0415
                from accountant.api.app import create_app  # noqa: PLC0415
            stopping.callback(jobs.start(service, publisher, chosen).shutdown)
            return create_app(service, chosen, publisher)

        _log.info("listening", host=address[0], port=address[1])
        run(door, rest, Hot(service).take, service.credentials, limits_of(chosen))


def limits_of(chosen: Settings) -> Limits:
    """What a client may hold, as the settings say."""
    return Limits(
        body_bytes=chosen.max_body_bytes,
        connections=chosen.max_connections,
        held_bytes=chosen.max_held_bytes,
        head_seconds=chosen.head_seconds,
        body_seconds=chosen.body_seconds,
        idle_seconds=chosen.idle_seconds,
    )


def _warn(excess: list[str]) -> None:
    if excess:
        errors.print(
            f"warning: the service's role on the database has {'; '.join(excess)}. It should not "
            "own the tables: set ACCOUNTANT_OWNER_URL to their owner, ACCOUNTANT_DATABASE_URL to a "
            "role of the service's own, and run `accountant migrate` again",
            style="yellow",
            markup=False,
            highlight=False,
        )


@keys.command("create")
def create_key(
    context: typer.Context,
    role: Annotated[str, typer.Option(help="admin, pipeline, officer or auditor")],
    name: Annotated[str, typer.Option(help="the client's name in events")],
) -> None:
    """Create a key and print it, alone on its line: the only time that it is shown."""
    if role not in get_args(Role):
        raise Invalid("unknown-role", f"no role is called {role!r}: " + ", ".join(get_args(Role)))
    with local_service(context) as service:
        typer.echo(service.credentials.create(name, cast("Role", role), by=operator()))


@keys.command("revoke")
def revoke_key(
    context: typer.Context, name: Annotated[str, typer.Option(help="the key's name")]
) -> None:
    """End a key's life; a running service refuses it from the next request on."""
    with local_service(context) as service:
        service.credentials.revoke(name, by=operator())
    errors.print(f"key {name} is revoked", markup=False, highlight=False)


@keys.command("rotate")
def rotate_key(context: typer.Context, population: PopulationOption) -> None:
    """Sign a ledger with a fresh key from now on; print its public half."""
    with local_service(context) as service:
        key = publisher_of(context, service).rotate(population, by=operator())
    typer.echo(str(key))


@keys.command("list")
def list_keys(
    context: typer.Context, json: Annotated[bool, typer.Option("--json")] = False
) -> None:
    """List the valid keys' names and roles."""
    with local_service(context) as service:
        found = service.credentials.all()
    if json:
        print_json([{"name": key.name, "role": key.role} for key in found])
        return
    table = Table("name", "role")
    for key in found:
        table.add_row(key.name, key.role)
    out.print(table)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(
            f"cannot listen on {host} port {port} ({error.strerror or error}); choose another with "
            "--host and --port"
        ) from None
