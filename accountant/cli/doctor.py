"""doctor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import typer

from accountant.auth.keys import Credentials
from accountant.budget.errors import Problem
from accountant.cli import common
from accountant.cli.checkups import ledgers, machine
from accountant.cli.checkups.finding import Finding, wrong
from accountant.config.settings import Settings
from accountant.runtime.clock import ticks, wall_clock
from accountant.runtime.reader import Reader
from accountant.store.ledgers import StoreError
from accountant.store.opening import open_ledgers
from accountant.store.snapshots import Snapshots
from accountant.store.vault import Vault

_STYLES = {"fine": "green", "look": "yellow", "wrong": "red"}


@common.app.command()
def doctor(json: common.JsonOption = False) -> None:
    """Look at settings, disks, clock, database, vault and evidence, and say what to do.

    It changes nothing, and may run beside the service. It reads each ledger as a start does. Exit
    code 1 if something is wrong; what somebody should only look at is no error.
    """
    found = []
    for one in examine(common.settings()):
        found.append(one)
        if not json:
            common.show(f"{one.status:5}  {one.check}: {one.text}", _STYLES[one.status])
            if one.do:
                common.show(f"       {one.do}")
    bad = sum(one.status == "wrong" for one in found)
    if json:
        common.print_json({"findings": [one._asdict() for one in found], "wrong": bad})
    else:
        looks = sum(one.status == "look" for one in found)
        common.show(f"{len(found)} checks: {bad} wrong, {looks} to look at")
    raise typer.Exit(int(bad > 0))


def examine(
    chosen: Settings, clock: Callable[[], int] = wall_clock, passing: Callable[[], int] = ticks
) -> Iterator[Finding]:
    """Yield all findings. The clocks in microseconds: the wall's, and one that cannot be set."""
    yield from machine.settings(chosen)
    yield from machine.folders(chosen)
    yield from machine.clocks(clock, passing)
    yield from machine.service(chosen)
    yield from machine.public(chosen)
    yield from machine.identity(chosen)
    there = list(ledgers.database(chosen))
    yield from there
    if all(one.status == "fine" for one in there):
        yield from _contents(chosen, clock, passing)


def _contents(
    chosen: Settings, clock: Callable[[], int], passing: Callable[[], int]
) -> Iterator[Finding]:
    """Yield what is found in a database of the right schema."""
    opened = open_ledgers(chosen.database_url)
    reader = Reader(opened, clock, Vault(chosen.home), Snapshots(chosen.home), passing)
    try:
        yield from ledgers.rights(opened)
        yield from ledgers.keys(Credentials(opened, clock), clock())
        for name in reader.populations():
            yield from ledgers.Ledger(reader, name, chosen).check(clock)
    except (Problem, StoreError) as error:
        text = error.detail if isinstance(error, Problem) else str(error)
        yield wrong("database", text, "Put the database right, then run this again.")
    finally:
        with suppress(TimeoutError):  # another process keeps the file
            opened.close()
