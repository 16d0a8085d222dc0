"""policy diff: how two policies differ, in words."""

from __future__ import annotations

from typing import Annotated

import typer

from accountant.budget.decide.adopting import divided_anew
from accountant.budget.errors import Conflict
from accountant.budget.policy import Policy
from accountant.budget.policy_file import parse_policy
from accountant.budget.population.population import Population
from accountant.cli import common
from accountant.cli.policies import File, policy
from accountant.reporting.policy_diff import Changed, differences


@policy.command(name="diff")
def show_differences(
    file: File,
    other: Annotated[
        str | None, typer.Argument(help="the policy file that it would replace")
    ] = None,
    population: Annotated[
        str | None,
        typer.Option("--population", "-p", help="compare with the policy in force of this one"),
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Show in words how a policy file differs from another one, or from the policy in force.

    What loosens takes a second person. Exit code 1 if they differ.
    """
    new, _ = parse_policy(common.read_bytes(file).decode())
    old, people = _old(other, population)
    found, anew = list(differences(old, new, people)), divided_anew(old, new)
    if json:
        rows = [one._asdict() | {"what": one.what} for one in found]
        document = {"old": old.policy, "new": new.policy, "rules": rows}
        common.print_json(document | ({"divides": anew} if anew else {}))
    else:
        for one in found:
            _show(one)
        for text in anew:
            common.show(f"{text}, which loosens")
        if old.publication != new.publication:
            common.show("the witnesses, or how many have to agree, differ")
        elif not found:
            common.show("both policies do the same")
    raise typer.Exit(int(bool(found) or old.publication != new.publication))


def _old(file: str | None, population: str | None) -> tuple[Policy, Population | None]:
    """Return the policy to compare with, and its population, if it has one."""
    if (file is None) == (population is None):
        raise ValueError("compare with a file, or with the policy of a --population")
    if file is not None:
        return parse_policy(common.read_bytes(file).decode())[0], None
    with common.local_service() as service:
        state = service.state(str(population))
        if state.adopted is None:
            raise Conflict("no-policy", f"{population} has no policy yet")
        return state.adopted.policy, state.people()


def _show(one: Changed) -> None:
    common.show(f"{one.rule}: {one.what}{', which loosens' if one.loosens else ''}", style="bold")
    for mark, text in (("-", one.before), ("+", one.after)):
        if text is not None:
            common.show(f"  {mark} {text}")
