"""Run the demonstration, from an empty folder to an audited ledger. Exit code 0: all as it must."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from accountant.client import AccountantError, Client, Registrar
from examples.survey import auditor, story
from examples.survey.pipelines import CRASHED, TTL
from examples.survey.running import AUDIT, DemoFailed, NotOurs, Runner, prepare
from examples.survey.survey_data import DATASETS, DIMENSIONS, POPULATION, WOMEN

PIPELINES: Final = ("survey-team", "dashboard", "careless")
ROLES: Final = {"steward": "admin", "officer": "officer", "auditor": "auditor"} | dict.fromkeys(
    PIPELINES, "pipeline"
)
POLICY: Final = Path(__file__).with_name("policy.yaml")
INDENT: Final = "    "
console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)


def main() -> int:
    """Run the demonstration; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.survey", description=__doc__)
    where = "folder for everything that the run leaves behind; default: %(default)s"
    parser.add_argument("--out", type=Path, default="demo-output", metavar="DIR", help=where)
    folder: Path = parser.parse_args().out
    # As an exception does, which stops the service on the way out.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    os.environ |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}  # nothing leaves this machine
    started = time.monotonic()
    try:
        prepare(folder)
        run(folder.resolve())
    except NotOurs as error:
        console.print(str(error), style="red", markup=False)
        return 2
    except (DemoFailed, AccountantError, OSError, TimeoutExpired) as error:
        console.print(f"The demonstration failed: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped; the service is stopped too.")
        return 130
    console.print(f"The compliance report:   {folder / 'report.html'}", soft_wrap=True)
    console.print(f"The audited evidence:    {folder / AUDIT / auditor.BUNDLE}", soft_wrap=True)
    seconds = time.monotonic() - started
    console.print(f"Everything went as it must, in {seconds:.0f} s.", style="green")
    return 0


def run(folder: Path) -> None:
    """Take every step in order. Raise DemoFailed if one does not go as it must."""
    runner, evidence = Runner(folder, console.width - len(INDENT)), folder / AUDIT
    with step("database created, six keys made"):
        runner.command("migrate")
        keys = {
            name: runner.command("keys", "create", "--role", role, "--name", name).strip()
            for name, role in ROLES.items()
        }

    def start(name: str) -> None:
        runner.start(f"{name}.txt", "examples.survey.pipelines", name, key=keys[name])

    def show(name: str, expected: int = 0) -> None:
        tell(runner.finish(f"{name}.txt", expected))

    with runner.service(), Client(runner.url, keys["auditor"], POPULATION) as accountant:
        with step(f"population registered: {WOMEN} women, {len(DATASETS)} datasets, a policy"):
            register(runner.url, keys)
        with step("survey team: randomised answers, and a sparse vector session"):
            start("survey-team")
            show("survey-team")
        with step("auditor, with a key that can only read: notes what cannot be changed later"):
            tell(auditor.note(accountant, evidence))
        with step("dashboard and careless pipeline, at the same time"):
            start("dashboard")
            start("careless")
            show("dashboard")
            show("careless", CRASHED)
        with step("the crashed pipeline's grant expired"):
            wait_for_expiry(accountant)
        with step("operator hands the evidence over; the auditor checks it elsewhere, offline"):
            runner.command("export", "-p", POPULATION, str(evidence / auditor.BUNDLE))
            tell(f"accountant export: {auditor.BUNDLE}")
            accounts = accountant.accounts(by=auditor.BY).body
            tell(auditor.audit(accounts, evidence))
        with step("compliance report written"):
            for form in ("html", "json", "csv"):
                runner.command("report", "-p", POPULATION, "--out", str(folder / f"report.{form}"))
        events = [event.content for event in accountant.events()]
    console.print()
    story.show(console, events, accounts)
    console.print()
    if problems := story.differences(events):
        raise DemoFailed("; ".join(problems))


def register(url: str, keys: dict[str, str]) -> None:
    """Register the population and its datasets; propose the policy, which the officer confirms."""
    with Registrar(url, keys["steward"], POPULATION) as registrar:
        registrar.register(
            privacy_unit="one surveyed woman",
            neighbouring="replace_one",  # the number of participants is public, their answers not
            membership="public",
            dimensions={name: list(values.values()) for name, values in DIMENSIONS.items()},
        )
        for dataset, columns in DATASETS.items():
            name = f"fair ({', '.join(columns)})"
            registrar.dataset(dataset, namespace="statsmodels", name=name)
        first = registrar.policy(POLICY.read_text(encoding="utf-8"))
    with Registrar(url, keys["officer"], POPULATION) as officer:
        officer.confirm(first["proposal"], first["digest"])


def wait_for_expiry(accountant: Client) -> None:
    """Wait until the service has charged the grant that the crash left open. Raise DemoFailed."""
    deadline = time.monotonic() + TTL + 30
    while not any(event.type == "grant.expired.v1" for event in accountant.events()):
        if time.monotonic() > deadline:
            raise DemoFailed("the service did not charge the grant that the crash left open")
        time.sleep(0.3)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print the name of a step, and at its end how long it took."""
    started = time.monotonic()
    console.print(f"[bold]▸ {text}[/]")
    yield
    console.print(f"{INDENT}done in {time.monotonic() - started:.1f} s", style="green")


def tell(text: str) -> None:
    """Print the output of a program."""
    console.print(Padding(Text(text, "dim"), (0, 0, 0, len(INDENT))))


if __name__ == "__main__":
    sys.exit(main())
