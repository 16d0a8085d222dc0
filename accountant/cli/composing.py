"""compose, fit, dp-event: the cost of a list of mechanisms, without a service or a database."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from rich.table import Table

from accountant.api.strict_json import parse
from accountant.budget.errors import Invalid
from accountant.cli import common
from accountant.privacy.filters import FILTERS, RENYI, Filter, Limit, LineFilter
from accountant.privacy.inverse import (
    Total,
    crossing,
    largest_count,
    least_at_one_order,
    least_epsilon,
    smallest_factor,
)
from accountant.privacy.mechanisms import Amount, Mechanism, Relation, plain, price
from accountant.privacy.mechanisms.amounts import millionths_up
from accountant.privacy.mechanisms.base import LARGEST_GROUP, MOST_INVOCATIONS, Objection
from accountant.privacy.mechanisms.dp_event import dp_event_of, is_dp_event, read_dp_events
from accountant.privacy.units import (
    INFINITE,
    Currency,
    decimal_of,
    exact,
    orders_in,
    show,
    total,
    units_up,
)

if TYPE_CHECKING:
    from accountant.privacy.composition.plan import Tight

MechanismsArgument = Annotated[
    str,
    typer.Argument(
        help='{"mechanisms": [ … ]}, a list, one mechanism or a DpEvent; - reads standard input'
    ),
]
RelationOption = Annotated[Relation, typer.Option(help="the population's neighbouring relation")]
GroupOption = Annotated[
    int, typer.Option("--group-size", min=1, max=LARGEST_GROUP, help="records of one privacy unit")
]
Mechanisms = tuple[Mechanism, ...]
Row = dict[str, Any]
EPSILON, DELTA = Currency.EPSILON, Currency.DELTA
FIXED: Final = (
    "valid only if kinds, scales and counts were fixed before any answer was seen (the questions "
    "may depend on answers); for planning, not a limit"
)
_OTHERS: Final = [gate for gate in FILTERS.values() if isinstance(gate, LineFilter)]
_COARSE: Final = 3e-4  # The grid on which noise and count are sought
_CLOSE: Final = 1 + 1e-7
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
    own_delta: Annotated[Amount, Field(gt=0, lt=1)] | None = None


def _read(file: str, group_size: int = 1) -> Mechanisms:
    """Return the mechanisms of a file, with ``group_size`` times as many records per unit. A list,
    one mechanism or one DpEvent may stand alone.
    """
    document = parse(common.read_bytes(file))
    if isinstance(document, list):
        document = {"mechanisms": document}
    elif isinstance(document, dict) and ("kind" in document or is_dp_event(document)):
        document = {"mechanisms": [document]}
    found = _File.model_validate(document).mechanisms
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
    own_delta: Annotated[
        str | None,
        typer.Option(
            help="the plan's own delta; without it a tenth of --delta, which a limit of that delta "
            "keeps for the deltas of mechanisms"
        ),
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Total a list of mechanisms under every filter: the smallest limit that admits them all.

    Also prints the tight total of a list fixed in advance: for planning, or for a declared plan,
    which is charged as one step. The plan's delta is its own: it has to fit into the part of a
    limit's delta that the limit keeps for such.
    """
    if (delta is None) == (epsilon is None):
        raise Invalid("delta-or-epsilon", "give either --delta or --epsilon")
    wanted = _Wanted.model_validate({"delta": delta, "epsilon": epsilon, "own_delta": own_delta})
    mechanisms = _read(file, group_size)
    objections = [o for m in mechanisms for o in price(m, neighbouring).objections]
    if plan:
        declared = _plan(mechanisms, neighbouring, wanted, objections)
        if less := _with_less(mechanisms, neighbouring, wanted, Decimal(declared["epsilon"])):
            common.say(less)
        common.print_json({"mechanisms": [declared]})
        return
    total_at = _total(mechanisms, neighbouring)
    if wanted.delta is not None:
        asked = {"delta": plain(wanted.delta)}
        gate = _limits_at_delta(total_at, wanted.delta)
        stated = gate[RENYI.name].get("at_one_order")
        report = _tight_at_delta(mechanisms, neighbouring, wanted.delta, stated)
    else:
        at = wanted.epsilon or Decimal(0)
        asked = {"epsilon": plain(at)}
        gate = _limits_at_epsilon(total_at, at)
        report = _tight_at_epsilon(mechanisms, neighbouring, at)
    document = asked | {
        "neighbouring": neighbouring.value,
        "gate": gate,
        "report": {"precondition": FIXED} | report,
        "objections": [{"code": o.code, "text": o.text} for o in objections],
    }
    if json or not common.out.is_terminal:
        common.print_json(document)
    else:
        _show(document)
    raise typer.Exit(int(bool(objections)))


def _plan(
    mechanisms: Mechanisms, relation: Relation, wanted: _Wanted, objections: list[Objection]
) -> Row:
    """Return the list as a declared plan at the least epsilon that it can state."""
    own = wanted.own_delta or (wanted.delta or Decimal(0)) / 10
    if not own:
        raise Invalid("plan-needs-delta", "a plan is declared at a --delta above 0")
    from accountant.privacy.composition.plan import proved  # noqa: PLC0415 (takes a second to load)

    bound = proved(mechanisms, relation, Fraction(own))
    if bound is None:
        why = [o.text for o in objections[:1]]
        raise Invalid("no-bound", " ".join(["no bound is known for this plan.", *why]))
    return {
        "kind": "plan",
        "mechanisms": [m.model_dump(mode="json", exclude_defaults=True) for m in mechanisms],
        "epsilon": millionths_up(bound),
        "delta": plain(own),
    }


def _with_less(
    mechanisms: Mechanisms, relation: Relation, wanted: _Wanted, declared: Decimal
) -> str:
    """Return a sentence where a limit of no more epsilon than the plan states admits the list
    without it; else an empty one. Where nothing composes a part tightly, gates may be ahead.
    """
    delta = wanted.delta or Decimal(0)
    gates = _limits_at_delta(_total(mechanisms, relation), delta) if delta else {}
    found = [
        (Decimal(row["epsilon"]), name)
        for name, row in gates.items()
        if row["epsilon"] not in (None, INFINITE)
    ]
    if stated := gates.get(RENYI.name, {}).get("at_one_order"):
        found.append((Decimal(stated["epsilon"]), f"{RENYI.name} at order {stated['order']}"))
    least, gate = min(found, default=(declared + 1, ""))
    if least > declared:
        return ""
    return (
        f"A limit of epsilon {plain(least)} and delta {plain(delta)} under gate {gate} admits the "
        "list without a plan. The plan needs its delta from what a limit keeps for mechanisms, and "
        "commits whole; it is worth that where the limit is also used for answers with an epsilon."
    )


def _show(document: dict[str, Any]) -> None:
    table = Table("total", "ε", "δ", "note")
    for name, row in document["gate"].items():
        note = row.get("why", f"orders {', '.join(row['orders'])}" if "orders" in row else "")
        table.add_row(name, row["epsilon"] or "-", row.get("delta") or "-", note)
        if stated := row.get("at_one_order"):
            note = f"a limit that states orders: [{stated['order']}]"
            table.add_row(f"{name} at one", stated["epsilon"], document["delta"], note)
    for name, row in document["report"].items():
        if isinstance(row, dict):
            lower = f"at least {row['lower']}" if "lower" in row else ""
            asked = {"epsilon": document.get("epsilon"), "delta": document.get("delta")} | row
            table.add_row(f"({name})", asked["epsilon"], asked["delta"], lower)
    common.show_table(table)
    common.out.print(f"In brackets: {FIXED}", highlight=False)
    for objection in document["objections"]:
        common.out.print(f"{objection['code']}: {objection['text']}", style="red", markup=False)


def _total(mechanisms: Mechanisms, relation: Relation) -> Total:
    """Return a function from Renyi orders to the total charge of ``mechanisms``."""
    return lambda orders: total(price(one, relation, orders).charge for one in mechanisms)


def _limits_at_delta(total_at: Total, delta: Decimal) -> dict[str, Row]:
    """Return (epsilon, delta) of the smallest limit of each filter that admits the whole list, as
    decimal strings rounded up. Without one, epsilon is None and ``why`` gives the reason.
    """
    sure = total_at(())
    own, path = sure.units(DELTA), sure.units(EPSILON)
    own_delta = None if own is None else Fraction(exact(own, DELTA))
    if own_delta is None or own_delta > delta:
        why = f"the mechanisms' own deltas add up to {sure.amount(DELTA)}, more than {delta:f}"
        return {name: {"epsilon": None, "why": why} for name in FILTERS}
    # Every filter also admits all that basic admits.
    basic = {"epsilon": sure.amount(EPSILON), "delta": sure.amount(DELTA)}
    found: dict[str, Row] = {name: dict(basic) for name in FILTERS}
    for gate in _OTHERS if own_delta < delta else ():
        epsilon = least_epsilon(gate, Fraction(delta), own_delta, total_at)
        units = None if epsilon is None else units_up(epsilon, EPSILON)
        if epsilon is not None and units is not None and (path is None or units < path):
            orders = _orders(gate, Limit(epsilon, Fraction(delta), own_delta))
            found[gate.name] = {"epsilon": show(units, EPSILON), "delta": plain(delta)} | orders
    best = least_at_one_order(Fraction(delta), own_delta, total_at) if own_delta < delta else None
    at = None if best is None else units_up(best[0], EPSILON)
    if best is not None and at is not None:
        stated = {"epsilon": show(at, EPSILON), "order": decimal_of(best[1])}
        found[RENYI.name] |= {"at_one_order": stated}
    return found


def _limits_at_epsilon(total_at: Total, epsilon: Decimal) -> dict[str, Row]:
    """Return the smallest delta, own deltas included, at which a limit of ``epsilon`` under each
    filter admits the list; None if there is none.
    """
    sure = total_at(())
    own, path = sure.units(DELTA), sure.units(EPSILON)
    basic = path is not None and own is not None and path <= units_up(Fraction(epsilon), EPSILON)
    row: Row = {"epsilon": plain(epsilon), "delta": sure.amount(DELTA) if basic else None}
    found = {name: dict(row) for name in FILTERS}
    if basic or own is None:
        return found

    def limit(spare: Decimal) -> Limit:
        own_delta = Fraction(exact(own, DELTA))
        return Limit(Fraction(epsilon), own_delta + Fraction(spare), own_delta)

    for gate in _OTHERS:
        spare = smallest_factor(
            lambda spare, gate=gate: (  # type: ignore[misc]
                limit(spare).delta >= 1 or _admits(gate, limit(spare), total_at)
            )
        )
        if spare is not None and limit(spare).delta < 1:
            delta = plain(exact(own, DELTA) + spare)
            found[gate.name] = row | {"delta": delta} | _orders(gate, limit(spare))
    return found


def _admits(gate: Filter, limit: Limit, total_at: Total) -> bool:
    """Return True if a filter admits a total under ``limit``."""
    capacity = gate.capacity(limit)
    charge = total_at(orders_in(capacity.currencies))

    def within(currency: Currency, most: int) -> bool:
        units = charge.units(currency)
        return units is not None and units <= most

    epsilon, delta, *along = (within(*side) for side in capacity.sides)
    return delta and any((epsilon, *along))


def _orders(gate: Filter, limit: Limit) -> dict[str, list[str]]:
    orders = orders_in(gate.currencies(limit))
    return {"orders": list(map(decimal_of, orders))} if orders else {}


def _tight(mechanisms: Mechanisms, relation: Relation, delta: Decimal) -> Tight:
    """Return the tight totals at ``delta``; all None at 0."""
    from accountant.privacy.composition import plan  # noqa: PLC0415 (takes a second to load)

    return plan.tight(mechanisms, relation, Fraction(delta)) if delta else plan.Tight()


def _tight_at_delta(
    mechanisms: Mechanisms, relation: Relation, delta: Decimal, stated: Row | None
) -> dict[str, Any]:
    """Return the epsilons at ``delta`` that only inform, rounded up; for pld also the lower end.
    None where a theorem does not cover this list. What ``renyi`` holds at one ``stated`` order is
    in whole numbers: floats may be rounded up once more.
    """
    found = _tight(mechanisms, relation, delta)

    def row(epsilon: float | None, **more: str) -> Row | None:
        return None if epsilon is None else {"epsilon": _printed(epsilon, ROUND_CEILING)} | more

    pld, least = found.pld, row(found.renyi)
    if least and stated:
        shown = [one["epsilon"] for one in (least, stated)]
        least = {
            "epsilon": min(shown, key=lambda one: math.inf if one == INFINITE else Decimal(one))
        }
    return {
        "pld": row(pld.upper, lower=_printed(pld.lower, ROUND_FLOOR)) if pld else None,
        "optimal": row(found.optimal),
        "closed_form": row(found.closed_form),
        "renyi_min": least,
        "gaussian": row(found.gaussian),
    }


def _tight_at_epsilon(
    mechanisms: Mechanisms, relation: Relation, epsilon: Decimal
) -> dict[str, Any]:
    """Return the smallest deltas at ``epsilon`` that only inform, rounded up; None without one."""

    def smallest(read: Callable[[Tight], float | None]) -> Row | None:
        def fits(delta: Decimal) -> bool:
            if delta >= 1:
                return True
            found = read(_tight(mechanisms, relation, delta))
            return found is not None and found <= epsilon

        delta = smallest_factor(fits)
        return {"delta": plain(delta)} if delta is not None and delta < 1 else None

    return {
        "pld": smallest(lambda found: found.pld.upper if found.pld else None),
        "renyi_min": smallest(lambda found: found.renyi),
    }


def _printed(epsilon: float, rounding: str) -> str:
    """Return a float with nine decimals."""
    if epsilon == math.inf:
        return "infinite"
    return format(Decimal(epsilon).quantize(Decimal("1e-9"), rounding), "f")


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
    from accountant.budget.rules.limit import LimitRule  # noqa: PLC0415 (compose needs no rules)

    mechanisms = _read(file, group_size)
    limit = {"epsilon": epsilon, "delta": delta}
    fits: dict[str, Row] = {}
    for name in FILTERS:
        rule = LimitRule.model_validate({"id": "limit", "limit": limit, "gate": name})
        fits[name] = _fit(
            mechanisms,
            lambda some, rule=rule: _admits(  # type: ignore[misc]
                rule.filter, rule.promise, _total(some, neighbouring)
            ),
        )
    if rule.limit.delta:
        most, at = float(rule.limit.epsilon), Fraction(rule.limit.delta)
        fits["pld"] = _fit_tightly(mechanisms, neighbouring, most, at)
    if json or not common.out.is_terminal:
        document = {"limit": limit, "neighbouring": neighbouring.value, "fits": fits}
        common.print_json(document | {"precondition_of_pld": FIXED})
        return
    table = Table("", "runs", "noise factor")
    for name, row in fits.items():
        table.add_row(name, str(row["count"]), row["noise"] or "-")
    common.show_table(table)
    common.out.print(f"pld: {FIXED}", highlight=False)


def _fit(mechanisms: Mechanisms, fits: Callable[[Mechanisms], bool]) -> Row:
    """Return the largest number of runs that fit, and the smallest factor for the noise."""
    noise = None
    if all(hasattr(mechanism, "scale") for mechanism in mechanisms):
        noise = smallest_factor(lambda factor: fits(_noisier(mechanisms, factor)))
    count = largest_count(lambda times: fits(_repeated(mechanisms, times)), _most(mechanisms))
    return {"count": count, "noise": None if noise is None else format(noise, "f")}


def _fit_tightly(mechanisms: Mechanisms, relation: Relation, most: float, at: Fraction) -> Row:
    """Return what fits by the tight total, whose values are few: beginning where a quick bound
    fits, on a grid that is coarse for a plan.
    """
    from accountant.privacy.composition import plan  # noqa: PLC0415 (takes a second to load)

    def upper(some: Mechanisms) -> float:
        return plan.tight(some, relation, at, _COARSE).upper

    def of_noise(factor: float) -> float:
        return upper(_noisier(mechanisms, Decimal(factor)))

    def of_count(times: float) -> float:
        return upper(_repeated(mechanisms, int(times)))

    found = _fit(mechanisms, lambda some: plan.quick(some, relation, at) <= most)
    if found["noise"] is not None:
        near = float(found["noise"])
        low = next((x for x in (near / 2**i for i in range(1, 70)) if of_noise(x) > most), None)
        if low is not None:
            near = crossing(of_noise, most, near, low, lambda a, b: a / b < _CLOSE)
        found["noise"] = format(Context(prec=7, rounding=ROUND_CEILING).create_decimal(near), "f")
    least, largest = found["count"], _most(mechanisms)
    if least or of_count(1) <= most:
        inside = max(least, 1)
        beyond = inside + 1
        while beyond <= largest and of_count(beyond) <= most:
            inside, beyond = beyond, beyond + max(1, beyond // 4)
        if beyond <= largest:
            inside = int(crossing(of_count, most, inside, beyond, lambda a, b: b - a < 2, round))
        found["count"] = min(inside, largest)
    return found


def _most(mechanisms: Mechanisms) -> int:
    return MOST_INVOCATIONS // max(mechanism.count for mechanism in mechanisms)


def _repeated(mechanisms: Mechanisms, times: int) -> Mechanisms:
    return tuple(m.model_copy(update={"count": m.count * times}) for m in mechanisms)


def _noisier(mechanisms: Mechanisms, factor: Decimal) -> Mechanisms:
    if any(mechanism.claimed is not None for mechanism in mechanisms):
        raise Invalid("claimed-epsilon", "remove the claims: they do not change with the noise")
    return tuple(
        m.model_copy(update={"scale": _DIGITS.multiply(m.scale, factor)})  # type: ignore[union-attr]
        for m in mechanisms
    )


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
