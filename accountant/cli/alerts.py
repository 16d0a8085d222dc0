"""alerts: what was told, what is muted, and whether the channels work."""

from __future__ import annotations

import re
from typing import Annotated, Final

import orjson
import typer
from rich.table import Table

from accountant.budget.errors import Invalid
from accountant.cli import common
from accountant.console.place import place_of
from accountant.ledger.events import microseconds, rfc3339
from accountant.notifying.alerting import DAY, Told
from accountant.notifying.muting import mute as keep_mute
from accountant.notifying.muting import unmute as end_mute
from accountant.notifying.webhook import Undelivered
from accountant.runtime.clock import wall_clock
from accountant.store.ledgers import NEVER, AlertRow, Mute

alerts = typer.Typer(help="List, mute and try alerts.", no_args_is_help=True)
common.app.add_typer(alerts, name="alerts")

KindArgument = Annotated[str, typer.Argument(help="a kind of alert, such as forecast, or all")]
_SPAN: Final = re.compile(r"([1-9][0-9]{0,3})([hd])")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@alerts.command("list")
def list_alerts(
    population: common.PopulationOption,
    most: Annotated[int, typer.Option(help="how many, the latest first", min=1, max=10_000)] = 50,
    json: common.JsonOption = False,
) -> None:
    """List what was told or is to be told, and what is muted."""
    with common.local_service() as service:
        service.known(population)
        rows = service.ledgers.alerts(population, most)
        mutes = [one for one in service.ledgers.mutes(population) if one.holds(wall_clock())]
    if json:
        common.print_json(
            {"alerts": [_as_json(row) for row in rows], "mutes": [_mute_json(m) for m in mutes]}
        )
        return
    for one in mutes:
        until = f"until {rfc3339(one.until)} by {one.by}: {one.reason}"
        common.show(f"{one.kind} is muted {until}", "yellow")
    table = Table("seen", "channel", "alert", "delivery")
    for row in rows:
        sentence = orjson.loads(row.said)["sentence"] if row.attempts or not row.delivered else ""
        told = sentence or f"{row.name} (covered by a graver one)"
        table.add_row(rfc3339(row.seen)[:16], row.channel, common.plain(told), _delivery(row))
    common.show_table(table)


def _delivery(row: AlertRow) -> str:
    if row.delivered:
        return f"delivered {rfc3339(row.delivered)[:16]}" if row.attempts else "not needed"
    times = f"after {row.attempts} attempt{'s' * (row.attempts != 1)}"
    return f"given up {times}" if row.due == NEVER else f"to be sent, {times}"


def _as_json(row: AlertRow) -> dict[str, object]:
    said = orjson.loads(row.said)
    return {
        "name": row.name,
        "kind": said["kind"],
        "sentence": said["sentence"],
        "channel": row.channel,
        "seen": rfc3339(row.seen),
        "attempts": row.attempts,
        "delivered": rfc3339(row.delivered) if row.delivered else None,
        "given_up": row.due == NEVER,
    }


def _mute_json(one: Mute) -> dict[str, str]:
    times = {"since": rfc3339(one.since), "until": rfc3339(one.until)}
    return {"kind": one.kind, "by": one.by, "reason": one.reason} | times


@alerts.command()
def mute(
    kind: KindArgument,
    population: common.PopulationOption,
    until: Annotated[str, typer.Option(help="8h, 3d, or a time such as 2026-12-01T08:00:00Z")],
    reason: Annotated[str, typer.Option(help="why; it is shown with the mute")],
) -> None:
    """Keep a kind of alerts back for a while. What is still so at its end is told then."""
    now = wall_clock()
    with common.local_service() as service:
        service.known(population)
        asked = Mute(0, kind, now, _end(until, now), common.operator(), reason)
        kept = keep_mute(service.ledgers, population, asked)
    common.say(f"{kept.kind} is muted until {rfc3339(kept.until)}")


@alerts.command()
def unmute(kind: KindArgument, population: common.PopulationOption) -> None:
    """Tell a kind of alerts again from now on."""
    with common.local_service() as service:
        service.known(population)
        end_mute(service.ledgers, population, kind, wall_clock(), common.operator())
    common.say(f"{kind} is told again")


@alerts.command("test")
def try_channels(
    channel: Annotated[str | None, typer.Option(help="to this channel; default: to all")] = None,
) -> None:
    """Send a test alert to the channels, once, and say what became of it."""
    chosen = common.settings()
    if (found := common.alerts_of(chosen)) is None:
        raise ValueError("ACCOUNTANT_ALERTS names no file: nobody is told anything")
    ways = [way for way in found[1] if channel in (None, way.channel.name)]
    if not ways:
        raise Invalid("invalid-request", f"the file of alerts has no channel {channel!r}")
    now, origin, failed = wall_clock(), place_of(chosen).origin, False
    page = f"{origin}/console" if origin else ""
    text = "This is a test: alerts of the privacy accountant arrive here."
    told = Told(f"alert_test_{now}", rfc3339(now), "test", "test", text, page)
    for way in ways:
        try:
            way.send(told)
        except Undelivered as error:
            failed = True
            common.say(f"{way.channel.name}: not delivered: {error}", "red")
        else:
            common.say(f"{way.channel.name}: delivered")
    if failed:
        raise typer.Exit(1)


def _end(text: str, now: int) -> int:
    """Return the stamp at which a mute ends. Raise Invalid."""
    if found := _SPAN.fullmatch(text):
        return now + int(found[1]) * (DAY if found[2] == "d" else DAY // 24)
    try:
        if _TIME.fullmatch(text):
            return microseconds(f"{text[:-1]}.000000Z")
    except ValueError:
        pass
    raise Invalid(
        "invalid-request",
        f"--until is {text!r}; it must be like 8h, 3d, or 2026-12-01T08:00:00Z",
    )
