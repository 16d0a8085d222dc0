"""compose: mechanisms in, totals under every rule out. Needs no service."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import typer
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from rich.table import Table

from accountant.api.strict_json import parse
from accountant.budget.commands import read_dp_events
from accountant.budget.errors import Invalid
from accountant.cli.asking import read_bytes
from accountant.cli.common import JsonOption, app, out, print_json
from accountant.cli.totals import (
    charges,
    gates_at_delta,
    gates_at_epsilon,
    plan_of,
    reports_at_delta,
    reports_at_epsilon,
)
from accountant.privacy.mechanisms import Amount, Mechanism, Relation, plain, price
from accountant.privacy.mechanisms.base import LARGEST_GROUP

GroupOption = Annotated[
    int, typer.Option("--group-size", min=1, max=LARGEST_GROUP, help="records of one privacy unit")
]


class MechanismFile(BaseModel):
    """The file: ``{"mechanisms": [...]}``, each as in a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    mechanisms: Annotated[
        list[Mechanism], BeforeValidator(read_dp_events), Field(min_length=1, max_length=10_000)
    ]


class Wanted(BaseModel):
    """The delta or the epsilon asked for."""

    model_config = ConfigDict(frozen=True)
    delta: Annotated[Amount, Field(ge=0, lt=1)] | None
    epsilon: Annotated[Amount, Field(gt=0, le=10**6)] | None


def read_mechanisms(file: str, group_size: int = 1) -> tuple[Mechanism, ...]:
    """The mechanisms of a file, for privacy units of ``group_size`` times as many records."""
    found = MechanismFile.model_validate(parse(read_bytes(file))).mechanisms
    if group_size == 1:
        return tuple(found)
    sizes = [m.group_size * group_size for m in found]
    if max(sizes) > LARGEST_GROUP:
        raise Invalid("group-too-large", f"a group has at most {LARGEST_GROUP} records")
    return tuple(
        m.model_copy(update={"group_size": size}) for m, size in zip(found, sizes, strict=True)
    )


@app.command()
def compose(
    file: Annotated[str, typer.Argument(help='{"mechanisms": [ … ]}; - reads standard input')],
    delta: Annotated[
        str | None, typer.Option(help="total failure probability, own deltas included")
    ] = None,
    epsilon: Annotated[str | None, typer.Option(help="ask for the delta at this epsilon")] = None,
    neighbouring: Annotated[
        Relation, typer.Option(help="the relation of the population")
    ] = Relation.ADD_OR_REMOVE_ONE,
    group_size: GroupOption = 1,
    plan: Annotated[
        bool, typer.Option("--plan", help="the list as one declared plan, ready to be asked for")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Total a list of mechanisms under every gate: the smallest limit that would admit them all.

    Beside it the tight total of the same list, had all of it been fixed in advance: for planning,
    or for a declared plan, which is charged as one step.
    """
    if (delta is None) == (epsilon is None):
        raise Invalid("delta-or-epsilon", "give either --delta or --epsilon")
    wanted = Wanted.model_validate({"delta": delta, "epsilon": epsilon})
    mechanisms = read_mechanisms(file, group_size)
    if plan:
        _declare(mechanisms, neighbouring, wanted)
        return
    document = _totals(mechanisms, neighbouring, wanted)
    if json or not out.is_terminal:
        print_json(document)
    else:
        _show(document)
    raise typer.Exit(int(bool(document["objections"])))


def _totals(
    mechanisms: tuple[Mechanism, ...], relation: Relation, wanted: Wanted
) -> dict[str, Any]:
    total_at = charges(mechanisms, relation)
    if wanted.delta is not None:
        asked = {"delta": plain(wanted.delta)}
        gate = gates_at_delta(total_at, wanted.delta)
        report = reports_at_delta(mechanisms, relation, wanted.delta)
    else:
        at = wanted.epsilon or Decimal(0)
        asked = {"epsilon": plain(at)}
        gate, report = gates_at_epsilon(total_at, at), reports_at_epsilon(mechanisms, relation, at)
    objections = [o for mechanism in mechanisms for o in price(mechanism, relation).objections]
    return asked | {
        "neighbouring": relation.value,
        "gate": gate,
        "report": report,
        "objections": [{"code": o.code, "text": o.text} for o in objections],
    }


def _declare(mechanisms: tuple[Mechanism, ...], relation: Relation, wanted: Wanted) -> None:
    if not wanted.delta:
        raise Invalid("plan-needs-delta", "a plan is declared at a --delta above 0")
    declared = plan_of(mechanisms, relation, wanted.delta)
    if declared is None:
        why = [o.text for mechanism in mechanisms for o in price(mechanism, relation).objections]
        raise Invalid("no-bound", " ".join(["Nothing bounds what this plan costs.", *why[:1]]))
    print_json({"mechanisms": [declared]})


def _show(document: dict[str, Any]) -> None:
    table = Table("rule", "ε", "δ", "note")
    for name, row in document["gate"].items():
        order = f"order {row['order']}" if "order" in row else ""
        table.add_row(name, row["epsilon"] or "-", row.get("delta") or "-", row.get("why", order))
    report = document["report"]
    for name, row in report.items():
        if isinstance(row, dict):
            lower = f"at least {row['lower']}" if "lower" in row else ""
            asked = {"epsilon": document.get("epsilon"), "delta": document.get("delta")} | row
            table.add_row(f"({name})", asked["epsilon"], asked["delta"], lower)
    out.print(table)
    out.print(f"In brackets: {report['precondition']}", highlight=False)
    for objection in document["objections"]:
        out.print(f"{objection['code']}: {objection['text']}", style="red", markup=False)
