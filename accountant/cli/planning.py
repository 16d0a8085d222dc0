"""plan: which of several requests to admit, and what that leaves."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError
from rich.table import Table

from accountant.api.strict_json import parse
from accountant.budget.commands import AskGrant
from accountant.budget.errors import Invalid, Problem
from accountant.budget.malformed import in_one_line, reasons
from accountant.budget.snapshot import dump, load
from accountant.budget.trials.planning import Found, Wish, choose, left_after
from accountant.cli import common
from accountant.runtime.clock import wall_clock


class _Line(BaseModel):
    """A line of a file of requests."""

    model_config = ConfigDict(extra="forbid")

    client: Annotated[str, Field(min_length=1)] = "client"
    weight: Annotated[StrictInt, Field(ge=1, le=10**6)] = 1
    ask: AskGrant


@common.app.command()
def plan(
    file: Annotated[
        str, typer.Argument(help="requests as JSON lines: client, weight, ask; - reads stdin")
    ],
    population: common.PopulationOption,
    json: common.JsonOption = False,
) -> None:
    """Show which of several requests to admit so that as much as possible fits.

    The policy in force and what is spent are those of the ledger; nothing is recorded or reserved.
    Few requests are tried in all subsets; of many, the best of three orders is shown: of arrival,
    by dominant share, by efficiency.
    """
    wishes = _read(file)
    with common.local_service() as service:
        seen = service.state(population)
        state = load(population, b"".join(dump(seen)))  # to try things on
    now = wall_clock()
    found = choose(state, wishes, now)
    left = left_after(state, wishes, found, now)
    if json:
        common.print_json(found._asdict() | {"left": left})
    else:
        _show(wishes, found, left)


def _read(file: str) -> list[Wish]:
    wishes = []
    for number, line in enumerate(common.read_bytes(file).splitlines(), 1):
        if line.strip():
            try:
                one = _Line.model_validate(parse(line))
            except ValidationError as error:
                said = in_one_line(reasons(error), "it")
                raise Invalid("malformed-request", f"line {number}: {said}") from None
            except Problem as problem:
                said = f"line {number}: {problem.detail} (each line is one request)"
                raise Invalid(problem.code, said) from None
            wishes.append(Wish(one.client, one.ask, one.weight))
    if not wishes:
        raise Invalid("malformed-request", f"{file} holds no request")
    return wishes


def _show(wishes: list[Wish], found: Found, left: dict[str, Any]) -> None:
    total = sum(wish.weight for wish in wishes)
    how = "nothing better exists" if found.best else f"by {found.order}, the best of three orders"
    fit = f"{len(found.admitted)} of {len(wishes)} requests fit"
    common.show(f"{fit}, weight {found.weight} of {total}: {how}")
    table = Table("line", "client", "dataset", "weight", "")
    for place, wish in enumerate(wishes):
        named = wish.ask.dataset
        dataset = named if isinstance(named, str) else ", ".join(named)
        what = "admit" if place in found.admitted else "wait"
        table.add_row(
            str(place + 1), *map(common.plain, (wish.client, dataset)), str(wish.weight), what
        )
    common.show_table(table)
    for rule, epsilon in left.items():
        common.show(f"limit {rule}: epsilon {epsilon} left")
