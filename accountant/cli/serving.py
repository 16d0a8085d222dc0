"""serve, migrate, keys."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Annotated, Any, cast, get_args

import typer
from rich.table import Table
from starlette.types import ASGIApp

from accountant.auth.ring import NEVER, Key, is_new
from accountant.auth.rotation import Rotation
from accountant.budget.commands import Role
from accountant.budget.errors import Invalid
from accountant.cli import common
from accountant.config import logs
from accountant.config.identity import provider_of
from accountant.config.logs import logger
from accountant.config.settings import Settings
from accountant.console.place import place_of
from accountant.ledger.events import rfc3339
from accountant.runtime import cores, memory
from accountant.runtime.clock import ClockMark
from accountant.runtime.service import Service
from accountant.store.ledgers import shown

_log = logger()
keys = typer.Typer(
    help="Create, renew, revoke and list API keys; replace a ledger's signing key.",
    no_args_is_help=True,
)
common.app.add_typer(keys, name="keys")


@common.app.command()
def migrate(
    phase: Annotated[
        str,
        typer.Option(help="pre: while the version before still runs; post: once it does not; all"),
    ] = "all",
) -> None:
    """Create the database, or bring it to the newest schema."""
    from accountant.store.migrate import PHASES, Phase  # noqa: PLC0415 (loads Alembic)
    from accountant.store.migrate import migrate as run_migrations  # noqa: PLC0415

    if phase not in PHASES:
        raise Invalid("unknown-phase", f"unknown phase {phase!r}: " + ", ".join(PHASES))
    chosen = common.settings()
    created = run_migrations(chosen.database_url, chosen.owner_url, cast("Phase", phase))
    done = "was created" if created else "is up to date"
    if phase == "pre" and not created:
        done = "is ready for the new version"
    common.say(f"the database {done}: {shown(chosen.database_url)}")


@common.app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="address to bind; default 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="port; default 8321", min=0, max=65535)] = None,
) -> None:
    """Run the service."""
    chosen = common.settings(host=host, port=port)
    # Bound first: clients wait in the kernel's queue while the ledgers are read.
    with _listen(chosen.host, chosen.port) as door:
        _serve(chosen, door)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(
            f"cannot listen on {host} port {port} ({error.strerror or error}); choose another with "
            "--host and --port"
        ) from None


def _serve(chosen: Settings, door: socket.socket) -> None:
    from accountant.api.hot import Hot  # noqa: PLC0415 (only this command serves HTTP)
    from accountant.door.server import run  # noqa: PLC0415

    place_of(chosen)
    provider_of(chosen)
    alerts = common.alerts_of(chosen)
    logs.configure()
    memory.give_back()
    with common.local_service() as service, ExitStack() as stopping:
        publisher = common.publisher_of(service)
        service.ledgers.check()
        if excess := service.ledgers.excess():
            common.say(
                f"warning: the service's database role has {'; '.join(excess)}. It should not own "
                "the tables: set ACCOUNTANT_OWNER_URL to their owner and ACCOUNTANT_DATABASE_URL "
                "to a role of the service's own, then run `accountant migrate` again",
                "yellow",
            )
        believed = ClockMark(chosen.home).read()
        with memory.collection_paused():
            service.start(believed, int(chosen.clock_ahead_hours * 3_600_000_000))
            memory.collect_rarely()
        if chosen.one_core:
            cores.share_one_core()
        if not service.credentials.all():
            common.say("no API key exists yet: accountant keys create --role admin --name me")

        def rest() -> ASGIApp:
            """Load the web framework and the jobs, which grants need not wait for."""
            with memory.collection_paused():
                from accountant import jobs  # noqa: PLC0415
                from accountant.api.app import create_app  # noqa: PLC0415
                from accountant.console.app import add_console, close_console  # noqa: PLC0415
            stopping.callback(jobs.note_uses, service)
            app = create_app(service, chosen, publisher)
            add_console(app, service, chosen)
            stopping.callback(close_console, app)
            scheduler = jobs.start(service, publisher, chosen, app.state.desk)
            stopping.callback(scheduler.shutdown)  # before the desk, which a job may ask
            stopping.callback(app.state.desk.stop)  # a job may be making a report for minutes
            if alerts is not None:
                from accountant.console.facts.alerted import alerting  # noqa: PLC0415 few have any

                telling = alerting(service, publisher, app.state.desk, *alerts, chosen.origin)
                jobs.tell_alerts(scheduler, telling, chosen.alert_seconds)
                stopping.callback(telling.stop)
            return app

        address = door.getsockname()  # for port 0, the port that the system chose
        _log.info("listening", host=address[0], port=address[1])
        keys = service.credentials
        run(door, rest, Hot(service).take, keys, chosen, service.latencies)


@keys.command("create")
def create_key(
    role: Annotated[str, typer.Option(help="admin, pipeline, officer or auditor")],
    name: Annotated[str, typer.Option(help="the client's name in events")],
    days: Annotated[
        int | None, typer.Option(help="valid for so many days; default: no end")
    ] = None,
    population: Annotated[
        list[str] | None, typer.Option("--population", "-p", help="reaches only this; may repeat")
    ] = None,
) -> None:
    """Create an API key and print it, alone on its line. It is shown only once.

    From its end on the service refuses it. One with populations reaches only these, and sees no
    others. Neither changes later: who is to have more gets another key.

    Once there were two keys of administrators or officers, a further one is only proposed: it is
    valid when another person has confirmed it (confirm --keys).
    """
    if role not in get_args(Role):
        raise Invalid("unknown-role", f"unknown role {role!r}: " + ", ".join(get_args(Role)))
    with common.local_service() as service:
        secret = service.credentials.create(
            name, cast("Role", role), common.operator(), days, population or ()
        )
        typer.echo(secret)
        if unknown := sorted(set(population or ()) - set(service.populations())):
            common.say(f"no population is called {' or '.join(unknown)} yet", "yellow")
        _say_proposed(service, name)


def _say_proposed(service: Service, name: str) -> None:
    """Say which command confirms a key that was only proposed."""
    found, now = service.credentials.proposals()
    for one in found:
        if one.is_open(now) and one.command["name"] == name:
            command = f"accountant confirm {one.sequence} --keys --digest {one.digest}"
            common.say(f"it is valid once another person confirms: {command}", "yellow")
            return


@keys.command("renew")
def renew_key(
    name: Annotated[str, typer.Option(help="the API key's name")],
    days: Annotated[
        int | None, typer.Option(help="valid for so many days; default: as before")
    ] = None,
    hours: Annotated[int, typer.Option(help="hours that the old key goes on, 0 to 168")] = 24,
) -> None:
    """Make another secret of an API key and print it, alone on its line: same role, same scope.

    You count as having made it. That of an admin or officer is only proposed, as a new one is.
    Holders rotate their own keys over HTTP: POST /v1/keys/rotate.
    """
    with common.local_service() as service:
        typer.echo(Rotation(service.credentials).renew(name, common.operator(), days, hours))
        _say_proposed(service, name)


@keys.command("revoke")
def revoke_key(name: Annotated[str, typer.Option(help="the API key's name")]) -> None:
    """Revoke an API key. A running service refuses it from the next request on."""
    with common.local_service() as service:
        service.credentials.revoke(name, by=common.operator())
    common.say(f"key {name} is revoked")


@keys.command("rotate")
def rotate_key(population: common.PopulationOption) -> None:
    """Replace a ledger's signing key from now on, and print the new verifier key."""
    with common.local_service() as service:
        key = common.publisher_of(service).rotate(population, by=common.operator())
    typer.echo(str(key))


@keys.command("list")
def list_keys(json: common.JsonOption = False) -> None:
    """List the API keys that were not revoked: who made each when, and when it was last used.

    A key that is new, made within seven days, is no other person than who made it.
    """
    with common.local_service() as service:
        found, now = service.credentials.listed(), service.credentials.now()
    if json:
        common.print_json([_document(key, used, now) for key, used in found])
        return
    table = Table()
    table.add_column("name", no_wrap=True)  # a name that is cut names nobody
    for name in ("role", "populations", "made by", "made", "ends", "last used"):
        table.add_column(name, overflow="fold")
    for key, used in found:
        reached = "all" if key.populations is None else ", ".join(sorted(key.populations))
        made = _day(key.made) + (" (new)" if is_new(key, now) else "")
        ends = "never" if key.until == NEVER else _day(key.until)
        ends = f"expired {ends}" if now >= key.until else ends
        ends += " (rotated)" if key.replaced else ""
        makers, last = " and ".join(key.makers), "never" if used is None else _day(used)
        table.add_row(key.name, key.role, reached, makers, made, ends, last)
    common.show_table(table)


def _day(stamp: int) -> str:
    return rfc3339(stamp)[:16].replace("T", " ")


def _document(key: Key, used: int | None, now: int) -> dict[str, Any]:
    """Return a key for a program; null: all populations, no end, never used."""
    return {
        "name": key.name,
        "role": key.role,
        "populations": None if key.populations is None else sorted(key.populations),
        "by": list(key.makers),
        "made": rfc3339(key.made),
        "new": is_new(key, now),
        "until": None if key.until == NEVER else rfc3339(key.until),
        "expired": now >= key.until,
        "rotated": rfc3339(key.replaced) if key.replaced else None,
        "last_used": None if used is None else rfc3339(used),
    }
