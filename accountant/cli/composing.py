"""compose: mechanisms in, totals under every rule out. Needs no service."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table

from accountant.api.strict_json import parse
from accountant.budget.commands import Mechanisms
from accountant.cli.asking import read_bytes
from accountant.cli.common import JsonOption, app, out, print_json
from accountant.privacy.gates import advanced_epsilon
from accountant.privacy.mechanisms import Amount, Mechanism, Priced, Relation, price
from accountant.privacy.schedules.plan import Tight, tight
from accountant.privacy.units import NOTHING, Charge, Currency, exact, show, units_up

FIXED: Final = (
    "true only if the whole list was fixed before any answer was seen; for planning, never a limit"
)


class Plan(BaseModel):
    """The file: ``{"mechanisms": [...]}``, each as in a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    mechanisms: Mechanisms


class Delta(BaseModel):
    """The delta asked for."""

    model_config = ConfigDict(frozen=True)
    delta: Annotated[Amount, Field(ge=0, lt=1)]


@app.command()
def compose(
    file: Annotated[str, typer.Argument(help='{"mechanisms": [ … ]}; - reads standard input')],
    delta: Annotated[str, typer.Option(help="total failure probability, own deltas included")],
    neighbouring: Annotated[
        Relation, typer.Option(help="the relation of the population")
    ] = Relation.ADD_OR_REMOVE_ONE,
    json: JsonOption = False,
) -> None:
    """Total a list of mechanisms under every gate: the smallest limit that would admit them all.

    Beside it the tight total of the same list, had all of it been fixed in advance: for planning.
    """
    wanted = Delta.model_validate({"delta": delta}).delta
    plan = Plan.model_validate(parse(read_bytes(file)))
    prices = [price(mechanism, neighbouring) for mechanism in plan.mechanisms]
    total = sum((p.charge for p in prices), start=NOTHING).saturated()
    document: dict[str, Any] = {
        "delta": format(wanted, "f"),
        "neighbouring": neighbouring.value,
        "gate": gates(total, wanted),
        "report": reports(plan.mechanisms, prices, neighbouring, wanted),
        "objections": [{"code": o.code, "text": o.text} for p in prices for o in p.objections],
    }
    if json or not out.is_terminal:
        print_json(document)
    else:
        table = Table("gate", "ε", "δ", "note")
        for name, row in document["gate"].items():
            table.add_row(name, row["epsilon"] or "-", row.get("delta", "-"), row.get("why", ""))
        report = document["report"]
        for name, row in report.items():
            if isinstance(row, dict):
                lower = f"at least {row['lower']}" if "lower" in row else ""
                table.add_row(f"({name})", row["epsilon"], document["delta"], lower)
        out.print(table)
        out.print(f"In brackets: {report['precondition']}", highlight=False)
        for objection in document["objections"]:
            out.print(f"{objection['code']}: {objection['text']}", style="red", markup=False)
    raise typer.Exit(int(bool(document["objections"])))


def reports(
    mechanisms: Sequence[Mechanism], prices: Sequence[Priced], relation: Relation, delta: Decimal
) -> dict[str, Any]:
    """What only informs: epsilons at ``delta``, rounded up; of pld the lower end as well. None
    where a theorem says nothing about this list.
    """
    found = tight(mechanisms, prices, relation, Fraction(delta)) if delta else Tight()
    totals: dict[str, float | None] = {
        "pld": found.pld.upper if found.pld else None,
        "optimal": found.optimal,
        "closed_form": found.closed_form,
        "renyi_min": found.renyi,
    }
    document: dict[str, Any] = {"precondition": FIXED} | {
        name: None if epsilon is None else {"epsilon": _printed(epsilon, ROUND_CEILING)}
        for name, epsilon in totals.items()
    }
    if found.pld:
        document["pld"]["lower"] = _printed(found.pld.lower, ROUND_FLOOR)
    return document


def _printed(epsilon: float, rounding: str) -> str:
    if epsilon == math.inf:
        return "infinite"
    return format(Decimal(epsilon).quantize(Decimal("1e-9"), rounding), "f")


def gates(total: Charge, delta: Decimal) -> dict[str, dict[str, Any]]:
    """(epsilon, delta) under each gate as decimal strings rounded up; epsilon None if it has none,
    with the reason.
    """
    own = Currency.DELTA
    basic: dict[str, Any] = {
        "epsilon": total.amount(Currency.EPSILON),
        "delta": total.amount(own),
    }
    spare = Fraction(delta) - Fraction(exact(total[own], own))
    if total.is_infinite(own) or spare < 0:
        why = f"the mechanisms' own deltas add up to {total.amount(own)}, more than {delta:f}"
        return {
            "basic": {"epsilon": None, "why": why},
            "advanced": {"epsilon": None, "why": why},
        }
    advanced = dict(basic)  # "basic or" is implied
    if spare > 0 and not total.is_infinite(Currency.EPSILON_SQUARED):
        squares = Fraction(exact(total[Currency.EPSILON_SQUARED], Currency.EPSILON_SQUARED))
        units = units_up(advanced_epsilon(squares, spare), Currency.EPSILON)
        if total.is_infinite(Currency.EPSILON) or units < total[Currency.EPSILON]:
            advanced = {"epsilon": show(units, Currency.EPSILON), "delta": format(delta, "f")}
    return {"basic": basic, "advanced": advanced}
