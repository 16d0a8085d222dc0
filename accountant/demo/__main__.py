"""Runs the demonstration from an empty folder to an audited ledger. Exit code 0: all as it must."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import indent
from types import FrameType
from typing import Any, Final

from rich.console import Console

from accountant.client import Accountant, AccountantError, Registrar
from accountant.config import shipped
from accountant.demo import account, story
from accountant.demo.auditor import BUNDLE, BY
from accountant.demo.careless import CRASHED, TTL
from accountant.demo.folder import AUDIT, NotOurs, prepare
from accountant.demo.running import DemoFailed, Runner
from accountant.demo.survey_data import DATASETS, DIMENSIONS, POPULATION, WOMEN

KEYS: Final = {
    "steward": "admin",
    "dashboard": "pipeline",
    "survey-team": "pipeline",
    "careless": "pipeline",
    "auditor": "auditor",
}
INDENT: Final = "    "
console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)


def main() -> int:
    """The whole run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m accountant.demo", description=__doc__)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-output"),
        metavar="DIR",
        help="folder for everything that the run leaves behind; default: %(default)s",
    )
    folder: Path = parser.parse_args().out
    signal.signal(signal.SIGTERM, _terminated)
    os.environ |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}  # nothing leaves this machine
    started = time.monotonic()
    try:
        prepare(folder)
        run(folder)
    except NotOurs as error:
        console.print(str(error), style="red", markup=False)
        return 2
    except (DemoFailed, AccountantError, OSError) as error:
        console.print(f"The demonstration failed: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped; the service is stopped too.")
        return 130
    seconds = time.monotonic() - started
    console.print(f"Everything went as it must, in {seconds:.0f} s.", style="green")
    return 0


def run(folder: Path) -> None:
    """Every step in order. Raises DemoFailed where one does not go as it must."""
    runner = Runner(folder.resolve(), console.width - len(INDENT))
    with step("database created, five keys made"):
        runner.command("migrate")
        keys = {
            name: runner.command("keys", "create", "--role", role, "--name", name).strip()
            for name, role in KEYS.items()
        }
    with ExitStack() as stack:
        with step("service started"):
            stack.enter_context(runner.service())
        with step(f"population registered: {WOMEN} women, {len(DATASETS)} datasets, a policy"):
            register(runner.url, keys["steward"])
        with step("survey team: randomised answers, and a sparse vector session"):
            survey_team = Pipeline(runner, "survey_team", keys["survey-team"])
            survey_team.show(expected=0)
        with step("auditor, with a key that can only read: notes what cannot be changed later"):
            Pipeline(runner, "auditor", keys["auditor"], "note", str(runner.folder / AUDIT)).show(0)
        with step("dashboard and careless pipeline, at the same time"):
            dashboard = Pipeline(runner, "dashboard", keys["dashboard"])
            careless = Pipeline(runner, "careless", keys["careless"])
            dashboard.show(expected=0)
            careless.show(expected=CRASHED)
        with step("the crashed pipeline's grant expired"):
            wait_for_expiry(runner.url, keys["auditor"])
        with step("operator hands the evidence over; the auditor checks it elsewhere, offline"):
            bundle = str(runner.folder / AUDIT / BUNDLE)
            runner.command("export", "--population", POPULATION, bundle)
            console.print(f"{INDENT}accountant export: {BUNDLE}", style="dim")
            audit = ("audit", str(runner.folder / AUDIT))
            Pipeline(runner, "auditor", keys["auditor"], *audit).show(expected=0)
        with step("compliance report written"):
            for form in ("html", "json", "csv"):
                to = runner.folder / f"report.{form}"
                options = ("--population", POPULATION, "--format", form, "--out", str(to))
                runner.command("report", *options)
        with Accountant(runner.url, keys["auditor"], POPULATION) as accountant:
            accounts = accountant.accounts(by=BY)
            events = [event.content for event in accountant.events()]
    console.print()
    account.show(console, events, accounts)
    console.print()
    if problems := story.differences(events):
        raise DemoFailed("; ".join(problems))
    console.print(f"The compliance report:   {folder / 'report.html'}", soft_wrap=True)
    console.print(f"The audited evidence:    {folder / AUDIT / BUNDLE}", soft_wrap=True)


def register(url: str, key: str) -> None:
    """Tells the service who is protected, which data there are, and what the rules are."""
    with Registrar(url, key, POPULATION) as registrar:
        registrar.population(
            privacy_unit="one surveyed woman",
            neighbouring="replace_one",  # how many took part is public; what one answered is not
            membership="public",
            dimensions={name: list(values.values()) for name, values in DIMENSIONS.items()},
        )
        for dataset, columns in DATASETS.items():
            name = f"fair ({', '.join(columns)})"
            registrar.dataset(dataset, namespace="statsmodels", name=name)
        registrar.policy((shipped("policies") / "demo.yaml").read_text(encoding="utf-8"))


class Pipeline:
    """A module of this package, running as a process of its own with its own key."""

    def __init__(self, runner: Runner, module: str, key: str, *arguments: str) -> None:
        self._runner = runner
        self._log = f"{module}.txt"
        name = f"accountant.demo.{module}"
        self._process = runner.start(name, *arguments, key=key, log=self._log)

    def show(self, expected: int) -> None:
        """Waits for its end and prints what it printed. Raises DemoFailed for another exit code."""
        result = self._runner.finish(self._process, self._log)
        console.print(indent(result.text, INDENT), markup=False, style="dim", soft_wrap=True)
        if result.code != expected:
            raise DemoFailed(f"logs/{self._log}: exit code {result.code}, not {expected}")


def wait_for_expiry(url: str, key: str) -> None:
    """Waits until the service has charged what the crash left open. Raises DemoFailed."""
    deadline = time.monotonic() + TTL + 30
    with Accountant(url, key, POPULATION) as accountant:
        while time.monotonic() < deadline:
            if any(event.type == "grant.expired.v1" for event in accountant.events()):
                return
            time.sleep(0.3)
    raise DemoFailed("the service did not charge the grant that the crash left open")


@contextmanager
def step(text: str) -> Iterator[None]:
    """Says what is being done; when it is done, how long it took."""
    started = time.monotonic()
    console.print(f"[bold]▸ {text}[/]")
    yield
    console.print(f"{INDENT}done in {time.monotonic() - started:.1f} s", style="green")


def _terminated(number: int, frame: FrameType | None) -> Any:
    """SIGTERM ends the run as an exception does: the service is stopped on the way out."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
