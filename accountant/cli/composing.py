"""compose, fit, dp-event: what a list of mechanisms costs. They need no service and no database."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from rich.table import Table

from accountant.api.strict_json import parse
from accountant.budget.accounts.account import Account
from accountant.budget.accounts.peak import Reading
from accountant.budget.commands import read_dp_events
from accountant.budget.errors import Invalid
from accountant.budget.population.selection import EVERYONE
from accountant.budget.rules.limit import LimitRule
from accountant.cli import common, totals
from accountant.privacy.filters import FILTERS, axis_under
from accountant.privacy.inverse import largest_count, smallest_factor
from accountant.privacy.mechanisms import Amount, Mechanism, Relation, plain, price
from accountant.privacy.mechanisms.base import LARGEST_GROUP, MOST_INVOCATIONS
from accountant.privacy.mechanisms.dp_event import dp_event_of
from accountant.privacy.units import total

MechanismsArgument = Annotated[
    str, typer.Argument(help='{"mechanisms": [ … ]}; - reads standard input')
]
RelationOption = Annotated[Relation, typer.Option(help="the population's neighbouring relation")]
GroupOption = Annotated[
    int, typer.Option("--group-size", min=1, max=LARGEST_GROUP, help="records of one privacy unit")
]
Mechanisms = tuple[Mechanism, ...]
Fits = Callable[[Mechanisms], bool]
"""Whether a list of mechanisms stays within a limit."""

_DIGITS: Final = Context(prec=20, rounding=ROUND_CEILING)


class _File(BaseModel):
    """The file: ``{"mechanisms": [...]}``, each as in a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    mechanisms: Annotated[
        list[Mechanism], BeforeValidator(read_dp_events), Field(min_length=1, max_length=10_000)
    ]


class _Wanted(BaseModel):
    """The delta or the epsilon at which the totals are wanted."""

    model_config = ConfigDict(frozen=True)
    delta: Annotated[Amount, Field(ge=0, lt=1)] | None
    epsilon: Annotated[Amount, Field(gt=0, le=10**6)] | None


def _read(file: str, group_size: int = 1) -> Mechanisms:
    """Return the mechanisms of a file, with ``group_size`` times as many records per unit."""
    found = _File.model_validate(parse(common.read_bytes(file))).mechanisms
    if group_size == 1:
        return tuple(found)
    if max(m.group_size for m in found) * group_size > LARGEST_GROUP:
        raise Invalid("group-too-large", f"a group has at most {LARGEST_GROUP} records")
    return tuple(m.model_copy(update={"group_size": m.group_size * group_size}) for m in found)


@common.app.command()
def compose(
    file: MechanismsArgument,
    delta: Annotated[
        str | None, typer.Option(help="total failure probability, own deltas included")
    ] = None,
    epsilon: Annotated[str | None, typer.Option(help="find the delta at this epsilon")] = None,
    neighbouring: RelationOption = Relation.ADD_OR_REMOVE_ONE,
    group_size: GroupOption = 1,
    plan: Annotated[
        bool, typer.Option("--plan", help="print the list as one declared plan, for a request")
    ] = False,
    json: common.JsonOption = False,
) -> None:
    """Total a list of mechanisms under every filter: the smallest limit that admits them all.

    Also prints the tight total of a list fixed in advance: for planning, or for a declared plan,
    which is charged as one step.
    """
    if (delta is None) == (epsilon is None):
        raise Invalid("delta-or-epsilon", "give either --delta or --epsilon")
    wanted = _Wanted.model_validate({"delta": delta, "epsilon": epsilon})
    mechanisms = _read(file, group_size)
    objections = [o for m in mechanisms for o in price(m, neighbouring).objections]
    if plan:
        if not wanted.delta:
            raise Invalid("plan-needs-delta", "a plan is declared at a --delta above 0")
        declared = totals.plan_of(mechanisms, neighbouring, wanted.delta)
        if declared is None:
            why = [o.text for o in objections[:1]]
            raise Invalid("no-bound", " ".join(["no bound is known for this plan.", *why]))
        common.print_json({"mechanisms": [declared]})
        return
    document = _totals(mechanisms, neighbouring, wanted) | {
        "objections": [{"code": o.code, "text": o.text} for o in objections]
    }
    if json or not common.out.is_terminal:
        common.print_json(document)
    else:
        _show(document)
    raise typer.Exit(int(bool(objections)))


def _totals(mechanisms: Mechanisms, relation: Relation, wanted: _Wanted) -> dict[str, Any]:
    total_at = totals.charges(mechanisms, relation)
    if wanted.delta is not None:
        asked = {"delta": plain(wanted.delta)}
        gate = totals.gates_at_delta(total_at, wanted.delta)
        report = totals.reports_at_delta(mechanisms, relation, wanted.delta)
    else:
        at = wanted.epsilon or Decimal(0)
        asked = {"epsilon": plain(at)}
        gate = totals.gates_at_epsilon(total_at, at)
        report = totals.reports_at_epsilon(mechanisms, relation, at)
    return asked | {"neighbouring": relation.value, "gate": gate, "report": report}


def _show(document: dict[str, Any]) -> None:
    table = Table("total", "ε", "δ", "note")
    for name, row in document["gate"].items():
        order = f"order {row['order']}" if "order" in row else ""
        table.add_row(name, row["epsilon"] or "-", row.get("delta") or "-", row.get("why", order))
    report = document["report"]
    for name, row in report.items():
        if isinstance(row, dict):
            lower = f"at least {row['lower']}" if "lower" in row else ""
            asked = {"epsilon": document.get("epsilon"), "delta": document.get("delta")} | row
            table.add_row(f"({name})", asked["epsilon"], asked["delta"], lower)
    common.out.print(table)
    common.out.print(f"In brackets: {report['precondition']}", highlight=False)
    for objection in document["objections"]:
        common.out.print(f"{objection['code']}: {objection['text']}", style="red", markup=False)


@common.app.command()
def fit(
    file: MechanismsArgument,
    epsilon: Annotated[str, typer.Option(help="the limit's epsilon")],
    delta: Annotated[str, typer.Option(help="the limit's delta")] = "0",
    neighbouring: RelationOption = Relation.ADD_OR_REMOVE_ONE,
    group_size: GroupOption = 1,
    json: common.JsonOption = False,
) -> None:
    """Find how many runs of a list fit a limit, and the factor for its noise at which one run fits.

    Answers for every privacy filter and, for planning, for a list fixed in advance (pld).
    """
    mechanisms = _read(file, group_size)
    document: dict[str, Any] = {
        "limit": {"epsilon": epsilon, "delta": delta},
        "neighbouring": neighbouring.value,
        "fits": {
            name: _answer(mechanisms, fits)
            for name, fits in _ways_to_fit(epsilon, delta, neighbouring).items()
        },
        "precondition_of_pld": totals.FIXED,
    }
    if json or not common.out.is_terminal:
        common.print_json(document)
        return
    table = Table("", "runs", "noise factor")
    for name, row in document["fits"].items():
        table.add_row(name, str(row["count"]), row["noise"] or "-")
    common.out.print(table)
    common.out.print(f"pld: {totals.FIXED}", highlight=False)


def _ways_to_fit(epsilon: str, delta: str, relation: Relation) -> dict[str, Fits]:
    """Return the test of each filter, and of the tight total if the limit has a delta."""
    ways: dict[str, Fits] = {}
    for name in FILTERS:
        limit = {"epsilon": epsilon, "delta": delta}
        rule = LimitRule.model_validate({"id": "limit", "limit": limit, "gate": name})
        ways[name] = _filter(rule, relation)
    most, at = float(rule.limit.epsilon), rule.limit.delta
    if at:
        ways["pld"] = lambda planned: totals.tight(planned, relation, at).upper <= most
    return ways


def _filter(rule: LimitRule, relation: Relation) -> Fits:
    capacity, axis = rule.filter.capacity(rule.promise), axis_under(rule.promise)
    orders = tuple(c.order for c in axis if c.order is not None)
    nothing = Reading(Account.empty((), axis), EVERYONE)

    def admits(mechanisms: Mechanisms) -> bool:
        charge = total(price(m, relation, orders).charge for m in mechanisms)
        return nothing.fits(charge.on(axis), capacity)

    return admits


def _answer(mechanisms: Mechanisms, fits: Fits) -> dict[str, Any]:
    """Return the largest number of runs that fit, and the smallest factor for the noise."""

    def repeated(times: int) -> Mechanisms:
        return tuple(m.model_copy(update={"count": m.count * times}) for m in mechanisms)

    noise = None
    if all(hasattr(mechanism, "scale") for mechanism in mechanisms):
        noise = smallest_factor(lambda factor: fits(tuple(_noisier(m, factor) for m in mechanisms)))
    most = MOST_INVOCATIONS // max(mechanism.count for mechanism in mechanisms)
    return {
        "count": largest_count(lambda times: fits(repeated(times)), most),
        "noise": None if noise is None else format(noise, "f"),
    }


def _noisier(mechanism: Mechanism, factor: Decimal) -> Mechanism:
    if mechanism.claimed is not None:
        raise Invalid("claimed-epsilon", "remove the claims: they do not change with the noise")
    scale = _DIGITS.multiply(mechanism.scale, factor)  # type: ignore[union-attr]
    return mechanism.model_copy(update={"scale": scale})


@common.app.command("dp-event")
def dp_event(
    file: MechanismsArgument, neighbouring: RelationOption = Relation.ADD_OR_REMOVE_ONE
) -> None:
    """Write a list of mechanisms as one DpEvent of the dp_accounting library, as JSON.

    Requests accept DpEvents wherever they accept mechanisms.
    """
    try:
        common.print_json(dp_event_of(_read(file), neighbouring))
    except ValueError as error:
        raise Invalid("no-dp-event", str(error)) from None
