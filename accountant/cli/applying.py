"""apply: make a service's populations, datasets and policies what a folder states."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from accountant.cli import common
from accountant.cli.folder import Stated, read_folder
from accountant.cli.plans import Plan, Step, plan
from accountant.client import Registrar, calls
from accountant.client.command_line.failures import told
from accountant.client.environment import key_of
from accountant.client.errors import AccountantError, Body, Failed


@common.app.command()
def apply(
    folder: Annotated[
        Path, typer.Argument(help="with populations/, datasets/<population>/ and policies/")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="do it; without it, only show it")] = False,
) -> None:
    """Show what would have to change at the service at ACCOUNTANT_URL, so that it is what a folder
    states, and do it with --yes.

    Nothing is deleted. What takes a second person is proposed. Exit code 1 if there is something to
    do and no --yes.
    """
    stated = read_folder(folder)
    url, key = _place()
    try:
        made = _planned(stated, url, key)
        _show(made)
        todo = [step for step in made.steps if step.waits is None]
        for step in todo if yes else ():
            with Registrar(url, key, step.population) as registrar:
                _show_done(step, step.do(registrar))
    except AccountantError as error:
        line, status = told(error)
        common.say(f"accountant: {line}")
        common.say("what stands above as done is done; correct this, and apply again", "yellow")
        raise typer.Exit(status) from None
    if todo and not yes:
        common.say("nothing was done: add --yes to do it", "yellow")
    raise typer.Exit(int(bool(todo) and not yes))


def _place() -> tuple[str, str]:
    """Return the service's address and the key. Raises ValueError that says what is missing."""
    if not os.environ.get("ACCOUNTANT_URL"):
        raise ValueError("this asks a service: set ACCOUNTANT_URL, and ACCOUNTANT_KEY of an admin")
    try:
        return os.environ["ACCOUNTANT_URL"], key_of(os.environ)
    except KeyError:
        raise ValueError(
            "set ACCOUNTANT_KEY or ACCOUNTANT_KEY_FILE to the key of an admin"
        ) from None


def _planned(stated: Stated, url: str, key: str) -> Plan:
    there: dict[str, Body | None] = {}
    proposals: dict[str, list[Body]] = {}
    for name in stated.names:
        with Registrar(url, key, name) as registrar:
            there[name] = _population(registrar)
            proposals[name] = registrar.proposals("proposed") if there[name] else []
    return plan(stated, there, proposals)


def _population(registrar: Registrar) -> Body | None:
    try:
        return registrar.send(calls.population())
    except Failed as failure:
        if failure.code != "unknown-population":
            raise
    return None


def _show(made: Plan) -> None:
    for step in made.steps:
        two = f" (takes a second person: {step.two})" if step.two and not step.waits else ""
        common.show(f"{step.population}: {step.what}{two}", style="bold")
        for line in step.lines:
            common.show(f"  {line}")
        if step.waits:
            common.show("  it is proposed, and waits for another person:")
            _show_confirming(step.population, step.waits)
    for text in made.stays:
        common.show(text)
    if not made.steps:
        common.show("nothing to do")


def _show_done(step: Step, answer: Body) -> None:
    if "proposal" not in answer:
        common.say(f"done: {step.population}: {step.what}")
        return
    common.say(f"proposed: {step.population}: {step.what}: {answer['why']}", "yellow")
    _show_confirming(step.population, answer)


def _show_confirming(population: str, proposal: Body) -> None:
    number, digest = proposal["proposal"], proposal["digest"]
    command = f"accountant confirm {number} -p {population} --digest {digest}"
    common.show(f"  {command}", soft_wrap=True)
